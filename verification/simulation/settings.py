"""Feature levels that rise and fall, and configurations that change while the cluster works.

A change must be committed when the admin gets its answer.
"""

from random import Random
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.metadata.configs import (
    BROKER_RESOURCE,
    DEFAULT_BROKER,
    TOPIC_RESOURCE,
    ConfigResource,
)
from spindle.metadata.features import (
    ELR_VERSION,
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    TRANSACTION_VERSION,
)
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.update_features import UpdateFeaturesRequest
from spindle.runtime.broker.topic_settings import SettingsOfTopics
from spindle.runtime.peers.port import PeerUnavailable
from verification.simulation.client import SimulatedClient
from verification.simulation.cluster import SimulatedNode
from verification.simulation.metadata_oracle import MetadataOracle
from verification.simulation.scenario import Scenario
from verification.simulation.topic import Topic
from verification.simulation.trace import History
from verification.simulation.verdict import Verdict

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3
_SET: Final = 0
_DELETE: Final = 1
_TIMEOUT_MS: Final = 3000
_BROKER_VALUES: Final = {
    "num.replica.fetchers": ("1", "2", "3"),
    "num.io.threads": ("4", "12"),
    "message.max.bytes": ("100000", "2000000"),
}
"""None of them weakens a promise."""
_TOPIC_VALUES: Final = {
    "segment.bytes": ("1048576",),
    "segment.ms": ("1000", "5000"),
    "flush.messages": ("1", "10"),
    "min.insync.replicas": ("2", "3"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "compression.type": ("producer", "zstd", "gzip"),
}


def unapplied_settings(simulated: SimulatedNode, image: MetadataImage) -> str | None:
    """Return which replica of a broker works with other settings than the image says, if any."""
    node = simulated.node
    if node is None or node.broker is None:
        return None
    settings = SettingsOfTopics(simulated.config)
    for partition in node.broker.replicas:
        expected = settings.of(image, partition.topic_partition.topic)
        leader = partition.leader
        if partition.log.config != expected.log_config or (
            leader is not None and leader.min_isr != expected.min_isr
        ):
            return f"{simulated} has not applied the settings of {partition.topic_partition}"
    return None


class SettingsAdmin:
    """Tries each change once."""

    def __init__(
        self,
        client: SimulatedClient,
        metadata: MetadataOracle,
        verdict: Verdict,
        history: History,
        random: Random,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._verdict = verdict
        self._history = history
        self._random = random

    async def change_some(
        self, scenario: Scenario, random: Random, brokers: list[int], topics: list[Topic]
    ) -> None:
        """Change what changes in this scenario, by chance."""
        deeds = scenario.deeds
        if deeds.features and random.random() < 0.5:
            await self.change_feature(keep_elr=scenario.chances.is_lossy)
        if deeds.transaction_versions and random.random() < 0.6:
            await self.change_transaction_version()
        if deeds.configs:
            await self.change_config(brokers, topics)

    async def change_transaction_version(self) -> None:
        """Raise or lower `transaction.version`."""
        await self._change_level(TRANSACTION_VERSION, self._random.randint(0, 2))

    async def change_feature(self, *, keep_elr: bool) -> None:
        """Raise or lower the level of another feature."""
        random = self._random
        names = (METADATA_VERSION, KRAFT_VERSION, *(() if keep_elr else (ELR_VERSION, ELR_VERSION)))
        name = random.choice(names)
        if name == METADATA_VERSION:
            level = random.randint(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION)
        else:
            level = random.randint(0, 1)
        await self._change_level(name, level)

    async def _change_level(self, name: str, level: int) -> None:
        current = self._metadata.newest.features.levels.get(name, 0)
        downgrade = self._random.choice((_SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE))
        kind = UpdateFeaturesRequest.FeatureUpdateKey
        self._history.note(f"{name} is to change from {current} to {level}")
        answer = await self._ask(
            UpdateFeaturesRequest(
                timeout_ms=_TIMEOUT_MS,
                feature_updates=[
                    kind(
                        feature=name,
                        max_version_level=level,
                        upgrade_type=_UPGRADE if level >= current else downgrade,
                    )
                ],
            )
        )
        if answer is None or answer.error_code:
            return
        self._history.note(f"{name} is {level}")
        committed = self._metadata.newest.features.levels.get(name, 0)
        self._verdict.check(
            name == KRAFT_VERSION or committed == level,
            f"{name} {level} was acknowledged, but {committed} is committed",
        )

    async def change_config(self, brokers: list[int], topics: list[Topic]) -> None:
        """Change one value of a topic, a broker or all brokers."""
        random = self._random
        resource = random.choice(
            (
                DEFAULT_BROKER,
                ConfigResource(BROKER_RESOURCE, str(random.choice(brokers))),
                ConfigResource(TOPIC_RESOURCE, random.choice(topics).name),
            )
        )
        is_topic = resource.resource_type == TOPIC_RESOURCE
        name, values = random.choice(list((_TOPIC_VALUES if is_topic else _BROKER_VALUES).items()))
        await self._change(resource, name, random.choice((*values, None)))

    async def cordon(self, broker_id: int, paths: str | None) -> bool:
        """Try once to set `cordoned.log.dirs` of a broker; None removes it."""
        resource = ConfigResource(BROKER_RESOURCE, str(broker_id))
        return await self._change(resource, "cordoned.log.dirs", paths)

    async def _change(self, resource: ConfigResource, name: str, value: str | None) -> bool:
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = kind.AlterableConfig(
            name=name, config_operation=_DELETE if value is None else _SET, value=value
        )
        self._history.note(f"{name} of {resource} is to be {value}")
        answer = await self._ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    kind(
                        resource_type=resource.resource_type,
                        resource_name=resource.name,
                        configs=[config],
                    )
                ]
            )
        )
        if answer is None or answer.responses[0].error_code != ErrorCode.NONE:
            return False
        self._history.note(f"{name} of {resource} is {value}")
        committed = self._metadata.newest.configs.of(resource).get(name)
        self._verdict.check(
            committed == value,
            f"{name}={value} of {resource} was acknowledged, but {committed} is committed",
        )
        return True

    async def _ask(self, request: Any) -> Any:
        try:
            return await self._client.ask_any(request)
        except PeerUnavailable:
            return None
