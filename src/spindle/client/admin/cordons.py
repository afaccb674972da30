"""Cordons of log directories, with their notes (KIP-1066).

`cordoned.log.dirs` says what is cordoned, for every broker. `spindle.cordon.notes` says who did it,
why, and until when; both are changed with one request. Only brokers of Spindle keep notes.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spindle.client.admin.configs import ReportedConfig, ReportedSource, alter, describe
from spindle.client.blocking.client import WireClient
from spindle.client.errors import ClientError
from spindle.client.log_dirs import describe_log_dirs_request, log_dir_views
from spindle.config.broker_keys.spindle import CORDON_NOTES
from spindle.config.cordon_notes import CordonNote, kept_notes, notes_text, parse_notes
from spindle.config.log_dir_paths import EVERY_DIRECTORY, cordon_entries
from spindle.config.resources import ConfigResourceType
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsResponse

_CORDONED: Final = "cordoned.log.dirs"


class CordonRefused(ClientError):
    """A cordon was not set or removed; the text says why."""


@dataclass(frozen=True, slots=True)
class Cordons:
    """The cordons that operators have set on a broker.

    Attributes:
        entries: of `cordoned.log.dirs`, as they are written there; `*` stands for all.
        notes: those of `entries` that have one.
    """

    entries: tuple[str, ...]
    notes: tuple[CordonNote, ...] = ()


def cordon(client: WireClient, broker_id: int, wanted: CordonNote) -> bool:
    """Cordon a directory, or every one; the note of an earlier cordon is replaced.

    Args:
        wanted: its path is that of a directory, or `*`.

    Returns:
        False if it was cordoned before.

    Raises:
        CordonRefused: the broker has no such directory, all of them are cordoned by `*`, or the
            broker is not a Spindle broker and keeps no notes.
        ApiError: the cluster refused; nothing has changed.
        ClientError: the broker could not be asked.
    """
    described = _own_configs(client, broker_id)
    known = _cordons(described)
    path = _known_path(client, broker_id, wanted.path)
    if path != EVERY_DIRECTORY and EVERY_DIRECTORY in known.entries:
        raise CordonRefused(
            f"broker {broker_id} has cordoned every directory by '*', {path} too; to change that, "
            "first uncordon '*'"
        )
    before = _entry_of(path, known.entries)
    entry = before or path
    entries = (
        (EVERY_DIRECTORY,)
        if path == EVERY_DIRECTORY
        else (*known.entries, *([] if before else [entry]))
    )
    note = replace(wanted, path=entry)
    others = tuple(note for note in kept_notes(known.notes, entries) if note.path != entry)
    is_noted = any((note.reason, note.owner, note.until_ms))
    if is_noted and CORDON_NOTES not in described:
        raise CordonRefused(
            f"broker {broker_id} keeps no notes of cordons, as brokers of Apache Kafka do not; "
            "cordon it without a reason, an owner and a duration"
        )
    _write(client, broker_id, described, Cordons(entries, (*others, *([note] if is_noted else []))))
    return before is None


def uncordon(client: WireClient, broker_id: int, path: str) -> None:
    """Remove the cordon of a directory, or `*`, with its note.

    Raises:
        CordonRefused: no operator has cordoned it, or only by `*`.
        ApiError: the cluster refused; nothing has changed.
        ClientError: the broker could not be asked.
    """
    described = _own_configs(client, broker_id)
    known = _cordons(described)
    if path != EVERY_DIRECTORY and EVERY_DIRECTORY in known.entries:
        raise CordonRefused(
            f"broker {broker_id} has cordoned every directory by '*'; uncordon '*', then cordon "
            "those that are to stay so"
        )
    entry = _entry_of(os.path.normpath(path), known.entries)
    if entry is None:
        _known_path(client, broker_id, path)
        others = f"; cordoned: {', '.join(known.entries)}" if known.entries else ""
        raise CordonRefused(
            f"no operator has cordoned {shown_path(path)} of broker {broker_id}{others}"
        )
    entries = tuple(name for name in known.entries if name != entry)
    _write(client, broker_id, described, Cordons(entries, kept_notes(known.notes, entries)))


def cordoned_entries(client: WireClient, broker_id: int) -> tuple[str, ...]:
    """Return the entries of `cordoned.log.dirs` as the broker knows them now.

    Raises:
        ApiError: the broker refused, or does not run.
        ClientError: the broker could not be asked.
    """
    return _cordons(_own_configs(client, broker_id)).entries


def shown_path(path: str) -> str:
    """Return a path as a part of a sentence, and words for `*`."""
    return "every log directory (*)" if path == EVERY_DIRECTORY else path


def _own_configs(client: WireClient, broker_id: int) -> Mapping[str, ReportedConfig]:
    keys = (_CORDONED, CORDON_NOTES)
    configs = describe(client, ConfigResourceType.BROKER, str(broker_id), keys)
    return {config.name: config for config in configs if not config.is_sensitive}


def _cordons(described: Mapping[str, ReportedConfig]) -> Cordons:
    texts = {name: description.value or "" for name, description in described.items()}
    entries = cordon_entries(texts.get(_CORDONED, ""))
    return Cordons(entries, kept_notes(parse_notes(texts.get(CORDON_NOTES, "")), entries))


def _known_path(client: WireClient, broker_id: int, path: str) -> str:
    """Return the path as the broker writes it."""
    if path == EVERY_DIRECTORY:
        return path
    directories = _directories(client, broker_id)
    for directory in directories:
        if os.path.normpath(path) == os.path.normpath(directory):
            return directory
    raise CordonRefused(
        f"broker {broker_id} has no log directory {path}; it has {', '.join(directories)}"
    )


def _directories(client: WireClient, broker_id: int) -> list[str]:
    def attempt() -> list[str]:
        broker = client.current_view(()).broker(str(broker_id))
        request = describe_log_dirs_request({})
        response = client.ask(request, DescribeLogDirsResponse, broker=broker)
        return [view.path for view in log_dir_views(response)]

    return client.retrying(attempt)


def _entry_of(path: str, entries: Sequence[str]) -> str | None:
    return next((entry for entry in entries if os.path.normpath(entry) == path), None)


def _write(
    client: WireClient, broker_id: int, described: Mapping[str, ReportedConfig], wanted: Cordons
) -> None:
    """Store the cordons and their notes with one request.

    Only what differs from `described` is written, so that changes of others at this moment are
    kept. The whole list is written if it was that of the property file, or if it becomes `*`.
    """
    known = _cordons(described).entries
    changes: dict[str, str] = {}
    appended: dict[str, str] = {}
    subtracted: dict[str, str] = {}
    more = [entry for entry in wanted.entries if entry not in known]
    less = [entry for entry in known if entry not in wanted.entries]
    if _is_from_property_file(described.get(_CORDONED)) or EVERY_DIRECTORY in wanted.entries:
        changes[_CORDONED] = ",".join(wanted.entries)
    elif more:
        appended[_CORDONED] = ",".join(more)
    elif less:
        subtracted[_CORDONED] = ",".join(less)
    text = notes_text(wanted.notes)
    deletions: list[str] = []
    if text is not None:
        changes[CORDON_NOTES] = text
    elif CORDON_NOTES in described and described[CORDON_NOTES].value:
        deletions.append(CORDON_NOTES)
    if changes or appended or subtracted or deletions:
        alter(
            client,
            ConfigResourceType.BROKER,
            str(broker_id),
            changes,
            deletions,
            appended=appended,
            subtracted=subtracted,
        )


def _is_from_property_file(config: ReportedConfig | None) -> bool:
    """Return whether the cordons in force are those of the property file."""
    return config is not None and config.source is ReportedSource.STATIC_BROKER_CONFIG
