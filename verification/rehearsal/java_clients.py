"""Kafka's verifiable producer and consumer, which print the responses they get as JSON."""

import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

from spindle.common.ids import TopicPartition
from spindle.testing.histories.events import (
    Acknowledged,
    Assigned,
    Delivered,
    NumberedRecord,
    OffsetCommitted,
    OffsetSent,
)
from verification.rehearsal.recorder import Recorder

_TOOLS: Final = "org.apache.kafka.tools"
_FLAGS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m")


class JavaClient:
    """A process of a main class of Kafka's tools; `take` gets each event that it prints."""

    def __init__(
        self, java: str, libs: Path, main: str, arguments: Sequence[str], recorder: Recorder
    ) -> None:
        self.recorder = recorder
        self._name = main
        self._process = subprocess.Popen(
            [java, *_FLAGS, "-cp", f"{libs}/*", f"{_TOOLS}.{main}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, name=main, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""
        assert self._process.stdout is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.recorder.record_error(f"{self._name} has not ended after {timeout_s:.0f} s")
            self._process.kill()
        self._thread.join(timeout_s)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.take(json.loads(line))

    def take(self, event: dict[str, Any]) -> None:
        """Note what the event says."""
        raise NotImplementedError


class JavaProducer(JavaClient):
    """Java's idempotent producer; its name is a number."""

    def __init__(
        self, name: str, java: str, libs: Path, bootstrap: str, topic: str, recorder: Recorder
    ) -> None:
        self.name = name
        # The tool disables retries, and with them idempotence, unless a file says otherwise.
        self._settings = NamedTemporaryFile("w", suffix=".properties")  # noqa: SIM115
        self._settings.write("enable.idempotence=true\nretries=2147483647\n")
        self._settings.flush()
        arguments = (
            *("--bootstrap-server", bootstrap, "--topic", topic, "--acks", "-1"),
            *("--value-prefix", name, "--throughput", "100"),
            *("--command-config", self._settings.name),
        )
        super().__init__(java, libs, "VerifiableProducer", arguments, recorder)

    def take(self, event: dict[str, Any]) -> None:
        match event["name"]:
            case "producer_send_success":
                producer, _, number = event["value"].partition(".")
                record = NumberedRecord(producer, int(number))
                offset = event["offset"] if event["offset"] >= 0 else None
                self.recorder.note(Acknowledged(record, _place(event), offset))
            case "producer_send_error":
                self.recorder.record_error(f"Java producer: {event['message']}")


class JavaMember(JavaClient):
    """A member of a group of Java's consumer."""

    def __init__(
        self, group: str, java: str, libs: Path, bootstrap: str, topic: str, recorder: Recorder
    ) -> None:
        self.group = group
        arguments = (
            *("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group),
            *("--reset-policy", "earliest", "--session-timeout", "6000", "--verbose"),
        )
        super().__init__(java, libs, "VerifiableConsumer", arguments, recorder)

    def take(self, event: dict[str, Any]) -> None:
        note = self.recorder.note
        match event["name"]:
            case "partitions_assigned":
                for row in event["partitions"]:
                    note(Assigned(self.group, "java", _place(row)))
            case "record_data":
                producer, _, number = event["value"].partition(".")
                record = NumberedRecord(producer, int(number))
                note(Delivered(self.group, "java", _place(event), event["offset"], record))
            case "offsets_committed":
                for row in event["offsets"]:
                    note(OffsetSent(self.group, _place(row), row["offset"]))
                    if event["success"]:
                        note(OffsetCommitted(self.group, _place(row), row["offset"]))


def _place(row: dict[str, Any]) -> TopicPartition:
    return TopicPartition(row["topic"], row["partition"])
