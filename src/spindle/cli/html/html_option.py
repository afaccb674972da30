"""The option `--html FILE`, and the writing of a page."""

import os
from pathlib import Path
from typing import Final

import click

_BEGIN: Final = b"<!doctype html>"


def _check(_: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Check that the output file can be written before the work starts.

    Raises: click.BadParameter: the folder is missing, or the file exists and is not a page.
    """
    if path is None:
        return None
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise click.BadParameter(f"{path.parent} is not a folder to write to", param=parameter)
    if path.exists() and not _is_page(path):
        raise click.BadParameter(
            f"{path} exists and is not an HTML page; name another file", param=parameter
        )
    return path


def _is_page(path: Path) -> bool:
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        return False
    with path.open("rb") as file:
        return file.read(len(_BEGIN)).lower() == _BEGIN


HTML = click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_check,
    help="Also write the result as an HTML page to FILE, replacing an older page.",
)


def write_page(path: Path, text: str) -> None:
    """Write a page in one step: a reader sees the old page or the new one.

    Raises:
        OSError: the file cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
