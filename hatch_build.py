"""The build step of the package: compile the inner loops of compaction, if there is a C compiler.

The walk of the audit over batches is among them. Without a compiler the package is built all the
same: compaction runs in plain Python, and numba compiles the walk.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = Path("src", "spindle", "log", "cleaning")
_OPTIONS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden")


class CompiledLoops(BuildHookInterface):
    """Hatchling's hook; it also runs for an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile `kernel.c` to a library beside it, and name the platform in the wheel's tag."""
        folder = Path(self.root) / _FOLDER
        library = folder / "_kernel.so"
        library.unlink(missing_ok=True)
        source = folder / "kernel.c"
        command = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or "gcc"]
        try:
            subprocess.run(
                [*command, *_OPTIONS, str(source), "-o", str(library)],
                check=True,
                capture_output=True,
                text=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            reason = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
            self.app.display_warning(
                f"compaction and audits will run without compiled code: {reason}"
            )
            return
        # The library is only loaded if it is whole and beside the source that it was compiled from.
        checksums = folder / "_kernel.checksums"
        checksums.write_text(
            "".join(f"{zlib.crc32(file.read_bytes())}\n" for file in (source, library)),
            newline="\n",
        )
        if version != "editable":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"
            build_data["pure_python"] = False
        build_data["artifacts"] += [
            f"/{_FOLDER.as_posix()}/{file.name}" for file in (library, checksums)
        ]
