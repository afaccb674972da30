"""The feature levels that a level depends on, for `storage feature-dependencies`."""

from collections.abc import Mapping
from typing import NamedTuple

from spindle.cli.failure import CommandFailed
from spindle.metadata.features import (
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    dependencies,
    metadata_version,
    metadata_version_name,
)


class FeatureDependencies(NamedTuple):
    """A feature level and the lowest levels of other features that it requires."""

    name: str
    level: int
    requires: Mapping[str, int]


def dependencies_of(text: str) -> FeatureDependencies:
    """Return the dependencies of a `feature=level` argument.

    Raises:
        CommandFailed: the argument, the feature or the level is unknown.
    """
    name, equals, level_text = (part.strip() for part in text.partition("="))
    if not equals:
        raise CommandFailed(
            f"Invalid feature format: {text}. Expected format: 'feature=version' "
            "(e.g. 'group.version=1')"
        )
    if not level_text.removeprefix("-").isdecimal():
        raise CommandFailed(f"Invalid version format: {level_text} for feature {name}")
    level = int(level_text)
    if name == METADATA_VERSION:
        try:
            metadata_version(level)
        except ValueError:
            raise CommandFailed(f"Unknown metadata.version {level}") from None
        return FeatureDependencies(name, level, {})
    feature = next((feature for feature in FEATURES if feature.name == name), None)
    if feature is None:
        raise CommandFailed(f"Unknown feature: {name}")
    if not 0 <= level <= feature.maximum:
        raise CommandFailed(f"Feature level {level} is not supported for feature {name}")
    # The need of kraft.version is checked elsewhere and not listed by Kafka's tool.
    requires = {} if name == KRAFT_VERSION else dependencies(name, level)
    return FeatureDependencies(name, level, requires)


def dependency_lines(feature: FeatureDependencies) -> list[str]:
    """Return the lines of Kafka's tool for one feature level."""
    shown = f"{feature.name}={feature.level}"
    if feature.name == METADATA_VERSION:
        return [f"{shown} ({metadata_version_name(feature.level)}) has no dependencies."]
    if not feature.requires:
        return [f"{shown} has no dependencies."]
    return [
        f"{shown} requires:",
        *(_required(*requirement) for requirement in feature.requires.items()),
    ]


def _required(name: str, level: int) -> str:
    suffix = f" ({metadata_version_name(level)})" if name == METADATA_VERSION else ""
    return f"    {name}={level}{suffix}"
