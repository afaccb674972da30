"""The build of the crate, with a stand-in for cargo: where it fails, one line says why."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`hatch_build.py`; hatchling is only where packages are built."""
    interface = ModuleType("interface")
    interface.BuildHookInterface = object  # type: ignore[attr-defined]  # that of hatchling
    name = "hatchling.builders.hooks.plugin.interface"
    for number in range(1, 5):
        monkeypatch.setitem(sys.modules, name.rsplit(".", number)[0], ModuleType("package"))
    monkeypatch.setitem(sys.modules, name, interface)
    spec = spec_from_file_location("hatch_build", TOP / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Machine:
    """A machine with a crate, and with a cargo that runs a shell script."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.crate, self.target, self.library = (root / n for n in ("crate", "target", "library"))
        self._cargo = root / "bin" / "cargo"
        self._cargo.parent.mkdir()
        self.crate.mkdir()
        (self.target / "release").mkdir(parents=True)
        monkeypatch.setenv("PATH", f"{self._cargo.parent}:/usr/bin:/bin")
        monkeypatch.setenv("HOME", str(root / "home"))

    def install(self, script: str) -> None:
        self._cargo.write_text(f"#!/bin/sh\n{script}\n")
        self._cargo.chmod(0o755)

    def move_cargo_home(self, home: Path) -> None:
        (home / ".cargo" / "bin").mkdir(parents=True)
        self._cargo.rename(home / ".cargo" / "bin" / "cargo")

    def build(self, hook: Any) -> None:
        hook._build(self.crate, self.target, self.library)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def failure(machine: Machine, hook: Any) -> str:
    with pytest.raises(hook.NotBuilt) as raised:
        machine.build(hook)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_the_library_is_copied(machine: Machine, hook: Any) -> None:
    suffix = "dylib" if sys.platform == "darwin" else "so"
    library = machine.target / "release" / f"lib_native.{suffix}"
    machine.install(f'test "$1" = fetch || echo new > {library}')
    machine.library.write_text("old")
    machine.build(hook)
    assert machine.library.read_text() == "new\n"


def test_cargo_is_found_where_rustup_puts_it(machine: Machine, hook: Any, tmp_path: Path) -> None:
    machine.install("echo error: it ran >&2; exit 1")
    machine.move_cargo_home(tmp_path / "home")
    assert failure(machine, hook) == "its crates could not be fetched: it ran"


def test_a_machine_without_cargo_is_a_reason(machine: Machine, hook: Any) -> None:
    assert failure(machine, hook).startswith("cargo was not there at the installation")


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (
            "echo warning: spurious >&2; echo 'error: failed to download' >&2; "
            "echo Caused by: >&2; exit 101",
            "its crates could not be fetched: failed to download",
        ),
        ("exit 1", "its crates could not be fetched: no reason is given"),
        (
            "test $1 = fetch && exit; printf '   Compiling x\\nerror[E0308]: mismatched types\\n"
            "error: aborting\\n' >&2; exit 101",
            "it did not compile: mismatched types",
        ),
        ("test $1 = fetch && exit; printf '\\377\\n' >&2; exit 101", "it did not compile: \ufffd"),
        ("exit 0", "its library could not be copied: "),
    ],
)
def test_a_failure_is_one_line(machine: Machine, hook: Any, script: str, text: str) -> None:
    machine.install(script)
    assert failure(machine, hook).startswith(text)


def test_a_registry_that_does_not_answer_is_given_up(
    machine: Machine, hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "_FETCH_LIMIT_S", 0.05)
    machine.install("exec sleep 60")
    assert failure(machine, hook) == "its crates could not be fetched within 0.05 s"


def test_a_cargo_that_cannot_be_run_is_a_reason(machine: Machine, hook: Any) -> None:
    machine.install("")
    (machine.crate.parent / "bin" / "cargo").write_text("#!/nowhere/sh\n")
    assert failure(machine, hook).startswith("its crates could not be fetched: ")
