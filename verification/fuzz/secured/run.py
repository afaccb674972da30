"""A run against a secured node: attackers of TLS and logins, canaries, snapshots."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from spindle.protocol.api import APIS
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from spindle.security.mechanism_names import MECHANISMS
from verification.fuzz.canary import Canary
from verification.fuzz.cases import Case, CaseMaker
from verification.fuzz.run import FuzzOutcome, FuzzPlan, FuzzRun, outcome_of
from verification.fuzz.secured.answers import AnswerJudge
from verification.fuzz.secured.fixtures import (
    HIDDEN_TOPIC,
    create_fixtures,
    wait_for_permissions,
)
from verification.fuzz.secured.hostile_logins import HostileLogin
from verification.fuzz.secured.port import SecuredPort
from verification.fuzz.secured.secret_sources import add_scram_keys, add_tokens, find_tokens
from verification.fuzz.secured.state_snapshot import differences, take_snapshot
from verification.fuzz.secured.target import SecuredNode
from verification.fuzz.secured.tls_attacks import attack_tls
from verification.fuzz.secured.unprivileged_user import Stranger
from verification.fuzz.secured.users import ADMIN, CANARY, STRANGER
from verification.fuzz.transactional_canary import TransactionalCanary
from verification.fuzz.values import USERS
from verification.fuzz.wire import Finding, RawConnection

_MAX_SHOWN: Final = 10
_MAX_LEFT_OPEN: Final = 100
_TLS_SHARE: Final = 0.2
_LOGIN_SHARE: Final = 0.4


class SecuredRun(FuzzRun):
    """One run of a plan against a secured node."""

    def __init__(self, plan: FuzzPlan, node: SecuredNode) -> None:
        super().__init__(plan, node)
        self._target = node
        self._texts = node.secret_texts
        self._left_open: deque[RawConnection] = deque()
        """Connections with handshakes and logins that stop halfway: the node must tolerate some."""
        self._port = SecuredPort(node.host, node.port, node.client_context(), node.users)

    async def all(self) -> None:
        """Take snapshots before and after running attackers and canaries for the given time.

        Raises:
            Finding: something was found.
        """
        admin = await self._port.logged_in(ADMIN)
        ids = await create_fixtures(admin)
        hidden_id = ids.pop(HIDDEN_TOPIC)
        self.known.topic_ids = ids
        await add_scram_keys(self._port, self._texts)
        await add_tokens(admin, self._texts, of_stranger=False)
        stranger = await self._port.logged_in(STRANGER)
        await stranger.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        stranger.close()
        await find_tokens(admin, self._target.users)
        judge = AnswerJudge(self._texts, (hidden_id, *self._target.hidden_texts()))
        async with self._canaries() as (canary, transactions):
            before = await take_snapshot(admin)
            await self.until_over(
                self.listen(canary),
                self.check_transactions(transactions),
                *(self._attack_anywhere(self._maker(), judge) for _ in range(self.plan.attackers)),
            )
            await canary.check()
            await transactions.check()
        for client in self._left_open:
            client.writer.transport.abort()
        # The node closes a connection that has been idle for `connections.max.idle.ms`.
        admin.close()
        admin = await self._port.logged_in(ADMIN)
        await self._check_after(admin)
        if changes := differences(before, await take_snapshot(admin)):
            shown = "\n".join(changes[:_MAX_SHOWN])
            raise Finding(f"{len(changes)} things were changed without a right:\n{shown}")
        admin.close()

    def _maker(self) -> CaseMaker:
        """Return a maker of requests of all APIs; none of them may have an effect."""
        versions = {key: (api.first_version, api.last_version) for key, api in APIS.items()}
        maker = CaseMaker(self.plan.seed, versions, self.known, may_be_sent=lambda _: True)
        self.outcome.turns = maker.turns
        return maker

    @asynccontextmanager
    async def _canaries(self) -> AsyncIterator[tuple[Canary, TransactionalCanary]]:
        client = await self._port.logged_in(CANARY)
        await wait_for_permissions(client)
        canary = Canary(client)
        transactions = TransactionalCanary(await self._port.logged_in(CANARY))
        try:
            await canary.prepare()
            await canary.check()
            await transactions.prepare()
            await transactions.check()
            self.outcome.latencies_ms = canary.latencies_ms
            yield canary, transactions
        finally:
            canary.close()
            transactions.close()

    async def _attack_anywhere(self, maker: CaseMaker, judge: AnswerJudge) -> None:
        """Attack TLS, logins, and as the stranger, as the number of a case decides."""
        random = Random(f"{self.plan.seed}: mechanisms")
        stranger = Stranger(self._port, random, judge, self.known)
        try:
            while not self.is_over:
                number = self.next_case()
                random = Random(f"{self.plan.seed}:{number}: secured")
                kind = random.random()
                if kind < _TLS_SHARE:
                    client = await RawConnection.connect(self._port.host, self._port.port)
                    self._leave_open(client)
                    self._note(await attack_tls(client, self._port.tls, random, number))
                elif kind < _TLS_SHARE + _LOGIN_SHARE:
                    await self._attack_login(random, number, maker, judge)
                else:
                    case = maker.make(number)
                    self._note(case)
                    self.outcome.answers += await stranger.attack(case)
        finally:
            stranger.close()

    async def _attack_login(
        self, random: Random, number: int, maker: CaseMaker, judge: AnswerJudge
    ) -> None:
        client = await self._port.connect()
        login = HostileLogin(client, random, self._port.users, number, maker, judge)
        self._note(login.case)
        self._leave_open(client)
        if not await login.play():
            client.writer.transport.abort()
        self.outcome.answers += login.answers
        self.outcome.logins += login.is_in

    def _leave_open(self, client: RawConnection) -> None:
        """Do not close a connection after its attack, but when there are many of them."""
        self._left_open.append(client)
        if len(self._left_open) > _MAX_LEFT_OPEN:
            self._left_open.popleft().writer.transport.abort()

    def _note(self, case: Case) -> None:
        self.outcome.recent.append(case)
        self.outcome.cases += 1

    async def _check_after(self, admin: RawConnection) -> None:
        """Check that all users have their passwords, and that the whole log has no secret."""
        for user in USERS:
            for mechanism in MECHANISMS:
                (await self._port.logged_in(user, mechanism)).close()
        await add_tokens(admin, self._texts, of_stranger=True)
        self._target.check_whole_log()


async def run_secured(plan: FuzzPlan, node: SecuredNode) -> FuzzOutcome:
    """Run a plan against a secured node; its host and port are those of the node."""
    return await outcome_of(SecuredRun(plan, node))
