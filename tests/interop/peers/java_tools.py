"""Run main classes of Kafka's jars, many of them in one virtual machine.

A JVM with Kafka's class path takes more than a second to start, so `JavaTools` keeps one and calls
main methods in it. If the Java found cannot compile the small server, every call starts its own
process: slower, with the same answers.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from peers.paths import (
    BUILD,
    JAVA_SOURCES,
    LOG4J_CONFIG,
    PeerUnavailable,
    java,
    java_can_compile,
    kafka_libs,
    kafka_release,
    made_by_one,
    old_client_jars,
)

TOOLS = "org.apache.kafka.tools"

MAIN_CLASSES = {
    "topics": f"{TOOLS}.TopicCommand",
    "configs": f"{TOOLS}.ConfigCommand",
    "acls": f"{TOOLS}.AclCommand",
    "groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "all-groups": f"{TOOLS}.GroupsCommand",
    "streams-groups": f"{TOOLS}.streams.StreamsGroupCommand",
    "client-metrics": f"{TOOLS}.ClientMetricsCommand",
    "get-offsets": f"{TOOLS}.GetOffsetShell",
    "delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "log-dirs": f"{TOOLS}.LogDirsCommand",
    "metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "cluster": f"{TOOLS}.ClusterTool",
    "features": f"{TOOLS}.FeatureCommand",
    "broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "leader-election": f"{TOOLS}.LeaderElectionCommand",
    "transactions": f"{TOOLS}.TransactionsCommand",
    "dump-log": f"{TOOLS}.DumpLogSegments",
    "producer-perf": f"{TOOLS}.ProducerPerformance",
    "consumer-perf": f"{TOOLS}.ConsumerPerformance",
    "verifiable-producer": f"{TOOLS}.VerifiableProducer",
    "verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
    "delegation-tokens": f"{TOOLS}.DelegationTokenCommand",
    "storage": "kafka.tools.StorageTool",
}
_FORMER_CLASSES = {"4.3.1": {"configs": "kafka.admin.ConfigCommand"}}


# Some tools print the exception by which the tool server intercepts System.exit.
_EXIT_TRACE = re.compile(
    r"^(exit \d+\n)?ToolServer\$ExitRequested.*\n(\tat .*\n)*\n*", re.MULTILINE
)


# For short-lived processes a fast start matters more than throughput.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer of a tool: exit code, and both streams as text."""

    exit_code: int
    stdout: str
    stderr: str

    def check(self) -> ToolResult:
        """Return itself, or raise AssertionError with the output if the tool failed."""
        assert self.exit_code == 0, f"exit {self.exit_code}\n{self.stdout}\n{self.stderr}"
        return self

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.stdout.splitlines() if line.strip()]


def main_class(tool: str) -> str:
    """Return the class of a short tool name such as `topics`, or any other name unchanged."""
    classes = MAIN_CLASSES | _FORMER_CLASSES.get(kafka_release(), {})
    return classes.get(tool, tool)


def java_command(
    *jvm_options: str, log4j: Path = LOG4J_CONFIG, extra_path: str = "", release: str = ""
) -> list[str]:
    """Return the start of a command line: Java, options, class path; a main class must follow.

    Args:
        release: of Kafka's jars; `kafka_release()` if it is empty.
    """
    class_path = os.pathsep.join(filter(None, [extra_path, f"{kafka_libs(release)}/*"]))
    return [
        java(),
        *jvm_options,
        f"-Dlog4j2.configurationFile={log4j}",
        "-cp",
        class_path,
    ]


def run_in_new_jvm(tool: str, *arguments: str, timeout_s: float = 120) -> ToolResult:
    """Run one tool in its own process."""
    return _run([*java_command(*QUICK_JVM), main_class(tool), *arguments], timeout_s)


def run_with_client(release: str, script: str, *arguments: str) -> ToolResult:
    """Run a compiled class of this package with the jars of an old client, and no other ones."""
    path = os.pathsep.join([str(compiled_classes()), f"{old_client_jars(release)}/*"])
    return _run([java(), *QUICK_JVM, "-cp", path, script, *arguments], 120)


def _run(command: list[str], timeout_s: float) -> ToolResult:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return ToolResult(done.returncode, done.stdout, done.stderr)


def compiled_classes(part: str = "", *more_jars: Path) -> Path:
    """Return the folder of the compiled Java sources of this package, compiled after a change.

    Args:
        part: a folder of further sources, which need `more_jars`.
    """
    name = f"classes{part}-{kafka_release()}"
    with made_by_one(name):
        return _compiled(BUILD / "interop" / name, part, more_jars)


def _compiled(target: Path, part: str, more_jars: Iterable[Path]) -> Path:
    sources = sorted((JAVA_SOURCES / part).glob("*.java"))
    stamp = target / ".stamp"
    newest = max(source.stat().st_mtime_ns for source in sources)
    if stamp.is_file() and stamp.read_text() == str(newest):
        return target
    target.mkdir(parents=True, exist_ok=True)
    compiler = [java(), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    done = subprocess.run(
        [
            *compiler,
            "-nowarn",
            "-d",
            str(target),
            "-cp",
            os.pathsep.join(map(str, [*sorted(kafka_libs().glob("*.jar")), *more_jars])),
            *[str(source) for source in sources],
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PeerUnavailable(f"the Java sources of the tests do not compile:\n{done.stderr}")
    stamp.write_text(str(newest))
    return target


class JavaTools:
    """One virtual machine that runs tools one after another; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> JavaTools:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, tool: str, *arguments: str) -> ToolResult:
        """Run `tool` (short name or class) with `arguments` and wait for its answer."""
        if not java_can_compile():
            return run_in_new_jvm(tool, *arguments)
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        words = [word.encode() for word in (main_class(tool), *arguments)]
        request = struct.pack(">i", len(words))
        request += b"".join(struct.pack(">i", len(word)) + word for word in words)
        answered = False
        try:
            process.stdin.write(request)
            process.stdin.flush()
            (code,) = struct.unpack(">i", self._exactly(4))
            stdout = self._exactly(struct.unpack(">i", self._exactly(4))[0])
            stderr = self._exactly(struct.unpack(">i", self._exactly(4))[0])
            answered = True
        finally:
            if not answered:  # the late answer must not be taken for that of the next tool
                process.kill()
                self.close()
        return ToolResult(code, stdout.decode(), _EXIT_TRACE.sub("", stderr.decode()))

    def close(self) -> None:
        """Stop the virtual machine."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            command = java_command(
                "-XX:+UseSerialGC", "-Xmx256m", extra_path=str(compiled_classes())
            )
            self._process = subprocess.Popen(
                [*command, "ToolServer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _exactly(self, count: int) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) != count:
            raise RuntimeError("the virtual machine of the tools ended unexpectedly")
        return data
