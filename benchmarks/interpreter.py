"""Describe the interpreter that runs this file, as JSON. It needs nothing but that interpreter."""

import json
import platform
import sys
import sysconfig


def describe() -> dict[str, object]:
    """Return version, compiler and build flags; `pgo`, `lto` and `shared` tell what matters."""
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
        "shared": bool(sysconfig.get_config_var("Py_ENABLE_SHARED")),
        "config_args": arguments,
        "cflags": flags,
    }


if __name__ == "__main__":
    json.dump(describe(), sys.stdout)
