"""A user without a right who has logged in, and sends requests of all APIs and versions."""

from random import Random
from typing import Final

from spindle.security.mechanism_names import MECHANISMS
from verification.fuzz.attack import attack_on
from verification.fuzz.cases import Case, Sent
from verification.fuzz.secured.answers import AnswerJudge
from verification.fuzz.secured.port import SecuredPort
from verification.fuzz.secured.users import STRANGER
from verification.fuzz.values import Known
from verification.fuzz.wire import Finding, RawConnection, read_answer

_MAX_CASES: Final = 20
"""Cases on one connection; after that another login is made."""


class Stranger:
    """One attacker with the stranger's password. Its connection serves several sound cases."""

    def __init__(self, port: SecuredPort, random: Random, judge: AnswerJudge, known: Known) -> None:
        self._port = port
        self._random = random
        self._judge = judge
        self._known = known
        self._client: RawConnection | None = None
        self._cases = 0

    async def attack(self, case: Case) -> int:
        """Send a case; the number of answers that were read.

        Raises:
            Finding: an answer is missing, cannot be read, or gives something away.
        """
        if self._client is None:
            mechanism = self._random.choice(MECHANISMS)
            self._client = await self._port.logged_in(STRANGER, mechanism)
            self._cases = 0
        answers = await attack_on(self._client, case, self._take)
        self._cases += 1
        expected = sum(sent.is_answered for sent in case.expected)
        if not expected or answers < expected or self._cases == _MAX_CASES:
            self.close()
        return answers

    def close(self) -> None:
        """Leave the connection."""
        if self._client is not None:
            self._client.writer.transport.abort()
            self._client = None

    def _take(self, sent: Sent | None, frame: bytes) -> None:
        try:
            self._judge.check_frame(frame)
            if sent is not None:
                response = read_answer(frame, sent.api_key, sent.version, sent.correlation_id)
                self._judge.check_refused(sent, response)
                self._known.learn(response)
        except Finding:
            self.close()
            raise
