"""Segments say the same with the native walk over their sound batches and without it."""

import os
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from broker_directories import PLAIN, TRANSACTIONAL, clean_directory
from crc32c import crc32c

from spindle.audit import sound_walk
from spindle.audit.segment_audit import SegmentAudit
from spindle.audit.segment_part import SegmentPart
from spindle.columnar import headers, unpacked_records
from spindle.columnar.segment_files import SegmentFile
from spindle.common.errors import CorruptRecords
from spindle.common.native import is_native_available
from spindle.protocol.records.batch import BatchHeader, batches
from spindle.protocol.records.builder import SimpleRecord, build_batch

pytestmark = pytest.mark.skipif(not is_native_available(), reason="there is no native code")

TRIALS: Final = int(os.environ.get("SOUND_WALK_TRIALS", "150"))
FORMER_FAILURES: Final = (296, 2299, 4139)
BASE_OFFSET: Final = 0
FILES: Final = (".log", ".index", ".timeindex")
Content = dict[str, bytes]


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, Content]]:
    """Return (base offset, files) of the segments of a clean directory."""
    root = clean_directory(tmp_path_factory.mktemp("clean") / "root")
    paths = [path for name in (PLAIN, TRANSACTIONAL) for path in (root / str(name)).glob("*.log")]
    return [
        (int(path.stem), {suffix: path.with_suffix(suffix).read_bytes() for suffix in FILES})
        for path in sorted(paths)
    ]


@pytest.fixture(params=["large windows", "small windows"])
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "small windows":
        monkeypatch.setattr(sound_walk, "_WINDOW_BYTES", 100)
        monkeypatch.setattr(sound_walk, "_BUDGET_BYTES", 1)


def written(folder: Path, base_offset: int, content: Content) -> Path:
    path = folder / f"{base_offset:020}.log"
    for suffix, data in content.items():
        path.with_suffix(suffix).write_bytes(data)
    return path


def audited(path: Path, snapshots: list[int], *, is_finished: bool) -> SegmentPart:
    segment = SegmentFile(int(path.stem), path.stat().st_size, path)
    audit = SegmentAudit(
        path.parent, segment, snapshots, checks_records=True, on_bytes=lambda size_bytes: None
    )
    return audit.run(is_finished=is_finished)


def both(path: Path, snapshots: list[int], *, is_finished: bool) -> tuple[SegmentPart, SegmentPart]:
    """Return the parts with native code and in Python alone."""
    with_walk = audited(path, snapshots, is_finished=is_finished)
    with pytest.MonkeyPatch.context() as patch:
        for module in (sound_walk, headers, unpacked_records):
            patch.setattr(module, "is_native_available", lambda: False)
        return with_walk, audited(path, snapshots, is_finished=is_finished)


def flipped(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 5])):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def with_zeros(rng: random.Random, data: bytes) -> bytes:
    return data + bytes(rng.choice([1, 8, 12, 24, 61, 4096]))


def with_a_number(rng: random.Random, data: bytes) -> bytes:
    """Overwrite four bytes by a number at the limit of something."""
    changed = bytearray(data)
    if len(data) >= 4:
        at = rng.randrange(len(data) - 3)
        number = rng.choice([-(2**31), -1, 0, 1, 49, 61, 2**31 - 1])
        struct.pack_into(">i", changed, at, number)
    return bytes(changed)


def whole_batches(data: bytes) -> list[tuple[int, BatchHeader]]:
    """Return the batches before the first damaged one, with their positions."""
    whole_batches: list[tuple[int, BatchHeader]] = []
    with suppress(CorruptRecords):
        for batch in batches(data):
            whole_batches.append(batch)  # noqa: PERF402 - what came before the error stays
    return whole_batches


def with_another_header(rng: random.Random, data: bytes) -> bytes:
    """Overwrite a field of a header, and let the checksum of the batch be right."""
    kept = whole_batches(data)
    if not kept:
        return data
    at, header = rng.choice(kept)
    changed = bytearray(data)
    field = rng.choice([0, 12, 22, 23, 27, 35, 43, 51, 53, 57])
    size = 1 if field == 22 else rng.choice([2, 4])
    value = rng.choice([rng.randbytes(size), bytes(size), b"\x7f" + b"\xff" * (size - 1)])
    changed[at + field : at + field + size] = value
    struct.pack_into(">I", changed, at + 17, crc32c(changed[at + 21 : at + header.size_bytes]))
    return bytes(changed)


def without_a_batch(rng: random.Random, data: bytes) -> bytes:
    kept = whole_batches(data)
    if not kept:
        return data
    at, header = rng.choice(kept)
    return data[:at] + data[at + header.size_bytes :]


DAMAGES: Final = (flipped, cut, with_zeros, with_a_number, with_another_header, without_a_batch)


def damaged(rng: random.Random, content: Content) -> Content:
    changed = dict(content)
    for _ in range(rng.choice([1, 1, 2])):
        suffix = rng.choice([".log", ".log", *FILES])
        damage = rng.choice(DAMAGES if suffix == ".log" else DAMAGES[:4])
        changed[suffix] = damage(rng, changed[suffix])
    return changed


def comparable(part: SegmentPart) -> tuple[object, ...]:
    """Return a part without the order of its findings, which the sizes of windows decide."""
    findings = sorted(
        (finding.kind.text, finding.path, finding.position or 0, finding.evidence)
        for finding in part.findings
    )
    # Among offsets in no order, the sizes of windows decide where a snapshot cuts.
    has_order = not {"offset-overlap", "segment-name"} & {kind for kind, *_ in findings}
    return (
        findings,
        part.left_out,
        part.batches,
        has_order and part.producers,
        part.transactions,
        part.digest,
        part.size_bytes,
        part.batch_count,
        part.index_tail,
    )


@pytest.mark.usefixtures("windows")
def test_damaged_segments_say_the_same_with_and_without_the_walk(
    tmp_path: Path, segments: list[tuple[int, Content]]
) -> None:
    for trial in {*range(TRIALS), *FORMER_FAILURES}:
        rng = random.Random(trial)
        base_offset, content = rng.choice(segments)
        folder = tmp_path / str(trial)
        folder.mkdir()
        path = written(folder, base_offset, damaged(rng, content))
        snapshots = sorted(base_offset + rng.randrange(-5, 60) for _ in range(rng.randrange(3)))
        walked, expected = both(path, snapshots, is_finished=rng.random() < 0.7)
        assert comparable(walked) == comparable(expected), trial


@pytest.mark.usefixtures("windows")
def test_sound_segments_are_read_without_columns(
    tmp_path: Path, segments: list[tuple[int, Content]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError(args)

    sound = [segment for segment in segments if not has_transactions(segment[1][".log"])]
    assert len(sound) > 3
    for number, (base_offset, content) in enumerate(sound):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = written(folder, base_offset, content)
        _, expected = both(path, [base_offset + 9, base_offset + 9], is_finished=True)
        with monkeypatch.context() as patch:
            patch.setattr(SegmentAudit, "_check_columns", refuse)
            report = audited(path, [base_offset + 9, base_offset + 9], is_finished=True)
        assert report == expected
        assert report.findings == ()


def has_transactions(data: bytes) -> bool:
    return any(header.attributes & 0x30 for _, header in batches(data))


def many_batches(epochs: Iterator[int], count: int) -> bytes:
    """Return batches of different producers, whose offsets are far apart, with packed records."""
    batch = bytearray(build_batch([SimpleRecord(b"key", b"value", 1000)], codec=2))
    data = bytearray()
    for number, epoch in zip(range(count), epochs, strict=False):
        struct.pack_into(">q", batch, 0, BASE_OFFSET + number * 5000)
        struct.pack_into(">i", batch, 12, epoch)
        struct.pack_into(">i", batch, 23, 4999)
        struct.pack_into(">qhi", batch, 43, number % 1700, 3, number)
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
        data += batch
    return bytes(data)


@pytest.mark.parametrize("epochs_of", [lambda: iter([7] * 3000), lambda: iter(range(3000))])
def test_more_producers_ranges_and_epochs_than_the_walk_has_room_for(
    tmp_path: Path, epochs_of: object
) -> None:
    assert callable(epochs_of)
    content = {".log": many_batches(epochs_of(), 2500), ".index": b""}
    last = BASE_OFFSET + 5000
    content[".timeindex"] = struct.pack(">qi", 1000, last - 1)
    path = written(tmp_path, BASE_OFFSET, content)
    walked, expected = both(path, [last * 3, last * 40], is_finished=True)
    assert walked == expected
    assert expected.batch_count == 2500
