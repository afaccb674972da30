"""The command that records scenarios, and the comparison of two recordings."""

from __future__ import annotations

import argparse
import difflib
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from peers.failing_disk import why_no_failing_disks
from peers.paths import RELEASE

from recordings.all_scenarios import SCENARIOS
from recordings.programs import NAMES, Program, program_of

HERE = Path(__file__).resolve().parent
REFERENCE = f"kafka-{RELEASE}"
"""The program whose recordings are kept whole; those of others are kept as differences."""


def recording_file(name: str) -> Path:
    """Return the recording of a scenario with the reference."""
    return HERE / REFERENCE / f"{name}.txt"


def difference_file(name: str, program: str) -> Path:
    """Return the differences of another program; there is no such file if there are none."""
    return HERE / program / f"{name}.diff"


def difference(name: str, program: str, text: str) -> str:
    """Return what differs from the stored recording of the reference, as a unified diff.

    The numbers of lines are left out, and each part begins with the title of its step.
    """
    reference = recording_file(name).read_text().splitlines()
    parts = difflib.unified_diff(reference, text.splitlines(), REFERENCE, program, lineterm="", n=1)
    return "".join(f"{line}\n" for line in _without_numbers(parts))


def _without_numbers(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield "@@" if line.startswith("@@ ") else line


def play(name: str, program: Program) -> str:
    """Play a scenario in a folder of its own and return the recording."""
    folder = Path(tempfile.mkdtemp(prefix="spindle-recording-"))
    try:
        return SCENARIOS[name].record(program, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stored_difference(name: str, program: str) -> str:
    """Return the known differences of a program."""
    path = difference_file(name, program)
    return path.read_text() if path.exists() else ""


def keep(name: str, program: str, text: str) -> None:
    """Store a recording of the reference, or the differences of another program."""
    if program == REFERENCE:
        path, content = recording_file(name), text
    else:
        path, content = difference_file(name, program), difference(name, program, text)
    path.parent.mkdir(exist_ok=True)
    if content:
        path.write_text(content)
    else:
        path.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record scenarios; see `--help`."""
    parser = argparse.ArgumentParser(
        prog="record.py",
        description="Play scenarios and store what the program writes and prints.",
    )
    parser.add_argument("--program", choices=NAMES, default=REFERENCE)
    parser.add_argument("--to", type=Path, help="write plain recordings here and store nothing")
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(SCENARIOS)}; all by default")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.scenarios) - set(SCENARIOS))
    if unknown:
        parser.error(f"unknown scenarios {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    failures = 0
    with program_of(options.program) as program:
        for name in options.scenarios or SCENARIOS:
            reason = why_no_failing_disks() if SCENARIOS[name].needs_disks else ""
            if reason:
                print(f"{name}: not recorded: {reason}", file=sys.stderr)
                continue
            start = time.monotonic()
            try:
                text = play(name, program)
            except Exception as error:  # noqa: BLE001 - the other scenarios are recorded
                traceback.print_exception(error)
                print(f"{name}: failed", file=sys.stderr, flush=True)
                failures += 1
                continue
            if options.to is None:
                keep(name, options.program, text)
            else:
                options.to.mkdir(parents=True, exist_ok=True)
                (options.to / f"{name}.txt").write_text(text)
            print(f"{name}: {len(text)} bytes, {time.monotonic() - start:.0f} s", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
