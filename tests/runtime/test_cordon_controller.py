"""The cordoned directories of a broker follow its configuration and the cluster's level."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from metadata_history import image_of
from node_harness import Client, Home, connected, partition_folders, running
from waiting import until

from spindle.common.errors import ApiError, ErrorCode
from spindle.config.node_config import NodeConfig
from spindle.disks.cordons import Cordon
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from spindle.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from spindle.protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from spindle.runtime.broker.cordon_controller import CordonController

Altered = IncrementalAlterConfigsRequest.AlterConfigsResource


class Controller:
    """Keeps the requests of the keeper, and fails as often as the test says."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.asked: asyncio.Queue[list[tuple[str, int, str | None]]] = asyncio.Queue()

    async def request(self, message: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        (resource,) = message.resources
        assert (resource.resource_type, resource.resource_name) == (4, "1")
        self.asked.put_nowait([(c.name, c.config_operation, c.value) for c in resource.configs])
        return IncrementalAlterConfigsResponse(
            responses=[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse()]
        )


async def no_spaces() -> dict[str, tuple[int, int]]:
    return {}


def keeper_of(
    told: list[list[str]],
    *paths: str,
    static: str | None = None,
    controller: Controller | None = None,
    now_ms: Callable[[], int] = lambda: 0,
) -> CordonController:
    properties = {
        "process.roles": "broker",
        "node.id": "1",
        "listeners": "PLAINTEXT://h1:9092",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "9@h1:9093",
        "log.dirs": ",".join(paths),
        **({} if static is None else {"cordoned.log.dirs": static}),
    }
    directories: list[Any] = [SimpleNamespace(path=path) for path in paths]
    return CordonController(
        NodeConfig.from_properties(properties),
        directories,
        lambda cordons: told.append(list(cordons)),
        no_spaces,
        Controller().request if controller is None else controller.request,
        now_ms,
        lambda: 0.0,
    )


def image(level: int, cordoned: str | None = None, notes: str | None = None) -> MetadataImage:
    values = {"cordoned.log.dirs": cordoned, "spindle.cordon.notes": notes}
    return image_of(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=level),
            *(
                ConfigRecord(resource_type=4, resource_name="1", name=name, value=value)
                for name, value in values.items()
                if value is not None
            ),
        ]
    )


def test_a_static_cordon_below_its_level_waits_for_the_upgrade(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[list[str]] = []
    keeper = keeper_of(told, "/a", "/b", static="/b")
    keeper.follow(image(29))
    keeper.follow(image(29))
    assert told == [[]], "told once, that nothing is cordoned"
    (warning,) = caplog.messages
    assert warning == (
        "cordoned.log.dirs=/b has no effect: cordons need metadata.version 4.3-IV0, and the "
        "cluster has 4.2-IV1"
    )
    keeper.follow(image(30))
    assert told == [[], ["/b"]]


def test_an_entry_that_is_no_log_directory_any_more_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[list[str]] = []
    keeper_of(told, "/a", "/b").follow(image(30, "/gone,/b"))
    assert told == [["/b"]]
    assert caplog.messages == [
        "cordoned.log.dirs names /gone, which is not a log directory of this broker; the entry has "
        "no effect"
    ]


A = '{"path":"/a","until_ms":1000}'
B = '{"path":"/b","owner":"ops","until_ms":2000}'
C = '{"path":"/c"}'


async def test_a_broker_ends_a_cordon_whose_time_is_over_also_after_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    controller = Controller(failures=2)
    now_ms = 1_999
    keeper = keeper_of([], "/a", "/b", "/c", controller=controller, now_ms=lambda: now_ms)
    keeper.follow(image(30, "/a,/b,/c", f"[{A},{B},{C}]"))
    keeper.start()
    assert await controller.asked.get() == [
        ("spindle.cordon.notes", 0, f"[{B},{C}]"),
        ("cordoned.log.dirs", 3, "/a"),
    ]
    assert "the time of a cordon is over: /a" in caplog.messages
    now_ms = 2_000
    keeper.follow(image(30, "/b,/c", f"[{B},{C}]"))
    assert await controller.asked.get() == [
        ("spindle.cordon.notes", 0, f"[{C}]"),
        ("cordoned.log.dirs", 3, "/b"),
    ]
    assert "the time of a cordon is over: /b, by ops" in caplog.messages
    await keeper.stop()


async def test_a_note_whose_cordon_a_kafka_controller_removed_is_removed() -> None:
    controller = Controller()
    keeper = keeper_of([], "/a", "/b", controller=controller)
    keeper.start()
    keeper.follow(image(30, "/b", f"[{A}]"))
    assert await controller.asked.get() == [("spindle.cordon.notes", 1, None)]
    keeper.follow(image(30, "/b"))
    await keeper.stop()
    assert controller.asked.empty()


async def alter(client: Client, value: str | None, operation: int = 0) -> tuple[int, str | None]:
    config = Altered.AlterableConfig(
        name="cordoned.log.dirs", config_operation=operation, value=value
    )
    answer = await client.ask(
        IncrementalAlterConfigsRequest(
            resources=[Altered(resource_type=4, resource_name="1", configs=[config])]
        )
    )
    return answer.responses[0].error_code, answer.responses[0].error_message


async def cordoned(client: Client) -> list[bool]:
    answer = await client.ask(DescribeLogDirsRequest(topics=None))
    return [result.is_cordoned for result in answer.results]


async def test_a_broker_cordons_by_any_path_that_leads_to_its_directory(tmp_path: Path) -> None:
    home = Home(tmp_path).format()
    first, second, _ = home.directories
    link = tmp_path / "link"
    link.symlink_to(second)

    async with running(home) as node, connected(node) as client:
        for written in (f"{second}/", str(link), f"{first}/../disk2"):
            assert await alter(client, written) == (0, None)
            assert await cordoned(client) == [False, True, False]
            assert node.publisher.image.configs.broker(1) == {"cordoned.log.dirs": written}
        await client.create_topic("t", partitions=4)
        await client.ask(DescribeLogDirsRequest(topics=None))
        assert set(partition_folders(home).values()) == {"disk1", "disk3"}
        wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        move = wanted.AlterReplicaLogDirTopic(name="t", partitions=[0])
        answer = await client.ask(
            AlterReplicaLogDirsRequest(dirs=[wanted(path=str(second), topics=[move])])
        )
        code = answer.results[0].partitions[0].error_code
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        code, text = await alter(client, str(tmp_path / "disk4"))
        assert code == ErrorCode.INVALID_REQUEST
        assert text is not None
        assert text.endswith(f"Missing entries : {tmp_path / 'disk4'}")


async def test_below_its_level_a_cordon_in_the_file_is_ignored_and_a_dynamic_one_refused(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, cordoned_log_dirs="*").format("--release-version", "4.2")

    async with running(home) as node, connected(node) as client:
        assert await cordoned(client) == [False, False, False]
        assert node.publisher.image.cluster.brokers[1].cordoned_directories is None
        await client.create_topic("t", partitions=3)
        code, text = await alter(client, str(home.directories[0]))
        assert code == ErrorCode.INVALID_CONFIG
        assert text == (
            "The cordoned.log.dirs configuration value cannot be set because it requires "
            "metadata.version >= 4.3-IV0"
        )


async def test_all_directories_stay_cordoned_over_a_restart_with_one_of_them_gone(
    tmp_path: Path,
) -> None:
    """The id of a directory that cannot be read is not known, so it is not reported."""
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as client:
        assert await alter(client, "*") == (0, None)
        assert await cordoned(client) == [True, True, True]
        assert node.broker is not None
        await node.broker.stop(10)
    gone = home.directories[2] / "meta.properties"
    gone.unlink()
    gone.mkdir()
    async with running(home) as node:
        (broker,) = node.publisher.image.cluster.brokers.values()
        assert len(broker.directories) == 2
        assert not broker.has_uncordoned_directory()


async def test_a_note_is_shown_with_its_cordon_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path).format()
    first = str(home.directories[0])

    async with running(home) as node, connected(node) as client:
        text = json.dumps([{"path": first, "owner": "ops", "reason": "worn", "until_ms": 1}])
        configs = [
            Altered.AlterableConfig(name="cordoned.log.dirs", value=first),
            Altered.AlterableConfig(name="spindle.cordon.notes", value=text),
        ]
        resource = Altered(resource_type=4, resource_name="1", configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        assert node.broker is not None
        seen: list[tuple[str, str | None, str | None, int | None]] = []
        cordon = node.broker.replicas.cordon

        def noting(cordons: Mapping[str, Sequence[Cordon]]) -> None:
            seen.extend((c.cause, c.reason, c.owner, c.until_ms) for c in cordons.get(first, ()))
            cordon(cordons)

        monkeypatch.setattr(node.broker.replicas, "cordon", noting)
        answer = await client.ask(request)
        assert answer.responses[0].error_code == 0
        ended = {"cordoned.log.dirs": ""}
        await until(lambda: node.publisher.image.configs.broker(1) == ended)
        assert seen == [("configuration", "worn", "ops", 1)]
        assert await cordoned(client) == [False, False, False]
