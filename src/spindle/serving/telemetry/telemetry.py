"""Client telemetry of one broker: who may push what, and what was pushed (KIP-714)."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from spindle.common.errors import ApiError, CorruptRecords, ErrorCode, RecordsTooLarge
from spindle.common.uuids import Uuid, UuidSource
from spindle.metadata.configs import ConfigsImage
from spindle.protocol.messages.push_telemetry import PushTelemetryRequest
from spindle.protocol.records.compression import decompress
from spindle.serving.telemetry.clients import TelemetryClients
from spindle.serving.telemetry.otlp import read_samples
from spindle.serving.telemetry.received import ReceivedMetrics
from spindle.serving.telemetry.subscriptions import ClientSubscription

MAX_SAMPLES: Final = 5_000
"""Samples that are read of one push, so that it does not hold up other clients."""
_EXPIRY_PAUSE_MS: Final = 1_000
_LABELS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
)
"""Properties of clients that are labels; the port would make new series for each connection."""


class Telemetry:
    """Clients that push, and their metrics.

    Attributes:
        taken: pushes with metrics that were taken.
        refused: pushes whose payload could not be read.
        max_bytes: largest payload of a push, also after it was decompressed.
    """

    def __init__(
        self,
        configs: Callable[[], ConfigsImage],
        steady_ms: Callable[[], int],
        new_uuid: UuidSource,
        max_bytes: int,
        max_series: int,
    ) -> None:
        self._steady_ms = steady_ms
        self._new_uuid = new_uuid
        self.max_bytes = max_bytes
        self.clients = TelemetryClients(configs, max_bytes)
        self.received = ReceivedMetrics(max_series)
        self.taken = 0
        self.refused = 0
        self._expired_ms = 0

    def new_instance_id(self) -> Uuid:
        """Return an id for a client that asks for the first time."""
        instance_id = self._new_uuid()
        while instance_id in self.clients:
            instance_id = self._new_uuid()
        return instance_id

    def ask(self, instance_id: Uuid, properties: Mapping[str, str]) -> ClientSubscription:
        """Return what a client is to push; see `TelemetryClients.ask`."""
        self.expire()
        return self.clients.ask(instance_id, properties, self._steady_ms())

    def push(self, request: PushTelemetryRequest, properties: Mapping[str, str]) -> None:
        """Take the metrics of a client.

        Raises:
            ApiError: as `TelemetryClients.push`; INVALID_RECORD if the payload cannot be read,
                TELEMETRY_TOO_LARGE if it is too large when it is decompressed.
        """
        self.expire()
        now_ms = self._steady_ms()
        client = self.clients.push(
            request.client_instance_id,
            properties,
            now_ms,
            subscription_id=request.subscription_id,
            compression_type=request.compression_type,
            payload_bytes=len(request.metrics),
            is_terminating=request.terminating,
        )
        if not request.metrics:
            return
        labels = {name: client.properties[name] for name in _LABELS}
        try:
            payload = decompress(request.compression_type, request.metrics, self.max_bytes)
            samples = list(islice(read_samples(bytes(payload)), MAX_SAMPLES))
        except RecordsTooLarge as error:
            client.last_error = ErrorCode.TELEMETRY_TOO_LARGE
            self.refused += 1
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from None
        except CorruptRecords as error:
            client.last_error = ErrorCode.INVALID_RECORD
            self.refused += 1
            raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
        self.received.add(client.instance_id, labels, samples, now_ms + client.expiry_ms)
        self.taken += 1

    def expire(self) -> None:
        """Forget clients that have been silent for too long, and their metrics."""
        now_ms = self._steady_ms()
        if now_ms - self._expired_ms < _EXPIRY_PAUSE_MS:
            return
        self._expired_ms = now_ms
        self.clients.expire(now_ms)
        self.received.expire(now_ms)
