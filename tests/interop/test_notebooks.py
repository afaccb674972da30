"""The notebooks in examples/ run from the first cell to the last, and draw their plots."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from peers.paths import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ORDERS, DRAINED_DISK = (
    ROOT / "examples" / f"{name}.ipynb" for name in ("day_of_orders", "drained_disk")
)


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Return a notebook, which nbformat reads with a function that has no types."""
    read: Callable[..., nbformat.NotebookNode] = nbformat.read
    return read(path, as_version=4)


def executed(notebook: Path, folder: Path) -> tuple[str, list[tuple[int, int]]]:
    """Run a notebook, and return what it prints, and the sizes of its plots in pixels."""
    read = read_notebook(notebook)
    NotebookClient(read, timeout=300, resources={"metadata": {"path": folder}}).execute()
    outputs = [output for cell in read.cells for output in cell.get("outputs", ())]
    sizes = [
        struct.unpack(">II", base64.b64decode(output["data"]["image/png"])[16:24])
        for output in outputs
        if "image/png" in output.get("data", ())
    ]
    printed = "".join(
        output.get("text", "") for output in outputs if output.get("name") == "stdout"
    )
    return printed, sizes


def test_the_day_of_orders_draws_its_plots_and_its_stream_catches_up(tmp_path: Path) -> None:
    printed, sizes = executed(ORDERS, tmp_path)
    assert len(sizes) == 3
    assert all(width > 700 and height > 200 for width, height in sizes)
    assert "orders in" in printed
    assert "the lag is now 0" in printed


def test_a_disk_is_drained_under_traffic_and_no_record_is_lost(tmp_path: Path) -> None:
    printed, sizes = executed(DRAINED_DISK, tmp_path)
    assert len(sizes) == 2
    assert all(width > 900 and height > 350 for width, height in sizes)
    assert printed.count("MiB: 0 findings") == 2
    assert "has no replicas and is cordoned" in printed
    assert "the same plan now: 0 rounds, 0 bytes to move" in printed
    assert "acknowledged, 0 lost, 0 there twice" in printed
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize("notebook", [ORDERS, DRAINED_DISK], ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(notebook: Path) -> None:
    cells = read_notebook(notebook).cells
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
