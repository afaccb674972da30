"""`kafka-log-dirs`: the log directories of brokers, their replicas and their space."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import click

from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed, failure
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.client.admin.cluster import describe_brokers
from spindle.client.admin.refusals import exception_class
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import ask_every_broker, log_dirs_of
from spindle.client.cluster_metadata import BrokerAddress, no_broker_text
from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.java_text import in_map_order, partition_hash, string_hash

SOME_ARE_SILENT: Final = 1
"""The exit code if a broker did not answer, as that of `spindle disks list`."""
_WAIT_MS: Final = 10_000
"""The longest time in which a broker has to answer; Kafka's script waits longer."""
_FORMAT_VERSION: Final = 1

DECLARATION: Final = Declaration(
    "Show the log directories of brokers: state, replicas, size, capacity and free space.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        Option("describe", "Show the directories."),
        Option("topic-list", "Only these topics.", "t1,t2,..."),
        Option("broker-list", "Only these brokers.", "1,2,..."),
    ],
    examples=("spindle kafka log-dirs --describe --broker-list 1,2",),
)


def _run(options: Options) -> int:
    options.require("bootstrap-server", "describe")
    topics = [name for name in options.text("topic-list").split(",") if name]
    wanted = _broker_ids(options.text("broker-list"))
    with _client(options) as client:
        brokers = client.metadata(()).brokers
        known = sorted(brokers)
        unknown = [broker for broker in wanted if broker not in known]
        if unknown:
            raise ToolFailed(
                "ERROR: The given brokers do not exist from --broker-list: "
                f"{_listed(unknown)}. Current existent brokers: {_listed(known)}",
                plainly=f"--broker-list: {no_broker_text(_listed(unknown), known)}",
            )
        asked = wanted or known
        if not options.has("json"):
            click.echo("Querying brokers for log directories information")
        if options.is_script:
            log_dirses, silent = client.describe_log_dirs(), dict[int, str]()
        else:
            log_dirses, silent = _ask(client, [brokers[broker] for broker in asked])
            if not wanted:
                silent |= _fenced(client, known)
        views = {broker: log_dirses[broker] for broker in asked if broker in log_dirses}
        if not options.has("json"):
            shown = asked if options.is_script else list(views)
            click.echo(f"Received log directory information from brokers {_listed(shown)}")
    if options.has("json"):
        click.echo(json.dumps(full_document(views, topics)))
    else:
        click.echo(json.dumps(document(views, topics), separators=(",", ":"), ensure_ascii=False))
    for broker, reason in sorted(silent.items()):
        click.echo(f"the log directories of broker {broker} are unknown: {reason}", err=True)
    return SOME_ARE_SILENT if silent else 0


def _client(options: Options) -> WireClient:
    client = connect_as(options, client_id="log-dirs-tool")
    return client if options.is_script else WireClient(client.settings.within(_WAIT_MS))


def _ask(
    client: WireClient, brokers: Sequence[BrokerAddress]
) -> tuple[dict[int, list[LogDirView]], dict[int, str]]:
    """Return the log directories by broker, and the reason for brokers without an answer."""
    views: dict[int, list[LogDirView]] = {}
    silent: dict[int, str] = {}
    for node_id, answer in ask_every_broker(client, brokers, log_dirs_of).items():
        if isinstance(answer, Exception):
            silent[node_id] = failure(answer).plainly
        else:
            views[node_id] = answer
    return views, silent


def _fenced(client: WireClient, asked: Collection[int]) -> dict[int, str]:
    """Return the registered brokers that metadata leaves out because they are fenced."""
    nodes = describe_brokers(client).nodes
    return {n.node_id: "it is fenced" for n in nodes if n.is_fenced and n.node_id not in asked}


def full_document(
    views: Mapping[int, Sequence[LogDirView]], topics: Collection[str]
) -> dict[str, Any]:
    """Return the document of Kafka's tool with capacity, free bytes and cordon of directories.

    Sizes are in bytes, -1 where the broker does not report them.
    """
    full_document = document(views, topics)
    for broker in full_document["brokers"]:
        by_path = {view.path: view for view in views[broker["broker"]]}
        for log_dir in broker["logDirs"]:
            view = by_path[log_dir["logDir"]]
            log_dir |= {
                "totalBytes": view.total_bytes,
                "usableBytes": view.usable_bytes,
                "isCordoned": view.is_cordoned,
            }
    return full_document


def _broker_ids(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",") if part})
    except ValueError:
        raise ToolFailed(f"--broker-list {text}: want numbers separated by commas") from None


def document(views: Mapping[int, Sequence[LogDirView]], topics: Collection[str]) -> dict[str, Any]:
    """Return the document of Kafka's tool, with its fields in Kafka's order.

    Args:
        topics: leave out all others; empty for all.
    """
    return {
        "brokers": [
            {"broker": broker, "logDirs": [_directory(view, topics) for view in _ordered(log_dirs)]}
            for broker, log_dirs in views.items()
        ],
        "version": _FORMAT_VERSION,
    }


def _ordered(views: Sequence[LogDirView]) -> list[LogDirView]:
    return in_map_order(views, lambda view: string_hash(view.path), is_sized=True)


def _directory(view: LogDirView, topics: Collection[str]) -> dict[str, Any]:
    shown = [p for p in view.replicas if not topics or p.topic in topics]
    failed = view.error is not ErrorCode.NONE
    return {
        "partitions": [_replica(view, p) for p in in_map_order(shown, partition_hash)],
        "error": exception_class(view.error) if failed else None,
        "logDir": view.path,
    }


def _replica(view: LogDirView, partition: TopicPartition) -> dict[str, Any]:
    replica = view.replicas[partition]
    return {
        "partition": str(partition),
        "size": replica.size_bytes,
        "offsetLag": replica.offset_lag,
        "isFuture": replica.is_future,
    }


def _listed(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


log_dirs = ToolCommand("log-dirs", DECLARATION, _run)
