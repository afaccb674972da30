"""Where files are cached that are executed later, and where they are not."""

import os
import tempfile
from pathlib import Path

import pytest

from spindle.common import cache_directory as module
from spindle.common.cache_directory import cache_directory


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a home, as in many containers; return the directory in the temporary one."""
    monkeypatch.setattr(module, "user_cache", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"spindle-{os.getuid()}"


def test_the_cache_of_the_users_home_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_directory() == tmp_path / "cache" / "spindle"


def test_a_user_without_a_home_gets_a_private_directory(temporary: Path) -> None:
    assert cache_directory() == temporary
    assert temporary.stat().st_mode & 0o777 == 0o700
    assert cache_directory() == temporary


def test_a_home_that_is_a_file_is_passed_over(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "user_cache", lambda: Path("/dev/null"))
    assert cache_directory() == temporary


@pytest.mark.parametrize("trap", ["others can write", "a link"])
def test_a_directory_that_others_prepared_is_refused(
    temporary: Path, tmp_path: Path, trap: str
) -> None:
    if trap == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        temporary.symlink_to(tmp_path / "elsewhere")
    else:
        temporary.mkdir()
        temporary.chmod(0o777)
    with pytest.raises(PermissionError, match="remove it, or set XDG_CACHE_HOME"):
        cache_directory()
