"""Invariants of one node's part in the metadata quorum.

A member acknowledges only records that are on its device; an active controller fences a broker that
has been silent for longer than its session; each record is written in the version of its level.
"""

from collections.abc import Iterator
from typing import Final

from spindle.log.formats.names import LOG_SUFFIX
from spindle.metadata.features import METADATA_VERSION
from spindle.metadata.record_versions import record_version
from spindle.metadata_log.partition_log import DIRECTORY_NAME
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    FeatureLevelRecord,
)
from spindle.protocol.metadata_frame import parse_frame
from spindle.protocol.records.batch import batches
from spindle.protocol.records.record import decode_records
from spindle.raft.core import QuorumCore
from spindle.runtime.node import Node
from verification.simulation.cluster import SimulatedNode
from verification.simulation.verdict import Verdict

_SLACK_MS: Final = 2000
"""Longer than the pause after which a fencing that failed is tried again."""
_NO_LEVEL: Final = -1


class QuorumChecks:
    """Watches one life of one node."""

    def __init__(self, simulated: SimulatedNode, node: Node, verdict: Verdict) -> None:
        self._simulated = simulated
        self._node = node
        self._verdict = verdict
        self._flushed_offset = -1
        config = simulated.config
        self._directory = f"{config.metadata_log_dir}/{DIRECTORY_NAME}"
        self._waited_ms: dict[int, int] = {}
        """How long each broker had been silent when records were last waiting for their commit."""
        self._silence_limit_ms = config.integer("broker.session.timeout.ms") + _SLACK_MS

    def after_event(self, core: QuorumCore) -> None:
        """Look at the member after an event of its node."""
        flushed_offset = core.log.flushed_offset
        if flushed_offset > self._flushed_offset and core.log.is_flushed:
            self._check_durable(flushed_offset)
        self._flushed_offset = flushed_offset
        controller = self._node.controller
        if controller is None or not controller.driver.is_active:
            return
        silence_ms = controller.driver.silence_ms()
        if core.leader_high_watermark < core.log.end_offset:
            # A controller without a majority cannot fence: its record waits until it resigns.
            self._waited_ms = silence_ms
        self._check_silence(silence_ms)

    def _check_durable(self, flushed_offset: int) -> None:
        for path in self._segments():
            if not self._simulated.machine.disks.is_durable(path):
                self._verdict.violated(
                    f"{self._simulated} acknowledges the metadata below {flushed_offset}, but "
                    f"{path} is not on its device"
                )

    def _check_silence(self, silence_ms: dict[int, int]) -> None:
        for broker_id, silent_ms in silence_ms.items():
            committing_ms = silent_ms - self._waited_ms.get(broker_id, 0)
            if silent_ms > self._silence_limit_ms and committing_ms > _SLACK_MS:
                self._verdict.violated(
                    f"{self._simulated} is the active controller and has not fenced broker "
                    f"{broker_id}, which has been silent for {silent_ms} ms"
                )

    def check_versions(self) -> None:
        """Compare the version of each record in the log with the level in force before it."""
        level = before_transaction = _NO_LEVEL
        for offset, record, version in self._records():
            if isinstance(record, BeginTransactionRecord):
                before_transaction = level
            elif isinstance(record, AbortTransactionRecord):
                level = before_transaction
            elif isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
                level = record.feature_level
            if level != _NO_LEVEL and version != record_version(record, level):
                self._verdict.violated(
                    f"{self._simulated} has a {type(record).__name__} of version {version} at "
                    f"offset {offset}, where metadata.version is {level}"
                )

    def _records(self) -> Iterator[tuple[int, Message, int]]:
        disks = self._simulated.machine.disks
        for path in self._segments():
            with disks.observed():
                data = disks.read_bytes(path)
            for position, header in batches(data):
                if not header.is_control:
                    for record in decode_records(data, position, header):
                        yield record.offset, *parse_frame(record.value or b"")

    def _segments(self) -> list[str]:
        disks = self._simulated.machine.disks
        with disks.observed():
            names = disks.list_directory(self._directory)
        return [f"{self._directory}/{name}" for name in names if name.endswith(LOG_SUFFIX)]
