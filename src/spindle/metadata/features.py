"""Feature levels: which levels exist, what they require and what a new cluster starts with.

`metadata.version` decides the format of metadata records and of some inter-broker requests
(KIP-584, KIP-778); the other features depend on it. The numbers are those of Apache Kafka 4.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spindle.common.errors import UnsupportedMetadata

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

MINIMUM_METADATA_VERSION: Final = 7
LATEST_METADATA_VERSION: Final = 33
"""The newest level that a released cluster may use; 34 and above are under development in Kafka."""

# The first level of each change of the record format.
REGISTRATION_CHANGE_LEVEL: Final = 6
SCRAM_LEVEL: Final = 11
KEEP_LEADER_EPOCH_ON_ISR_SHRINK_LEVEL: Final = 12
METADATA_TRANSACTION_LEVEL: Final = 13
DELEGATION_TOKEN_LEVEL: Final = 14
CONTROLLER_REGISTRATION_LEVEL: Final = 15
DIRECTORY_ASSIGNMENT_LEVEL: Final = 17
DYNAMIC_QUORUM_LEVEL: Final = 21
ELR_LEVEL: Final = 23
CORDONED_DIRECTORIES_LEVEL: Final = 30
CIDR_HOSTS_LEVEL: Final = 32
CONTROLLER_UNREGISTRATION_LEVEL: Final = 33


@dataclass(frozen=True, slots=True)
class MetadataVersion:
    """One level. `name` is release and increment; `changes_metadata` bars downgrades below it."""

    level: int
    name: str
    changes_metadata: bool

    @property
    def release(self) -> str:
        """The release of the level, such as `4.4`."""
        return self.name.partition("-")[0]


METADATA_VERSIONS: Final = tuple(
    MetadataVersion(level, name, changes)
    for level, name, changes in (
        (7, "3.3-IV3", True),
        (8, "3.4-IV0", True),
        (9, "3.5-IV0", False),
        (10, "3.5-IV1", False),
        (11, "3.5-IV2", True),
        (12, "3.6-IV0", False),
        (13, "3.6-IV1", True),
        (14, "3.6-IV2", True),
        (15, "3.7-IV0", True),
        (16, "3.7-IV1", True),
        (17, "3.7-IV2", True),
        (18, "3.7-IV3", False),
        (19, "3.7-IV4", False),
        (20, "3.8-IV0", False),
        (21, "3.9-IV0", False),
        (22, "4.0-IV0", False),
        (23, "4.0-IV1", True),
        (24, "4.0-IV2", False),
        (25, "4.0-IV3", False),
        (26, "4.1-IV0", False),
        (27, "4.1-IV1", False),
        (28, "4.2-IV0", False),
        (29, "4.2-IV1", False),
        (30, "4.3-IV0", True),
        (31, "4.4-IV0", False),
        (32, "4.4-IV1", True),
        (33, "4.4-IV2", True),
    )
)
_BY_LEVEL: Final = {version.level: version for version in METADATA_VERSIONS}
UNSTABLE_METADATA_VERSION: Final = MetadataVersion(34, "4.5-IV0", changes_metadata=False)
"""Under development in Kafka 4.4; no cluster of a release has it."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature besides `metadata.version`.

    `default_from[i]` is the metadata.version from which new clusters start with level i + 1;
    `requires[i]` is what level i + 1 needs of other features.
    """

    name: str
    default_from: tuple[int, ...]
    requires: tuple[Mapping[str, int], ...]

    @property
    def maximum(self) -> int:
        return len(self.default_from)

    def default_level(self, metadata_version: int) -> int:
        """Return the level that a cluster formatted at `metadata_version` starts with."""
        return sum(1 for needed in self.default_from if metadata_version >= needed)


FEATURES: Final = tuple(
    Feature(name, default_from, requires)
    for name, default_from, requires in (
        (KRAFT_VERSION, (21,), ({METADATA_VERSION: DYNAMIC_QUORUM_LEVEL},)),
        (TRANSACTION_VERSION, (24, 24), ({}, {})),
        (GROUP_VERSION, (22,), ({},)),
        (ELR_VERSION, (26,), ({METADATA_VERSION: ELR_LEVEL},)),
        (SHARE_VERSION, (28, 31), ({}, {})),
        (STREAMS_VERSION, (29,), ({},)),
    )
)
"""In the order in which Kafka's tools list them."""
_BY_NAME: Final = {feature.name: feature for feature in FEATURES}


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Levels that a node supports, both ends inclusive."""

    minimum: int
    maximum: int

    def __contains__(self, level: int) -> bool:
        return self.minimum <= level <= self.maximum

    def __str__(self) -> str:
        if self.minimum == self.maximum:
            return str(self.minimum)
        return f"{self.minimum}-{self.maximum}"


SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION: VersionRange(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
    **{feature.name: VersionRange(0, feature.maximum) for feature in FEATURES},
}
"""The levels that this build supports, as registrations and ApiVersions send them."""


def metadata_version(level: int) -> MetadataVersion:
    """Return the table row of a level.

    Raises:
        ValueError: no such level.
    """
    version = _BY_LEVEL.get(level)
    if version is None:
        raise ValueError(
            f"no metadata.version {level}: known are "
            f"{MINIMUM_METADATA_VERSION} to {LATEST_METADATA_VERSION}"
        )
    return version


def check_feature_level(name: str, level: int) -> None:
    """Refuse a level whose records this build might misread; Kafka's controllers do the same.

    Raises:
        UnsupportedMetadata: the feature or this level of it is not known.
    """
    if name == METADATA_VERSION:
        check_metadata_version(level)
        return
    supported = SUPPORTED_FEATURES.get(name)
    if supported is None and level != 0:
        raise UnsupportedMetadata(
            f"the cluster has feature {name} at level {level}, and this Spindle does not know it"
        )
    if supported is not None and level not in supported:
        raise UnsupportedMetadata(
            f"{name} {level} is not supported by this Spindle: it knows levels {supported}"
        )


def check_metadata_version(level: int) -> None:
    """Refuse a metadata.version as `check_feature_level` does."""
    if level > LATEST_METADATA_VERSION:
        raise UnsupportedMetadata(
            f"metadata.version {_shown(level)} is newer than this Spindle: it knows levels up to "
            f"{_shown(LATEST_METADATA_VERSION)}"
        )
    if level < MINIMUM_METADATA_VERSION:
        raise UnsupportedMetadata(
            f"metadata.version {level} is older than this Spindle: it knows levels from "
            f"{_shown(MINIMUM_METADATA_VERSION)} on",
            "Raise the level with Kafka 3.3 to 3.9 first",
        )


def _shown(level: int) -> str:
    """Return a level with its name, such as `33 (4.4-IV2)`, if it has one."""
    known = {**_BY_LEVEL, UNSTABLE_METADATA_VERSION.level: UNSTABLE_METADATA_VERSION}
    return f"{level} ({known[level].name})" if level in known else str(level)


def metadata_version_name(level: int) -> str:
    """Return the name of a level, such as `4.4-IV2`; the number itself for an unknown level."""
    version = _BY_LEVEL.get(level)
    return version.name if version else str(level)


def parse_metadata_version(text: str) -> int:
    """Return the level of `4.4-IV2`, or of a release (`4.4`, `4.4.0`): the newest level it has.

    Raises:
        ValueError: the text names no known level.
    """
    release = ".".join(text.split(".")[:2]) if "-" not in text else ""
    levels = [version.level for version in METADATA_VERSIONS if text == version.name]
    levels += [version.level for version in METADATA_VERSIONS if release == version.release]
    if not levels:
        names = ", ".join(version.name for version in METADATA_VERSIONS)
        raise ValueError(
            f"Unknown metadata.version '{text}'. Supported metadata.version are: {names}"
        )
    return levels[-1]


def default_level(feature: str, metadata_version_level: int) -> int:
    """Return the level of a feature in a cluster formatted at this metadata.version; 0 is "off"."""
    return _BY_NAME[feature].default_level(metadata_version_level)


def dependencies(feature: str, level: int) -> Mapping[str, int]:
    """Return the lowest levels of other features that `feature` requires at `level`."""
    if feature == METADATA_VERSION or level == 0:
        return {}
    return _BY_NAME[feature].requires[level - 1]


def unmet_dependency(feature: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Return why `feature` cannot be at `level` beside the other `levels`; None if it can."""
    for needed, at_least in dependencies(feature, level).items():
        actual = levels.get(needed, 0)
        if actual < at_least:
            return (
                f"{feature} could not be set to {level} because it depends on {needed} "
                f"level {at_least}"
            )
    return None


def downgrade_loses_metadata(current: int, wanted: int) -> bool:
    """Return whether a level above `wanted`, up to `current`, changed what records can hold."""
    return any(
        version.changes_metadata
        for version in METADATA_VERSIONS
        if wanted < version.level <= current
    )
