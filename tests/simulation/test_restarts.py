"""Restarts whose order matters, on a simulated cluster."""

import asyncio

import pytest

from spindle.common.errors import ApiError
from spindle.disks.alter_disks import DirectoryAction
from spindle.log.formats.clean_shutdown import read_clean_shutdown
from verification.simulation.run import Simulation
from verification.simulation.scenario import FaultRates, NodePlan, Scenario


def test_a_run_without_registration_leaves_the_directory_as_clean_as_it_was() -> None:
    plans = (NodePlan(1, ("controller",)), NodePlan(2, ("broker",)))
    simulation = Simulation(Scenario(1, plans, is_dynamic=True, chances=FaultRates()))
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


@pytest.mark.parametrize("action", [DirectoryAction.ADD, DirectoryAction.REMOVE])
def test_a_change_of_directories_that_a_stop_breaks_off_is_no_failure_of_a_disk(
    action: DirectoryAction,
) -> None:
    plans = (NodePlan(1, ("controller",)), NodePlan(2, ("broker",)))
    simulation = Simulation(Scenario(1, plans, is_dynamic=True, chances=FaultRates()))
    controller, broker = simulation.cluster.nodes.values()
    machine = broker.machine

    async def scenario() -> None:
        controller.start()
        broker.start()
        await asyncio.sleep(3)
        assert broker.node is not None
        assert broker.node.broker is not None
        changes = broker.node.broker.directory_changes
        if action is DirectoryAction.ADD:
            machine.disks.slowness_s["/more1"] = 5.0  # it is still examined when the stop comes
        else:
            await changes.change(DirectoryAction.ADD, "/more1")
            controller.kill()  # the retirement waits for it
        change = asyncio.ensure_future(changes.change(action, "/more1"))
        await asyncio.sleep(0.5)
        await changes.stop()
        with pytest.raises(ApiError):
            await change
        assert machine.executors["/more1"].failure is not None
        assert broker.offline_directories == {}

    try:
        simulation.loop.run_until_complete(scenario())
    finally:
        simulation.loop.end()
