"""The grammar of sasl.jaas.config, and errors that never show a value."""

import pytest

from spindle.common.errors import ConfigError
from spindle.security.jaas import parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('a.B required x="y";', {"x": "y"}),
        ("a.B required x='y z' w=v.1;", {"x": "y z", "w": "v.1"}),
        ('a.B REQUIRED\n  x = "y" // why\n /* and */ ;', {"x": "y"}),
        (r'a.B required x="a\"b\\c\n\101";', {"x": 'a"b\\c\nA'}),
        ('a.B optional x="a;b=c//d";', {"x": "a;b=c//d"}),
        ("a.B required;", {}),
        ('a.B required x="é";', {"x": "é"}),
    ],
)
def test_a_module_has_its_options(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.class_name, module.options) == ("a.B", options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "0 login modules"),
        ('a.B required x="hush";c.D required;', "2 login modules"),
        ('a.B required x="hush"', "does not end with a semicolon"),
        ('a.B x="hush";', "want one of required"),
        ("a.B required x=123456;", 'value of x is not a text; write x="..."'),
        ("a.B required x;", "no '=' behind it"),
        ("a.B required x=;", "value of x is not a text"),
        ('a.B required x="hush', "malformed at character 16"),
        ("a.B required x=hush;er;", "want one of required"),
        ("a.B required x=hush er;", "no '=' behind it"),
        ("; a.B", "want the class of a login module"),
        ("a.B", "want one of required"),
    ],
)
def test_a_malformed_text_is_refused_without_its_values(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config") as raised:
        parse_jaas(text)
    assert words in str(raised.value)
    for secret in ("hush", "123456", "er;"):
        assert secret not in str(raised.value)


def test_the_options_are_not_printed() -> None:
    text = repr(parse_jaas('a.B required password="hush";'))
    assert "hush" not in text
    assert "password" in text
