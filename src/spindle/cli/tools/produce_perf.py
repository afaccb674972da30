"""`kafka-producer-perf-test`: sends records and says how fast that went.

Batches go out one after another, so the numbers are those of one connection with one request in
flight, not the limit of a cluster.
"""

import argparse
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from spindle.cli.tools.arguments import ArgumentParser, argument_main
from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import FAILED, ToolCommand
from spindle.cli.tools.failures import Failure, ToolFailed
from spindle.cli.tools.line_reader import key_values
from spindle.client.wire.producer import Producer
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


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="producer-performance",
        description="This tool is used to verify the producer performance.",
    )
    parser.add_argument("--topic", required=True, help="The topic.")
    parser.add_argument("--num-records", type=int, required=True, help="How many records.")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=int, help="Bytes of each record's value.")
    payload.add_argument("--payload-file", help="Values to choose from, at random.")
    payload.add_argument("--payload-monotonic", action="store_true", help="0, 1, 2, ... as values.")
    parser.add_argument("--payload-delimiter", default="\\n", help="Between values of the file.")
    parser.add_argument(
        "--throughput", type=float, required=True, help="Records per second; -1 for no limit."
    )
    parser.add_argument("--bootstrap-server", help="Addresses of brokers.")
    for name in ("--producer-props", "--command-property"):
        parser.add_argument(
            name, nargs="+", action="extend", default=[], metavar="k=v", help="Client properties."
        )
    parser.add_argument(
        "--producer.config", "--command-config", dest="config", help="Property file of the client."
    )
    parser.add_argument("--print-metrics", action="store_true", help="Has no effect.")
    return parser


def _run(given: argparse.Namespace) -> None:
    properties = properties_of(given.config)
    properties |= key_values([*given.producer_props, *given.command_property])
    acks = _ACKS.get(properties.get("acks", "all"))
    codec = CODEC_NAMES.get(properties.get("compression.type", "none"))
    if acks is None or codec is None:
        raise ToolFailed("acks must be all, -1, 1 or 0, and compression.type a known codec")
    values = _values(given)
    servers = given.bootstrap_server
    with connect(servers, properties, client_id="perf-producer-client") as client:
        producer = Producer(client, acks=acks, codec=codec)
        partitions = len(client.awaited_topic(given.topic).partitions)
        batch_bytes = int(properties.get("batch.size", _BATCH_BYTES))
        per_batch = max(1, batch_bytes // len(values[0]))
        stats = Latencies()
        sent = 0
        while sent < given.num_records:
            count = min(per_batch, given.num_records - sent)
            batch = [_record(given, values, sent + number) for number in range(count)]
            began = time.monotonic()
            producer.send(TopicPartition(given.topic, stats.batches % partitions), batch)
            sent += count
            line = stats.add(count, sum(len(r.value or b"") for r in batch), began)
            if line is not None:
                click.echo(line)
            _keep_pace(given.throughput, sent, stats.started)
    click.echo(stats.total())


class Latencies:
    """What was sent so far, as a whole and in the present window. Times in seconds."""

    def __init__(self) -> None:
        self.started = self._window_started = time.monotonic()
        self.batches = 0
        self._samples: list[tuple[float, int]] = []
        self._count = self._size_bytes = 0
        self._window: list[tuple[float, int]] = []
        self._window_bytes = 0

    def add(self, count: int, size_bytes: int, began: float) -> str | None:
        """Note a batch; a line about the window when it is over."""
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
        """The line about everything."""
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
    """The latency in ms that a share of the records stays within.

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


def _values(given: argparse.Namespace) -> list[bytes]:
    if given.payload_file is not None:
        delimiter = given.payload_delimiter.encode().decode("unicode_escape").encode()
        try:
            found = [v for v in Path(given.payload_file).read_bytes().split(delimiter) if v]
        except OSError as error:
            raise ToolFailed(f"{given.payload_file}: {error.strerror}") from None
        if not found:
            raise ToolFailed("File does not exist or empty file provided.")
        return found
    if given.payload_monotonic:
        return [b"0"]
    if given.record_size <= 0:
        raise ToolFailed("--record-size should be greater than zero.")
    letters = bytes(_FIRST_LETTER + number for number in range(_LETTERS))
    return [bytes(random.choices(letters, k=given.record_size))]


def _record(given: argparse.Namespace, values: Sequence[bytes], number: int) -> SimpleRecord:
    value = str(number).encode() if given.payload_monotonic else random.choice(values)
    return SimpleRecord(None, value, time.time_ns() // 1_000_000)


def _keep_pace(throughput: float, sent: int, started: float) -> None:
    if throughput > 0:
        time.sleep(max(0.0, started + sent / throughput - time.monotonic()))


def _report(found: Failure) -> int:
    click.echo(found.text, err=True)
    return FAILED


produce_perf = ToolCommand("produce-perf", argument_main(_parser(), _run, _report))
