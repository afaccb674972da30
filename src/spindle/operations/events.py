"""The progress of operations as events: typed values, each with a line of text.

An operation calls its `on_progress` with each event. `print` shows the lines, `event.event` and
`event.facts` make the JSON lines of the commands:

    operations.balance(client, on_progress=print)
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

from spindle.client.disks import RebuildView
from spindle.common.ids import TopicPartition
from spindle.common.text import count_noun, join_first, size_text, span_text
from spindle.operations.directories import DrainTarget

_MS: Final = 1000
_FOR_TEXT: Final = {"is_fact": False}
"""Metadata of a field that only the text shows."""
_MAX_NAMED: Final = 3
_MAX_FAILED_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """A step of an operation.

    Attributes:
        event: its name in JSON.
    """

    event: ClassVar[str] = ""

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """One line of text."""
        raise NotImplementedError

    @property
    def facts(self) -> dict[str, Any]:
        """The fields as values of a JSON object, with keys such as `bytesLeft`."""
        return {
            _camel_case(item.name): getattr(self, item.name)
            for item in fields(self)
            if item.metadata.get("is_fact", True)
        }


OnProgress = Callable[[ProgressEvent], object]
"""Called with each event of an operation. An exception that it raises ends the operation as a kill
does: the same call continues it."""


def ignore_progress(_event: ProgressEvent) -> None:
    """Do nothing with an event."""


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class Remarks:
    """Reports remarks; a remark that the next plan repeats is not reported again."""

    def __init__(self, report: OnProgress) -> None:
        self._report = report
        self._reported: set[str] = set()

    def report(self, remarks: Sequence[str]) -> None:
        """Report the remarks that were not in the last call."""
        for remark in dict.fromkeys(remarks):
            if remark not in self._reported:
                self._report(Remark(remark))
        self._reported = set(remarks)


@dataclass(frozen=True, slots=True)
class Remark(ProgressEvent):
    """A remark about the cluster, or the reason why a plan falls short of its goal."""

    event: ClassVar[str] = "remark"
    remark: str

    @property
    def text(self) -> str:
        return self.remark


# Directories.


@dataclass(frozen=True, slots=True)
class Cordoned(ProgressEvent):
    """A directory was cordoned."""

    event: ClassVar[str] = "cordoned"
    broker: int
    path: str

    @property
    def text(self) -> str:
        return f"cordoned {self.path} of broker {self.broker}"


@dataclass(frozen=True, slots=True)
class NotUncordoned(ProgressEvent):
    """A cordon could not be removed, or its broker still shows it."""

    event: ClassVar[str] = "notUncordoned"
    broker: int
    path: str
    reason: str

    @property
    def text(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class NoCordons(ProgressEvent):
    """The cluster does not support cordons, so the drain continues without one.

    Attributes:
        metadata_version: of the cluster, such as `4.2-IV1`.
        needed: the first version with cordons.
    """

    event: ClassVar[str] = "noCordons"
    metadata_version: str
    needed: str
    place: DrainTarget = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        return (
            "this cluster does not support cordons: its metadata.version is "
            f"{self.metadata_version}, and they need {self.needed}. {self.place.text} is emptied "
            "without one, so topics that are created meanwhile may get replicas there, which are "
            "moved as well"
        )


@dataclass(frozen=True, slots=True)
class WentOffline(ProgressEvent):
    """A directory went offline while the operation ran.

    Attributes:
        directory: as `BROKER:DIR`.
    """

    event: ClassVar[str] = "wentOffline"
    directory: str

    @property
    def text(self) -> str:
        return f"directory {self.directory} has failed, or its broker has taken it offline"


@dataclass(frozen=True, slots=True)
class DeletedReplicas(ProgressEvent):
    """Replicas that have moved away still use space, until their files are removed.

    Attributes:
        directories: as `BROKER:DIR`.
        until_ms: approximate time of the removal of the last files, since 1970.
    """

    event: ClassVar[str] = "deletedReplicas"
    directories: list[str]
    deleted_bytes: int
    until_ms: int
    delay_ms: int = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.until_ms / _MS))
        return (
            f"deleted replicas still use {size_text(self.deleted_bytes)} of "
            f"{join_first(self.directories, _MAX_NAMED)}: USED counts them until their files are "
            f"removed, at about {clock} (log.segment.delete.delay.ms: "
            f"{span_text(self.delay_ms / _MS)})"
        )


# Moves.


@dataclass(frozen=True, slots=True)
class MovesLeft(ProgressEvent):
    """The moves of a plan that are not done, and those that are running."""

    event: ClassVar[str] = "round"
    replicas_left: int
    bytes_left: int
    moves: int

    @property
    def text(self) -> str:
        left = count_noun(self.replicas_left, "replica")
        return f"{left} to move, {size_text(self.bytes_left)}; {self.moves} under way"


@dataclass(frozen=True, slots=True)
class Moving(ProgressEvent):
    """Replicas move; the operation waits for their end.

    Attributes:
        are_others: another program moves them.
    """

    event: ClassVar[str] = "moving"
    replicas: int
    are_others: bool = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        text = f"moving {count_noun(self.replicas, 'replica')}"
        return f"others are {text}: waiting for their end" if self.are_others else text


@dataclass(frozen=True, slots=True)
class WaitsForDeletions(ProgressEvent):
    """Moves wait until deleted replicas have freed their space.

    Attributes:
        directories: as `BROKER:DIR`.
    """

    event: ClassVar[str] = "waiting"
    directories: list[str]
    moves: int = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        names = join_first(sorted(self.directories), _MAX_NAMED)
        return (
            f"{count_noun(self.moves, 'move')} wait until deleted replicas have freed their space "
            f"in {names}"
        )


@dataclass(frozen=True, slots=True)
class WaitsForUnexplainedSpace(ProgressEvent):
    """No broker reports whether space belongs to deleted replicas, so the plan waits for it once.

    Attributes:
        directories: as `BROKER:DIR`.
    """

    event: ClassVar[str] = "waiting"
    directories: list[str]
    wait_ms: int

    @property
    def text(self) -> str:
        names = join_first(self.directories, _MAX_NAMED)
        return (
            f"waiting {span_text(self.wait_ms / _MS)}: {names} "
            f"{'use' if len(self.directories) > 1 else 'uses'} space that no replica accounts for, "
            "and brokers of Kafka do not report whether it belongs to deleted replicas"
        )


@dataclass(frozen=True, slots=True)
class PlansAgain(ProgressEvent):
    """The cluster has changed, so no further move of the present plan begins."""

    event: ClassVar[str] = "planAgain"

    @property
    def text(self) -> str:
        return "a directory or a broker went offline or came back: no move starts before a new plan"


@dataclass(frozen=True, slots=True)
class MoveRefused(ProgressEvent):
    """The cluster refused a move, or another order of replicas.

    Attributes:
        move: the partition or replica, and where it should go.
    """

    event: ClassVar[str] = "refused"
    move: str
    reason: str
    is_order: bool = field(metadata=_FOR_TEXT, default=False)

    @property
    def text(self) -> str:
        what = "another order of" if self.is_order else "the move of"
        return f"the cluster refused {what} {self.move}: {self.reason}"


@dataclass(frozen=True, slots=True)
class GivenUp(ProgressEvent):
    """A move was cancelled, because it could not complete or would have filled a disk."""

    event: ClassVar[str] = "givenUp"
    partition: str
    reason: str

    @property
    def text(self) -> str:
        return f"the move of {self.partition} is cancelled: {self.reason}"


@dataclass(frozen=True, slots=True)
class NotStopped(ProgressEvent):
    """A broker does not cancel a move, because the replica would stay in a cordoned directory."""

    event: ClassVar[str] = "notStopped"
    move: str
    path: str
    has_throttle: bool = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        how = "" if self.has_throttle else " without a throttle"
        return f"the move of {self.move} continues{how}, because {self.path} is cordoned"


@dataclass(frozen=True, slots=True)
class ThrottleChanged(ProgressEvent):
    """The throttle was adapted to the number of partitions with replicas out of sync."""

    event: ClassVar[str] = "throttle"
    bytes_per_second: int
    under_replicated: int
    lagging: Sequence[TopicPartition] = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        rate = f"{size_text(self.bytes_per_second)}/s"
        if not self.lagging:
            return f"all replicas are in sync: the throttle rises to {rate}"
        names = join_first(sorted(self.lagging), _MAX_NAMED)
        partitions = count_noun(len(self.lagging), "partition")
        return f"replicas of {partitions} are out of sync ({names}): the throttle falls to {rate}"


@dataclass(frozen=True, slots=True)
class ThrottlesLeft(ProgressEvent):
    """Brokers keep their throttles because they do not run.

    Attributes:
        remedy: the call that removes them when the brokers run.
    """

    event: ClassVar[str] = "throttlesLeft"
    brokers: list[int]
    remedy: str = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        names = ", ".join(map(str, self.brokers))
        return (
            f"the throttles of broker {names} are left, because it is not running: give "
            f"{self.remedy} again when it runs"
        )


@dataclass(frozen=True, slots=True)
class LeadersChanged(ProgressEvent):
    """Partitions got another preferred leader, which was elected.

    Attributes:
        late: partitions whose preferred leader could not be elected yet.
    """

    event: ClassVar[str] = "leaders"
    partitions: int
    late: int
    first_late: TopicPartition | None = field(metadata=_FOR_TEXT, default=None)

    @property
    def text(self) -> str:
        partitions = count_noun(self.partitions, "partition")
        text = f"another replica of {partitions} comes first, and leads"
        if self.late:
            text += f"; {self.late} of them cannot be led by it yet, such as {self.first_late}"
        return text


# Ends.


@dataclass(frozen=True, slots=True)
class _End(ProgressEvent):
    """The last event of a successful operation.

    Attributes:
        went_offline: directories that went offline meanwhile, as `BROKER:DIR`.
    """

    went_offline: list[str]

    @property
    def _meanwhile(self) -> str:
        if not self.went_offline:
            return ""
        names = join_first(self.went_offline, _MAX_FAILED_NAMED)
        return f"; went offline meanwhile: {names} (see spindle disks list)"


@dataclass(frozen=True, slots=True)
class Drained(_End):
    """A broker or directory has no more replicas."""

    event: ClassVar[str] = "empty"
    is_cordoned: bool
    place: DrainTarget = field(metadata=_FOR_TEXT)
    why_uncordoned: str = field(metadata=_FOR_TEXT, default="")

    @property
    def text(self) -> str:
        state = "and is cordoned" if self.is_cordoned else self.why_uncordoned
        comma = " " if self.is_cordoned else "; "
        return f"{self.place.text} has no replicas{comma}{state}{self._meanwhile}"


@dataclass(frozen=True, slots=True)
class DirectoryRemoved(_End):
    """A directory was removed from its broker."""

    event: ClassVar[str] = "removed"
    broker: int
    path: str

    @property
    def text(self) -> str:
        return (
            f"broker {self.broker} no longer uses {self.path}: remove it from log.dirs, too"
            f"{self._meanwhile}"
        )


@dataclass(frozen=True, slots=True)
class Unregistered(_End):
    """A broker was unregistered."""

    event: ClassVar[str] = "unregistered"
    broker: int

    @property
    def text(self) -> str:
        return f"broker {self.broker} is no longer registered{self._meanwhile}"


@dataclass(frozen=True, slots=True)
class Balanced(_End):
    """Nothing is left to move.

    Attributes:
        spread: the largest difference of fill between two directories, from 0 to 1.
        unknown_brokers: brokers without an online directory of known size.
    """

    event: ClassVar[str] = "balanced"
    spread: float
    unknown_brokers: list[int]

    @property
    def text(self) -> str:
        text = f"nothing is left to move: the fills are {100 * self.spread:.1f} points apart"
        if self.unknown_brokers:
            names = ", ".join(map(str, self.unknown_brokers))
            text += f"; the directories of broker {names} are unknown, and not counted"
        return text + self._meanwhile


@dataclass(frozen=True, slots=True)
class Stopping(ProgressEvent):
    """The operation was cancelled, and undoes its moves."""

    event: ClassVar[str] = "stopping"

    @property
    def text(self) -> str:
        return "stopping the moves"


@dataclass(frozen=True, slots=True)
class NotUndone(ProgressEvent):
    """The operation was cancelled a second time, before everything was undone.

    Attributes:
        state: the file with the remaining changes.
        remedy: the call that undoes them.
    """

    event: ClassVar[str] = "notUndone"
    state: str
    remedy: str = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        return (
            f"not everything is undone: {self.state} has what is left, and {self.remedy} undoes it"
        )


@dataclass(frozen=True, slots=True)
class Undone(ProgressEvent):
    """The moves of a cancelled operation are stopped, and its throttles and cordons removed.

    Attributes:
        operation: such as `the drain of broker 2`.
    """

    event: ClassVar[str] = "cancelled"
    operation: str = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        return f"{self.operation} is cancelled"


# Healing.


@dataclass(frozen=True, slots=True)
class MoveBegins(ProgressEvent):
    """A move that `heal` begins, or would begin."""

    event: ClassVar[str] = "move"
    move: str

    @property
    def text(self) -> str:
        return f"  {self.move}"


@dataclass(frozen=True, slots=True)
class MovedInVain(ProgressEvent):
    """The same moves are planned again after they were carried out."""

    event: ClassVar[str] = "inVain"
    moves: list[str]

    @property
    def text(self) -> str:
        return "the last round changed nothing; retrying at the next check"


@dataclass(frozen=True, slots=True)
class OthersMove(ProgressEvent):
    """Other programs move replicas or have throttles, so `heal` does nothing.

    Attributes:
        moves: replicas that others move.
        throttled: brokers with throttles of others.
    """

    event: ClassVar[str] = "occupied"
    moves: int
    throttled: list[int]

    @property
    def text(self) -> str:
        if self.moves:
            replicas = count_noun(self.moves, "replica")
            return f"another reassignment of {replicas} is running; waiting"
        names = ", ".join(map(str, self.throttled))
        return (
            f"broker {names} has throttles of another drain, reassignment or healing: waiting "
            "until they are removed"
        )


@dataclass(frozen=True, slots=True)
class OutsideHours(ProgressEvent):
    """Moves wait for the hours of the day in which they may begin."""

    event: ClassVar[str] = "outsideHours"
    between: str

    @property
    def text(self) -> str:
        return f"the moves wait: they start only between {self.between}"


@dataclass(frozen=True, slots=True)
class SeenOffline(ProgressEvent):
    """A directory or a broker is offline.

    Attributes:
        directory: as `BROKER:DIR`; several directories, or a broker, if it is unknown which.
        offline_ms: how long it was seen offline.
        is_emptied: its grace period is over.
    """

    event: ClassVar[str] = "offline"
    directory: str
    offline_ms: int
    is_emptied: bool

    @property
    def text(self) -> str:
        end = "its replicas are made elsewhere" if self.is_emptied else "waiting for its return"
        return f"{self.directory} was seen offline for {span_text(self.offline_ms / _MS)}: {end}"


@dataclass(frozen=True, slots=True)
class TooFull(ProgressEvent):
    """A directory is too full, now or at the horizon of the forecast.

    Attributes:
        directory: as `BROKER:DIR`.
        fill: now, from 0 to 1.
        fill_ahead: at the horizon, from 0 to 1.
    """

    event: ClassVar[str] = "tooFull"
    directory: str
    fill: float
    fill_ahead: float
    trigger_fill: float = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        text = f"{self.directory} is at {self.fill:.1%}"
        if self.fill <= self.trigger_fill:
            text += f", and {self.fill_ahead:.1%} at the horizon"
        return f"{text}: above {self.trigger_fill:.0%}"


@dataclass(frozen=True, slots=True)
class AllWithinLimits(ProgressEvent):
    """No directory is too full or offline."""

    event: ClassVar[str] = "fine"
    directories: int
    trigger_fill: float = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        return f"all directories are below {self.trigger_fill:.0%}"


@dataclass(frozen=True, slots=True)
class LimitOfDayReached(ProgressEvent):
    """Moves wait, because `heal` has moved its maximum of 24 hours."""

    event: ClassVar[str] = "spent"
    left_bytes: int
    smallest_bytes: int
    max_bytes: int = field(metadata=_FOR_TEXT)

    @property
    def text(self) -> str:
        return (
            f"{size_text(max(0, self.left_bytes))} of {size_text(self.max_bytes)} are left for "
            f"today, and the smallest move has {size_text(self.smallest_bytes)}"
        )


@dataclass(frozen=True, slots=True)
class CheckFailed(ProgressEvent):
    """A check of `heal` failed; the next one follows."""

    event: ClassVar[str] = "failed"
    reason: str

    @property
    def text(self) -> str:
        return f"this check failed: {self.reason}"


# Rebuilds.


def rebuild_text(view: RebuildView) -> str:
    """Return the state of a rebuild, and how much is copied."""
    if view.state != "copying":
        return view.state
    lag = "" if view.lag < 0 else f", {view.lag} records behind"
    return f"copying: {size_text(view.copied_bytes)} of about {size_text(view.former_bytes)}{lag}"


@dataclass(frozen=True, slots=True)
class Rebuilding(ProgressEvent):
    """A replica is copied again; reported at each check of its broker."""

    event: ClassVar[str] = "rebuilding"
    view: RebuildView

    @property
    def text(self) -> str:
        return f"{self.view.partition}: {rebuild_text(self.view)}"

    @property
    def facts(self) -> dict[str, Any]:
        view = self.view
        return {
            "topic": view.partition.topic,
            "partition": view.partition.partition,
            "state": view.state,
            "formerBytes": view.former_bytes,
            "copiedBytes": view.copied_bytes,
        }


@dataclass(frozen=True, slots=True)
class RebuildEnded(ProgressEvent):
    """The rebuild of a replica has ended, or was refused.

    Attributes:
        state: `done`, `failed` or `refused`.
        former_bytes: the size of the log before; None if it is unknown.
        copied_bytes: None if it is unknown.
        error: why the replica was not rebuilt; None if it was.
    """

    event: ClassVar[str] = "rebuildEnded"
    partition: TopicPartition
    state: str
    former_bytes: int | None = None
    copied_bytes: int | None = None
    error: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether the replica was rebuilt, and is in the ISR again."""
        return self.state == "done"

    @property
    def text(self) -> str:
        if self.error is not None:
            return f"{self.partition}: {self.state}: {self.error}"
        return (
            f"{self.partition}: rebuilt and in the ISR again, {size_text(self.copied_bytes or 0)}"
        )

    @property
    def facts(self) -> dict[str, Any]:
        topic, partition = self.partition
        return {
            "topic": topic,
            "partition": partition,
            "state": self.state,
            "formerBytes": self.former_bytes,
            "copiedBytes": self.copied_bytes,
            "error": self.error,
        }
