"""`spindle audit` as a user runs it: table, JSON, plan of repairs and exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from broker_directories import PLAIN, clean_directory
from log_directory_files import corrupt_byte

from spindle.audit.report import AuditReport
from spindle.audit.run import run_audit
from spindle.cli.audit.screen import report_lines
from spindle.cli.main import run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_directory(tmp_path_factory.mktemp("audited") / "d1")


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = clean_directory(tmp_path / "d 2", node_id=2)
    first = sorted((path / str(PLAIN)).glob("*.log"))[0]
    corrupt_byte(first, 100)
    first.with_suffix(".index").unlink()
    return path


def test_a_directory_in_order_gives_0_and_is_read_once(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alias = tmp_path / "alias"
    alias.symlink_to(root)
    assert run(["audit", str(root), f"{root}/", str(alias)]) == 0
    text = capsys.readouterr().out
    assert "closed" in text
    assert "all in order" in text
    assert text.count(str(root)) == 1


def test_findings_name_place_cause_and_repair(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", str(damaged), "--jobs", "1"]) == 1
    text = capsys.readouterr().out
    assert f"{damaged}/orders-0/00000000000000000000.log at byte 0 (offset 0)" in text
    assert "its bytes give" in text
    assert "changed bytes" in text
    assert "it copies the records from the leader" in text
    assert "the file was removed; to repair it, start the broker again" in text
    assert "2 findings" in text


def test_programs_get_json_from_several_processes(
    root: Path, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", str(root), str(damaged), "--json", "-j", "2"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["replicas"] == 4
    kinds = [finding["kind"] for finding in document["findings"]]
    assert kinds == ["batch-checksum", "offset-index-missing"]
    assert document["findings"][0]["position"] == 0
    assert document["findings"][0]["severity"] == "error"


def test_the_plan_is_a_script_that_deletes_nothing(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = sorted((damaged / str(PLAIN)).glob("*.index"))[0]
    index.write_bytes(b"123")
    corrupt_byte(damaged / str(PLAIN) / "00000000000000000000.log", 100)
    assert run(["audit", str(damaged), "--repair-plan"]) == 1
    script = capsys.readouterr().out
    assert "stop the broker of node 2" in script
    quarantine = tmp_path / "quarantine"
    subprocess.run(
        ["sh", "-c", script], check=True, env={"QUARANTINE": str(quarantine), "PATH": "/bin"}
    )
    assert not index.exists()
    moved = Path(f"{quarantine}{index}")
    assert moved.read_bytes() == b"123"
    index.write_bytes(b"456")
    subprocess.run(
        ["sh", "-c", script], check=True, env={"QUARANTINE": str(quarantine), "PATH": "/bin"}
    )
    assert [path.read_bytes() for path in sorted(moved.parent.glob("*.index*"))] == [b"456", b"123"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no log directory is given: give paths, or --bootstrap-server"),
        (["/nowhere"], "/nowhere cannot be read as a log directory: No such file or directory"),
        (["/"], "/ is not a log directory"),
        (["/", "--jobs", "0"], "Try: spindle audit --help"),
        (["/", "--job-count", "2"], "No such option"),
        (["/", "--json", "--repair-plan"], "give one"),
    ],
)
def test_a_wrong_command_line_gives_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_name_with_a_line_break_puts_no_command_into_the_plan(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (damaged / f"x\ntouch {tmp_path.name}-was-here\n#").mkdir()
    (damaged / "meta.properties").write_text("version=1\nnode.id=1\\nfalse\ncluster.id=a\n")
    assert run(["audit", str(damaged), "--repair-plan"]) == 1
    script = capsys.readouterr().out
    commands = [line for line in script.splitlines() if not line.startswith("#")]
    assert "was-here" in script
    assert [line for line in commands if "was-here" in line or line == "false"] == []


def test_a_name_that_is_not_unicode_is_printed(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkdir(os.fsencode(damaged) + b"/\xff-x")
    for options in ([], ["--repair-plan"], ["--json"]):
        assert run(["audit", str(damaged), "--jobs", "1", *options]) == 1
        assert "udcff-x" in capsys.readouterr().out


def test_a_page_is_drawn_outside_of_the_log_directories(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "audit.html"
    assert run(["audit", str(damaged), "--jobs", "1", "--html", str(page)]) == 1
    assert capsys.readouterr().out.endswith(f"Drew {page}\n")
    assert "orders-0/00000000000000000000.log" in page.read_text()
    assert run(["audit", str(damaged), "--html", str(damaged / "x.html")]) == 2
    assert "x.html must be outside of the log directories" in capsys.readouterr().err
    assert run(["audit", str(tmp_path)]) == 2
    assert "audit those inside of it: d 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("width", "has_bars"), [(45, False), (62, False), (90, True), (None, True)]
)
def test_the_screen_of_an_audit_fits_into_a_terminal(
    damaged: Path, width: int | None, has_bars: bool
) -> None:
    lines = [line.text for line in report_lines(run_audit([damaged]), 1.0, width)]
    head, row = (line for line in lines[:2])
    assert head.startswith("DIRECTORY")
    assert ("█" in row) == has_bars
    assert width is None or max(len(head), len(row)) <= width
    assert any(line.startswith("error batch-checksum") for line in lines)


def test_an_audit_that_only_asks_brokers_does_not_say_that_it_read_replicas() -> None:
    (line,) = report_lines(AuditReport((), (), (), 0, 0), 0.25)
    assert line.text == (
        "metadata and brokers' directories compared in 0.2 s, no batches read: all in order"
    )


def test_a_missing_library_is_no_finding(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "spindle.audit.run", None)
    assert run(["audit", str(root)]) == 2
    assert "spindle.audit.run" in capsys.readouterr().err


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_producer_snapshot_is_moved_away_if_another_one_stays(
    damaged: Path, capsys: pytest.CaptureFixture[str], is_alone: bool
) -> None:
    first, *others, last = sorted((damaged / "payments-3").glob("*.snapshot"))
    last.write_bytes(first.read_bytes())
    for item in [first, *others] if is_alone else []:
        item.unlink()
    assert run(["audit", str(damaged), "--repair-plan"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "mv --" in line]
    (line,) = [line for line in lines if str(last) in line]
    assert line.startswith("#") is is_alone


def test_a_producer_snapshot_that_cannot_be_read_stays(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, last = sorted((damaged / "payments-3").glob("*.snapshot"))
    last.write_bytes(b"garbage")
    assert run(["audit", str(damaged), "--repair-plan"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if str(last) in line]
    assert lines
    assert all(line.startswith("#") for line in lines)


@pytest.mark.parametrize("exists", [False, True])
def test_a_disk_that_is_not_mounted_is_a_finding_beside_those_of_the_others(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], exists: bool
) -> None:
    other = tmp_path / "d3"
    if exists:
        other.mkdir()
    assert run(["audit", str(damaged), str(other), "--json"]) == 2
    load = json.loads(capsys.readouterr().out)["findings"]
    assert [finding["path"] for finding in load if finding["kind"] != "batch-checksum"]
    (empty,) = [finding for finding in load if finding["path"] == str(other)]
    assert empty["kind"] == ("directory-empty" if exists else "unreadable")
    assert any(finding["kind"] == "offset-index-missing" for finding in load)
    quarantine = ["--apply", "--quarantine", str(tmp_path / "q")]
    assert run(["audit", str(damaged), str(other), *quarantine]) == 2
    assert not exists or list(other.iterdir()) == []
