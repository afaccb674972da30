"""`kafka-producer-perf-test`: send records and measure the speed.

Batches are sent one after another, so the result is that of one connection with one request in
flight, not the limit of a cluster.
"""

import random
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, repeat
from pathlib import Path
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed, UsageError, WrongOptions
from spindle.cli.tools.line_reader import key_values
from spindle.cli.tools.options import BOOTSTRAP_SERVER, Declaration, Option, Options
from spindle.client.blocking.producer import BlockingProducer
from spindle.common.ids import TopicPartition
from spindle.protocol.records.builder import SimpleRecord
from spindle.protocol.records.compression import CODEC_NAMES

_MIB: Final = 1024 * 1024
_MS: Final = 1000
_BATCH_BYTES: Final = 16 * 1024
_WINDOW_S: Final = 5.0
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_FIRST_LETTER: Final = ord("A")
_LETTERS: Final = 26


DECLARATION: Final = Declaration(
    "Measure how fast records are sent.",
    [
        BOOTSTRAP_SERVER,
        Option("topic", "The topic.", "topic"),
        Option("num-records", "How many records to send.", "count"),
        Option("record-size", "Bytes of the value of each record.", "bytes"),
        Option("payload-file", "Values, from which each record takes one at random.", "file"),
        Option("payload-monotonic", "0, 1, 2, ... as values."),
        Option("payload-delimiter", "The text between the values of the file: \\n.", "text"),
        Option("record-key-range", "How many different keys to use.", "count"),
        Option("key-distribution", "none (null keys), range (in turn) or random.", "name"),
        Option("random-seed", "Seed of random keys and values, 0 by default.", "number"),
        Option("throughput", "Records per second; -1 for no limit.", "rate"),
        Option("producer-props", "Properties of the client.", "k=v", takes_several=True),
        Option("command-property", "Properties of the client.", "k=v", takes_several=True),
        Option(
            "command-config",
            "Property file of the client.",
            "file",
            aliases=["producer.config"],
        ),
        Option("print-metrics", "Has no effect."),
    ],
    examples=(
        "spindle kafka producer-perf-test --topic orders --num-records 9000 --record-size 100 "
        "--throughput -1",
    ),
)
_DISTRIBUTIONS: Final = ("none", "range", "random")
_PAYLOADS: Final = ("record-size", "payload-file", "payload-monotonic")


def _run(options: Options) -> None:
    for name in ("topic", "num-records", "throughput"):
        if not options.has(name):
            raise UsageError(f"argument --{name} is required", f"--{name} is missing")
    options.exactly_one(f"one of the arguments --{' --'.join(_PAYLOADS)} is required", *_PAYLOADS)
    record_count = options.integer("num-records") or 0
    topic, throughput = options.text("topic"), options.real("throughput") or 0.0
    properties = properties_of(options.one("command-config"))
    properties |= key_values([*options.all("producer-props"), *options.all("command-property")])
    acks = _ACKS.get(properties.get("acks", "all"))
    codec = CODEC_NAMES.get(properties.get("compression.type", "none"))
    if acks is None or codec is None:
        raise ToolFailed("acks must be all, -1, 1 or 0, and compression.type a known codec")
    chance = random.Random(options.integer("random-seed") or 0)
    values = _values(options, chance)
    keys = record_keys(options, chance)
    is_counting = options.has("payload-monotonic")
    if "bootstrap.servers" not in properties:
        options.require("bootstrap-server")
    servers = options.one("bootstrap-server")
    with connect(servers, properties, client_id="perf-producer-client") as client:
        producer = BlockingProducer(client, acks=acks, codec=codec)
        partitions = len(client.wait_for_topic(topic).partitions)
        batch_bytes = int(properties.get("batch.size", _BATCH_BYTES))
        per_batch = max(1, batch_bytes // len(values[0]))
        stats = Latencies()
        sent = 0
        while sent < record_count:
            count = min(per_batch, record_count - sent)
            batch = [
                _record(next(keys), str(number).encode() if is_counting else chance.choice(values))
                for number in range(sent, sent + count)
            ]
            began = time.monotonic()
            producer.send(TopicPartition(topic, stats.batches % partitions), batch)
            sent += count
            line = stats.add(count, sum(len(r.value or b"") for r in batch), began)
            if line is not None:
                click.echo(line)
            _keep_pace(throughput, sent, stats.started)
    click.echo(stats.total())


class Latencies:
    """The records sent so far, as a whole and in the current window. Times in seconds."""

    def __init__(self) -> None:
        self.started = self._window_started = time.monotonic()
        self.batches = 0
        self._samples: list[tuple[float, int]] = []
        self._count = self._size_bytes = 0
        self._window: list[tuple[float, int]] = []
        self._window_bytes = 0

    def add(self, count: int, size_bytes: int, began: float) -> str | None:
        """Count a batch; return a line about the window at its end."""
        now = time.monotonic()
        self.batches += 1
        sample = (now - began, count)
        self._samples.append(sample)
        self._window.append(sample)
        self._count += count
        self._size_bytes += size_bytes
        self._window_bytes += size_bytes
        if now - self._window_started < _WINDOW_S:
            return None
        elapsed = now - self._window_started
        total = sum(n for _, n in self._window)
        mean, worst = _mean_ms(self._window), max(s for s, _ in self._window) * _MS
        line = (
            f"{total} records sent, {total / elapsed:.1f} records/sec "
            f"({self._window_bytes / elapsed / _MIB:.2f} MB/sec), {mean:.1f} ms avg latency, "
            f"{worst:.1f} ms max latency."
        )
        self._window, self._window_bytes, self._window_started = [], 0, now
        return line

    def total(self) -> str:
        """Return the line about all batches."""
        elapsed = max(time.monotonic() - self.started, 1e-9)
        shares = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))
        tails = ", ".join(
            f"{percentile_ms(self._samples, share):.0f} ms {name}" for share, name in shares
        )
        worst = max((seconds for seconds, _ in self._samples), default=0.0) * _MS
        return (
            f"{self._count} records sent, {self._count / elapsed:.6f} records/sec "
            f"({self._size_bytes / elapsed / _MIB:.2f} MB/sec), "
            f"{_mean_ms(self._samples):.2f} ms avg latency, {worst:.2f} ms max latency, {tails}."
        )


def percentile_ms(samples: Sequence[tuple[float, int]], share: float) -> float:
    """Return a latency percentile in ms.

    Args:
        samples: seconds, and how many records took them.
    """
    left = share * sum(count for _, count in samples)
    for seconds, count in sorted(samples):
        left -= count
        if left <= 0:
            return seconds * _MS
    return 0.0


def _mean_ms(samples: Sequence[tuple[float, int]]) -> float:
    total = sum(count for _, count in samples)
    return sum(seconds * count for seconds, count in samples) / total * _MS if total else 0.0


def _values(options: Options, chance: random.Random) -> list[bytes]:
    file = options.one("payload-file")
    if file is not None:
        delimiter = options.text("payload-delimiter", "\\n")
        separator = delimiter.encode().decode("unicode_escape").encode()
        try:
            values = [value for value in Path(file).read_bytes().split(separator) if value]
        except OSError as error:
            raise ToolFailed(f"{file}: {error.strerror}") from None
        if not values:
            raise ToolFailed("File does not exist or empty file provided.")
        return values
    if options.has("payload-monotonic"):
        return [b"0"]
    size_bytes = options.integer("record-size") or 0
    if size_bytes <= 0:
        raise WrongOptions("--record-size should be greater than zero.")
    letters = bytes(_FIRST_LETTER + number for number in range(_LETTERS))
    return [bytes(chance.choices(letters, k=size_bytes))]


def record_keys(options: Options, chance: random.Random) -> Iterator[bytes | None]:
    """Return the keys of the records, without end.

    Raises:
        WrongOptions: the options contradict each other.
    """
    distribution = options.text("key-distribution", "none")
    count = options.integer("record-key-range")
    if distribution not in _DISTRIBUTIONS:
        raise WrongOptions(
            f"argument --key-distribution: invalid choice: '{distribution}' (choose from "
            f"{', '.join(_DISTRIBUTIONS)})"
        )
    if count is not None and count <= 0:
        raise WrongOptions("--record-key-range should be greater than zero.")
    if distribution == "none":
        if count is not None:
            raise WrongOptions(
                "--key-distribution must be 'range' or 'random' when --record-key-range is "
                "specified."
            )
        return repeat(None)
    if count is None:
        raise WrongOptions(
            "--record-key-range is required when --key-distribution is 'range' or 'random'."
        )
    numbers = cycle(range(count)) if distribution == "range" else _random_numbers(count, chance)
    return (str(number).encode() for number in numbers)


def _random_numbers(count: int, chance: random.Random) -> Iterator[int]:
    while True:
        yield chance.randrange(count)


def _record(key: bytes | None, value: bytes) -> SimpleRecord:
    return SimpleRecord(key, value, time.time_ns() // 1_000_000)


def _keep_pace(throughput: float, sent: int, started: float) -> None:
    if throughput > 0:
        time.sleep(max(0.0, started + sent / throughput - time.monotonic()))


produce_perf = ToolCommand("producer-perf-test", DECLARATION, _run)
