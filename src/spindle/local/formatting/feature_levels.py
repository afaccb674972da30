"""The feature levels of a new cluster, from `--release-version` and `--feature` (KIP-1022)."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.metadata.features import (
    FEATURES,
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    UNSTABLE_METADATA_VERSION,
    default_level,
    metadata_version,
    parse_metadata_version,
    unmet_dependency,
)

_SHORT_MAX: Final = 32767


class StartingLevels(NamedTuple):
    """The feature levels of a new cluster; `features` has all but metadata.version, by name."""

    metadata_version: int
    kraft_version: int
    features: Mapping[str, int]

    def recorded(self) -> list[tuple[str, int]]:
        """Return the levels that are written as records: metadata.version, then levels above 0 by
        name."""
        others = sorted((name, level) for name, level in self.features.items() if level > 0)
        return [(METADATA_VERSION, self.metadata_version), *others]


def parse_feature(text: str) -> tuple[str, int]:
    """Return the feature and the level of a `feature=level` argument.

    Raises:
        ConfigError: it has no equals sign, or the level is not a number.
    """
    name, equals, level_text = text.partition("=")
    if not equals:
        raise ConfigError(f"Can't parse feature=level string {text}: equals sign not found.")
    level = level_text.strip()
    if not level.removeprefix("-").isdecimal() or abs(int(level)) > _SHORT_MAX:
        raise ConfigError(
            f"Can't parse feature=level string {text}: unable to parse {level} as a short."
        )
    return name.strip(), int(level)


def parse_release(text: str) -> int:
    """Return the metadata.version of a release such as `4.4` or `4.4-IV2`.

    Raises:
        ConfigError: there is no such release.
    """
    try:
        return parse_metadata_version(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def starting_levels(
    release: int | None, features: Iterable[tuple[str, int]], *, has_dynamic_quorum: bool
) -> StartingLevels:
    """Return the feature levels of a new cluster.

    Args:
        release: level of metadata.version, None for the newest.
        features: given levels; a later one for the same feature wins.
        has_dynamic_quorum: whether there are no static voters.

    Raises:
        ConfigError: unknown feature or level, or levels that do not go together.
    """
    given = dict(features)
    metadata_level = _metadata_level(release, given.pop(METADATA_VERSION, None))
    names = sorted(feature.name for feature in FEATURES)
    for name in sorted(given):
        if name not in names:
            raise ConfigError(
                f"Unsupported feature: {name}. Supported features are: {', '.join(names)}"
            )
    levels = {name: given.get(name, default_level(name, metadata_level)) for name in names}
    levels[KRAFT_VERSION] = _kraft_level(given.get(KRAFT_VERSION), has_dynamic_quorum)
    maxima = {feature.name: feature.maximum for feature in FEATURES}
    for name in names:
        if not 0 <= levels[name] <= maxima[name]:
            raise ConfigError(f"No feature:{name} with feature level {levels[name]}")
        if name == KRAFT_VERSION:
            # Kafka's tool formats a dynamic quorum at any metadata.version.
            continue
        reason = unmet_dependency(name, levels[name], {**levels, METADATA_VERSION: metadata_level})
        if reason is not None:
            raise ConfigError(reason)
    return StartingLevels(metadata_level, levels.pop(KRAFT_VERSION), levels)


def _metadata_level(release: int | None, given: int | None) -> int:
    if given is None:
        return LATEST_METADATA_VERSION if release is None else release
    if release is not None:
        raise ConfigError(
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity."
        )
    if not MINIMUM_METADATA_VERSION <= given <= UNSTABLE_METADATA_VERSION.level:
        raise ConfigError(
            f"No MetadataVersion with feature level {given}. Valid feature levels are from "
            f"{MINIMUM_METADATA_VERSION} to {UNSTABLE_METADATA_VERSION.level}."
        )
    if given > LATEST_METADATA_VERSION:
        raise ConfigError(f"metadata.version {UNSTABLE_METADATA_VERSION.name} is not yet stable.")
    return metadata_version(given).level


def _kraft_level(given: int | None, has_dynamic_quorum: bool) -> int:
    if given is None:
        return 1 if has_dynamic_quorum else 0
    flags = "--standalone, --initial-controllers, or --no-initial-controllers"
    if given == 0 and has_dynamic_quorum:
        raise ConfigError(
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the "
            f"flags {flags} is used. For dynamic controllers support, try removing the --feature "
            "flag for kraft.version."
        )
    if given != 0 and not has_dynamic_quorum:
        raise ConfigError(
            f"Cannot set kraft.version to {given} unless controller.quorum.voters is empty and one "
            f"of the flags {flags} is used. For dynamic controllers support, try using one of "
            f"{flags} and removing controller.quorum.voters."
        )
    return given
