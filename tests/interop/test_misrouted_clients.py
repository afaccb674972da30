"""Spindle's own client names the broker that it expects, to Kafka and to Spindle (KIP-1242)."""

from __future__ import annotations

import pytest
from peers.compare import Pair

from spindle.client.blocking.client import connect
from spindle.client.blocking.settings import HostPort
from spindle.client.blocking.transport import BlockingConnection
from spindle.client.connection import ExpectedBroker
from spindle.common.errors import ApiError, ErrorCode


def test_the_broker_that_is_meant_answers_and_another_one_refuses(module_pair: Pair) -> None:
    for node in (module_pair.reference, module_pair.candidate):
        address = HostPort("127.0.0.1", node.port)
        with connect(node.bootstrap) as client:
            client.metadata()
            view = client.metadata()  # on a connection that names cluster and node
            assert view.cluster_id is not None
            for expected in (
                ExpectedBroker(view.cluster_id, node.node_id + 1),
                ExpectedBroker("another", node.node_id),
            ):
                with pytest.raises(ApiError, match=f"this is not {expected}") as refused:
                    BlockingConnection.open(address, client.settings, expected=expected)
                assert refused.value.code is ErrorCode.REBOOTSTRAP_REQUIRED
