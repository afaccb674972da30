"""Requests that the fuzzer does not send to a shared node, because they may correctly end it.

An operator can remove the last voter of a cluster, unregister its only broker or delete all
records. A node that obeys such a request is correct, so the request finds no defect.
"""

from collections.abc import Callable
from typing import Any, Final

from spindle.common.errors import ProtocolViolation
from spindle.protocol.api import APIS, request_class
from spindle.protocol.codec import decode
from spindle.protocol.framing import read_request_header
from verification.fuzz.values import DELETABLE_TOPICS, TOPICS

_TOPIC: Final = 2
_FEW_PARTITIONS: Final = 8
_MAX_PARTITIONS: Final = 10_000


def may_be_sent(payload: bytes) -> bool:
    """Return False for a payload that the node may read as a change that harms it."""
    try:
        header = read_request_header(payload)
        api = APIS[header.api_key]
        check = _CHECKS.get(header.api_key)
        if check is None or not api.first_version <= header.api_version <= api.last_version:
            return True
        cls = request_class(header.api_key)
        request, _ = decode(cls, header.api_version, payload, header.body)
    except ProtocolViolation:
        return True
    return check(request)


def _creates_little(request: Any) -> bool:
    if request.validate_only:
        return True
    return all(
        topic.name in TOPICS
        and len(topic.assignments) <= _FEW_PARTITIONS
        and not _FEW_PARTITIONS < topic.num_partitions <= _MAX_PARTITIONS
        for topic in request.topics
    )


def _grows_little(request: Any) -> bool:
    return bool(request.validate_only) or all(
        topic.name in TOPICS and not _FEW_PARTITIONS < topic.count <= 2 * _MAX_PARTITIONS
        for topic in request.topics
    )


def _asks_known_names(request: Any) -> bool:
    return not request.allow_auto_topic_creation or all(
        topic.name is None or topic.name in TOPICS for topic in request.topics or ()
    )


def _changes_topics_only(request: Any) -> bool:
    return bool(request.validate_only) or all(
        resource.resource_type == _TOPIC and resource.resource_name in TOPICS
        for resource in request.resources
    )


def _deletes_own(request: Any) -> bool:
    return all(name in DELETABLE_TOPICS for name in request.topic_names) and all(
        topic.name is None or topic.name in DELETABLE_TOPICS for topic in request.topics
    )


def _never(request: Any) -> bool:
    return False


_CHECKS: Final[dict[int, Callable[[Any], bool]]] = {
    3: _asks_known_names,
    19: _creates_little,
    20: _deletes_own,
    33: _changes_topics_only,
    37: _grows_little,
    44: _changes_topics_only,
    49: lambda request: bool(request.validate_only),
    57: lambda request: bool(request.validate_only),
    64: _never,
    80: _never,
    81: _never,
}
