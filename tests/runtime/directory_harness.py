"""Requests and questions of tests that change the log directories of a running node."""

from pathlib import Path
from typing import Any

from node_harness import Client

from spindle.common.ids import TopicPartition
from spindle.disks.alter_disks import DirectoryAction
from spindle.protocol.messages.alter_disks import AlterDisksRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.describe_configs import DescribeConfigsRequest
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from spindle.runtime.node import Node


async def alter(
    client: Client, action: DirectoryAction, path: Path | str, *accepted: TopicPartition
) -> Any:
    losses = [
        AlterDisksRequest.AcceptedLoss(name=topic, partitions=[index]) for topic, index in accepted
    ]
    request = AlterDisksRequest(action=action, path=str(path), accepted_losses=losses)
    return await client.ask(request)


async def add(client: Client, path: Path | str) -> Any:
    return await alter(client, DirectoryAction.ADD, path)


async def log_dirs(client: Client) -> list[str]:
    """Return the effective `log.dirs` of DescribeConfigs."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=["log.dirs"]
    )
    answer = await client.ask(DescribeConfigsRequest(resources=[resource]))
    text: str = answer.results[0].configs[0].value
    return text.split(",")


async def described(client: Client) -> dict[str, Any]:
    answer = await client.ask(DescribeLogDirsRequest(topics=None))
    return {result.log_dir: result for result in answer.results}


def registered(node: Node, broker_id: int = 1) -> tuple[bytes, ...]:
    """Return the ids of the log directories that are online, as the node knows them."""
    return node.publisher.image.cluster.brokers[broker_id].directories


def fail(node: Node, path: Path) -> None:
    """Fail a directory as if its disk had reported an error."""
    assert node.broker is not None
    directory = node.broker.replicas.directory_at(str(path))
    assert directory is not None
    directory.executor.fail(OSError(5, "Input/output error"))


def replicas_in(node: Node, path: Path) -> int:
    assert node.broker is not None
    directory = node.broker.replicas.directory_at(str(path))
    assert directory is not None
    return len(node.broker.replicas.in_directory(directory))


async def delete_topic(client: Client, name: str) -> None:
    topic = DeleteTopicsRequest.DeleteTopicState(name=name)
    answer = await client.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert answer.responses[0].error_code == 0, answer
