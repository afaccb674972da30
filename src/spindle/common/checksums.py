"""CRC-32C, from the extension module of the package `crc32c` without the rest of the package.

The package reads the metadata of what is installed to know its own version. That is 30 ms of CPU
at the start of each process.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final


def _extension() -> Callable[..., int]:
    package = find_spec("crc32c")
    folders = None if package is None else package.submodule_search_locations
    spec = None if folders is None else PathFinder.find_spec("_crc32c", list(folders))
    if spec is None or spec.loader is None:
        from crc32c import crc32c as function  # another version of the package

        return function
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]


crc32c: Final = _extension()
"""Return the CRC-32C of bytes, continued from the CRC of earlier bytes (0 for none)."""
