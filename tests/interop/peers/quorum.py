"""Controllers of one metadata quorum, of either program, each in its own process."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from struct import pack, unpack
from typing import Any

from waiting import wait_for

from peers.node import KafkaNode, Node, SpindleNode, random_uuid
from spindle.protocol.api import APIS, response_class, response_header_version
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.describe_cluster import DescribeClusterRequest
from spindle.protocol.messages.describe_quorum import DescribeQuorumRequest

METADATA_FOLDER = "__cluster_metadata-0"
KINDS: dict[str, type[Node]] = {"kafka": KafkaNode, "spindle": SpindleNode}
ANSWER_LIMIT_S = 5.0
CHANGE_LIMIT_S = 30.0


def ask_node(address: str, request: Message, version: int | None = None) -> Any:
    """Send one request on its own connection and return the answer.

    Raises:
        OSError: the node does not answer in time.
    """
    host, _, port = address.rpartition(":")
    api = APIS[request.API_KEY]
    version = api.last_version if version is None else version
    with socket.create_connection((host, int(port)), ANSWER_LIMIT_S) as connection:
        body = request_prefix(api.key, version, 1, "test") + encode(request, version)
        connection.sendall(pack(">i", len(body)) + body)
        with connection.makefile("rb") as stream:
            size = stream.read(4)
            frame = stream.read(unpack(">i", size)[0]) if len(size) == 4 else b""
    if not frame:
        raise ConnectionResetError(f"{address} closed the connection")
    start = 4 + response_header_version(api.key, version)
    response, _ = decode(response_class(api.key), version, frame, start)
    return response


@dataclass(frozen=True)
class QuorumView:
    """The quorum as its leader describes it."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: dict[int, int]
    observers: dict[int, int]


def describe(node: Node) -> QuorumView | None:
    """Return the quorum as a leader describes it; None if the node does not lead or answer."""
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name="__cluster_metadata",
                partitions=[DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)],
            )
        ]
    )
    try:
        response = ask_node(node.controller, request)
    except OSError:
        return None
    if response.error_code or not response.topics:
        return None
    partition = response.topics[0].partitions[0]
    if partition.error_code or partition.high_watermark < 0:
        return None
    return QuorumView(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        {one.replica_id: one.log_end_offset for one in partition.current_voters},
        {one.replica_id: one.log_end_offset for one in partition.observers},
    )


def known_controllers(node: Node) -> set[int]:
    """Return the registered controllers that a controller knows; none before it has metadata."""
    try:
        response = ask_node(node.controller, DescribeClusterRequest(endpoint_type=2))
    except OSError:
        return set()
    return {controller.broker_id for controller in response.brokers}


class ControllerQuorum:
    """Controllers 1, 2, ... of the given kinds, formatted by their own programs.

    Args:
        is_dynamic: True for voters in the log, with directory ids (kraft.version 1); False for
            voters in the configuration.
        overrides: further keys of all property files.
    """

    def __init__(
        self,
        folder: Path,
        kinds: Iterable[str],
        *,
        is_dynamic: bool = False,
        overrides: dict[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.cluster_id = random_uuid()
        self.is_dynamic = is_dynamic
        self.overrides = overrides or {}
        self.nodes: dict[int, Node] = {}
        self.directory_ids: dict[int, str] = {}
        for node_id, kind in enumerate(kinds, 1):
            self.add(node_id, kind)
        self.configure()

    def add(self, node_id: int, kind: str) -> Node:
        """Add a controller; `configure` then writes its address into the property files of all."""
        node = KINDS[kind](
            self.folder / f"node{node_id}",
            directory_count=1,
            cluster_id=self.cluster_id,
            node_id=node_id,
        )
        self.nodes[node_id] = node
        self.directory_ids[node_id] = random_uuid()
        return node

    def configure(self) -> None:
        """Write the property files."""
        voters = ",".join(f"{node_id}@{node.controller}" for node_id, node in self.nodes.items())
        for node in self.nodes.values():
            node.overrides = {
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{node.controller}",
                "controller.quorum.voters": "" if self.is_dynamic else voters,
                "controller.quorum.bootstrap.servers": self.bootstrap if self.is_dynamic else "",
                **self.overrides,
                **node.overrides,
            }
            node.write_properties()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.controller for node in self.nodes.values())

    @property
    def initial_controllers(self) -> str:
        return ",".join(
            f"{node_id}@{node.controller}:{self.directory_ids[node_id]}"
            for node_id, node in self.nodes.items()
        )

    def format(self) -> None:
        extra = ("--initial-controllers", self.initial_controllers) if self.is_dynamic else ()
        for node in self.nodes.values():
            node.format(*extra)

    def start(self, *node_ids: int) -> None:
        """Start these controllers (or all) at the same time, and wait until they have settled."""
        chosen = [self.nodes[node_id] for node_id in node_ids or self.nodes]
        for node in chosen:
            node.start(wait=False)
        for node in chosen:
            node.wait_ready()
        self.settled()

    def leader(self, *, other_than: int = -1, limit_s: float = CHANGE_LIMIT_S) -> QuorumView:
        """Wait for a leader whose epoch is established, and return its view."""

        def views() -> list[QuorumView]:
            described = [describe(node) for node in self.nodes.values() if node.alive]
            return [v for v in described if v is not None and v.leader_id != other_than]

        led = wait_for(
            views, what=lambda: f"a leader:\n{self.outputs()}", limit_s=limit_s, pause_s=0.005
        )
        return max(led, key=lambda view: view.epoch)

    def settled(self, limit_s: float = CHANGE_LIMIT_S) -> QuorumView:
        """Wait until all running controllers have the records that their leader has committed.

        Then all controllers are registered and know each other.
        """
        running = [node_id for node_id, node in self.nodes.items() if node.alive]

        def have_caught_up(view: QuorumView) -> bool:
            ends = {**view.observers, **view.voters}
            return all(
                ends.get(node_id, -1) >= view.high_watermark
                and view.leader_id in known_controllers(self.nodes[node_id]) >= set(running)
                for node_id in running
            )

        return wait_for(
            self.leader,
            have_caught_up,
            lambda: f"all have caught up:\n{self.outputs()}",
            limit_s=limit_s,
            pause_s=0.02,
        )

    def outputs(self) -> str:
        return "\n".join(
            f"--- {node.kind} {node_id}\n{node.output()[-3000:]}"
            for node_id, node in self.nodes.items()
            if node.output_file.exists()
        )

    def metadata_folder(self, node_id: int) -> Path:
        return self.nodes[node_id].log_dirs[0] / METADATA_FOLDER

    def remove(self) -> None:
        for node in self.nodes.values():
            node.remove()
