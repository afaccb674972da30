"""Connections that carry no bytes any more, although both ends believe that they are open."""

import asyncio

from spindle.testing.simulation.run import Simulation
from spindle.testing.simulation.scenario import Chances, NodePlan, Scenario, draw


def test_a_silent_connection_to_the_controller_does_not_cost_the_session() -> None:
    """The broker waits for an answer only as long as another request fits into the session."""
    plans = (NodePlan(1, ("controller",)), NodePlan(2, ("broker",)))
    properties = {**draw(1).properties, "controller.socket.timeout.ms": "30000"}
    scenario = Scenario(1, plans, is_dynamic=True, chances=Chances(), properties=properties)
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
