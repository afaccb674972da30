"""Whether the native code can be used: the Rust crate `native/`, as the module `spindle._native`.

The installation builds the crate if cargo is there (`hatch_build.py`), and writes a record beside
the library: the hash of the sources, the hash of the library, or why it was not built. Callers ask
`is_native_available` before they import `spindle._native`; otherwise they use the Python code,
which does the same.
"""

import hashlib
import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).parents[1]
LIBRARY_NAME: Final = "_native.abi3.so"
RECORD_NAME: Final = "_native.json"
NATIVE_USES: Final = ("compaction", "audit")
"""The parts of Spindle that use the native code where it is available."""

_SOURCES: Final = ("Cargo.toml", "Cargo.lock", ".cargo/config.toml", "src/**/*.rs")


class BuildRecord(NamedTuple):
    """The result of a build; hashes are SHA-256 in hex.

    Attributes:
        sources: the hash of the crate.
        library: the hash of the library, empty if there is none.
        reason: why there is no library, empty if there is one.
    """

    sources: str = ""
    library: str = ""
    reason: str = ""


def sources_hash(crate: Path) -> str:
    """Return the hash of the files from which the library is built."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _SOURCES for path in crate.glob(pattern)):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(crate).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """Return the hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def why_not_loadable(package: Path) -> str:
    """Return why the library in the folder of the package must not be loaded; empty if it may.

    A truncated library would end the process with SIGBUS. In a checkout, a library of other sources
    may do other things than the Python code around it expects.
    """
    try:
        record = BuildRecord(**json.loads((package / RECORD_NAME).read_bytes()))
    except FileNotFoundError:
        return "Spindle was not installed, only its sources are here"
    except (OSError, ValueError, TypeError) as error:
        return f"{package / RECORD_NAME} is damaged ({error}); install Spindle again"
    if record.reason:
        return record.reason
    library, crate = package / LIBRARY_NAME, package.parents[1] / "native"
    try:
        if file_hash(library) != record.library:
            return f"{library} is damaged or of another build; install Spindle again"
        if (crate / "Cargo.toml").exists() and sources_hash(crate) != record.sources:
            return f"{crate} has changed since the build; make native builds it again"
    except OSError as error:
        return f"{library} cannot be read ({error}); install Spindle again"
    return ""


@cache
def native_reason() -> str:
    """Load the library; return why it is not available, empty if it is."""
    reason = why_not_loadable(PACKAGE)
    if not reason:
        try:
            import_module("spindle._native")
        except ImportError as error:
            reason = f"{PACKAGE / LIBRARY_NAME} cannot be loaded: {error}"
    return reason


def is_native_available() -> bool:
    """Return whether `spindle._native` can be imported and matches this version of Spindle."""
    return not native_reason()


def native_text(is_enabled: bool = True) -> str:
    """Return one line that says which parts use the native code, or why none does."""
    if not is_enabled:
        return "native code: off (spindle.native.enable=false); everything runs in Python"
    reason = native_reason()
    if reason:
        return f"native code: none, everything runs in Python: {reason}"
    return f"native code: {', '.join(NATIVE_USES)}"


if __name__ == "__main__":
    print(native_text())  # noqa: T201 - the last line of `make setup`
