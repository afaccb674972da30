"""Where a stream stands, and its JSON form in the checkpoint.

The form is that of Spark's `kafka` source, `{"topic": {"0": 123}}`, where an offset is the next one
to read. Notes that this source needs are keys that begin with `@`, which no topic name can contain,
with an empty object as value:

    "@cluster=ID"       the cluster that the offsets belong to
    "@topic=NAME=ID"    the id of a topic, so that a topic that was created again is noticed
    "@start=JSON"       only after the first batch: the offsets where the stream began
    "@cut=JSON"         how the batch that ends here is cut into tasks (see `batch_cut`)

So the `kafka` source reads this form as well, and this source reads that of the `kafka` source.
Spark asks for the first offset of a stream several times and does not store it; `@start` makes the
first batch read the same rows again if it is repeated.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, parse_uuid, uuid_text
from spindle.pipeline.streaming.batch_cut import BatchCut, cut_from_json, cut_to_json

Offsets: TypeAlias = Mapping[TopicPartition, int]

INITIAL: Final[Mapping[str, Any]] = {"@initial": {}}
"""The offset of a stream that has not read yet; it is never stored."""

_CLUSTER: Final = "@cluster"
_TOPIC: Final = "@topic"
_START: Final = "@start"
_CUT: Final = "@cut"


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The next offset of each partition, and the topics and the cluster that they belong to.

    Attributes:
        topic_ids: Ids by topic name, as far as they are known.
        first_start: After the first batch the offsets where it began, else None.
        cut: How the batch that ends here is cut into tasks; None if the checkpoint does not say.
    """

    offsets: Offsets
    topic_ids: Mapping[str, Uuid] = field(default_factory=dict)
    cluster_id: str | None = None
    first_start: Offsets | None = None
    cut: BatchCut | None = None

    def is_at(self, other: "StreamPosition") -> bool:
        """Return True if nothing lies between two positions."""
        return (self.offsets, self.topic_ids, self.cluster_id) == (
            other.offsets,
            other.topic_ids,
            other.cluster_id,
        )


def is_initial(content: object) -> bool:
    """Return True for the offset of a stream that has not read yet."""
    return content == INITIAL


def position_to_json(position: StreamPosition) -> dict[str, dict[str, int]]:
    """Return the form for the checkpoint; equal positions have equal forms, also as text."""
    content = offsets_to_json(position.offsets)
    if position.cluster_id is not None:
        content[f"{_CLUSTER}={position.cluster_id}"] = {}
    for name, topic_id in sorted(position.topic_ids.items()):
        content[f"{_TOPIC}={name}={uuid_text(topic_id)}"] = {}
    if position.first_start is not None:
        content[f"{_START}={_text(offsets_to_json(position.first_start))}"] = {}
    if position.cut is not None:
        content[f"{_CUT}={_text(cut_to_json(position.cut))}"] = {}
    return content


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def offsets_to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in the form of the `kafka` source, by topic and partition."""
    content: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        content.setdefault(topic, {})[str(partition)] = offset
    return content


def position_from_json(content: object) -> StreamPosition:
    """Return the position in a checkpoint of this source or of the `kafka` source.

    Raises:
        ValueError: the checkpoint belongs to another source.
    """
    try:
        return _parse(content)
    except (TypeError, ValueError, AttributeError, KeyError):
        raise ValueError(
            f"the checkpoint holds {json.dumps(content)}, which is not an offset of this source; "
            'want {"topic": {"0": 123}}. It belongs to a stream of another source: choose another '
            "checkpointLocation"
        ) from None


def _parse(content: Any) -> StreamPosition:
    offsets: dict[TopicPartition, int] = {}
    topic_ids: dict[str, Uuid] = {}
    cluster_id = None
    first_start = None
    cut = None
    for key, value in content.items():
        if not key.startswith("@"):
            offsets.update(_partitions(key, value.items()))
            continue
        name, _, text = key.partition("=")
        if name == _CLUSTER:
            cluster_id = text
        elif name == _TOPIC:
            topic, _, topic_id = text.rpartition("=")
            topic_ids[topic] = parse_uuid(topic_id)
        elif name == _START:
            first_start = dict(_parse(json.loads(text)).offsets)
        elif name == _CUT:
            cut = cut_from_json(json.loads(text))
        else:
            raise ValueError(key)
    return StreamPosition(offsets, topic_ids, cluster_id, first_start, cut)


def _partitions(
    topic: str, entries: Iterable[tuple[str, int]]
) -> Iterable[tuple[TopicPartition, int]]:
    for partition, offset in entries:
        if type(offset) is not int or offset < 0:
            raise ValueError(offset)
        yield TopicPartition(topic, int(partition)), offset
