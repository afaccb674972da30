"""The library of the native code is loaded if it is whole and built from the sources beside it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spindle.common.native import (
    LIBRARY_NAME,
    PACKAGE,
    RECORD_NAME,
    BuildRecord,
    file_hash,
    is_native_available,
    native_text,
    sources_hash,
    why_not_loadable,
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with a library, in a checkout with a crate."""
    crate, package = tmp_path / "native", tmp_path / "src" / "spindle"
    (crate / "src" / "lane").mkdir(parents=True)
    package.mkdir(parents=True)
    (crate / "Cargo.toml").write_text("[package]\n")
    (crate / "src" / "lib.rs").write_text("mod lane;\n")
    (crate / "src" / "lane" / "mod.rs").write_text("\n")
    (package / LIBRARY_NAME).write_bytes(b"library" * 1000)
    write_record(package, BuildRecord(sources_hash(crate), file_hash(package / LIBRARY_NAME)))
    return package


def write_record(package: Path, record: BuildRecord) -> None:
    (package / RECORD_NAME).write_text(json.dumps(record._asdict()))


def test_a_whole_library_of_these_sources_may_be_loaded(package: Path) -> None:
    assert why_not_loadable(package) == ""


def test_a_wheel_has_no_sources_to_compare_with(package: Path) -> None:
    (package.parents[1] / "native" / "Cargo.toml").rename(package / "elsewhere")
    assert why_not_loadable(package) == ""


def change(name: str) -> Callable[[Path], None]:
    def change(package: Path) -> None:
        with (package.parents[1] / "native" / name).open("a") as file:
            file.write("\n")

    return change


def add_source(package: Path) -> None:
    (package.parents[1] / "native" / "src" / "new.rs").write_text("")


def rename_source(package: Path) -> None:
    lane = package.parents[1] / "native" / "src" / "lane"
    (lane / "mod.rs").rename(lane / "other.rs")


@pytest.mark.parametrize(
    "change",
    [change("src/lane/mod.rs"), change("Cargo.toml"), change("Cargo.lock"), add_source],
)
def test_a_library_of_other_sources_is_not_loaded(
    package: Path, change: Callable[[Path], None]
) -> None:
    change(package)
    assert "has changed since the build; make native" in why_not_loadable(package)


def test_a_renamed_source_is_a_change(package: Path) -> None:
    rename_source(package)
    assert "has changed since the build" in why_not_loadable(package)


@pytest.mark.parametrize("size_bytes", [0, 1, 6999])
def test_a_truncated_library_is_not_loaded(package: Path, size_bytes: int) -> None:
    library = package / LIBRARY_NAME
    library.write_bytes(library.read_bytes()[:size_bytes])
    assert "is damaged or of another build" in why_not_loadable(package)


def test_a_missing_library_is_named(package: Path) -> None:
    (package / LIBRARY_NAME).unlink()
    assert f"{LIBRARY_NAME} cannot be read" in why_not_loadable(package)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"reason": ""}', '{"unknown": 1}', "\xff"]
)
def test_a_damaged_record_allows_nothing(package: Path, text: str) -> None:
    (package / RECORD_NAME).write_text(text, encoding="latin-1")
    assert "install Spindle again" in why_not_loadable(package)


def test_the_reason_of_the_build_is_repeated(package: Path) -> None:
    write_record(package, BuildRecord(reason="it rains"))
    assert why_not_loadable(package) == "it rains"


def test_sources_that_were_never_installed_have_no_library(package: Path) -> None:
    (package / RECORD_NAME).unlink()
    assert "was not installed" in why_not_loadable(package)


def test_one_line_says_what_is_used() -> None:
    assert native_text(is_enabled=False).endswith(
        "off (spindle.native.enable=false); everything runs in Python"
    )
    if is_native_available():
        assert native_text() == "native code: compaction, audit"
        assert sys.modules["spindle._native"].__file__ == str(PACKAGE / LIBRARY_NAME)
    else:
        assert native_text().startswith("native code: none, everything runs in Python: ")
    assert "\n" not in native_text()
