"""The build step of the package: build the Rust crate `native/`, if there is cargo.

Where there is no cargo, where its crates cannot be fetched, or where it does not compile, the
package is built all the same: everything runs in Python. `spindle.common.native` reads the record
of the build, and `spindle --version` shows it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FETCH_LIMIT_S = 60
_COMPILE_LIMIT_S = 900


class NotBuilt(Exception):
    """The crate was not built; the text says why in one line."""


class NativeCode(BuildHookInterface):
    """Hatchling's hook; it also runs for an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the library and the record of its build into the package; set the wheel's tag."""
        root = Path(self.root)
        sys.path.insert(0, str(root / "src"))
        from spindle.common.native import (
            LIBRARY_NAME,
            RECORD_NAME,
            BuildRecord,
            file_hash,
            sources_hash,
        )

        crate, package = root / "native", root / "src" / "spindle"
        library = package / LIBRARY_NAME
        try:
            _build(crate, root / "build" / "native", library)
            record = BuildRecord(sources_hash(crate), file_hash(library))
        except NotBuilt as error:
            library.unlink(missing_ok=True)
            record = BuildRecord(reason=str(error))
            self.app.display_warning(f"native code is not built: {error}")
        (package / RECORD_NAME).write_text(json.dumps(record._asdict()) + "\n", encoding="utf-8")
        build_data["artifacts"].append(f"/src/spindle/{RECORD_NAME}")
        if record.library:
            build_data["artifacts"].append(f"/src/spindle/{LIBRARY_NAME}")
            if version != "editable":
                platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                build_data["tag"] = f"cp311-abi3-{platform}"
                build_data["pure_python"] = False


def _build(crate: Path, target: Path, library: Path) -> None:
    """Build the crate and copy its library.

    Raises:
        NotBuilt: there is no cargo, it is too old, or one of its steps fails.
    """
    installed_by_rustup = os.path.expanduser("~/.cargo/bin")
    cargo = shutil.which("cargo") or shutil.which("cargo", path=installed_by_rustup)
    if cargo is None:
        raise NotBuilt("cargo was not there at the installation (https://rustup.rs has it)")
    _run([cargo, "fetch", "--locked"], crate, _FETCH_LIMIT_S, "its crates could not be fetched")
    command = [cargo, "build", "--release", "--locked", "--offline", "--target-dir", str(target)]
    _run(command, crate, _COMPILE_LIMIT_S, "it did not compile")
    suffix = "dylib" if sys.platform == "darwin" else "so"
    try:
        # Processes that have mapped the library before keep theirs.
        whole = library.with_name(f"{library.name}.new")
        shutil.copyfile(target / "release" / f"lib_native.{suffix}", whole)
        whole.replace(library)
    except OSError as error:
        raise NotBuilt(f"its library could not be copied: {error}") from error


def _run(command: list[str], crate: Path, limit_s: int, failure: str) -> None:
    """Run one step of cargo.

    Raises:
        NotBuilt: it fails, or exceeds its limit.
    """
    network = {"CARGO_NET_RETRY": "1", "CARGO_HTTP_TIMEOUT": "20", "CARGO_TERM_COLOR": "never"}
    try:
        subprocess.run(
            command,
            cwd=crate,
            env={**os.environ, **network},
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"{failure} within {limit_s} s") from None
    except OSError as error:
        raise NotBuilt(f"{failure}: {error}") from None
    except subprocess.CalledProcessError as error:
        raise NotBuilt(f"{failure}: {_first_error(error.stderr)}") from None


def _first_error(output: str) -> str:
    """Return the first error of cargo, in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"error(\[\w+\])?:", line)]
    return re.sub(r"^error(\[\w+\])?:\s*", "", (errors or lines or ["no reason is given"])[0])
