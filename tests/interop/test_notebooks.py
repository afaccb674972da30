"""The notebooks in examples/ run from the first cell to the last, and draw their plots."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from peers.paths import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOTEBOOK = ROOT / "examples" / "day_of_orders.ipynb"


def test_the_notebook_draws_its_plots_and_its_stream_catches_up(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    sizes = [
        struct.unpack(">II", base64.b64decode(output["data"]["image/png"])[16:24])
        for output in outputs
        if "image/png" in output.get("data", ())
    ]
    assert len(sizes) == 3
    assert all(width > 700 and height > 200 for width, height in sizes)
    printed = "".join(
        output.get("text", "") for output in outputs if output.get("name") == "stdout"
    )
    assert "orders in" in printed
    assert "the lag is now 0" in printed


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not [cell for cell in notebook.cells if cell.get("outputs")]
    assert not [cell for cell in notebook.cells if cell.get("execution_count")]
