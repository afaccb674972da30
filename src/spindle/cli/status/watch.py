"""`spindle status --watch`: checks at intervals, prints changes and sends notifications."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from spindle.cli.disks.broker_poll import WAIT_MS, Survey
from spindle.cli.status.cluster_status import Problem, Status, take_status
from spindle.cli.status.notification import Notifier, Targets, changes_of
from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.blocking.client import WireClient
from spindle.common.text import printable

_MAX_LINES: Final = 10
"""The most lines about changes of one kind in one check."""
NEEDS_ATTENTION: Final = 3
"""The exit code if something needs attention; 1 means that the check failed."""


def watch_status(
    client: WireClient, targets: Targets, interval_s: float, count: int | None, *, as_json: bool
) -> int:
    """Check the cluster at intervals and print changes; return the exit code of the last check."""
    before: Mapping[str, Problem] = {}
    code, checks = 0, 0
    prompt = WireClient(client.settings.within(WAIT_MS))
    with prompt, Survey(prompt) as survey, Notifier(targets) as notifier:
        while True:
            due_s = time.monotonic() + interval_s
            try:
                status = take_status(prompt, survey)
                now = _with_unconfirmed(status, before)
                cluster_id = status.cluster.cluster_id
            except FAILURES as error:
                text = f"the cluster cannot be asked: {failure(error).plainly}"
                # It is unknown whether the earlier problems have ended, so they stay.
                now = {**before, "unknown": Problem("unknown", "unknown cluster", text)}
                cluster_id = ""
            code = NEEDS_ATTENTION if now else 0
            document = changes_of(before, now, cluster_id, time.time_ns() // 1_000_000)
            if document is not None or not checks:
                print_changes(document, as_json=as_json)
            if document is not None:
                notifier.send(document)
            for line in notifier.failures():
                click.echo(line, err=True)
            before, checks = now, checks + 1
            if checks == count:
                return code
            time.sleep(max(0.0, due_s - time.monotonic()))


def _with_unconfirmed(found: Status, before: Mapping[str, Problem]) -> dict[str, Problem]:
    """Return the present problems, and earlier ones of brokers that do not respond now."""
    silent = {report.node.node_id for report in found.reports if report.disks is None}
    kept = {key: problem for key, problem in before.items() if problem.broker_id in silent}
    return {**kept, **{problem.key: problem for problem in found.problems()}}


def print_changes(document: Mapping[str, Any] | None, *, as_json: bool) -> None:
    """Print the document of `changes_of`, or that there is nothing to report."""
    if as_json:
        click.echo(json.dumps(document or {"raised": [], "cleared": [], "problems": []}))
        return
    clock = time.strftime("%H:%M:%S")
    if document is None:
        click.echo(f"{clock}  nothing needs attention")
        return
    for sign, change in (("+", "raised"), ("-", "cleared")):
        for line in change_lines(document[change]):
            click.echo(printable(f"{clock}  {sign} {line}"))


def change_lines(problems: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a line for each problem; if a kind has many, name the first ones and count the rest.

    A broker that dies makes thousands of partitions under-replicated.
    """
    by_kind: dict[str, list[str]] = {}
    for problem in problems:
        by_kind.setdefault(problem["kind"], []).append(problem["text"])
    lines = []
    for kind, texts in by_kind.items():
        shown = texts if len(texts) <= _MAX_LINES else texts[: _MAX_LINES - 1]
        lines += shown
        if len(texts) > len(shown):
            lines.append(f"{len(texts) - len(shown)} more {kind}")
    return lines
