"""`kafka-features`: the levels of features in force, and changes of them (KIP-584, KIP-1022)."""

import json
from collections.abc import Sequence
from typing import Final

import click

from spindle.cli.failure import CommandFailed
from spindle.cli.storage.dependencies import dependencies_of, dependency_lines
from spindle.cli.tools.bootstrap import connect_either
from spindle.cli.tools.command import Body, ToolCommand, ToolGroup
from spindle.cli.tools.failures import ToolFailed, UsageError
from spindle.cli.tools.options import (
    BOOTSTRAP_CONTROLLER,
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.client.admin.cluster import (
    FeatureLevels,
    UpgradeType,
    describe_cluster,
    describe_features,
    update_features,
)
from spindle.client.admin.refusals import refusal_text
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.common.errors import ApiError, ConfigError
from spindle.common.java_text import in_map_order, string_hash
from spindle.local.formatting.feature_levels import parse_feature, parse_release
from spindle.metadata.features import (
    FEATURES,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    metadata_version_name,
)

_PAST: Final = {"upgrade": "upgraded", "downgrade": "downgraded"}


DECLARATION: Final = Declaration(
    "Show and change feature levels.",
    (BOOTSTRAP_SERVER, BOOTSTRAP_CONTROLLER, COMMAND_CONFIG),
    examples=("spindle kafka features describe",),
)
_FEATURE: Final = Option("feature", "A feature and its level; may be repeated.", "name=level")
_NAME: Final = Option("feature", "A feature; may be repeated.", "name")
_RELEASE: Final = Option("release-version", "All features at the levels of this release.", "v")
_METADATA: Final = Option("metadata", "A metadata.version; --release-version replaces it.", "v")
_DRY_RUN: Final = Option("dry-run", "Only check the change.")
_NODE: Final = Option("node-id", "The node to ask; any node by default.", "id")
_UNSAFE: Final = Option("unsafe", "Change the level even if metadata is lost.")


def _describe(options: Options) -> None:
    node_id = options.integer("node-id")
    with connect_either(options) as client:
        node = None if node_id is None else _node(client, options, node_id)
        features, epoch = describe_features(client, node)
    if options.has("json"):
        click.echo(json.dumps(_document(features, epoch)))
        return
    for feature in features:
        click.echo(feature_line(feature, epoch))


def _node(client: WireClient, options: Options, node_id: int) -> BrokerAddress:
    controllers = options.has("bootstrap-controller")
    nodes = describe_cluster(client, controllers=controllers).nodes
    for node in nodes:
        if node.node_id == node_id:
            return BrokerAddress(node.node_id, node.host, node.port)
    known = ", ".join(str(node.node_id) for node in nodes)
    kind = "controller" if controllers else "broker"
    raise ToolFailed(f"--node-id {node_id}: there is no such {kind}; the cluster has {known}")


def feature_line(feature: FeatureLevels, epoch: int) -> str:
    """Return the line about one feature."""
    levels = [
        level_text(feature.name, level)
        for level in (feature.first, feature.last, feature.finalized)
    ]
    return (
        f"Feature: {feature.name:<40}  SupportedMinVersion: {levels[0]:<15}  "
        f"SupportedMaxVersion: {levels[1]:<15}  FinalizedVersionLevel: {levels[2]:<15}  "
        f"Epoch: {epoch if epoch >= 0 else '-'}"
    )


def level_text(feature: str, level: int) -> str:
    """Return the text of a level; a level of metadata.version is shown as its release."""
    if feature != METADATA_VERSION:
        return str(level)
    name = metadata_version_name(level)
    return f"UNKNOWN {level}" if name == str(level) else name


def _document(features: Sequence[FeatureLevels], epoch: int) -> dict[str, object]:
    return {
        "epoch": epoch,
        "features": [
            {
                "feature": feature.name,
                "supportedMinVersion": feature.first,
                "supportedMaxVersion": feature.last,
                "finalizedVersionLevel": feature.finalized,
            }
            for feature in features
        ],
    }


def _map_version(options: Options) -> None:
    shown = options.one("release-version") or metadata_version_name(LATEST_METADATA_VERSION)
    level = _release(shown)
    click.echo(f"{METADATA_VERSION}={level} ({shown})")
    for feature in FEATURES:
        click.echo(f"{feature.name}={feature.default_level(level)}")


def _release(text: str) -> int:
    try:
        return parse_release(text)
    except ConfigError as error:
        raise ToolFailed(str(error)) from None


def _show_dependencies(options: Options) -> None:
    if not options.has("feature"):
        raise UsageError("argument --feature is required", "--feature is missing")
    for text in options.all("feature"):
        try:
            dependencies = dependencies_of(text)
        except CommandFailed as error:
            raise ToolFailed(str(error)) from None
        for line in dependency_lines(dependencies):
            click.echo(line)


def _upgrade(options: Options) -> None:
    levels = _wanted(options, with_zero=False)
    _change(options, "upgrade", levels, UpgradeType.UPGRADE)


def _downgrade(options: Options) -> None:
    _change(options, "downgrade", _wanted(options, with_zero=True), _downgrade_type(options))


def _disable(options: Options) -> None:
    levels: dict[str, int] = {}
    for name in options.all("feature"):
        _add(levels, name, 0)
    _change(options, "disable", levels, _downgrade_type(options))


def _downgrade_type(options: Options) -> UpgradeType:
    return UpgradeType.UNSAFE_DOWNGRADE if options.has("unsafe") else UpgradeType.SAFE_DOWNGRADE


def _change(options: Options, verb: str, levels: dict[str, int], kind: UpgradeType) -> None:
    if not levels:
        raise ToolFailed(
            f"You must specify at least one feature to {verb}",
            plainly=f"name at least one feature to {verb}: --feature",
        )
    # The controller names the first feature that it refuses, so the order is part of the answer.
    levels = {name: levels[name] for name in in_map_order(levels, string_hash)}
    error: ApiError | None = None
    with connect_either(options) as client:
        try:
            update_features(client, levels, kind, validate_only=options.has("dry-run"))
        except ApiError as refused:
            error = refused
    for line in change_lines(verb, levels, error, dry_run=options.has("dry-run")):
        click.echo(line)
    if error is not None:
        raise ToolFailed(f"{len(levels)} out of {len(levels)} operation(s) failed.")


def change_lines(
    verb: str, levels: dict[str, int], error: ApiError | None, *, dry_run: bool
) -> list[str]:
    """Return a line for each feature; either all of them change, or none."""
    lines = []
    for name, level in sorted(levels.items()):
        target = "" if verb == "disable" else f" to {level}"
        if error is not None:
            cannot = "Can not" if dry_run else "Could not"
            lines.append(f"{cannot} {verb} {name}{target}. {refusal_text(error)}")
        else:
            done = "can be" if dry_run else "was"
            lines.append(f"{name} {done} {_PAST.get(verb, 'disabled')}{target}.")
    return lines


def _wanted(options: Options, *, with_zero: bool) -> dict[str, int]:
    release = options.one("release-version")
    metadata = options.one("metadata")
    if release is not None:
        if metadata is not None or options.has("feature"):
            raise ToolFailed(
                "Can not specify `release-version` with other feature flags.",
                plainly="--release-version cannot be used with --metadata or --feature",
            )
        return _of_release(release, with_zero=with_zero)
    levels: dict[str, int] = {}
    if metadata is not None:
        click.echo(" `metadata` flag is deprecated and may be removed in a future release.")
        levels[METADATA_VERSION] = _release(metadata)
    for text in options.all("feature"):
        try:
            name, level = parse_feature(text)
        except ConfigError as error:
            raise ToolFailed(str(error)) from None
        _add(levels, name, level)
    return levels


def _of_release(release: str, *, with_zero: bool) -> dict[str, int]:
    level = _release(release)
    levels = {feature.name: feature.default_level(level) for feature in FEATURES}
    chosen = {name: level for name, level in levels.items() if level > 0 or with_zero}
    return {METADATA_VERSION: level, **chosen}


def _add(levels: dict[str, int], name: str, level: int) -> None:
    if name in levels:
        raise ToolFailed(f"Feature {name} was specified more than once.")
    levels[name] = level


_CHANGES: Final = (_RELEASE, _METADATA, _FEATURE, _DRY_RUN)


_EXAMPLES: Final = {
    "describe": "",
    "upgrade": " --release-version 4.4",
    "downgrade": " --feature transaction.version=1",
    "disable": " --feature eligible.leader.replicas.version",
    "version-mapping": " --release-version 4.4",
    "feature-dependencies": " --feature transaction.version=2",
}
"""Options of the example in the help, by command."""


def _part(name: str, summary: str, body: Body, *options: Option) -> ToolCommand:
    example = f"spindle kafka features {name}{_EXAMPLES[name]}"
    declaration = Declaration(summary, options, examples=(example,))
    return ToolCommand(name, declaration, body, is_part=True)


features = ToolGroup(
    "features",
    DECLARATION,
    [
        _part("describe", "Show the levels in force.", _describe, _NODE, JSON),
        _part("upgrade", "Raise the levels of features.", _upgrade, *_CHANGES),
        _part("downgrade", "Lower the levels of features.", _downgrade, *_CHANGES, _UNSAFE),
        _part("disable", "Set features to level 0.", _disable, _NAME, _DRY_RUN, _UNSAFE),
        _part("version-mapping", "Show the levels of a release.", _map_version, _RELEASE),
        _part("feature-dependencies", "Show what levels depend on.", _show_dependencies, _FEATURE),
    ],
)
