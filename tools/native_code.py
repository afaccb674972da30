"""Check or test the Rust crate `native/`, for `make check` and `make test`.

Without a cargo that can build the crate (see `rust-version` in its Cargo.toml), or without its
crates, one line says so, and the command passes: Spindle works without native code. An error of
the crate itself is a failure.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

CRATE: Final = Path(__file__).parents[1] / "native"
FETCH_LIMIT_S: Final = 60
CHECKS: Final = (("fmt", "--check"), ("clippy", "--quiet", "--all-targets", "--", "-D", "warnings"))
TESTS: Final = (("test", "--quiet"),)


def search_path() -> str:
    """Return the path for commands, with the folder of rustup at its end."""
    return os.pathsep.join([os.environ.get("PATH", ""), os.path.expanduser("~/.cargo/bin")])


def run(*arguments: str, limit_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run cargo; its output is shown unless it has a time limit."""
    return subprocess.run(
        ["cargo", *arguments],
        cwd=CRATE,
        env={**os.environ, "PATH": search_path(), "CARGO_NET_RETRY": "1"},
        capture_output=limit_s is not None,
        text=True,
        timeout=limit_s,
        check=False,
    )


def why_not_possible(commands: tuple[tuple[str, ...], ...]) -> str:
    """Return why cargo cannot run the commands here; empty if it can."""
    path = search_path()
    if shutil.which("cargo", path=path) is None:
        return "cargo is not here"
    missing = [c for c, *_ in commands if c != "test" and not shutil.which(f"cargo-{c}", path=path)]
    if missing:
        return f"cargo has no {missing[0]}"
    wanted = tomllib.loads((CRATE / "Cargo.toml").read_text())["package"]["rust-version"]
    try:
        version = re.search(r"\d+\.\d+", run("--version", limit_s=FETCH_LIMIT_S).stdout)
        if version is None or numbers(version[0]) < numbers(wanted):
            return f"Rust {wanted} is needed, here is {version[0] if version else 'none'}"
        if run("fetch", "--locked", limit_s=FETCH_LIMIT_S).returncode:
            return "its crates cannot be fetched"
    except subprocess.TimeoutExpired:
        return f"its crates were not fetched within {FETCH_LIMIT_S} s"
    return ""


def numbers(version: str) -> list[int]:
    """Return the numbers of a version."""
    return [int(number) for number in version.split(".")]


def main(what: str) -> int:
    """Run the checks or the tests; return the exit code."""
    commands = {"check": CHECKS, "test": TESTS}[what]
    reason = why_not_possible(commands)
    if reason:
        print(f"native code: no {what}, {reason}")
        return 0
    for command in commands:
        code = run(*command).returncode
        if code:
            return code
    print("native code: fine")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
