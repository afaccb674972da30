"""The lines and the JSON that `spindle audit --history` adds to its report."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spindle.cli.audit.request import AuditRequest
from spindle.cli.terminal import BAD, UNUSUAL, Line, wrapped
from spindle.common.counted import counted, first_names

if TYPE_CHECKING:
    from spindle.audit.findings import AuditFinding
    from spindle.audit.replica import ReplicaPlace
    from spindle.audit.scrub_history import OverdueReplica, ScrubHistory

_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """The state of a history after a run.

    Attributes:
        unread_count: replicas that this run did not read; the next one reads them first.
        earlier: findings in replicas that earlier runs read and this one did not.
        overdue: the replicas that were not read for `days` days.
        left_out: log directories of the history that the run was not given, and the number of their
            replicas.
    """

    unread_count: int
    earlier: "Sequence[AuditFinding]"
    overdue: "Sequence[OverdueReplica]"
    days: int
    left_out: "Mapping[Path, int]"

    @classmethod
    def of(
        cls,
        history: "ScrubHistory",
        places: "Sequence[ReplicaPlace]",
        roots: "Collection[Path]",
        begun_ms: int,
        request: AuditRequest,
    ) -> "ScrubResult":
        """Return the state of a history after a run that began at a time, in ms since 1970."""
        days = request.overdue_days
        earlier = history.earlier_findings(places, begun_ms)
        overdue = history.overdue(places, days)
        return cls(history.unread_count, earlier, overdue, days, history.left_out(roots))


def scrub_lines(result: ScrubResult, width: int | None) -> list[Line]:
    """Return the lines below the report of a run.

    Args:
        width: columns of the terminal; None sets no limit.
    """
    lines = []
    if result.earlier:
        count = counted(len(result.earlier), "finding")
        lines += [
            Line(""),
            Line(f"{count} from earlier runs, in replicas that this run did not read:", BAD),
        ]
        for each in result.earlier[:_NAMED]:
            text = f"  {each.kind.text} {each.path}: {each.evidence}"
            lines += map(Line, wrapped(text, width, 2))
        if len(result.earlier) > _NAMED:
            lines.append(Line(f"  and {len(result.earlier) - _NAMED} more; --json lists them"))
    if result.overdue:
        files = sum(len(each.files) for each in result.overdue)
        text = f"{counted(files, 'segment')} not read for {counted(result.days, 'day')} or more:"
        lines += [Line(""), Line(text, UNUSUAL)]
        for late in result.overdue[:_NAMED]:
            since = f"last read {late.days} days ago" if late.was_read else "never read"
            names = first_names(late.files, 3)
            lines += map(Line, wrapped(f"  {late.path} ({since}): {names}", width, 2))
        if len(result.overdue) > _NAMED:
            more = counted(len(result.overdue) - _NAMED, "more replica")
            lines.append(Line(f"  and those of {more}; --json lists them"))
    if result.left_out:
        lines.append(Line(""))
    for path, replicas in result.left_out.items():
        text = (
            f"{path} is in the history with {counted(replicas, 'replica')}, but was not given to "
            "this audit: is its disk mounted?"
        )
        lines += [Line(each, UNUSUAL) for each in wrapped(text, width, 2)]
    if result.unread_count:
        count = counted(result.unread_count, "replica")
        text = f"The time limit is reached; the next run continues with {count}."
        lines += [Line(""), Line(text)]
    return lines


def scrub_document(result: ScrubResult) -> dict[str, Any]:
    """Return the state of a history for JSON."""
    return {
        "unread": result.unread_count,
        "overdueDays": result.days,
        "overdue": [
            {
                "replica": str(each.path),
                "days": each.days,
                "wasRead": each.was_read,
                "files": list(each.files),
            }
            for each in result.overdue
        ],
        "leftOut": [
            {"directory": str(path), "replicas": count} for path, count in result.left_out.items()
        ],
        "earlierFindings": [each.document() for each in result.earlier],
    }
