"""Tools that are given controllers find the active one, whichever they were told (KIP-919)."""

import asyncio
from pathlib import Path

from cluster_harness import cluster_homes, running_cluster
from waiting import until

from spindle.client.admin.cluster import describe_quorum
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.common.ids import NO_LEADER


async def test_the_active_controller_is_asked_wherever_the_question_begins(tmp_path: Path) -> None:
    homes = cluster_homes(tmp_path, ["controller"] * 3)

    async with running_cluster(homes) as nodes:
        publishers = [node.publisher for node in nodes]
        await until(lambda: all(len(p.image.cluster.controllers) == 3 for p in publishers))
        await until(lambda: all(p.leader.leader_id != NO_LEADER for p in publishers))
        for node in nodes:
            assert node.controller is not None
            port = node.controller.registrar.endpoints[0].port
            settings = client_settings({"bootstrap.controllers": f"127.0.0.1:{port}"})
            with WireClient(settings) as client:
                quorum = await asyncio.to_thread(describe_quorum, client)
            assert quorum.leader_id == publishers[0].leader.leader_id
            assert sorted(voter.node_id for voter in quorum.voters) == [1, 2, 3]
