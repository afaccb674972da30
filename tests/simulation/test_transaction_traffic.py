"""The end of the simulated transactional traffic."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from spindle.protocol.message import Message
from spindle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.raft.ready import Destination
from spindle.runtime.peers.port import PeerUnavailable
from verification.simulation.client import SimulatedClient
from verification.simulation.metadata_oracle import MetadataOracle
from verification.simulation.scenario import FaultRates, NodePlan, Scenario
from verification.simulation.topic import Topic
from verification.simulation.transaction_traffic import TransactionTraffic
from verification.simulation.verdict import Verdict

_BROKERS = (NodePlan(1, ("broker",)), NodePlan(2, ("broker",)))
_COORDINATOR = FindCoordinatorResponse.Coordinator(node_id=1, host="node1", port=9092)


class _Client(SimulatedClient):
    """Reaches only the transaction coordinator, which initialises every producer."""

    def __init__(self, fenced: list[str]) -> None:
        super().__init__("client", [("node1", 9092)], Random(1))
        self._fenced = fenced

    async def ask(
        self, destination: Destination, message: Message, last_version: int | None = None
    ) -> Any:
        if isinstance(message, FindCoordinatorRequest):
            return FindCoordinatorResponse(coordinators=[_COORDINATOR])
        if isinstance(message, InitProducerIdRequest):
            self._fenced.append(str(message.transactional_id))
            return InitProducerIdResponse(producer_id=1, producer_epoch=1)
        raise PeerUnavailable("no other request has an answer")


@pytest.mark.parametrize(
    ("brokers", "chances", "fenced"),
    [
        (_BROKERS, FaultRates(), []),
        (_BROKERS, FaultRates(clock=0.1), ["writer1", "writer2"]),
        (
            (_BROKERS[0], NodePlan(2, ("broker",), clock_offset_ms=-60_000)),
            FaultRates(),
            ["writer1", "writer2"],
        ),
        (
            (_BROKERS[0], NodePlan(2, ("broker",), clock_rate=0.97)),
            FaultRates(),
            ["writer1", "writer2"],
        ),
    ],
    ids=["right", "set", "behind", "slow"],
)
async def test_writers_leave_no_transaction_to_a_timeout_that_a_wrong_clock_delays(
    brokers: tuple[NodePlan, ...], chances: FaultRates, fenced: list[str]
) -> None:
    asked: list[str] = []
    clients: list[asyncio.Task[None]] = []

    def spawn(client: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        clients.append(asyncio.ensure_future(client))
        return clients[-1]

    verdict = Verdict()
    traffic = TransactionTraffic(
        Scenario(1, brokers, is_dynamic=True, chances=chances),
        MetadataOracle(verdict),
        verdict,
        spawn,
        lambda _: _Client(asked),
    )
    traffic.topics += [Topic(name, bytes(16), 2) for name in ("ledger", "copies")]
    traffic.finish()
    traffic.open()
    await asyncio.gather(*clients[:2])  # the writers; the other clients never end
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    assert [name for name in asked if name.startswith("writer")] == fenced
