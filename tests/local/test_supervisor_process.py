"""The process that holds the nodes of a cluster."""

from typing import Any

import pytest

from spindle.local.errors import ClusterError
from spindle.local.supervisor_process import SupervisorProcess


@pytest.mark.timeout(300)
def test_a_request_that_fails_for_an_unknown_reason_does_not_end_the_nodes() -> None:
    supervisor = SupervisorProcess("spindle.local.supervisor_server:plain_runner")
    requests: list[tuple[str, dict[str, Any]]] = [
        ("start", {"node": 7, "brokers": [7], "options": {}}),
        ("await-ready", {"nodes": [7]}),
        ("an-unknown-request", {}),
    ]
    try:
        for what, fields in requests:
            with pytest.raises(ClusterError, match=r"^KeyError: "):
                supervisor.ask(what, 60, **fields)
        assert supervisor.ask("stop", 60) == []
    finally:
        supervisor.close()
