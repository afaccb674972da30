"""Connections that log in against the rules: any request at any time, logins that do not end.

Each step is chosen by chance: a handshake, a message of a mechanism, another request, a frame of
any size. A login that succeeds can only be the stranger's, so what follows must give nothing away.
"""

import asyncio
from random import Random
from struct import pack
from typing import Any, Final

from spindle.protocol.codec import encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest
from spindle.security.mechanism_names import MECHANISMS
from spindle.security.scram import SCRAM_MECHANISMS
from verification.fuzz.cases import Case, CaseMaker, Sent, frame
from verification.fuzz.secured.answers import AnswerJudge
from verification.fuzz.secured.login_messages import LoginMessages
from verification.fuzz.secured.users import FuzzUsers
from verification.fuzz.values import LONG_TEXT
from verification.fuzz.wire import Finding, RawConnection, read_answer

_ANSWER_S: Final = 30.0
_MAX_STEPS: Final = 12
_STRANGE_MECHANISMS: Final = ("", "GSSAPI", "plain", "SCRAM-SHA-1", "EXTERNAL", "\0", LONG_TEXT)
_SIZES: Final = (-(2**31), -1, 0, 1, 7, 524_287, 524_288, 524_289, 104_857_600, 2**31 - 1)
"""Around `sasl.server.max.receive.size` and the extremes."""


class Abandoned(Exception):
    """The attacker has left the connection as it is."""


class HostileLogin:
    """One connection and the state of its login.

    Attributes:
        case: what has been sent so far.
        answers: the number of answers.
        is_in: a login has succeeded.
    """

    def __init__(
        self, client: RawConnection, random: Random, users: FuzzUsers, number: int,
        maker: CaseMaker, judge: AnswerJudge,
    ) -> None:  # fmt: skip
        self.case = Case(number, "login", b"")
        self.answers = 0
        self._client = client
        self._random = random
        self._maker = maker
        self._judge = judge
        self._messages = LoginMessages(random, users)
        self._mechanism = ""
        self.is_in = False
        self._is_under_way = False
        self._is_without_headers = False
        self._correlation_id = 0

    async def play(self) -> bool:
        """Take steps until the node closes the connection, or the attacker leaves.

        Returns:
            Whether the connection is still open, as far as is known.

        Raises:
            Finding: an answer is missing, or gives something away.
        """
        try:
            for _ in range(self._random.randrange(1, _MAX_STEPS)):
                await self._step()
        except Abandoned:
            return True
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        return True

    async def _step(self) -> None:
        pick = self._random.random()
        if pick < 0.04:
            await self._partial_frame()
        elif pick < 0.1:
            await self._any_request()
        elif pick < 0.15:
            await self._handshake()
        elif self._is_under_way:
            await self._authenticate()
        elif self.is_in and pick < 0.8:
            await self._as_stranger()
        else:
            await self._begin()

    async def _begin(self) -> None:
        pick = self._random.random()
        if pick < 0.8 or self.is_in:
            await self._handshake()
        elif pick < 0.88:
            version = self._random.choice((0, 1, 2, 3, 4, 4, 5, 99))
            request = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
            await self._ask(request, min(version, 4), sent_version=version)
        else:
            await self._any_request()

    async def _handshake(self) -> None:
        random = self._random
        name = random.choice(MECHANISMS)
        if random.random() < 0.08:
            name = random.choice(_STRANGE_MECHANISMS)
        version = random.choice((0, 1, 1, 1, 1, 1))
        response = await self._ask(SaslHandshakeRequest(mechanism=name), version)
        if response.error_code:
            return
        self._mechanism = name
        self._is_under_way = True
        self._is_without_headers = version == 0

    async def _authenticate(self) -> None:
        message = self._messages.next(self._mechanism)
        if self._is_without_headers:
            await self._write(frame(message))
            self._note(await self._frame())
            return
        version = self._random.choice((0, 1, 2, 2))
        response = await self._ask(SaslAuthenticateRequest(auth_bytes=message), version)
        if not response.error_code:
            self._note(bytes(response.auth_bytes))

    def _note(self, message: bytes) -> None:
        """Note a message of the server, which may be the last one of a login."""
        self._judge.check_bare_message(message)
        self._messages.received(message)
        is_last = message.startswith(b"v=") if self._mechanism in SCRAM_MECHANISMS else not message
        if is_last:
            self.case.title = f"login by {self._mechanism} that succeeded"
            self.is_in = True
            self._messages.is_sound = False
            self._is_under_way = self._is_without_headers = False

    async def _as_stranger(self) -> None:
        if self._random.random() < 0.3:
            # A user with any right would see a topic.
            await self._ask(MetadataRequest(topics=None), 9)
        else:
            await self._any_request()

    async def _any_request(self) -> None:
        self._correlation_id += 1
        payload, sent = self._maker.request(self._random, self._correlation_id)
        await self._write(frame(payload))
        if sent.is_answered:
            await self._response(sent)

    async def _partial_frame(self) -> None:
        """Send a frame whose size is anything, and leave."""
        size = self._random.choice(_SIZES)
        sent = min(max(size, 0), self._random.choice((0, 1, 100, 600_000)))
        await self._write(pack(">i", size) + self._random.randbytes(sent))
        if size == sent:
            await self._frame()
        raise Abandoned

    async def _ask(self, request: Message, version: int, sent_version: int | None = None) -> Any:
        """Return the answer to a request; with `sent_version` its header names another version."""
        self._correlation_id += 1
        key = request.API_KEY
        named = version if sent_version is None else sent_version
        prefix = request_prefix(key, named, self._correlation_id, "fuzz")
        await self._write(frame(prefix + encode(request, version)))
        # Unknown versions of ApiVersions are answered in version 0 (KIP-511).
        answered = version if named == version else 0
        return await self._response(Sent(key, answered, self._correlation_id, True))

    async def _response(self, sent: Sent) -> Any:
        answer = await self._frame()
        if self._is_without_headers:
            # The node has read the request as a message of the mechanism.
            self._judge.check_bare_message(answer)
            raise Abandoned
        response = read_answer(answer, sent.api_key, sent.version, sent.correlation_id)
        if self.is_in:
            self._judge.check_refused(sent, response)
        else:
            self._judge.check_before_login(sent, response)
        return response

    async def _write(self, data: bytes) -> None:
        self.case.data += data
        writer = self._client.writer
        if self._random.random() < 0.1:
            middle = self._random.randrange(len(data) + 1)
            writer.write(data[:middle])
            await writer.drain()
            if self._random.random() < 0.2:
                raise Abandoned
            data = data[middle:]
        writer.write(data)
        await writer.drain()

    async def _frame(self) -> bytes:
        try:
            async with asyncio.timeout(_ANSWER_S):
                answer = await self._client.read_frame()
        except TimeoutError:
            raise Finding(
                f"case {self.case.number} ({self.case.title}) was neither answered nor its "
                f"connection closed within {_ANSWER_S:.0f} s"
            ) from None
        self.answers += 1
        self._judge.check_frame(answer)
        return answer
