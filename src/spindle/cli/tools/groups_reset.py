"""The new offsets of a group for `kafka-consumer-groups --reset-offsets`."""

import csv
import io
import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import click

from spindle.cli.tools.failures import ToolFailed, UsageError
from spindle.cli.tools.kafka_log import log_line
from spindle.cli.tools.options import Options
from spindle.client.admin.groups import committed_offsets
from spindle.client.admin.refusals import exception_class
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.java_text import in_map_order, partition_hash
from spindle.protocol.sentinels import EARLIEST, LATEST

SCENARIOS: Final = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
_MS: Final = 1000
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:\.\d{0,9})?)S)?)?",
    re.IGNORECASE,
)
_RESETTER: Final = "org.apache.kafka.tools.GroupOffsetsResetter"
Positions = dict[TopicPartition, int]


def new_positions(
    client: WireClient, options: Options, group_id: str, partitions: Iterable[TopicPartition]
) -> Positions:
    """Return the offsets that the options ask for, within the bounds of the logs.

    Raises:
        UsageError: no scenario was given.
        ToolFailed: a value cannot be read, or a partition does not exist or has no leader.
        ApiError: a broker refused.
    """
    wanted = list(partitions)
    _check_partitions(client, wanted)
    if options.has("to-offset"):
        offset = options.integer("to-offset") or 0
        within_bounds = _within_bounds(client, dict.fromkeys(wanted, offset))
    elif options.has("to-earliest"):
        within_bounds = _offsets(client, dict.fromkeys(wanted, EARLIEST))
    elif options.has("to-latest"):
        within_bounds = _offsets(client, dict.fromkeys(wanted, LATEST))
    elif options.has("shift-by"):
        within_bounds = _shifted(client, group_id, wanted, options.integer("shift-by") or 0)
    elif options.has("to-datetime"):
        within_bounds = _by_time(client, wanted, parse_date_time(options.text("to-datetime")))
    elif options.has("by-duration"):
        now_ms = int(time.time() * _MS)
        before_ms = parse_duration_ms(options.text("by-duration"))
        within_bounds = _by_time(client, wanted, now_ms - before_ms)
    elif options.has("from-file"):
        within_bounds = _from_file(client, options, group_id)
    elif options.has("to-current"):
        within_bounds = _current(client, group_id, wanted)
    else:
        names = ", ".join(f"[{name}]" for name in SCENARIOS)
        raise UsageError(
            f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]"
        )
    return {p: within_bounds[p] for p in in_map_order(within_bounds, partition_hash)}


def _check_partitions(client: WireClient, wanted: Iterable[TopicPartition]) -> None:
    """Refuse partitions that do not exist or have no leader, before their leaders are asked.

    Raises:
        ToolFailed: names them.
    """
    chosen = list(wanted)
    view = client.metadata(sorted({choice.topic for choice in chosen})) if chosen else None
    if view is None:
        return
    known = {
        TopicPartition(topic.name, partition.partition): partition.leader
        for topic in view.topics.values()
        for partition in topic.partitions.values()
    }
    missing = [choice for choice in chosen if choice not in known]
    if missing:
        text = ",".join(map(str, missing))
        unknown = exception_class(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise ToolFailed(f'The partitions "{text}" do not exist', unknown)
    leaderless = [choice for choice in chosen if known[choice] < 0]
    if leaderless:
        text = ",".join(map(str, leaderless))
        no_leader = exception_class(ErrorCode.LEADER_NOT_AVAILABLE)
        raise ToolFailed(f'The partitions "{text}" have no leader', no_leader)


def _offsets(client: WireClient, times: Mapping[TopicPartition, int]) -> Positions:
    offsets = client.list_offsets(times) if times else {}
    return {partition: offset.offset for partition, offset in offsets.items()}


def _within_bounds(client: WireClient, wanted: Positions) -> Positions:
    first = _offsets(client, dict.fromkeys(wanted, EARLIEST))
    last = _offsets(client, dict.fromkeys(wanted, LATEST))
    positions = {}
    for partition in in_map_order(wanted, partition_hash):
        offset = wanted[partition]
        bound = min(max(offset, first[partition]), last[partition])
        if bound != offset:
            relation = "higher than latest" if offset > bound else "lower than earliest"
            log_line(
                "WARN",
                f"New offset ({offset}) is {relation} offset for topic partition {partition}. "
                f"Value will be set to {bound}.",
                _RESETTER,
            )
        positions[partition] = bound
    return positions


def _shifted(
    client: WireClient, group_id: str, wanted: Iterable[TopicPartition], by: int
) -> Positions:
    committed = committed_offsets(client, group_id)
    shifted = {}
    for partition in wanted:
        if partition not in committed:
            raise UsageError(
                f"Cannot shift offset for partition {partition} since there is no current "
                "committed offset"
            )
        shifted[partition] = committed[partition].offset + by
    return _within_bounds(client, shifted)


def _current(client: WireClient, group_id: str, wanted: Iterable[TopicPartition]) -> Positions:
    committed = committed_offsets(client, group_id)
    positions = {p: committed[p].offset for p in wanted if p in committed}
    missing = dict.fromkeys((p for p in wanted if p not in committed), LATEST)
    return positions | _offsets(client, missing)


def _by_time(client: WireClient, wanted: Iterable[TopicPartition], time_ms: int) -> Positions:
    offsets = _offsets(client, dict.fromkeys(wanted, time_ms))
    late = [p for p in in_map_order(offsets, partition_hash) if offsets[p] == -1]
    for partition in late:
        click.echo(
            f"\nWarn: Partition {partition.partition} from topic {partition.topic} is empty. "
            "Falling back to latest known offset."
        )
    return offsets | _offsets(client, dict.fromkeys(late, LATEST))


def _from_file(client: WireClient, options: Options, group_id: str) -> Positions:
    path = options.text("from-file")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise ToolFailed(f"{path}: {error.strerror}", "java.io.IOException") from None
    groups = options.all("group")
    plan = parse_plan(text, groups[0] if len(groups) == 1 else None).get(group_id)
    if plan is None:
        click.echo(f"\nError: No reset plan for group {group_id} found")
        return {}
    return _within_bounds(client, plan)


def parse_plan(text: str, only_group: str | None) -> dict[str, Positions]:
    """Return the offsets by group from lines of `topic,partition,offset` or `group,topic,...`.

    Args:
        only_group: the group of lines that name none.

    Raises:
        ToolFailed: a line is of neither form.
    """
    plan: dict[str, Positions] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        fields = [only_group, *row] if len(row) == 3 and only_group is not None else row
        try:
            group_id, topic, partition, offset = fields
            position = TopicPartition(topic, int(partition)), int(offset)
        except ValueError:
            raise ToolFailed(
                f"line {number} of the plan is {','.join(row)!r}, want "
                "[group,]topic,partition,offset"
            ) from None
        plan.setdefault(str(group_id), {})[position[0]] = position[1]
    return plan


def plan_lines(offsets: Mapping[str, Mapping[TopicPartition, int]], *, with_group: bool) -> str:
    """Return offsets by group as lines that `parse_plan` reads, with a newline at the end."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group_id, entry in offsets.items():
        for (topic, partition), offset in entry.items():
            fields = [topic, partition, offset]
            writer.writerow([group_id, *fields] if with_group else fields)
    return out.getvalue()


def parse_date_time(text: str) -> int:
    """Return a time in ms from `YYYY-MM-DDTHH:mm:SS.sss`; UTC unless the text has an offset.

    Raises:
        ToolFailed: the text is of another form.
    """
    if "T" not in text:
        raise _not_a_time(
            text, "Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"
        )
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _not_a_time(text, f'Unparseable date: "{text}"') from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * _MS)


def _not_a_time(text: str, message: str) -> ToolFailed:
    return ToolFailed(
        f"java.text.ParseException: {message}",
        "java.lang.RuntimeException",
        f"{text} is not a time of the form YYYY-MM-DDTHH:mm:SS.sss",
    )


def parse_duration_ms(text: str) -> int:
    """Return a duration in ms from `PnDTnHnMnS`.

    Raises:
        ToolFailed: the text is of another form.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match[group] for group in (2, 4, 5, 6)) or match[3] == "T":
        raise ToolFailed(
            "Text cannot be parsed to a Duration",
            "java.time.format.DateTimeParseException",
            f"{text} is not a duration of the form PnDTnHnMnS, such as P1D or PT2H30M",
        )
    days, hours, minutes = (int(match[group] or 0) for group in (2, 4, 5))
    seconds = float(match[6] or 0) + 60 * (minutes + 60 * (hours + 24 * days))
    return round(seconds * _MS) * (-1 if match[1] == "-" else 1)
