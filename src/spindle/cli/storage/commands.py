"""The commands of `spindle storage`, with flags, texts and exit codes of Kafka's tool."""

import json
import os

import click

from spindle.cli.dialect import Dialect, dialect_of
from spindle.cli.examples import examples
from spindle.cli.suggestions import SuggestingGroup
from spindle.common.filesystem import OsFileSystem
from spindle.common.uuids import uuid_from_random, uuid_text
from spindle.config.node_config import NodeConfig, load_node_config


@click.group(
    cls=SuggestingGroup,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=examples(
        "spindle storage random-uuid",
        "spindle storage format -c server.properties -t CLUSTER_ID --standalone",
        "spindle storage info -c server.properties",
    ),
)
def storage() -> None:
    """Format and inspect log directories."""


_config_option = click.option(
    "-c", "--config", "config_file", required=True, metavar="FILE", help="The node's property file."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@storage.command(
    "random-uuid",
    epilog=examples("spindle storage random-uuid"),
)
def random_uuid() -> None:
    """Print a random id, for a cluster or a directory."""
    click.echo(uuid_text(uuid_from_random(os.urandom)))


@storage.command(
    "format",
    epilog=examples("spindle storage format -c server.properties -t CLUSTER_ID --standalone"),
)
@_config_option
@click.option("-t", "--cluster-id", required=True, metavar="ID", help="The id of the cluster.")
@click.option(
    "-g", "--ignore-formatted", is_flag=True, help="Skip directories that are already formatted."
)
@click.option("-r", "--release-version", metavar="V", help="Start with the features of a release.")
@click.option(
    "-f", "--feature", "features", multiple=True, metavar="F=L", help="Start a feature at a level."
)
@click.option("-s", "--standalone", is_flag=True, help="This node is the only voter.")
@click.option(
    "-I",
    "--initial-controllers",
    metavar="LIST",
    help="The first voters, as id@host:port:directory-id,... (the same on every node).",
)
@click.option(
    "-N", "--no-initial-controllers", is_flag=True, help="This node joins an existing quorum."
)
@click.option(
    "-S",
    "--add-scram",
    "scram",
    multiple=True,
    metavar="CREDENTIAL",
    help="Initial credential, as SCRAM-SHA-256=[name=alice,password=secret].",
)
@click.pass_context
def format_command(
    context: click.Context,
    /,
    config_file: str,
    cluster_id: str,
    ignore_formatted: bool,
    release_version: str | None,
    features: tuple[str, ...],
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    scram: tuple[str, ...],
) -> None:
    """Format the log directories of a node.

    Writes the cluster id and the node id into each directory, and for a controller also the first
    metadata records.
    """
    from spindle.local.formatting.format_node import format_node
    from spindle.local.formatting.format_options import FormatOptions

    _only_one(
        {
            "--standalone/-s": standalone,
            "--initial-controllers/-I": initial_controllers is not None,
            "--no-initial-controllers/-N": no_initial_controllers,
        }
    )
    options = FormatOptions(
        cluster_id=cluster_id,
        ignore_formatted=ignore_formatted,
        release_version=release_version,
        features=features,
        standalone=standalone,
        initial_controllers=initial_controllers,
        no_initial_controllers=no_initial_controllers,
        scram=scram,
    )
    # Scripts search the output of Kafka's tool for the records, some 1,000 characters.
    shows_records = dialect_of(context) is Dialect.KAFKA
    config = load_node_config(config_file)
    format_node(config, options, click.echo, shows_records=shows_records)


def _only_one(flags: dict[str, bool]) -> None:
    given = [name for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise click.UsageError(f"argument {given[1]}: not allowed with argument {given[0]}")


@storage.command(
    "info",
    epilog=examples("spindle storage info -c server.properties"),
)
@_config_option
@_json_option
def info_command(config_file: str, as_json: bool) -> int:
    """Describe the log directories of a node."""
    from spindle.cli.storage.info import inspect_storage, storage_info_lines

    config = load_node_config(config_file)
    info = inspect_storage(OsFileSystem(), _all_directories(config))
    if as_json:
        document = {
            "directories": info.directories,
            "metadata": None if info.metadata is None else info.metadata.texts(),
            "problems": info.problems,
        }
        click.echo(json.dumps(document))
    else:
        click.echo("\n".join(storage_info_lines(info)))
    return 1 if info.problems else 0


def _all_directories(config: NodeConfig) -> tuple[str, ...]:
    return (*config.log_dirs, config.metadata_log_dir)


@storage.command(
    "version-mapping",
    epilog=examples("spindle storage version-mapping -r 4.4"),
)
@click.option("-r", "--release-version", metavar="V", help="The release; the newest by default.")
@_json_option
def version_mapping(release_version: str | None, as_json: bool) -> None:
    """Show the feature levels of a release."""
    from spindle.local.formatting.feature_levels import parse_release
    from spindle.metadata.features import (
        FEATURES,
        LATEST_METADATA_VERSION,
        METADATA_VERSION,
        metadata_version_name,
    )

    shown = release_version or metadata_version_name(LATEST_METADATA_VERSION)
    level = parse_release(shown)
    levels = {feature.name: feature.default_level(level) for feature in FEATURES}
    if as_json:
        click.echo(json.dumps({METADATA_VERSION: level, **levels}))
        return
    click.echo(f"{METADATA_VERSION}={level} ({shown})")
    for name, feature_level in levels.items():
        click.echo(f"{name}={feature_level}")


@storage.command(
    "feature-dependencies",
    epilog=examples("spindle storage feature-dependencies -f transaction.version=2"),
)
@click.option(
    "-f",
    "--feature",
    "features",
    multiple=True,
    required=True,
    metavar="F=L",
    help="The feature and its level.",
)
@_json_option
def feature_dependencies(features: tuple[str, ...], as_json: bool) -> None:
    """Show what feature levels depend on."""
    from spindle.cli.storage.dependencies import dependencies_of, dependency_lines

    dependencies = [dependencies_of(text) for text in features]
    if as_json:
        click.echo(json.dumps({f"{f.name}={f.level}": dict(f.requires) for f in dependencies}))
        return
    for feature in dependencies:
        for line in dependency_lines(feature):
            click.echo(line)
