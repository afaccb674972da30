"""Connections to quorum members over real sockets."""

import asyncio
import gc
import socket
from typing import Any

import pytest
import uvloop
from quorum_node import CLUSTER_ID, key
from quorum_wire import PeerServer
from waiting import until

from spindle.common.ids import OffsetAndEpoch
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsResponse
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.vote import VoteRequest, VoteResponse
from spindle.raft import requests
from spindle.raft.ready import Destination, Event, Request, RequestFailed
from spindle.runtime.peers.links import PeerLinks
from spindle.runtime.peers.port import PeerGone, PeerLacksVersion, PeerUnavailable
from spindle.runtime.quorum.messages import QuorumMessages
from spindle.runtime.quorum.quorum_counters import QuorumHistory


def vote(*, is_pre_vote: bool) -> Message:
    return requests.vote_request(
        CLUSTER_ID, 1, key(1), key(2), OffsetAndEpoch(0, 0), is_pre_vote=is_pre_vote
    )


def fetch() -> Message:
    return requests.fetch_request(CLUSTER_ID, 1, key(1), OffsetAndEpoch(0, 0), -1, 1000)


async def test_requests_share_a_connection_in_the_newest_common_version() -> None:
    seen: list[tuple[str, int]] = []

    def answer(request: Message, version: int) -> Message:
        seen.append((type(request).__name__, version))
        return VoteResponse() if len(seen) == 1 else FetchResponse(error_code=7)

    server = PeerServer(answer)
    destination = await server.start()
    peers = PeerLinks("raft-client-1", 5)
    assert await peers.request(destination, vote(is_pre_vote=True)) == VoteResponse()
    assert await peers.request(destination, fetch()) == FetchResponse(error_code=7)
    assert server.connections == 1
    peers.close()
    await server.stop()
    assert seen == [("VoteRequest", 2), ("FetchRequest", 18)]


async def test_a_peer_without_pre_votes_gets_votes_only() -> None:
    server = PeerServer(lambda request, version: VoteResponse())
    server.versions.api_keys[2].max_version = 1
    destination = await server.start()
    peers = PeerLinks("raft-client-1", 5)
    with pytest.raises(PeerLacksVersion, match="Vote"):
        await peers.request(destination, vote(is_pre_vote=True))
    assert isinstance(await peers.request(destination, vote(is_pre_vote=False)), VoteResponse)
    peers.close()
    await server.stop()


async def test_a_peer_that_knows_topics_by_name_only_is_not_asked_by_id() -> None:
    server = PeerServer(lambda request, version: FetchResponse())
    server.versions.api_keys[1].max_version = 12
    destination = await server.start()
    peers = PeerLinks("broker-1-fetcher-0", 5)
    by_id = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=bytes(range(16)))])
    with pytest.raises(PeerLacksVersion, match="Fetch"):
        await peers.request(destination, by_id)
    assert isinstance(await peers.request(destination, fetch()), FetchResponse)
    peers.close()
    await server.stop()


async def test_a_peer_of_an_unknown_release_is_asked_in_a_version_that_both_know() -> None:
    seen: list[int] = []

    def answer(request: Message, version: int) -> Message:
        seen.append(version)
        return VoteResponse()

    server = PeerServer(answer)
    rows = {row.api_key: row for row in server.versions.api_keys}
    rows[VoteRequest.API_KEY].max_version = 32767
    server.versions.api_keys.append(
        ApiVersionsResponse.ApiVersion(api_key=999, min_version=5, max_version=7)
    )
    server.versions.supported_features.append(
        ApiVersionsResponse.SupportedFeatureKey(name="new.version", min_version=3, max_version=9)
    )
    destination = await server.start()
    peers = PeerLinks("raft-client-1", 5)
    assert isinstance(await peers.request(destination, vote(is_pre_vote=True)), VoteResponse)
    peers.close()
    await server.stop()
    assert seen == [VoteRequest.LAST_VERSION]


async def test_a_peer_that_has_left_the_known_versions_is_refused_by_their_range() -> None:
    server = PeerServer(lambda request, version: None)
    for row in server.versions.api_keys:
        if row.api_key == FetchRequest.API_KEY:
            row.min_version, row.max_version = 30, 31
    destination = await server.start()
    peers = PeerLinks("raft-client-1", 5)
    with pytest.raises(
        PeerLacksVersion, match="serves Fetch in versions 30 to 31, this request ne"
    ):
        await peers.request(destination, fetch())
    peers.close()
    await server.stop()


class ForeignPeers:
    """Peers that serve no version of any request that this node knows."""

    async def request(self, destination: Destination, message: Message) -> Message:
        raise PeerLacksVersion(f"{destination}: the broker serves Fetch in versions 30 to 31")

    def close(self) -> None:
        """Do nothing."""


async def test_a_controller_warns_once_of_a_peer_that_it_cannot_ask(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[Event] = []
    messages = QuorumMessages(ForeignPeers(), QuorumHistory(0), events.append)
    destination = Destination(2, "localhost", 9093)
    for number, message in enumerate((fetch(), fetch(), vote(is_pre_vote=True))):
        messages.send(Request(number, destination, message))
    await until(lambda: len(events) == 3)
    messages.close()
    assert events == [RequestFailed(number, is_unsupported_version=True) for number in range(3)]
    (line,) = [record.message for record in caplog.records]
    assert line.endswith("the broker serves Fetch in versions 30 to 31")


async def test_a_connection_that_the_peer_closed_meanwhile_is_opened_again() -> None:
    server = PeerServer(lambda request, version: FetchResponse())
    destination = await server.start()
    peers = PeerLinks("raft-client-1", 5)
    await peers.request(destination, fetch())
    server.hang_up()
    # The end of the connection arrives before the answer on a new one.
    other = PeerLinks("other", 5)
    await other.request(destination, fetch())
    other.close()
    assert isinstance(await peers.request(destination, fetch()), FetchResponse)
    assert server.connections == 3
    peers.close()
    await server.stop()


async def test_a_peer_whose_process_has_ended_is_distinguished_from_a_silent_one() -> None:
    server = PeerServer(lambda request, version: None)
    destination = await server.start()
    peers = PeerLinks("raft-client-1", 5)
    with pytest.raises(PeerUnavailable) as lost:
        await peers.request(destination, vote(is_pre_vote=False))
    assert not isinstance(lost.value, PeerGone)
    await server.stop()
    with pytest.raises(PeerGone):
        await peers.request(destination, vote(is_pre_vote=False))
    peers.close()


async def test_a_lost_connection_is_made_again() -> None:
    answers = [None, VoteResponse()]

    server = PeerServer(lambda request, version: answers.pop(0))
    destination = await server.start()
    peers = PeerLinks("raft-client-1", 5)
    with pytest.raises(PeerUnavailable):
        await peers.request(destination, vote(is_pre_vote=False))
    assert isinstance(await peers.request(destination, vote(is_pre_vote=False)), VoteResponse)
    assert server.connections == 2
    peers.close()
    await server.stop()


async def test_a_request_that_was_given_up_does_not_hold_up_the_next_one() -> None:
    asked = asyncio.Event()
    hold = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await hold.wait()
        writer.close()

    listener = await asyncio.start_server(hang, "127.0.0.1", 0)
    destination = Destination(2, "127.0.0.1", listener.sockets[0].getsockname()[1])
    peers = PeerLinks("raft-client-1", 0.05)
    with pytest.raises(PeerUnavailable):
        await peers.request(destination, fetch())
    assert asked.is_set()
    hold.set()
    peers.close()
    listener.close()


async def test_an_answer_that_nobody_waits_for_any_more_is_not_taken_for_the_next() -> None:
    waiting: list[asyncio.Future[Message]] = []

    def answer(request: Message, version: int) -> Message:
        return VoteResponse() if type(request).__name__ == "VoteRequest" else FetchResponse()

    server = PeerServer(answer)
    destination = await server.start()
    peers = PeerLinks("raft-client-1", 5)
    await peers.request(destination, vote(is_pre_vote=False))
    waiting.append(asyncio.ensure_future(peers.request(destination, fetch())))
    await asyncio.sleep(0)
    second = await peers.request(destination, vote(is_pre_vote=False))
    assert isinstance(second, VoteResponse)
    assert server.connections == 2
    with pytest.raises(PeerUnavailable):
        await waiting[0]
    peers.close()
    await server.stop()


async def test_a_connection_with_an_answer_to_no_request_is_not_used_again() -> None:
    """Otherwise every later request would be given the answer to the one before it."""

    server = PeerServer(lambda request, version: FetchResponse())
    destination = await server.start()
    peers = PeerLinks("broker-1-fetcher-0", 5)
    await peers.request(destination, fetch())
    server.send_unasked(FetchResponse(), 18, correlation_id=1)
    with pytest.raises(PeerUnavailable, match="instead of request"):
        await peers.request(destination, fetch())
    assert isinstance(await peers.request(destination, fetch()), FetchResponse)
    assert server.connections == 2
    peers.close()
    await server.stop()


async def test_a_refused_connection_is_reported_as_an_unavailable_peer() -> None:
    listener = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    peers = PeerLinks("raft-client-1", 5)
    with pytest.raises(PeerUnavailable, match="ConnectionRefusedError"):
        await peers.request(Destination(2, "127.0.0.1", port), fetch())


def test_a_look_up_that_outlives_its_request_leaves_no_error() -> None:
    """The name is too long for a resolver, which says so at once and without a network."""
    name = ".".join(["x" * 60] * 6)
    complaints: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        peers = PeerLinks("raft-client-1", 0)
        with pytest.raises(PeerUnavailable):
            await peers.request(Destination(2, name, 9093), fetch())
        for _ in range(8):  # more look-ups than threads: the first one is over, too
            with pytest.raises(socket.gaierror):
                await loop.getaddrinfo(name, 9093)
        gc.collect()
        peers.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    assert complaints == []
