"""Rate of `spindle audit` next to a loop over Kafka's DumpLogSegments, on the same files in cache.

python -m benchmarks.audit [--volume-mib 1024] [--value-bytes 1024] [--jobs 2]

`DumpLogSegments` computes the checksum of each batch; with `--deep-iteration` it also reads every
record. It is called for all segments in one Java machine, so its start counts once.

python -m benchmarks.audit --cold [--folder FOLDER] drops the page cache before each pass, which
needs root, and puts the rate of the audit beside that of a plain loop of reads over the same files
of the same disk. FOLDER says which disk it is.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from hashlib import md5
from pathlib import Path
from typing import Final

import click
from peers.java_tools import java_command, main_class
from peers.paths import PeerUnavailable

from spindle.audit.report import AuditReport
from spindle.audit.run import run_audit
from spindle.columnar.decoder import compile_kernel
from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import TopicPartition
from spindle.disks.directory_store import DirectoryStore
from spindle.log.formats.meta_properties import MetaProperties, write_meta_properties
from spindle.log.log_config import LogConfig
from spindle.protocol.records.builder import SimpleRecord, build_batch

MIB: Final = 1024 * 1024
_PARTITIONS: Final = 8
_BATCH_BYTES: Final = 16 * 1024
_SEGMENT_BYTES: Final = 64 * MIB
_NOW_MS: Final = 1_700_000_000_000
_DROP_CACHES: Final = Path("/proc/sys/vm/drop_caches")
_FREE_ALL: Final = "3"


def write_logs(root: Path, volume_bytes: int, value_bytes: int) -> int:
    """Write eight partitions of about the volume together; return the count of records."""
    files = OsFileSystem()
    root.mkdir(parents=True)
    directory_id = md5(str(root).encode()).digest()
    properties = MetaProperties(cluster_id="benchmark", node_id=1, directory_id=directory_id)
    write_meta_properties(files, str(root), properties, _NOW_MS)
    store = DirectoryStore(files, str(root))
    config = LogConfig(segment_bytes=_SEGMENT_BYTES)
    store.load(lambda topic: config, _NOW_MS)
    count = max(1, _BATCH_BYTES // (value_bytes + 10))
    value = os.urandom(value_bytes)
    records = [SimpleRecord(b"%d" % n, value, _NOW_MS + n) for n in range(count)]
    batch = build_batch(records)
    appended = 0
    for number in range(_PARTITIONS):
        log = store.create(TopicPartition("bench", number), b"t" * 16, config, _NOW_MS)
        while log.size_bytes < volume_bytes // _PARTITIONS:
            log.append_as_leader(bytearray(batch), 0, _NOW_MS)
            appended += count
        log.update_high_watermark(log.log_end_offset)
    store.close(1)
    return appended


def audited(root: Path, jobs: int, *, checks_records: bool = False) -> tuple[AuditReport, float]:
    """Return the result of an audit, and its seconds."""
    started = time.monotonic()
    report = run_audit([root], jobs=jobs, checks_records=checks_records)
    return report, time.monotonic() - started


def dumped(segments: list[Path], *options: str) -> float:
    """Return the seconds of DumpLogSegments over all segments.

    Raises:
        RuntimeError: the tool failed.
    """
    names = ",".join(map(str, segments))
    command = [*java_command("-Xmx1g"), main_class("dump-log"), *options, "--files", names]
    started = time.monotonic()
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"DumpLogSegments ended with {done.returncode}: {done.stderr[-2000:]}")
    return time.monotonic() - started


def cpu_seconds(command: list[str]) -> float:
    """Return the CPU time (user and system) of a whole command, from its start to its end.

    Raises:
        RuntimeError: it failed.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def command_cpu(root: Path, segments: list[Path], runs: int) -> dict[str, object]:
    """Return the CPU seconds of whole commands, the median of pairs in turn.

    The audit is a new process each time, as DumpLogSegments is one Java machine over all files: the
    starts of both count. On a busy machine, CPU time says more than the clock.
    """
    audit = [str(Path(sys.executable).with_name("spindle")), "audit", str(root), "-j", "1"]
    names = ",".join(map(str, segments))
    dump = [*java_command("-Xmx1g"), main_class("dump-log")]
    pairs = {
        "batches": (audit, [*dump, "--files", names]),
        "records": ([*audit, "--records"], [*dump, "--deep-iteration", "--files", names]),
    }
    result: dict[str, object] = {}
    for what, (own, peer) in pairs.items():
        times = [(cpu_seconds(own), cpu_seconds(peer)) for _ in range(runs)]
        ratios = sorted(theirs / ours for ours, theirs in times)
        result[what] = {
            "spindle audit": round(statistics.median(ours for ours, _ in times), 2),
            "DumpLogSegments": round(statistics.median(theirs for _, theirs in times), 2),
            "times": round(ratios[len(ratios) // 2], 1),
        }
    return result


def drop_caches() -> None:
    """Empty the page cache, so that the next reads come from the disk.

    Raises:
        SystemExit: only root may do that.
    """
    os.sync()
    try:
        _DROP_CACHES.write_text(_FREE_ALL)
    except OSError as error:
        sys.exit(f"--cold cannot empty the page cache, which needs root: {error}")


def read_once(segments: list[Path]) -> float:
    """Return the seconds of a plain loop of reads over all segments."""
    buffer = memoryview(bytearray(MIB))
    started = time.monotonic()
    for path in segments:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.monotonic() - started


def cold_rates(root: Path, segments: list[Path], jobs: int, runs: int) -> dict[str, object]:
    """Return the rates of the disk and of the audit in MiB/s: the best of each, in turns."""
    volume = sum(path.stat().st_size for path in segments)
    times: dict[str, list[float]] = {}
    for _ in range(runs):
        drop_caches()
        times.setdefault("plain reads", []).append(read_once(segments))
        drop_caches()
        times.setdefault("audit", []).append(audited(root, jobs)[1])
        drop_caches()
        seconds = audited(root, jobs, checks_records=True)[1]
        times.setdefault("audit, records", []).append(seconds)
    rates = {name: round(volume / min(items) / MIB, 1) for name, items in times.items()}
    return {
        "volume_bytes": volume,
        "jobs": jobs,
        "cold_mib_per_second": rates,
        "share_of_disk": round(rates["audit"] / rates["plain reads"], 2),
        "share_of_disk_records": round(rates["audit, records"] / rates["plain reads"], 2),
    }


@click.command()
@click.option("--volume-mib", type=click.IntRange(min=1), default=1024, show_default=True)
@click.option("--value-bytes", type=click.IntRange(min=1), default=1024, show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--cold", is_flag=True, help="From the disk instead of the page cache; needs root.")
@click.option("--folder", "parent", type=click.Path(file_okay=False), help="Where the files go.")
def main(
    volume_mib: int, value_bytes: int, jobs: int, runs: int, cold: bool, parent: str | None
) -> None:
    """Print the rates as JSON: the best of each, in MiB/s."""
    compile_kernel()
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        root = Path(folder) / "log"
        records = write_logs(root, volume_mib * MIB, value_bytes)
        segments = sorted(root.glob("*/*.log"))
        if cold:
            audited(root, 1, checks_records=True)  # compiles
            click.echo(json.dumps(cold_rates(root, segments, jobs, runs), indent=1))
            return
        volume = sum(path.stat().st_size for path in segments)
        for path in segments:
            path.read_bytes()
        times: dict[str, list[float]] = {}
        try:
            for _ in range(runs):
                report, seconds = audited(root, jobs)
                if report.findings:
                    sys.exit(f"the audit is wrong: {report.findings[0].sentence}")
                times.setdefault("audit", []).append(seconds)
                times.setdefault("audit, 1 process", []).append(audited(root, 1)[1])
                times.setdefault("audit, records", []).append(
                    audited(root, jobs, checks_records=True)[1]
                )
                times.setdefault("DumpLogSegments, batches", []).append(dumped(segments))
                times.setdefault("DumpLogSegments, records", []).append(
                    dumped(segments, "--deep-iteration")
                )
            whole_commands = command_cpu(root, segments, runs)
        except PeerUnavailable as error:
            sys.exit(str(error))
    rates = {name: round(volume / min(item) / MIB, 1) for name, item in times.items()}
    result = {
        "volume_bytes": volume,
        "batches": report.batch_count,
        "records": records,
        "jobs": jobs,
        "mib_per_second": rates,
        "times_batches": round(rates["audit"] / rates["DumpLogSegments, batches"], 1),
        "cpu_seconds_of_commands": whole_commands,
        "times_records": round(rates["audit, records"] / rates["DumpLogSegments, records"], 1),
    }
    click.echo(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
