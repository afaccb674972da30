"""The lines and the JSON that `spindle audit --history` adds to its report."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spindle.cli.audit.request import AuditRequest
from spindle.cli.terminal import BAD, UNUSUAL, Line, wrapped
from spindle.common.text import count_noun, join_first

if TYPE_CHECKING:
    from spindle.audit.findings import AuditFinding
    from spindle.audit.replica_place import ReplicaPlace
    from spindle.audit.scrub_history import OverdueReplica, ScrubHistory

_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class ScrubResult:
    """The state of a history after a run.

    Attributes:
        unread_count: replicas that this run did not read; the next one reads them first.
        earlier: findings in replicas that earlier runs read and this one did not.
        overdue: the replicas that were not read for `days` days.
        left_out: log directories of the history that this run did not audit, and the number of
            their replicas.
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
        count = count_noun(len(result.earlier), "finding")
        lines += [
            Line(""),
            Line(f"{count} from earlier runs, in replicas that this run did not read:", BAD),
        ]
        for finding in result.earlier[:_NAMED]:
            text = f"  {finding.kind.text} {finding.path}: {finding.evidence}"
            lines += map(Line, wrapped(text, width, 2))
        if len(result.earlier) > _NAMED:
            lines.append(Line(f"  and {len(result.earlier) - _NAMED} more; --json lists them"))
    if result.overdue:
        files = sum(len(replica.files) for replica in result.overdue)
        text = (
            f"{count_noun(files, 'segment')} not read for {count_noun(result.days, 'day')} or more:"
        )
        lines += [Line(""), Line(text, UNUSUAL)]
        for late in result.overdue[:_NAMED]:
            since = f"last read {late.days} days ago" if late.was_read else "never read"
            names = join_first(late.files, 3)
            lines += map(Line, wrapped(f"  {late.path} ({since}): {names}", width, 2))
        if len(result.overdue) > _NAMED:
            more = count_noun(len(result.overdue) - _NAMED, "more replica")
            lines.append(Line(f"  and those of {more}; --json lists them"))
    if result.left_out:
        lines.append(Line(""))
    for path, replicas in result.left_out.items():
        text = (
            f"{path} is in the history with {count_noun(replicas, 'replica')}, but was not given "
            "to "
            "this audit: is its disk mounted?"
        )
        lines += [Line(name, UNUSUAL) for name in wrapped(text, width, 2)]
    if result.unread_count:
        count = count_noun(result.unread_count, "replica")
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
                "replica": str(replica.path),
                "days": replica.days,
                "wasRead": replica.was_read,
                "files": list(replica.files),
            }
            for replica in result.overdue
        ],
        "leftOut": [
            {"directory": str(path), "replicas": count} for path, count in result.left_out.items()
        ],
        "earlierFindings": [finding.document() for finding in result.earlier],
    }
