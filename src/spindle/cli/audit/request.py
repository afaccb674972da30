"""The options of one call of `spindle audit`, and checks that they agree."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spindle.audit.applied_repairs import FolderStates


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The options, by the names of their parameters."""

    paths: tuple[str, ...]
    jobs: int
    checks_records: bool
    bytes_per_second: int | None
    progress_path: Path | None
    history_path: Path | None
    minutes: int | None
    overdue_days: int
    spark_master: str | None
    servers: str | None
    file: str | None
    fetches_replicas: bool
    as_json: bool
    has_plan: bool
    html: Path | None
    applies: bool
    quarantine: Path | None

    @property
    def prints_for_programs(self) -> bool:
        return self.as_json or self.has_plan

    def check(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ValueError: names them.
        """
        if self.as_json and self.has_plan:
            raise ValueError("--json prints the findings, --repair-plan a script: give one")
        if not self.paths and self.servers is None:
            raise ValueError("no log directory is given: give paths, or --bootstrap-server")
        if self.history_path is None and self.minutes is not None:
            raise ValueError(
                "--minutes needs --history FILE, which records where the next audit continues"
            )
        others = (self.progress_path, self.spark_master, self.quarantine)
        if self.history_path is not None and any(path is not None for path in others):
            raise ValueError(
                "--history excludes --resume, --spark and --apply: it reads some replicas per run"
            )
        if self.spark_master is None and self.progress_path and self.progress_path.is_dir():
            path = self.progress_path
            raise ValueError(f"--resume {path} is a folder: give a file, or --spark, too")

    def roots(self) -> list[Path]:
        """Return the paths; at least one is a log directory, and the audit reports the others.

        Raises:
            ValueError: no path is a log directory, or a file is to be written into one.
        """
        reasons = {text: _reason_against(text) for text in dict.fromkeys(self.paths)}
        if reasons and all(reasons.values()):
            raise ValueError("\n".join(filter(None, reasons.values())))
        roots = list(dict.fromkeys(Path(text).resolve() for text in reasons))
        for file in (self.progress_path, self.history_path, self.html, self.quarantine):
            if file is not None and any(file.resolve().is_relative_to(root) for root in roots):
                raise ValueError(f"{file} must be outside of the log directories")
        return roots


def _reason_against(text: str) -> str:
    """Return why a path is not a log directory; empty if it is one."""
    path = Path(text).resolve()
    try:
        names = os.listdir(path)
    except OSError as error:
        return f"{text} cannot be read as a log directory: {error.strerror}"
    if "meta.properties" in names or any("-checkpoint" in name for name in names):
        return ""
    inside = [name for name in sorted(names) if (path / name / "meta.properties").is_file()]
    hint = f"; audit those inside of it: {', '.join(inside)}" if inside else ""
    return f"{text} is not a log directory: it has neither meta.properties nor checkpoints{hint}"


def states_before_repairs(request: AuditRequest, roots: list[Path]) -> "FolderStates":
    """Return the states of folders that may be repaired; refuse what cannot be repaired.

    Raises:
        ConfigError: a log directory is in use.
        ValueError: the options contradict each other.
    """
    if request.applies != (request.quarantine is not None):
        raise ValueError("--apply moves files to a folder: give both --apply and --quarantine")
    if not request.applies:
        return {}
    if request.prints_for_programs:
        raise ValueError(
            "--apply prints the files that it moved: give neither --json nor --repair-plan"
        )
    from spindle.audit.applied_repairs import folder_states
    from spindle.cli.audit.applying import locked

    with locked(roots):
        return folder_states([root for root in roots if root.is_dir()])
