"""Spindle's own APIs: not advertised, refused by controllers, and a refusal is explained."""

import asyncio
from pathlib import Path

import pytest
from node_harness import Home, connected, running

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.errors import UnsupportedByPeer
from spindle.protocol.api import APIS
from spindle.protocol.messages.alter_disks import AlterDisksRequest, AlterDisksResponse
from spindle.protocol.messages.api_versions import ApiVersionsRequest

PRIVATE = [api for api in APIS.values() if api.is_private]


async def test_private_apis_are_not_advertised_to_clients(tmp_path: Path) -> None:
    assert PRIVATE
    async with running(Home(tmp_path).format()) as node:
        for listener in ("PLAINTEXT", "CONTROLLER"):
            async with connected(node, listener) as client:
                answer = await client.ask(ApiVersionsRequest(), version=0)
                assert max(row.api_key for row in answer.api_keys) < 100


async def test_a_peer_that_does_not_serve_them_is_named(tmp_path: Path) -> None:
    async with running(Home(tmp_path).format()) as node:
        assert node.controller is not None
        endpoint = node.controller.registrar.endpoints[0]
        peer = BrokerAddress(7, endpoint.host, endpoint.port)
        settings = client_settings({"bootstrap.servers": f"{peer.host}:{peer.port}"})
        request = AlterDisksRequest(path="/d")
        with WireClient(settings) as client, pytest.raises(UnsupportedByPeer) as refusal:
            await asyncio.to_thread(client.ask_spindle, peer, request, AlterDisksResponse)
        assert str(refusal.value) == f"{peer} is not a Spindle broker, or an older one"
