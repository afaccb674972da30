"""`spindle disks watch`: rates between two answers, the picture, and the end of the command."""

import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from dataclasses import replace
from fcntl import ioctl

import pytest
from child_signals import default_signals
from disk_reports import GIB, MIB, NOTHING, disk, move, report, silent

from spindle.cli.disks.broker_poll import BrokerReport
from spindle.cli.disks.rates import BrokerRates, quantile_ms
from spindle.cli.disks.screen import BrokerPicture, watch_lines
from spindle.cli.main import run
from spindle.cli.terminal import BAD, UNUSUAL, shortened
from spindle.client.disks import CordonView, DiskView, DiskWork, OperationsView
from spindle.common.text import duration_text, span_text
from spindle.disks.io_counts import OperationCounts
from tools import failure_code

NOW_MS = 1_772_633_100_000
SECOND_NS = 1_000_000_000


def busy_disk(seconds: int, path: str = "/d/1") -> DiskView:
    """Return a directory that has written 1 MiB a second, in 1,000 writes of 0.1 ms."""
    counts = OperationCounts()
    for _ in range(1000 * seconds):
        counts.observe(100_000, MIB // 1000)
    counts.size_bytes = MIB * seconds
    buckets = {index: count for index, count in enumerate(counts.buckets) if count}
    writes = OperationsView(counts.size_bytes, counts.total_ns, 0, buckets)
    return disk(path, work=DiskWork(3, SECOND_NS * seconds // 4, 0, (NOTHING, writes, NOTHING)))


def watched(reports: Sequence[BrokerReport]) -> BrokerPicture:
    """Return the last of several reports of one broker, with its rates."""
    rates = BrokerRates()
    for broker in reports:
        assert broker.disks is not None
        disks, moves = rates.add(broker.disks)
    return BrokerPicture(reports[-1], disks, moves)


def texts(each: BrokerPicture, width: int | None = None) -> list[str]:
    return [line.text for line in watch_lines([each], NOW_MS, width)]


# -- rates


def test_the_rates_are_those_between_two_answers() -> None:
    first, second = report(busy_disk(3)), report(busy_disk(5), steady_ms=12_000)
    rate = watched([first, second]).disks["/d/1"]
    assert rate.writes.bytes_per_second == MIB
    assert rate.writes.count == 2000
    assert rate.writes.mean_ms == pytest.approx(0.1)
    assert rate.writes.median_ms == pytest.approx(0.1, rel=0.25)
    assert rate.every == rate.writes
    assert rate.reads.median_ms is None
    assert rate.busy == pytest.approx(0.25)


@pytest.mark.parametrize(
    "second",
    [
        report(busy_disk(9), steady_ms=12_000, epoch=8),
        report(busy_disk(1), steady_ms=12_000),
        report(busy_disk(9), steady_ms=500),
        report(disk(work=None), steady_ms=12_000),
        report(busy_disk(9, "/d/new"), steady_ms=12_000),
    ],
    ids=["another epoch", "smaller counters", "an earlier clock", "no counters", "a new directory"],
)
def test_counters_that_started_over_give_no_rates(second: BrokerReport) -> None:
    assert watched([report(busy_disk(3)), second]).disks == {}


def test_a_broker_that_comes_back_has_rates_after_two_answers() -> None:
    rates = BrokerRates()
    for steady_ms, epoch, seconds, is_known in (
        (10_000, 7, 3, False),
        (12_000, 7, 5, True),
        (500, 8, 1, False),
        (1_500, 8, 2, True),
    ):
        broker_disks = report(busy_disk(seconds), steady_ms=steady_ms, epoch=epoch).disks
        assert broker_disks is not None
        disks, _ = rates.add(broker_disks)
        assert bool(disks) == is_known


def test_the_rate_of_a_move_is_taken_over_several_answers() -> None:
    reports = [
        report(disk(), steady_ms=1000 * number, moves=(move(GIB - number * 100 * MIB),))
        for number in (0, 1, 3)
    ]
    (rate,) = watched(reports).moves.values()
    assert rate.bytes_per_second == 100 * MIB
    assert rate.seconds_left == pytest.approx(7.24)
    (first,) = watched(reports[:1]).moves.values()
    assert (first.bytes_per_second, first.seconds_left) == (None, None)
    stalled = [report(disk(), steady_ms=ms, moves=(move(MIB),)) for ms in (1000, 2000)]
    (none,) = watched(stalled).moves.values()
    assert (none.bytes_per_second, none.seconds_left) == (0, None)


def test_a_quantile_is_the_middle_of_its_bucket() -> None:
    counts = OperationCounts()
    for time_ns in (*[1_000_000] * 98, 50_000_000, 50_000_000):
        counts.observe(time_ns)
    buckets = {index: count for index, count in enumerate(counts.buckets) if count}
    assert quantile_ms(buckets, 0.5) == pytest.approx(1.0, rel=0.15)
    assert quantile_ms(buckets, 0.99) == pytest.approx(50.0, rel=0.15)
    assert quantile_ms({}, 0.5) is None


# -- the picture


def test_a_directory_has_its_numbers() -> None:
    picture = texts(watched([report(busy_disk(3)), report(busy_disk(5), steady_ms=12_000)]))
    cells = dict(zip(picture[1].split(), picture[3].replace(" GiB", "G").split(), strict=False))
    assert cells["DIRECTORY"] == "/d/1"
    assert (cells["FREE"], cells["REPLICAS"], cells["LEADERS"]) == ("60.0G", "12", "4")
    assert " 1.0 MiB " in picture[3]
    assert picture[3].split()[-2:] == ["25%", "3"]


def test_unusual_states_are_printed_below_their_directory_in_colour() -> None:
    disks = (
        disk("/d/1", cordons=(CordonView("watermark"),)),
        disk("/d/2", failure="EIO while writing t-3/0.log"),
        disk("/d/3", work=replace(DiskWork(0, 0, 12_000, (NOTHING,) * 3))),
    )
    lines = watch_lines(
        [BrokerPicture(report(*disks), {}, {}), BrokerPicture(silent(), {}, {})], NOW_MS
    )
    remarks = [(line.text.strip(), line.style) for line in lines if line.style in (BAD, UNUSUAL)]
    assert remarks == [
        ("cordoned by watermark", UNUSUAL),
        ("offline: EIO while writing t-3/0.log", BAD),
        ("hangs for 12 s", BAD),
        ("broker 2  host:9093  fenced, no answer: Connection refused", BAD),
    ]
    assert "2 brokers, 1 silent, 3 directories, 1 offline, 1 cordoned" in lines[0].text


def test_a_move_has_progress_rate_and_time_left() -> None:
    reports = [
        report(disk("/d/1"), disk("/d/2"), steady_ms=ms, moves=(move(left),))
        for ms, left in ((1000, GIB), (2000, GIB * 3 // 4))
    ]
    picture = watched(reports)
    assert texts(picture)[-1] == "  t-3 from /d/1 to /d/2:  25 % of 1.0 GiB  256.0 MiB/s  0:03 left"
    assert texts(picture, 100)[-1] == (
        "  t-3 → 2  █████░░░░░░░░░░░░░░░  25 % of 1.0 GiB  256.0 MiB/s  0:03 left"
    )
    plain = watch_lines([picture], NOW_MS, 100, has_blocks=False)[-1].text
    assert "█" not in plain
    verifying = replace(move(0), state="verifying")
    assert texts(watched([report(disk(), moves=(verifying,))]))[-1].endswith("-/s  verifying")


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    disks = [busy_disk(3, f"/a/rather/long/path/of/a/mounted/disk-{n}/kafka") for n in range(3)]
    screens = watched([report(*disks), report(*disks, steady_ms=12_000, moves=(move(MIB),))])
    picture = texts(screens, width)
    assert max(map(len, picture)) <= width
    if width >= 80:
        assert "QUEUE" in picture[1]
        assert any("disk-2/kafka" in line for line in picture)


def test_a_long_remark_is_wrapped() -> None:
    offline = disk("/d/2", failure="EIO while writing orders-3/00000000000000000000.log")
    picture = texts(BrokerPicture(report(disk(), offline), {}, {}), 48)
    assert picture[-2:] == [
        "    offline: EIO while writing",
        "    orders-3/00000000000000000000.log",
    ]
    assert "median" not in picture[0]


def test_a_broker_that_is_slow_did_not_answer() -> None:
    slow = replace(silent(), error="host:9093 did not answer within 3000 ms")
    (line,) = texts(BrokerPicture(slow, {}, {}))[2:]
    assert line == "broker 2  host:9093  fenced, did not answer within 3000 ms"


def test_paths_and_durations_are_short() -> None:
    assert shortened("/a/b", 4) == "/a/b"
    assert shortened("/data/disk-1", 7) == "~disk-1"
    assert [duration_text(s) for s in (0.2, 34, 59.6, 3661)] == ["0:00", "0:34", "1:00", "1:01:01"]
    spans = (35, 119, 720, 27_000, 449_280, 1e12)
    assert [span_text(s) for s in spans] == [
        "35 s",
        "119 s",
        "12.0 min",
        "7.5 h",
        "5.2 d",
        "10 years or more",
    ]


# -- the command


def test_each_interval_prints_a_block(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(("disks", "watch", "--count", "2", "--interval", "0.1")) == 0
    blocks = capsys.readouterr().out.strip().split("\n\n")
    assert len(blocks) == 2
    for block in blocks:
        lines = block.splitlines()
        assert "  1 broker, 3 directories" in lines[0]
        assert len(lines) == 6


def test_each_interval_prints_one_object(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(("disks", "watch", "--count", "2", "--interval", "0.1", "--json")) == 0
    documents = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert len(documents) == 2
    for document in documents:
        (broker,) = document["brokers"]
        for directory in broker["directories"]:
            assert directory["rates"]["busy"] >= 0
            assert set(directory["rates"]["write"]) == {"count", "meanMs", "medianMs", "p99Ms"}


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (("--interval", "0"), "Invalid value for '--interval': 0.0 is not in the range"),
        (("--count", "0"), "Invalid value for '--count': 0 is not in the range"),
        (("--broker", "7", "--count", "1"), "broker 7 is unknown or down; known brokers: 1"),
    ],
)
def test_a_watch_that_cannot_work(
    bootstrap: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], err: str
) -> None:
    code, said = run(("disks", "watch", *words)), capsys.readouterr().err
    assert code == failure_code(said)
    assert said.startswith(err)


COMMAND = (sys.executable, "-c", "from spindle.cli.main import main; main()", "disks", "watch")
ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"


def read_until(terminal: int, seen: bytes, holds: Callable[[bytes], bool]) -> bytes:
    """Read what a program draws until something holds; fail if it draws nothing for long."""
    while not holds(seen):
        readable, _, _ = select.select([terminal], [], [], 20)
        assert readable, seen[-2000:]
        seen += os.read(terminal, 65536)
        assert len(seen) < 1_000_000, seen[-2000:]
    return seen


def test_a_terminal_is_restored_after_ctrl_c(bootstrap: str) -> None:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    # These would fix the size, whatever the terminal says.
    inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    environment = {**inherited, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    with subprocess.Popen(
        [*COMMAND, "--interval", "0.2"],
        stdout=theirs,
        stderr=theirs,
        env=environment,
        preexec_fn=default_signals,
    ) as process:
        os.close(theirs)
        try:
            seen = read_until(ours, b"", lambda seen: seen.count(b"broker 1") >= 3)
            ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 220, 0, 0))
            seen = read_until(ours, seen, lambda seen: b"REPLICAS" in seen)
            process.send_signal(signal.SIGINT)
            seen = read_until(ours, seen, lambda seen: LEAVES in seen)
            assert process.wait(20) == 0
        finally:
            process.kill()
            os.close(ours)
    assert ENTERS in seen
    assert b"\x1b[?25h" in seen.rpartition(ENTERS)[2], "the cursor is shown again"
    assert b"Traceback" not in seen


def test_a_reader_that_goes_away_ends_the_watch(bootstrap: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "--interval", "0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 141
        assert process.stderr.read() == b""
