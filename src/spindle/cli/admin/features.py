"""`spindle features`: feature levels of the cluster, such as metadata.version (KIP-584)."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from spindle.cli.admin.output import YES, confirm, show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.suggestions import SuggestingGroup
from spindle.client.admin.cluster import UpgradeType, describe_features, update_features
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ConfigError
from spindle.local.formatting.feature_levels import parse_feature, parse_release
from spindle.metadata.features import (
    FEATURES,
    METADATA_VERSION,
    metadata_version_name,
)

_COLUMNS: Final = {"feature": "FEATURE", "level": "LEVEL", "lowest": "LOWEST", "highest": "HIGHEST"}


@click.group(
    "features",
    cls=SuggestingGroup,
    epilog=examples("spindle features list", "spindle features upgrade --release 4.4"),
)
def features() -> None:
    """Show, raise and lower the feature levels of the cluster."""


@features.command("list", epilog=examples("spindle features list"))
@cluster_command
def list_command(client: WireClient, as_json: bool) -> None:
    """Show the level of each feature, and the lowest and highest level that is possible."""
    levels, _ = describe_features(client)
    rows = [
        (f.name, *(_level_text(f.name, level) for level in (f.finalized, f.first, f.last)))
        for f in levels
    ]
    show_rows(as_json, _COLUMNS, rows, "The brokers report no features.")


def _level_text(feature: str, level: int) -> str:
    return metadata_version_name(level) if feature == METADATA_VERSION else str(level)


def _change_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.option("--dry-run", is_flag=True, help="Only check the change.")(function)
    function = click.option(
        "--release", metavar="V", help="All features at the levels of this release, such as 4.4."
    )(function)
    return click.argument("texts", nargs=-1, metavar="[FEATURE=LEVEL]...")(function)


@features.command(
    "upgrade",
    epilog=examples(
        "spindle features upgrade --release 4.4", "spindle features upgrade transaction.version=2"
    ),
)
@_change_options
@YES
@cluster_command
def upgrade(
    client: WireClient,
    as_json: bool,
    texts: Sequence[str],
    release: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Raise feature levels, all of them or none.

    Asks first where standard input is a terminal.
    """
    levels = _levels(texts, release, with_zero=False)
    _change(client, as_json, levels, UpgradeType.UPGRADE, dry_run=dry_run, yes=yes)


@features.command(
    "downgrade",
    epilog=examples(
        "spindle features downgrade transaction.version=1",
        "spindle features downgrade eligible.leader.replicas.version=0",
    ),
)
@_change_options
@click.option("--unsafe", is_flag=True, help="Lower the level even if metadata is lost.")
@YES
@cluster_command
def downgrade(
    client: WireClient,
    as_json: bool,
    texts: Sequence[str],
    release: str | None,
    dry_run: bool,
    unsafe: bool,
    yes: bool,
) -> None:
    """Lower feature levels, all of them or none. Level 0 disables a feature.

    Asks first where standard input is a terminal.
    """
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    levels = _levels(texts, release, with_zero=True)
    _change(client, as_json, levels, kind, dry_run=dry_run, yes=yes)


def _levels(texts: Sequence[str], release: str | None, *, with_zero: bool) -> dict[str, int]:
    """Return the levels that the words name.

    Raises:
        click.UsageError: they name none, or cannot be read.
    """
    if bool(texts) == (release is not None):
        raise click.UsageError("Give either FEATURE=LEVEL or --release.")
    try:
        if release is not None:
            version = parse_release(release)
            levels = {feature.name: feature.default_level(version) for feature in FEATURES}
            chosen = {name: level for name, level in levels.items() if level > 0 or with_zero}
            return {METADATA_VERSION: version, **chosen}
        for text in texts:
            if "=" not in text:
                raise click.UsageError(f"{text}: give FEATURE=LEVEL, as in transaction.version=2")
        return dict(map(parse_feature, texts))
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def _change(
    client: WireClient,
    as_json: bool,
    levels: Mapping[str, int],
    kind: UpgradeType,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    names = ", ".join(f"{name}={_level_text(name, level)}" for name, level in levels.items())
    if not dry_run:
        confirm(f"Change {names}?", yes)
    update_features(client, levels, kind, validate_only=dry_run)
    verb = "possible: " if dry_run else "changed "
    click.echo(json.dumps(dict(levels)) if as_json else f"{verb}{names}")
