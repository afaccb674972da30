"""The controller listener, as its clients see it (KIP-919)."""

import logging
from pathlib import Path

from cluster_harness import cluster_homes, running_cluster
from node_harness import connected

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.describe_acls import DescribeAclsRequest
from spindle.protocol.messages.describe_configs import DescribeConfigsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

_Described = DescribeConfigsRequest.DescribeConfigsResource
_Altered = IncrementalAlterConfigsRequest.AlterConfigsResource
BROKER, LOGGER = 4, 8


async def test_a_controller_describes_itself_and_the_defaults_of_brokers(tmp_path: Path) -> None:
    # The broker is there so that the nodes count as started only with an active controller.
    homes = cluster_homes(tmp_path, ["controller", "broker"], num_partitions="7")

    async with running_cluster(homes) as (node, _), connected(node, "CONTROLLER") as client:
        change = _Altered.AlterableConfig(name="message.max.bytes", value="2000000")
        defaults = _Altered(resource_type=BROKER, resource_name="", configs=[change])
        await client.ask(IncrementalAlterConfigsRequest(resources=[defaults]))
        asked = [_Described(resource_type=BROKER, resource_name=name) for name in ("", "1", "2")]
        answer = await client.ask(DescribeConfigsRequest(resources=asked))
        acls = await client.ask(DescribeAclsRequest())
    cluster, own, other = answer.results
    assert [(c.name, c.value) for c in cluster.configs] == [
        ("message.max.bytes", "2000000"),
        ("min.insync.replicas", "1"),
    ]
    values = {config.name: config.value for config in own.configs}
    assert (values["num.partitions"], values["message.max.bytes"]) == ("7", "2000000")
    assert other.error_message == (
        "Unexpected broker id, expected 1 or empty string, but received 2"
    )
    assert acls.error_code == ErrorCode.SECURITY_DISABLED


async def test_a_controller_changes_levels_of_its_own_loggers_only(tmp_path: Path) -> None:
    homes = cluster_homes(tmp_path, ["controller", "broker"])
    level = _Altered.AlterableConfig(name="spindle.runtime.controller.driver", value="DEBUG")
    asked = [
        _Altered(resource_type=LOGGER, resource_name=name, configs=[level]) for name in ("1", "2")
    ]
    change = _Altered.AlterableConfig(name="message.max.bytes", value="2000000")
    asked.insert(1, _Altered(resource_type=BROKER, resource_name="", configs=[change]))

    try:
        async with running_cluster(homes) as (node, _), connected(node, "CONTROLLER") as client:
            answer = await client.ask(IncrementalAlterConfigsRequest(resources=asked))
            assert logging.getLogger("spindle.runtime.controller.driver").level == logging.DEBUG
            assert node.publisher.image.configs.default_broker()["message.max.bytes"] == "2000000"
        own, defaults, other = answer.responses
        assert (own.error_code, defaults.error_code) == (0, 0)
        assert other.error_message == "Unexpected node id. Expected 1, but received 2"
    finally:
        logging.getLogger("spindle.runtime.controller.driver").setLevel(logging.NOTSET)
