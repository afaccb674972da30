"""Describe the interpreter that runs this file, as JSON. It needs nothing but that interpreter."""

import json
import platform
import sys
import sysconfig
from pathlib import Path


def describe() -> dict[str, object]:
    """Return version, compiler and build flags; `pgo`, `lto` and `shared` tell what matters.

    `pgo` and `lto` are what the interpreter says of its own build: Debian's has both and says
    neither.
    """
    arguments = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    flags = " ".join(
        str(sysconfig.get_config_var(name) or "") for name in ("PY_CORE_CFLAGS", "PY_CORE_LDFLAGS")
    )
    return {
        "name": f"{platform.python_implementation()} {platform.python_version()}",
        "build": " ".join(platform.python_build()),
        "compiler": platform.python_compiler(),
        "pgo": "--enable-optimizations" in arguments or "-fprofile-use" in flags,
        "lto": "--with-lto" in arguments or "-flto" in flags,
        "shared": _is_shared(),
        "config_args": arguments,
        "cflags": flags,
    }


def _is_shared() -> bool:
    """Return whether the interpreter is a library; where the system does not tell, by its flags."""
    maps = Path("/proc/self/maps")
    if maps.exists():
        return "/libpython" in maps.read_text()
    return bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))


if __name__ == "__main__":
    json.dump(describe(), sys.stdout)
