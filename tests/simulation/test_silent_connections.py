"""Connections that carry no bytes any more, although both ends believe that they are open."""

import asyncio

from verification.simulation.run import Simulation
from verification.simulation.scenario import FaultRates, NodePlan, Scenario, draw


def test_a_silent_connection_to_the_controller_does_not_cost_the_session() -> None:
    """The broker waits for an answer only as long as another request fits into the session."""
    plans = (NodePlan(1, ("controller",)), NodePlan(2, ("broker",)))
    properties = {**draw(1).properties, "controller.socket.timeout.ms": "30000"}
    scenario = Scenario(1, plans, is_dynamic=True, chances=FaultRates(), properties=properties)
    simulation = Simulation(scenario)
    controller, broker = simulation.cluster.nodes.values()
    active: list[bool] = []

    async def run() -> None:
        controller.start()
        broker.start()
        await asyncio.sleep(3)
        simulation.invariants.metadata.listeners.append(
            lambda image: active.append(image.cluster.is_active(2))
        )
        simulation.network.silence("node1", "node2")
        await asyncio.sleep(10)

    try:
        simulation.loop.run_until_complete(run())
    finally:
        simulation.loop.end()
    assert active
    assert all(active)


class Ended(asyncio.Protocol):
    """A client that notes the end of its connection."""

    def __init__(self) -> None:
        self.error: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, error: Exception | None) -> None:
        self.error.set_result(error)


def test_a_host_that_serves_again_resets_the_connections_of_its_former_life() -> None:
    """Otherwise a client would wait for its own time limit, with each of its old connections."""
    plans = (NodePlan(1, ("controller",)), NodePlan(2, ("broker",)))
    scenario = Scenario(
        1, plans, is_dynamic=True, chances=FaultRates(), properties=draw(1).properties
    )
    simulation = Simulation(scenario)
    controller, broker = simulation.cluster.nodes.values()

    async def run() -> Exception | None:
        loop = asyncio.get_running_loop()
        controller.start()
        broker.start()
        await asyncio.sleep(3)
        transport, client = await loop.create_connection(Ended, "node2", 9092)
        broker.cut_power()
        transport.write(b"into the void")
        await asyncio.sleep(0.5)
        assert not client.error.done()
        broker.start()
        await asyncio.sleep(0.3)
        transport.write(b"refused")
        async with asyncio.timeout(0.1):
            return await client.error

    try:
        error = simulation.loop.run_until_complete(run())
    finally:
        simulation.loop.end()
    assert isinstance(error, ConnectionResetError)
