"""Nodes with native lanes, and clients whose connections are in a lane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from node_harness import LANE_KEY, Client, Home, batch_of, connected, running

from spindle.common.errors import ErrorCode
from spindle.log import leasing
from spindle.log.lease import LeaseTerms
from spindle.runtime.node import Node

LANE = {LANE_KEY.replace(".", "_"): "true"}
OK = ErrorCode.NONE


def in_lanes(node: Node) -> int:
    assert node.broker is not None
    return node.broker.connections_in_lanes


async def produce(client: Client, *values: bytes, acks: int = 1, **options: Any) -> Any:
    return await client.produce("t", 0, batch_of(*values, **options), acks)


async def move_to_lane(node: Node, client: Client, acks: int = 1) -> None:
    """Produce to the topic until its connection is in the lane."""
    before = in_lanes(node)
    while in_lanes(node) == before:
        assert (await produce(client, b"first", acks=acks)).error_code == OK


@asynccontextmanager
async def node_with_lane(folder: Path, **configs: str) -> AsyncIterator[tuple[Node, Client]]:
    """Yield a node with a topic of one partition, and a client whose connection is in the lane."""
    async with running(Home(folder, 2, **LANE).format()) as node, connected(node) as client:
        await client.create_topic("t", configs={k.replace("_", "."): v for k, v in configs.items()})
        await move_to_lane(node, client)
        yield node, client


def leased_file(
    monkeypatch: pytest.MonkeyPatch, path: str, partitions: tuple[int, ...] = (0,), place: int = 0
) -> None:
    """Have lanes write to this file instead of one of the active segment of these partitions.

    Args:
        place: 0 for the records, 1 for the offset index, 2 for the time index.
    """
    real = leasing.lease_terms

    def terms(*arguments: Any, **named: Any) -> LeaseTerms | None:
        granted = real(*arguments, **named)
        if granted is None or granted.partition not in partitions:
            return granted
        paths = list(granted.paths)
        paths[place] = path
        return granted._replace(paths=(paths[0], paths[1], paths[2]))

    monkeypatch.setattr("spindle.runtime.lanes.directory_lane.lease_terms", terms)
