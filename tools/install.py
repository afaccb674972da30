"""Install the locked dependencies into the environment of this interpreter: `make setup`.

Some package indexes have PySpark as a source archive only: 450 MB, from which a wheel is built in a
minute or two. The wheel is built once for a user and kept in ~/.cache/spindle/wheels, so the next
environment takes it from there. While a step runs that prints nothing, a line with its time and the
bytes that it has written shows that it goes on.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parents[1]
LOCK: Final = TOP / "requirements.lock"
_MB: Final = 1_000_000


def wheel_folder() -> Path:
    """Return the folder for wheels that were built here: of the user, or of this environment.

    The second is for users without a home that they may write.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(cache) / "spindle" / "wheels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(sys.prefix) / "wheels"
    return folder if os.access(folder, os.W_OK) else Path(sys.prefix) / "wheels"


def locked(name: str) -> tuple[str, str]:
    """Return the version of a package in the lock file, and its entry with the hashes."""
    text = LOCK.read_text(encoding="utf-8")
    entry = re.search(rf"^{name}==(\S+)(?:.*\\\n)(?:    --hash=\S+(?: \\)?\n)+", text, re.MULTILINE)
    if entry is None:
        raise SystemExit(f"{LOCK} has no {name}")
    return entry[1], entry[0]


def size_bytes(folders: Sequence[Path]) -> int:
    """Return the bytes of all files below folders that may change meanwhile."""
    total = 0
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                try:
                    total += os.lstat(os.path.join(parent, name)).st_size
                except OSError:
                    continue
    return total


@contextmanager
def progress(what: str, folders: Sequence[Path]) -> Iterator[None]:
    """Show what is done, for how long, and how much the folders have grown."""
    is_terminal = sys.stdout.isatty()
    begun_s = time.monotonic()
    before = size_bytes(folders)
    done = threading.Event()

    def text() -> str:
        grown = max(0, size_bytes(folders) - before)
        return f"{what}: {time.monotonic() - begun_s:.0f} s, {grown / _MB:,.0f} MB"

    def show() -> None:
        while not done.wait(1 if is_terminal else 10):
            print(f"\r{text()}" if is_terminal else text(), end="" if is_terminal else "\n")
            sys.stdout.flush()

    watcher = threading.Thread(target=show, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    print(f"\r{text()}" if is_terminal else text(), flush=True)


def run(command: Sequence[str], *, is_quiet: bool = False) -> None:
    """Run a command; end with its output if it fails."""
    pipe = subprocess.PIPE if is_quiet else None
    finished = subprocess.run(
        command, stdout=pipe, stderr=subprocess.STDOUT if is_quiet else None, check=False
    )
    if finished.returncode:
        sys.stdout.write((finished.stdout or b"").decode(errors="replace"))
        raise SystemExit(finished.returncode)


def install_pyspark() -> None:
    """Install PySpark from a wheel that was built before, or build the wheel."""
    wanted, entry = locked("pyspark")
    try:
        if version("pyspark") == wanted:
            return
    except PackageNotFoundError:
        pass
    folder = wheel_folder()
    wheel = next(folder.glob(f"pyspark-{wanted}-*.whl"), None)
    if wheel is None:
        wheel = _built_wheel(wanted, entry, folder)
    else:
        print(f"PySpark {wanted} from {wheel}", flush=True)
    with progress("installing PySpark", [Path(sys.prefix)]):
        run(["uv", "pip", "install", "--quiet", "--no-deps", str(wheel)], is_quiet=True)


def _built_wheel(wanted: str, entry: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if find_spec("pip") is None:
        run(["uv", "pip", "install", "--quiet", "pip"])
    # Beside its destination, so that the finished wheel is renamed and never seen half written.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as name:
        building = Path(name)
        requirements = building / "requirements.txt"
        requirements.write_text(entry, encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir"]
        command = [*pip, "--require-hashes", "-r", str(requirements), "-w", name]
        os.environ["TMPDIR"] = name
        try:
            with progress(f"PySpark {wanted}, download and wheel", [building]):
                run(command, is_quiet=True)
        finally:
            del os.environ["TMPDIR"]
        (built,) = building.glob("*.whl")
        return built.rename(folder / built.name)


def main() -> None:
    """Install everything."""
    install_pyspark()
    print("the other packages", flush=True)
    run(["uv", "pip", "install", "--require-hashes", "-r", str(LOCK)])
    # The native code is built with it; uv does not see when its sources have changed.
    itself = ["--reinstall-package", "spindle-log", "-e", str(TOP)]
    with progress("spindle itself, with the native code", [TOP / "build"]):
        run(["uv", "pip", "install", "--quiet", "--no-deps", *itself])
    library = Path(sys.prefix) / "lib"
    with progress("compiling Python files", [library]):
        # Without it each program compiles what it imports when it first starts.
        compiling = [sys.executable, "-m", "compileall", "-q", "-j", "0", str(library)]
        subprocess.run(compiling, stdout=subprocess.DEVNULL, check=False)
    run([sys.executable, "-m", "spindle.common.native"])


if __name__ == "__main__":
    main()
