"""`kafka-features`: the levels of features in force, and changes of them (KIP-584, KIP-1022)."""

import argparse
import json
from collections.abc import Sequence
from typing import Final

import click

from spindle.cli.failure import CommandFailed
from spindle.cli.storage.dependencies import dependencies_of, dependency_lines
from spindle.cli.storage.feature_flags import parse_feature, parse_release
from spindle.cli.tools.arguments import (
    ArgumentParser,
    BadArguments,
    add_servers,
    argument_main,
    connect_by,
)
from spindle.cli.tools.command import FAILED, ToolCommand, report_plainly
from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.java_order import in_map_order, string_hash
from spindle.client.admin.cluster import (
    FeatureLevels,
    UpgradeType,
    describe_features,
    update_features,
)
from spindle.client.admin.refusals import refusal_text
from spindle.common.errors import ApiError, ConfigError
from spindle.metadata.features import (
    FEATURES,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    metadata_version_name,
)

_PAST: Final = {"upgrade": "upgraded", "downgrade": "downgraded"}


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="kafka-features", description="This tool manages feature flags in Kafka."
    )
    add_servers(parser)
    parser.add_argument("--command-config", help="Property file of the client.")
    commands = parser.add_subparsers(dest="command", required=True)
    describe = commands.add_parser("describe", help="Show the levels in force.")
    describe.add_argument("--json", action="store_true", help="Print JSON.")
    for name in ("upgrade", "downgrade"):
        change = commands.add_parser(name, help=f"{name.capitalize()} features.")
        change.add_argument("--metadata", help="A metadata.version; --release-version is better.")
        change.add_argument("--release-version", help="All features as that release has them.")
    commands.add_parser("disable", help="Set features to level 0.")
    for name in ("upgrade", "downgrade", "disable"):
        change = commands.choices[name]
        change.add_argument("--feature", action="append", help="A feature and level: name=level.")
        change.add_argument("--dry-run", action="store_true", help="Only check the change.")
        if name != "upgrade":
            change.add_argument("--unsafe", action="store_true", help="Even if metadata is lost.")
    mapping = commands.add_parser("version-mapping", help="Show the levels of a release.")
    mapping.add_argument("--release-version", help="The release; the newest by default.")
    dependencies = commands.add_parser("feature-dependencies", help="Show what levels need.")
    dependencies.add_argument("--feature", action="append", required=True, help="name=level.")
    return parser


def _run(given: argparse.Namespace) -> None:
    match given.command:
        case "describe":
            _describe(given)
        case "version-mapping":
            _map_version(given.release_version)
        case "feature-dependencies":
            _show_dependencies(given.feature)
        case _:
            _change(given)


def _describe(given: argparse.Namespace) -> None:
    with connect_by(given, given.command_config) as client:
        features, epoch = describe_features(client)
    if given.json:
        click.echo(json.dumps(_document(features, epoch)))
        return
    for feature in features:
        click.echo(feature_line(feature, epoch))


def feature_line(feature: FeatureLevels, epoch: int) -> str:
    """The line of one feature."""
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
    """A level as it is shown: that of metadata.version by its release."""
    if feature != METADATA_VERSION:
        return str(level)
    name = metadata_version_name(level)
    return f"UNKNOWN {level}" if name == str(level) else name


def _document(features: Sequence[FeatureLevels], epoch: int) -> dict[str, object]:
    return {
        "epoch": epoch,
        "features": [
            {
                "feature": each.name,
                "supportedMinVersion": each.first,
                "supportedMaxVersion": each.last,
                "finalizedVersionLevel": each.finalized,
            }
            for each in features
        ],
    }


def _map_version(release: str | None) -> None:
    shown = release or metadata_version_name(LATEST_METADATA_VERSION)
    level = _release(shown)
    click.echo(f"{METADATA_VERSION}={level} ({shown})")
    for feature in FEATURES:
        click.echo(f"{feature.name}={feature.default_level(level)}")


def _release(text: str) -> int:
    try:
        return parse_release(text)
    except ConfigError as error:
        raise ToolFailed(str(error)) from None


def _show_dependencies(texts: Sequence[str]) -> None:
    for text in texts:
        try:
            found = dependencies_of(text)
        except CommandFailed as error:
            raise ToolFailed(str(error)) from None
        for line in dependency_lines(found):
            click.echo(line)


def _change(given: argparse.Namespace) -> None:
    verb = given.command
    levels = _disabled(given.feature or ()) if verb == "disable" else _wanted(given)
    if not levels:
        raise ToolFailed(f"You must specify at least one feature to {verb}")
    # The controller names the first feature that it refuses, so the order is part of the answer.
    levels = {name: levels[name] for name in in_map_order(levels, string_hash)}
    error: ApiError | None = None
    with connect_by(given, given.command_config) as client:
        try:
            update_features(client, levels, _type_of(given), validate_only=given.dry_run)
        except ApiError as refused:
            error = refused
    for line in change_lines(verb, levels, error, dry_run=given.dry_run):
        click.echo(line)
    if error is not None:
        raise ToolFailed(f"{len(levels)} out of {len(levels)} operation(s) failed.")


def change_lines(
    verb: str, levels: dict[str, int], error: ApiError | None, *, dry_run: bool
) -> list[str]:
    """What became of each feature: all of them change, or none."""
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


def _type_of(given: argparse.Namespace) -> UpgradeType:
    if given.command == "upgrade":
        return UpgradeType.UPGRADE
    return UpgradeType.UNSAFE_DOWNGRADE if given.unsafe else UpgradeType.SAFE_DOWNGRADE


def _wanted(given: argparse.Namespace) -> dict[str, int]:
    if given.release_version is not None:
        if given.metadata is not None or given.feature is not None:
            raise ToolFailed("Can not specify `release-version` with other feature flags.")
        return _of_release(given.release_version, with_zero=given.command != "upgrade")
    levels: dict[str, int] = {}
    if given.metadata is not None:
        click.echo(" `metadata` flag is deprecated and may be removed in a future release.")
        levels[METADATA_VERSION] = _release(given.metadata)
    for text in given.feature or ():
        try:
            name, level = parse_feature(text)
        except ConfigError as error:
            raise ToolFailed(str(error)) from None
        _add(levels, name, level)
    return levels


def _of_release(release: str, *, with_zero: bool) -> dict[str, int]:
    level = _release(release)
    levels = {feature.name: feature.default_level(level) for feature in FEATURES}
    chosen = {name: each for name, each in levels.items() if each > 0 or with_zero}
    return {METADATA_VERSION: level, **chosen}


def _disabled(names: Sequence[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name in names:
        _add(levels, name, 0)
    return levels


def _add(levels: dict[str, int], name: str, level: int) -> None:
    if name in levels:
        raise ToolFailed(f"Feature {name} was specified more than once.")
    levels[name] = level


def _report_usage(error: BadArguments) -> int:
    click.echo(f"Command line error: {error.message}. Type --help for help.", err=True)
    return FAILED


features = ToolCommand("features", argument_main(_parser(), _run, report_plainly, _report_usage))
