"""The schedule of a seed: what happens to which broker and disk, and when.

A schedule consists of episodes. In an episode one broker, the victim, suffers; brokers that are
well only get cordons and moves. Between two episodes everything is healed, and all replicas come
in sync again. So with three replicas and min.insync.replicas=2, a copy of each acknowledged record
survives at any moment.
"""

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

BROKERS: Final = 3
DIRECTORIES: Final = 3
PARTITIONS: Final = 3
METADATA_DISK: Final = 1
"""It can fail and come back; without it the whole broker ends. It is never replaced."""


class PlannedFault(StrEnum):
    """One thing that happens."""

    FAIL = "fail"
    FILL = "fill"
    READONLY = "make read-only"
    SLOW = "slow down"
    TEAR = "tear a write of"
    REPLACE = "replace"
    BRING_ONLINE = "heal and bring online"
    KILL = "kill"
    CUT_POWER = "cut the power of"
    PAUSE = "pause"
    RESTART = "restart"
    CUT_PEERS = "cut off from its peers"
    CUT_CLIENTS = "cut off from clients"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    MOVE = "move a replica to"

    @property
    def has_disk(self) -> bool:
        """True if it concerns one disk, and not the whole broker."""
        return self in _OF_DISKS


_DISK_FAULTS: Final = (
    PlannedFault.FAIL,
    PlannedFault.FILL,
    PlannedFault.READONLY,
    PlannedFault.SLOW,
    PlannedFault.TEAR,
)
_BROKER_FAULTS: Final = (
    PlannedFault.KILL,
    PlannedFault.CUT_POWER,
    PlannedFault.PAUSE,
    PlannedFault.RESTART,
    PlannedFault.CUT_PEERS,
    PlannedFault.CUT_CLIENTS,
)
_HARMLESS: Final = (
    PlannedFault.CORDON,
    PlannedFault.CORDON,
    PlannedFault.UNCORDON,
    PlannedFault.MOVE,
    PlannedFault.MOVE,
    PlannedFault.MOVE,
)
_OF_DISKS: Final = (
    *_DISK_FAULTS,
    PlannedFault.REPLACE,
    PlannedFault.BRING_ONLINE,
    PlannedFault.CORDON,
    PlannedFault.MOVE,
)


@dataclass(frozen=True, slots=True)
class FaultStep:
    """A fault after a pause. `disk` counts from 1; `partition` is only for moves."""

    pause_s: float
    fault: PlannedFault
    broker: int
    disk: int
    partition: int

    def __str__(self) -> str:
        what = f"disk {self.disk} of broker {self.broker}"
        if not self.fault.has_disk:
            what = f"broker {self.broker}"
        which = f" (partition {self.partition})" if self.fault is PlannedFault.MOVE else ""
        return f"after {self.pause_s:.2f} s: {self.fault} {what}{which}"


@dataclass(frozen=True, slots=True)
class Episode:
    """The steps while one broker suffers, and the time until it is healed.

    Attributes:
        brings_online: at the end, a running broker brings its directories back online; otherwise a
            restart brings them back.
    """

    victim: int
    steps: tuple[FaultStep, ...]
    rest_s: float
    brings_online: bool


@dataclass(frozen=True, slots=True)
class FaultSchedule:
    """The episodes of a seed; `with_java`: Java's clients work besides librdkafka."""

    seed: int
    episodes: tuple[Episode, ...]
    with_java: bool

    @property
    def text(self) -> str:
        """One line for each step."""
        lines = [f"schedule {self.seed}{', with Java clients' if self.with_java else ''}"]
        for number, episode in enumerate(self.episodes, 1):
            lines.append(f"episode {number}, broker {episode.victim} suffers")
            lines += [f"  {step}" for step in episode.steps]
            way = "by bringing it online" if episode.brings_online else "by a restart"
            lines.append(f"  after {episode.rest_s:.2f} s: heal everything, directories {way}")
        return "\n".join(lines)


def draw_schedule(seed: int, *, java_share: float = 0.2) -> FaultSchedule:
    """Return the schedule of a seed."""
    random = Random(f"rehearsal {seed}")
    episodes = tuple(_draw_episode(random) for _ in range(random.choice((1, 2, 2))))
    return FaultSchedule(seed, episodes, random.random() < java_share)


def _draw_episode(random: Random) -> Episode:
    victim = random.randint(1, BROKERS)
    steps: list[FaultStep] = []
    hurt: list[int] = []
    broken: set[int] = set()
    for _ in range(random.randint(1, 4)):
        steps += [
            _step(random, random.choice(_HARMLESS), random.randint(1, BROKERS))
            for _ in range(random.choice((0, 0, 1, 2)))
        ]
        roll = random.random()
        if hurt and roll < 0.25:
            disk = random.choice(hurt)
            broken.add(disk)
            steps.append(_step(random, PlannedFault.REPLACE, victim, disk))
        elif broken and roll < 0.5:
            disk = random.choice(sorted(broken))
            broken.remove(disk)
            hurt = [other for other in hurt if other != disk]
            steps.append(_step(random, PlannedFault.BRING_ONLINE, victim, disk))
        elif roll < 0.8:
            step = _step(random, random.choice(_DISK_FAULTS), victim)
            # An empty metadata directory makes a voter another one, and the quorum would lose it.
            if step.disk != METADATA_DISK:
                hurt.append(step.disk)
                if step.fault is not PlannedFault.SLOW:
                    broken.add(step.disk)
            steps.append(step)
        else:
            steps.append(_step(random, random.choice(_BROKER_FAULTS), victim))
    return Episode(victim, tuple(steps), random.uniform(0.2, 2.0), random.random() < 0.5)


def _step(random: Random, fault: PlannedFault, broker: int, disk: int = 0) -> FaultStep:
    some = random.choice((1, 2, 2, 3, 3))
    return FaultStep(
        random.uniform(0.02, 0.8), fault, broker, disk or some, random.randrange(PARTITIONS)
    )
