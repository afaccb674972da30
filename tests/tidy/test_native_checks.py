"""The checks of the crate pass with one line where cargo cannot build it, and fail otherwise."""

from pathlib import Path

import pytest

import native_code


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of programs of a machine."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def install(programs: Path, script: str, *names: str) -> None:
    for name in names or ("cargo", "cargo-fmt", "cargo-clippy"):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)


VERSION = "test $1 = --version && echo 'cargo 1.99.0 (x)' && exit; "


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo cargo 1.63.0", "Rust 1.89 is needed, here is 1.63"),
        ("exit 1", "Rust 1.89 is needed, here is none"),
        (VERSION + "exit 1", "its crates cannot be fetched"),
        ("exec /bin/sleep 60", "its crates were not fetched within 0.05 s"),
    ],
)
def test_a_machine_that_cannot_build_the_crate_passes_with_the_reason(
    programs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    reason: str,
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(native_code, "FETCH_LIMIT_S", 0.05)
    install(programs, script)
    assert native_code.main("check") == 0
    assert capsys.readouterr().out == f"native code: no check, {reason}\n"


def test_a_machine_without_cargo_or_clippy_passes(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert native_code.main("test") == 0
    install(programs, "exit 1", "cargo", "cargo-fmt")
    assert native_code.main("check") == 0
    assert capsys.readouterr().out.splitlines() == [
        "native code: no test, cargo is not here",
        "native code: no check, cargo has no clippy",
    ]


@pytest.mark.parametrize("what", ["check", "test"])
def test_an_error_of_the_crate_is_a_failure(programs: Path, what: str) -> None:
    install(programs, VERSION + "test $1 = fetch && exit; exit 101")
    assert native_code.main(what) == 101
