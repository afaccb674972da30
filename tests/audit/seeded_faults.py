"""Faults that are seeded into a clean log directory: each damages one place and says which kind."""

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from broker_directories import PLAIN, TRANSACTIONAL

from spindle.audit.findings import FindingKind
from spindle.protocol.records.batch import HEADER_BYTES, batches

Fault = Callable[[random.Random, Path], None]
FAULTS: dict[str, tuple[FindingKind, Fault]] = {}


def fault(kind: FindingKind) -> Callable[[Fault], Fault]:
    def note(seed: Fault) -> Fault:
        FAULTS[seed.__name__] = (kind, seed)
        return seed

    return note


def replica(rng: random.Random, root: Path) -> Path:
    return root / str(rng.choice((PLAIN, TRANSACTIONAL)))


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"))


def segment(rng: random.Random, root: Path) -> Path:
    return rng.choice(files(replica(rng, root), ".log"))


def patch(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(rng: random.Random, path: Path, start: int, end: int) -> None:
    """Flip one bit of the bytes [start, end)."""
    position = rng.randrange(start, end)
    byte = path.read_bytes()[position]
    patch(path, position, bytes([byte ^ 1 << rng.randrange(8)]))


def a_batch(rng: random.Random, path: Path, *, first: int = 0, last: int | None = None) -> int:
    """Return the position of a batch of a segment."""
    starts = [position for position, _ in batches(path.read_bytes())]
    return rng.choice(starts[first:last])


@fault(FindingKind.BATCH_CHECKSUM)
def a_bit_of_the_records_flips(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    position, header = rng.choice(list(batches(path.read_bytes())))
    flip(rng, path, position + HEADER_BYTES, position + header.size_bytes)


@fault(FindingKind.BATCH_CHECKSUM)
def a_bit_of_a_checksum_flips(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    position = a_batch(rng, path)
    flip(rng, path, position + 17, position + 21)


@fault(FindingKind.BATCH_CHECKSUM)
def a_bit_of_a_timestamp_flips(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    position = a_batch(rng, path)
    flip(rng, path, position + 27, position + 43)


@fault(FindingKind.BATCH_HEADER)
def a_magic_byte_changes(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    patch(path, a_batch(rng, path) + 16, bytes([rng.choice((0, 1, 3, 200))]))


@fault(FindingKind.BATCH_HEADER)
def a_batch_length_becomes_small(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    patch(path, a_batch(rng, path) + 8, struct.pack(">i", rng.randrange(-5, 40)))


@fault(FindingKind.SEGMENT_TORN)
def a_batch_length_becomes_huge(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    patch(path, a_batch(rng, path) + 8, struct.pack(">i", rng.randrange(10**6, 10**9)))


@fault(FindingKind.SEGMENT_TORN)
def a_segment_is_cut_inside_of_a_batch(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    *_, (position, header) = batches(path.read_bytes())
    with path.open("r+b") as file:
        file.truncate(position + rng.randrange(1, header.size_bytes))


@fault(FindingKind.LOG_SHORT)
def the_last_segment_is_cut_between_batches(rng: random.Random, root: Path) -> None:
    path = files(replica(rng, root), ".log")[-1]
    with path.open("r+b") as file:
        file.truncate(a_batch(rng, path, first=1))


@fault(FindingKind.SEGMENT_ZEROS)
def the_end_of_a_segment_becomes_zeros(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    start = a_batch(rng, path)
    patch(path, start, bytes(path.stat().st_size - start))


@fault(FindingKind.OFFSET_OVERLAP)
def a_base_offset_rises(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(replica(rng, root), ".log")[:-1])
    position = a_batch(rng, path)
    old = struct.unpack_from(">q", path.read_bytes(), position)[0]
    patch(path, position, struct.pack(">q", old + rng.randrange(100, 2**20)))


@fault(FindingKind.OFFSET_OVERLAP)
def a_base_offset_falls(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    base = int(path.stem)
    position = a_batch(rng, path, first=1)
    patch(path, position, struct.pack(">q", base))


@fault(FindingKind.SEGMENT_NAME)
def a_base_offset_leaves_the_range_of_its_segment(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    patch(path, a_batch(rng, path), struct.pack(">q", int(path.stem) + 2**33))


@fault(FindingKind.SEGMENT_NAME)
def a_segment_gets_a_later_name(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    for suffix in (".log", ".index", ".timeindex"):
        name = f"{int(path.stem) + 3:020d}{suffix}"
        path.with_suffix(suffix).rename(path.with_name(name))


@fault(FindingKind.SEGMENT_MISSING)
def a_segment_vanishes_without_its_indexes(rng: random.Random, root: Path) -> None:
    segment(rng, root).unlink()


@fault(FindingKind.OFFSET_GAP)
def a_segment_vanishes_with_its_indexes(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(replica(rng, root), ".log")[1:-1])
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
        path.with_suffix(suffix).unlink(missing_ok=True)


@fault(FindingKind.OFFSET_GAP)
def a_batch_is_cut_out(rng: random.Random, root: Path) -> None:
    """The bytes behind it move up, so that the file itself is whole."""
    path = rng.choice(files(replica(rng, root), ".log"))
    data = path.read_bytes()
    position, header = rng.choice(list(batches(data))[1:-1])
    path.write_bytes(data[:position] + data[position + header.size_bytes :])


@fault(FindingKind.OFFSET_GAP)
def a_batch_at_the_end_of_a_segment_is_cut_off(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(replica(rng, root), ".log")[:-1])
    data = path.read_bytes()
    *_, (position, _) = batches(data)
    path.write_bytes(data[:position])


@fault(FindingKind.SEGMENT_MISSING)
def the_first_segments_vanish_with_their_indexes(rng: random.Random, root: Path) -> None:
    folder = replica(rng, root)
    for path in files(folder, ".log")[: rng.randrange(1, 3)]:
        for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            path.with_suffix(suffix).unlink(missing_ok=True)


@fault(FindingKind.FILE_NAME)
def a_segment_is_copied_under_a_short_name(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    shutil.copy(path, path.with_name(f"{int(path.stem)}.log"))


@fault(FindingKind.EPOCH_MISMATCH)
def a_leader_epoch_of_a_batch_changes(rng: random.Random, root: Path) -> None:
    path = segment(rng, root)
    patch(path, a_batch(rng, path) + 12, struct.pack(">i", rng.randrange(5, 99)))


@fault(FindingKind.EPOCH_MISMATCH)
def an_epoch_gets_another_start(rng: random.Random, root: Path) -> None:
    path = root / str(PLAIN) / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines()
    epoch, start = map(int, lines[3].split())
    lines[3] = f"{epoch} {start + rng.choice((-1, 1)) * rng.randrange(1, 30)}"
    path.write_text("\n".join([*lines, ""]))


@fault(FindingKind.EPOCH_FILE)
def the_epochs_are_of_no_number(rng: random.Random, root: Path) -> None:
    path = replica(rng, root) / "leader-epoch-checkpoint"
    path.write_text(rng.choice(("0\n1\nzero 0\n", "7\n1\n0 0\n", "\0\0\0\1")))


@fault(FindingKind.EPOCH_BEYOND_END)
def an_epoch_begins_beyond_the_end(rng: random.Random, root: Path) -> None:
    path = replica(rng, root) / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines()
    lines[1] = str(int(lines[1]) + 1)
    path.write_text("\n".join([*lines, f"77 {rng.randrange(5000, 10**9)}", ""]))


@fault(FindingKind.EPOCH_FILE)
def the_epochs_vanish(rng: random.Random, root: Path) -> None:
    path = replica(rng, root) / "leader-epoch-checkpoint"
    rng.choice((path.unlink, lambda: path.write_bytes(b"")))()


@fault(FindingKind.OFFSET_INDEX_MISSING)
def an_offset_index_vanishes(rng: random.Random, root: Path) -> None:
    segment(rng, root).with_suffix(".index").unlink()


@fault(FindingKind.TIME_INDEX_MISSING)
def a_time_index_vanishes(rng: random.Random, root: Path) -> None:
    segment(rng, root).with_suffix(".timeindex").unlink()


@fault(FindingKind.OFFSET_INDEX_SIZE)
def an_offset_index_gets_a_tail(rng: random.Random, root: Path) -> None:
    path = segment(rng, root).with_suffix(".index")
    path.write_bytes(path.read_bytes() + bytes(rng.randrange(1, 100)))


@fault(FindingKind.TIME_INDEX_SIZE)
def a_time_index_gets_a_tail(rng: random.Random, root: Path) -> None:
    path = segment(rng, root).with_suffix(".timeindex")
    path.write_bytes(path.read_bytes() + bytes(rng.randrange(1, 100)))


@fault(FindingKind.OFFSET_INDEX_ORDER)
def an_offset_index_repeats_an_entry(rng: random.Random, root: Path) -> None:
    path = segment(rng, root).with_suffix(".index")
    data = path.read_bytes()
    at = rng.randrange(1, len(data) // 8) * 8
    path.write_bytes(data[:at] + data[at - 8 : at] + data[at:])


@fault(FindingKind.TIME_INDEX_ORDER)
def a_time_index_repeats_an_entry(rng: random.Random, root: Path) -> None:
    path = segment(rng, root).with_suffix(".timeindex")
    data = path.read_bytes()
    at = rng.randrange(1, len(data) // 12) * 12
    path.write_bytes(data[:at] + data[at - 12 : at] + data[at:])


@fault(FindingKind.OFFSET_INDEX_ENTRY)
def an_offset_entry_points_elsewhere(rng: random.Random, root: Path) -> None:
    path = segment(rng, root).with_suffix(".index")
    at = rng.randrange(path.stat().st_size // 8) * 8
    position = struct.unpack_from(">i", path.read_bytes(), at + 4)[0]
    patch(path, at + 4, struct.pack(">i", position + rng.randrange(1, 50)))


@fault(FindingKind.OFFSET_INDEX_ENTRY)
def an_offset_entry_names_another_offset(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(root / str(PLAIN), ".index"))
    batch_ends = {h.last_offset for _, h in batches(path.with_suffix(".log").read_bytes())}
    for at in range(0, path.stat().st_size, 8):
        offset = struct.unpack_from(">i", path.read_bytes(), at)[0]
        if int(path.stem) + offset - 1 not in batch_ends:
            patch(path, at, struct.pack(">i", offset - 1))
            return
    raise AssertionError("every batch has one record")


@fault(FindingKind.OFFSET_INDEX_SHORT)
def an_offset_index_loses_entries_at_its_end(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(root / str(PLAIN), ".index")[:-1])
    data = path.read_bytes()
    path.write_bytes(data[: rng.choice((0, 8, len(data) // 8 // 3 * 8))])


@fault(FindingKind.TIME_INDEX_ENTRY)
def a_time_entry_has_another_time(rng: random.Random, root: Path) -> None:
    path = segment(rng, root).with_suffix(".timeindex")
    flip_at = path.stat().st_size - 12 + 7
    byte = path.read_bytes()[flip_at]
    patch(path, flip_at, bytes([min(255, byte + 1) if byte < 255 else 254]))


@fault(FindingKind.TIME_INDEX_SHORT)
def a_time_index_is_cut(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(root / str(PLAIN), ".timeindex"))
    path.write_bytes(path.read_bytes()[: 12 * rng.randrange(2)])


@fault(FindingKind.TRANSACTION_INDEX_FILE)
def a_transaction_index_is_cut(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(root / str(TRANSACTIONAL), ".txnindex"))
    path.write_bytes(path.read_bytes()[: -rng.randrange(1, 34)])


@fault(FindingKind.TRANSACTION_INDEX_ENTRY)
def an_aborted_transaction_is_forgotten(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(root / str(TRANSACTIONAL), ".txnindex"))
    data = path.read_bytes()
    at = rng.randrange(len(data) // 34) * 34
    path.write_bytes(data[:at] + data[at + 34 :])


@fault(FindingKind.TRANSACTION_INDEX_ENTRY)
def an_aborted_transaction_changes(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(root / str(TRANSACTIONAL), ".txnindex"))
    at = rng.randrange(path.stat().st_size // 34) * 34
    field = rng.choice((2, 10, 18, 26))
    old = struct.unpack_from(">q", path.read_bytes(), at + field)[0]
    patch(path, at + field, struct.pack(">q", old + rng.choice((-1, 1))))


@fault(FindingKind.TRANSACTION_INDEX_ENTRY)
def a_last_stable_offset_changes(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(root / str(TRANSACTIONAL), ".txnindex"))
    at = rng.randrange(path.stat().st_size // 34) * 34
    last, stable = struct.unpack_from(">qq", path.read_bytes(), at + 18)
    others = {last + 1, last, stable + 1, rng.randrange(last)} - {stable}
    patch(path, at + 26, struct.pack(">q", rng.choice(sorted(others))))


@fault(FindingKind.PRODUCER_SNAPSHOT_FILE)
def a_bit_of_a_producer_snapshot_flips(rng: random.Random, root: Path) -> None:
    path = rng.choice(files(replica(rng, root), ".snapshot"))
    flip(rng, path, 2, path.stat().st_size)


@fault(FindingKind.PRODUCER_SNAPSHOT_ENTRY)
def a_producer_snapshot_is_an_older_one(rng: random.Random, root: Path) -> None:
    older, newer = sorted(rng.sample(files(root / str(TRANSACTIONAL), ".snapshot"), 2))
    shutil.copy(older, newer)


@fault(FindingKind.PARTITION_METADATA)
def the_topic_id_is_lost(rng: random.Random, root: Path) -> None:
    path = replica(rng, root) / "partition.metadata"
    rng.choice((path.unlink, lambda: path.write_text("version: 0\ntopic_id: ?")))()


@fault(FindingKind.META_PROPERTIES)
def the_identity_is_lost(rng: random.Random, root: Path) -> None:
    path = root / "meta.properties"
    content = rng.choice((None, b"version=1\n", b"", bytes(path.stat().st_size)))
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


@fault(FindingKind.CHECKPOINT_FILE)
def a_checkpoint_is_malformed(rng: random.Random, root: Path) -> None:
    names = ("recovery-point", "replication", "log-start", "cleaner")
    path = root / f"{rng.choice(names)}-offset-checkpoint"
    path.write_text(rng.choice(("0\n2\norders 0 5\n", "x\n1\norders 0 5\n", "0\n1\norders five\n")))


def a_checkpoint_of_all_logs(rng: random.Random, root: Path) -> Path:
    return root / f"{rng.choice(('recovery-point', 'replication'))}-offset-checkpoint"


@fault(FindingKind.CHECKPOINT_ENTRY)
def a_checkpoint_loses_its_entries(rng: random.Random, root: Path) -> None:
    path = a_checkpoint_of_all_logs(rng, root)
    rng.choice((path.unlink, lambda: path.write_bytes(b""), lambda: path.write_text("0\n0\n")))()


@fault(FindingKind.CHECKPOINT_ENTRY)
def a_name_in_a_checkpoint_changes(rng: random.Random, root: Path) -> None:
    path = a_checkpoint_of_all_logs(rng, root)
    topic, number = rng.choice((PLAIN, TRANSACTIONAL))
    changed = (f"{topic[:-1]}x {number} ", f"{topic} {number + 4} ")
    path.write_text(path.read_text().replace(f"{topic} {number} ", rng.choice(changed)))


@fault(FindingKind.CHECKPOINT_ENTRY)
def a_recovery_point_falls(rng: random.Random, root: Path) -> None:
    path = root / "recovery-point-offset-checkpoint"
    lines = path.read_text().splitlines()
    line = rng.randrange(2, 4)
    name, number, offset = lines[line].split()
    lines[line] = f"{name} {number} {rng.choice((0, int(offset) - 1, int(offset) // 2))}"
    path.write_text("\n".join([*lines, ""]))


@fault(FindingKind.CHECKPOINT_ENTRY)
def an_offset_becomes_negative(rng: random.Random, root: Path) -> None:
    path = a_checkpoint_of_all_logs(rng, root)
    *lines, last = path.read_text().splitlines()
    name, number, _ = last.split()
    path.write_text("\n".join([*lines, f"{name} {number} -{rng.randrange(1, 10**6)}", ""]))


@fault(FindingKind.LOG_START)
def a_log_start_offset_rises(rng: random.Random, root: Path) -> None:
    """The next start would hide the records below it, or remove all of them."""
    offset = rng.choice((rng.randrange(1, 100), rng.randrange(10**4, 10**9)))
    topic, number = rng.choice((PLAIN, TRANSACTIONAL))
    (root / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} {number} {offset}\n")


@fault(FindingKind.UNREADABLE)
def a_link_leads_to_itself(rng: random.Random, root: Path) -> None:
    path = root / rng.choice(("loop", "orders-9"))
    path.symlink_to(path.name)


@fault(FindingKind.CHECKPOINT_BEYOND_END)
def a_checkpoint_is_ahead_of_its_log(rng: random.Random, root: Path) -> None:
    name = rng.choice(("replication", "cleaner"))
    text = f"0\n1\norders 0 {rng.randrange(10**4, 10**9)}\n"
    (root / f"{name}-offset-checkpoint").write_text(text)


@fault(FindingKind.REPLICA_MISSING)
def a_replica_vanishes(rng: random.Random, root: Path) -> None:
    shutil.rmtree(replica(rng, root))


@fault(FindingKind.REPLICA_STRAY)
def a_replica_becomes_stray(rng: random.Random, root: Path) -> None:
    path = replica(rng, root)
    path.rename(f"{path}.{rng.randbytes(16).hex()}-stray")


@fault(FindingKind.FUTURE_ORPHANED)
def a_move_loses_its_source(rng: random.Random, root: Path) -> None:
    path = replica(rng, root)
    path.rename(f"{path}.{rng.randbytes(16).hex()}-future")


@fault(FindingKind.DIRECTORY_NAME)
def a_foreign_directory_appears(rng: random.Random, root: Path) -> None:
    (root / rng.choice(("photos", "backup-old", "orders"))).mkdir()
