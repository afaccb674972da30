"""Sends cases to a node and judges what comes back on their connections."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, TypeAlias

from verification.fuzz.cases import SENTINEL_ID, Case, Sent
from verification.fuzz.values import Known
from verification.fuzz.wire import NoAnswer, RawConnection, read_answer

_SOUND_S: Final = 30.0
_DAMAGED_S: Final = 0.15
_SENTINEL: Final = SENTINEL_ID.to_bytes(4, "big")


TakeAnswer: TypeAlias = Callable[[Sent | None, bytes], None]
"""Gets each answer, with its request; None for the request if it was damaged."""


async def attack(host: str, port: int, case: Case, known: Known) -> int:
    """Send a case on a connection of its own; return the number of responses that were read.

    Raises:
        Finding: an answer is missing, out of order or cannot be read.
    """

    def learn(sent: Sent | None, frame: bytes) -> None:
        if sent is not None:
            known.learn(read_answer(frame, sent.api_key, sent.version, sent.correlation_id))

    client = await RawConnection.connect(host, port)
    try:
        return await attack_on(client, case, learn)
    finally:
        client.writer.transport.abort()


async def attack_on(client: RawConnection, case: Case, take: TakeAnswer) -> int:
    """Send a case on an open connection; the number of answers that were read.

    Raises:
        Finding: an answer is missing, or `take` has found something.
    """
    with contextlib.suppress(ConnectionError):
        await _send(client, case)
    if case.expected:
        return await _read_expected(client, case, take)
    return await _read_anything(client, take)


async def _send(client: RawConnection, case: Case) -> None:
    piece = case.piece_bytes or len(case.data)
    for start in range(0, len(case.data), max(piece, 1)):
        if client.writer.is_closing() or client.reader.at_eof():
            return
        client.writer.write(case.data[start : start + piece])
        if case.piece_bytes and start % (20 * piece) == 0:
            await asyncio.sleep(0)
    await client.writer.drain()


async def _read_expected(client: RawConnection, case: Case, take: TakeAnswer) -> int:
    """Answers in order, each whole, until the last or until the connection is closed."""
    answers = 0
    for sent in case.expected:
        if not sent.is_answered:
            continue
        try:
            async with asyncio.timeout(_SOUND_S):
                frame = await client.read_frame()
        except (ConnectionError, asyncio.IncompleteReadError):
            return answers
        except TimeoutError:
            raise NoAnswer(
                f"request {sent} of case {case.number} was neither answered nor its connection "
                f"closed within {_SOUND_S:.0f} s",
                _SOUND_S,
            ) from None
        take(sent, frame)
        answers += 1
    return answers


async def _read_anything(client: RawConnection, take: TakeAnswer) -> int:
    """Return how many answers a damaged request got within a moment."""
    answers = 0
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(_DAMAGED_S):
            while not (frame := await client.read_frame()).startswith(_SENTINEL):
                take(None, frame)
                answers += 1
    return answers
