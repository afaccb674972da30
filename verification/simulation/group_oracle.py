"""The answers to the members of one classic group, compared with each other.

An assignment names the leader's attempt that made it, the leader, and its member; a static member
is named by its instance id, which stays when its member id changes (KIP-345).
"""

from typing import NamedTuple

from spindle.protocol.messages.join_group import JoinGroupResponse
from verification.simulation.verdict import Verdict


class _Attempt(NamedTuple):
    generation: int
    leader: str


class GroupOracle:
    """Joins and assignments of one group.

    Attributes:
        member_ids: recent member ids, oldest first.
    """

    def __init__(self, group_id: str, verdict: Verdict) -> None:
        self.group_id = group_id
        self.member_ids: list[str] = []
        self._verdict = verdict
        self._attempts: list[_Attempt] = []
        self._stored: dict[int, int] = {}
        """The only attempt in each generation whose assignments were given to members."""
        self._listed: dict[int, set[str]] = {}
        """The members of each generation, as its leader got them last."""

    def named(self, member_id: str) -> None:
        """Note that a member got an id."""
        self.member_ids = [*self.member_ids[-5:], member_id]

    def joined(self, name: str, response: JoinGroupResponse) -> None:
        """Note the answer to a join; only the leader's answer names the members of the group."""
        if response.members:
            self._verdict.check(
                response.leader == response.member_id,
                f"{self.group_id}: {name} was told all members of generation "
                f"{response.generation_id}, though {response.leader} leads",
            )
            self._listed[response.generation_id] = {
                m.group_instance_id or m.member_id for m in response.members
            }

    def attempt(self, leader: str, response: JoinGroupResponse) -> dict[str, bytes]:
        """Return the leader's assignments for all members, by member id."""
        number = len(self._attempts)
        self._attempts.append(_Attempt(response.generation_id, leader))
        return {
            m.member_id: f"{number}/{m.group_instance_id or m.member_id}".encode()
            for m in response.members
        }

    def assigned(self, name: str, generation: int, leader_id: str, assignment: bytes) -> None:
        """Note the answer to a sync in a generation whose leader is `leader_id`."""
        where = f"{self.group_id}, generation {generation}: {name}"
        number_text, _, owner = assignment.decode().partition("/")
        if not number_text:
            self._verdict.violated(f"{where} got no assignment")
            return
        number = int(number_text)
        made = self._attempts[number]
        self._verdict.check(owner == name, f"{where} got the assignment of {owner}")
        self._verdict.check(
            made.generation == generation,
            f"{where} got an assignment of generation {made.generation}",
        )
        self._verdict.check(
            leader_id.startswith(made.leader),
            f"{where} was told that {leader_id} leads, but {made.leader} assigned",
        )
        stored = self._stored.setdefault(generation, number)
        self._verdict.check(
            stored == number,
            f"{where} got the assignment of attempt {number}, others that of attempt {stored}",
        )

    def strangers(self, generation: int, names: set[str]) -> set[str]:
        """Return the members of a generation that no living client is."""
        return self._listed.get(generation, names) - names
