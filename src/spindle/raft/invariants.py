"""Invariants of a quorum member's state after every step, for tests and the simulation."""

from spindle.raft.core import QuorumCore


class InvariantBroken(Exception):
    """The state contradicts itself: a bug. The text names the parts and the last role changes."""


def check_invariants(core: QuorumCore) -> None:
    """Compare the parts of the state with each other.

    Raises:
        InvariantBroken: two parts contradict each other.
    """
    log, role = core.log, core.role
    if not log.start_offset <= log.flushed_offset <= log.end_offset:
        _broken(core, f"log {log.start_offset} to {log.end_offset}, flushed {log.flushed_offset}")
    if core.high_watermark is not None and core.high_watermark > log.end_offset:
        _broken(core, f"high watermark {core.high_watermark} above log end {log.end_offset}")
    if log.last_epoch > role.epoch:
        _broken(core, f"the log has epoch {log.last_epoch}, the node is in {role.epoch}")
    offset = core.history.voters_offset
    if offset is not None and offset >= log.end_offset and log.end_offset > 0:
        _broken(core, f"voters recorded at {offset}, the log ends at {log.end_offset}")
    leader = core.leader
    if leader is not None:
        if leader.epoch_start_offset >= log.end_offset:
            _broken(core, f"a leader without its first batch at {leader.epoch_start_offset}")
        if leader.progress.voters != core.voters:
            _broken(core, "the leader follows other voters than those in force")


def _broken(core: QuorumCore, what: str) -> None:
    raise InvariantBroken(f"{core.local.key}: {what}; roles: {list(core.recent_roles)}")
