"""Restarts whose order matters, on a simulated cluster."""

import asyncio

from spindle.log.formats.clean_shutdown import read_clean_shutdown
from spindle.testing.simulation.run import Simulation
from spindle.testing.simulation.scenario import Chances, NodePlan, Scenario


def test_a_run_without_registration_leaves_the_directory_as_clean_as_it_was() -> None:
    plans = (NodePlan(1, ("controller",)), NodePlan(2, ("broker",)))
    simulation = Simulation(Scenario(1, plans, is_dynamic=True, chances=Chances()))
    controller, broker = simulation.cluster.nodes.values()

    async def scenario() -> None:
        controller.start()
        broker.start()
        await asyncio.sleep(3)
        broker.stop()
        await broker.is_down.wait()
        epoch = read_clean_shutdown(broker.machine.disks, "/disk1")
        assert epoch is not None
        assert epoch >= 0
        controller.kill()
        broker.start()
        await asyncio.sleep(3)
        broker.stop()
        await broker.is_down.wait()
        assert read_clean_shutdown(broker.machine.disks, "/disk1") == epoch

    try:
        simulation.loop.run_until_complete(scenario())
    finally:
        simulation.loop.end()
