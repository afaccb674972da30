"""A controller registers once, and does not fight with another process of its id."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import Endpoint
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from spindle.protocol.message import Message
from spindle.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from spindle.protocol.messages.metadata_records import FeatureLevelRecord, RegisterControllerRecord
from spindle.raft.ready import LeaderAndEpoch
from spindle.runtime.controller.registrar import ControllerRegistrar

OWN, FOREIGN = b"o" * 16, b"f" * 16


@dataclass
class Cluster:
    """The metadata as the controller sees them, and an active controller that takes requests."""

    image: MetadataImage = field(default_factory=lambda: EMPTY_IMAGE)
    leader: LeaderAndEpoch = field(default_factory=lambda: LeaderAndEpoch(1, 1))
    requests: list[ControllerRegistrationRequest] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE

    def __post_init__(self) -> None:
        self.replay(FeatureLevelRecord(name="metadata.version", feature_level=30))

    def replay(self, record: Message) -> None:
        offset = self.image.provenance.last_offset + 1
        delta = MetadataDelta(self.image)
        delta.replay(record, offset)
        self.image = delta.apply(MetadataProvenance(offset, 1, 0))

    def register(self, incarnation_id: bytes) -> None:
        endpoint = RegisterControllerRecord.ControllerEndpoint(
            name="CONTROLLER", host="elsewhere", port=9
        )
        self.replay(
            RegisterControllerRecord(
                controller_id=3, incarnation_id=incarnation_id, end_points=[endpoint]
            )
        )

    async def request(self, request: Message) -> Any:
        assert isinstance(request, ControllerRegistrationRequest)
        self.requests.append(request)
        if self.error:
            raise ApiError(self.error)
        return ControllerRegistrationResponse(error_message=None)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def registrar(cluster: Cluster, pause_s: float = 3600) -> ControllerRegistrar:
    made = ControllerRegistrar(3, OWN, cluster, cluster.request, pause_s)
    made.endpoints = [Endpoint("CONTROLLER", "here", 1)]
    return made


async def test_a_controller_registers_once() -> None:
    cluster = Cluster()
    own = registrar(cluster)
    own.on_leader_change(cluster.leader)
    await settle()
    # The record comes back later than the answer; other records in between change nothing.
    own.on_leader_change(cluster.leader)
    await settle()
    (request,) = cluster.requests
    assert (request.controller_id, request.incarnation_id) == (3, OWN)
    assert [listener.host for listener in request.listeners] == ["here"]
    cluster.register(OWN)
    own.on_leader_change(cluster.leader)
    await settle()
    assert len(cluster.requests) == 1
    await own.close()


async def test_an_earlier_process_is_replaced_and_a_refusal_is_tried_again() -> None:
    cluster = Cluster(error=ErrorCode.REQUEST_TIMED_OUT)
    cluster.register(FOREIGN)
    own = registrar(cluster)
    for _ in range(2):
        own.on_leader_change(cluster.leader)
        await settle()
    assert len(cluster.requests) == 2
    await own.close()


async def test_two_processes_of_one_id_do_not_replace_each_other_without_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    own = registrar(cluster)
    cluster.register(OWN)
    own.on_leader_change(cluster.leader)
    cluster.register(FOREIGN)
    for _ in range(3):
        own.on_leader_change(cluster.leader)
        await settle()
    assert not cluster.requests
    await own.close()
    (said,) = caplog.messages
    assert said.startswith("another process registered as controller 3")
    assert "CONTROLLER://elsewhere:9" in said

    patient = registrar(cluster, pause_s=0)
    cluster.register(OWN)
    patient.on_leader_change(cluster.leader)
    cluster.register(FOREIGN)
    patient.on_leader_change(cluster.leader)
    await settle()
    assert [request.incarnation_id for request in cluster.requests] == [OWN]
    await patient.close()
