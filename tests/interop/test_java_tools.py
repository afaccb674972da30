"""The virtual machine that runs Kafka's tools one after another."""

from __future__ import annotations

from peers.java_tools import JavaTools


def test_a_tool_answers_with_its_own_output_only(java_tools: JavaTools) -> None:
    """A client that a tool leaves open goes on logging while later tools run."""
    assert java_tools.run("LateWriter").stderr == ""
    assert java_tools.run("LateWriter").stderr == "of the second call\n"
