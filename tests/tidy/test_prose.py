"""Comments and docstrings are sentences that a reader understands at the first reading."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_tree import CODE_FOLDERS, PACKAGE_FOLDERS, PROJECT, documents, sources

DOCUMENTS = documents()
RIDDLE = re.compile(r"(?:^|[.:;!?]\s+)((?:Who|Whoever|Whose|What|Whatever|One of)\b[^.?!]*[.!?]?)")
"""A sentence that begins with a pronoun which has no noun: allowed only as a question."""

PRIVATE_PHRASE = re.compile(
    r"\b(?:under way|for ever|out of use|takes? note"
    r"|(?:go|goes|going|went) on|lets? go|letting go|in vain|everybody|somebody"
    r"|(?:gives?|giving|given) (?:it |them |the \w+ )?back"
    r"|(?:puts?|putting) (?:it |them )?(?:back|aside|away)"
    r"|(?:takes?|taking|took|taken) up|hear[sd]? of|so (?:many|large) (?:bytes|records|files)"
    r"|(?:brings?|bringing|brought) [^.]{0,40}to the device|where it names none)\b"
)
"""A phrase where the field has a word: running, continue, release, restore, rename, fsync, ..."""


def comments_and_docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every comment and of every string that stands alone."""
    previous = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
        elif token.type == tokenize.STRING and previous in (
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
        ):
            yield token.start[0], token.string.strip("\"'r")
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            previous = token.type


def riddles(text: str) -> list[str]:
    """Return the sentences of a paragraph that begin like a riddle."""
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    sentences = (item for paragraph in paragraphs for item in RIDDLE.findall(paragraph))
    return [sentence[:60] for sentence in sentences if not sentence.rstrip().endswith("?")]


@pytest.mark.parametrize(
    ("text", "is_riddle"),
    [
        ("What a leader of before sent is in the logs.", True),
        ("Stop first. Who waits is answered.", True),
        ("Which replica leads? What does it know?", False),
        ("Return what the leader sent.", False),
    ],
)
def test_a_riddle_is_recognised(text: str, is_riddle: bool) -> None:
    assert bool(riddles(text)) == is_riddle


@pytest.mark.parametrize("folder", CODE_FOLDERS)
def test_no_sentence_of_the_code_begins_like_a_riddle(folder: str) -> None:
    findings = [
        f"{path}:{line}: {riddle}"
        for path, text in sources(folder).items()
        if path.name != Path(__file__).name
        for line, prose in comments_and_docstrings(text)
        for riddle in riddles(prose)
    ]
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize(
    ("text", "is_private"),
    [
        ("Moves that are under way.", True),
        ("Go on with the moves of an earlier run.", True),
        ("Give the memory back.", True),
        ("Bring the future log to the device.", True),
        ("Resume the moves of an earlier run.", False),
        ("The log has gone.", False),
    ],
)
def test_a_private_phrase_is_recognised(text: str, is_private: bool) -> None:
    assert bool(PRIVATE_PHRASE.search(text.lower())) == is_private


@pytest.mark.parametrize("folder", PACKAGE_FOLDERS)
def test_the_code_uses_the_terms_of_the_field(folder: str) -> None:
    phrases = [
        f"{path}:{line}: {phrase}"
        for path, text in sources(folder).items()
        for line, prose in comments_and_docstrings(text)
        for phrase in PRIVATE_PHRASE.findall(" ".join(prose.split()).lower())
    ]
    assert not phrases, "\n".join(phrases)


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_no_sentence_of_a_document_begins_like_a_riddle(document: Path) -> None:
    assert not riddles((PROJECT / document).read_text())
