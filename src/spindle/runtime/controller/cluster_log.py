"""Logs changes of brokers and leaders, on the node of the active controller."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from spindle.common.ids import NO_LEADER
from spindle.common.text import MAX_NAMED, join_first, listed
from spindle.common.uuids import uuid_text
from spindle.metadata.cluster import BrokerRegistration
from spindle.metadata.partitions import PartitionRegistration
from spindle.publication.loader import Publication
from spindle.publication.publishers import MetadataPublisher
from spindle.runtime.metrics.metadata_counts import is_unclean_election

logger = logging.getLogger(__name__)
_MAX_NAMED: Final = 3

LeaderChange = tuple[str, PartitionRegistration, PartitionRegistration]
"""A partition, and its registration before and after a change of its leader."""


class ClusterLog(MetadataPublisher):
    """Logs changes while `is_active` returns True."""

    def __init__(self, is_active: Callable[[], bool]) -> None:
        self._is_active = is_active

    def on_publication(self, publication: Publication) -> None:
        if publication.is_snapshot or not self._is_active():
            return
        delta = publication.delta
        created = [topic.name for topic in delta.topics.changed.values() if topic.base is None]
        deleted = [topic.name for topic in delta.topics.deleted.values()]
        for what, topics in (("Created", created), ("Deleted", deleted)):
            if topics:
                logger.info("%s topics %s", what, listed(topics))
        for broker_id, now in delta.cluster.changed_brokers.items():
            _tell_broker(broker_id, delta.cluster.base.brokers.get(broker_id), now)
        moved = [
            (f"{topic.name}-{number}", old, new)
            for topic in delta.topics.changed.values()
            for number, old, new in topic.changed_partitions()
            if old is not None and old.leader != new.leader
        ]
        # Up to a limit they are logged by name, above it as a number; at level DEBUG always by
        # name.
        level = logging.INFO if len(moved) <= MAX_NAMED else logging.DEBUG
        unclean: dict[str, list[LeaderChange]] = {}
        for name, old, new in moved:
            if is_unclean_election(old, new):
                reason = _reason_of_unclean_election(old, new)
                unclean.setdefault(reason, []).append((name, old, new))
            else:
                _log_leader(name, old, new, level)
        for reason, elections in unclean.items():
            _warn_of_unclean_elections(elections, reason)
        if level != logging.INFO:
            lost = sum(new.leader == NO_LEADER for _, _, new in moved)
            logger.info("%d partitions changed their leader, %d have none", len(moved), lost)


def _tell_broker(
    broker_id: int, before: BrokerRegistration | None, now: BrokerRegistration | None
) -> None:
    if now is None:
        logger.info("Unregistered broker %d", broker_id)
        return
    if before is None or before.epoch != now.epoch:
        logger.info("Registered broker %d with epoch %d", broker_id, now.epoch)
        return
    if before.is_fenced != now.is_fenced:
        what = "Fenced" if now.is_fenced else "Unfenced"
        logger.info("%s broker %d in epoch %d", what, broker_id, now.epoch)
    if now.is_in_controlled_shutdown and not before.is_in_controlled_shutdown:
        logger.info("Broker %d is in controlled shutdown", broker_id)
    lost = [directory for directory in before.directories if directory not in now.directories]
    if lost:
        logger.warning(
            "Directories %s of broker %d are offline, remaining directories: %s",
            ", ".join(map(uuid_text, lost)),
            broker_id,
            ", ".join(map(uuid_text, now.directories)),
        )


def _warn_of_unclean_elections(elections: Sequence[LeaderChange], reason: str) -> None:
    """Log the unclean elections of one event that have the same new leader and reason."""
    for name, old, new in elections:
        logger.log(
            logging.WARNING if len(elections) == 1 else logging.DEBUG,
            "UNCLEAN election of %s: leader %s -> %d, leader epoch %d: %s",
            name,
            _leader_text(old),
            new.leader,
            new.leader_epoch,
            reason,
        )
    if len(elections) > 1:
        names = join_first([name for name, _, _ in elections], _MAX_NAMED)
        logger.warning("UNCLEAN election of %d partitions: %s: %s", len(elections), names, reason)


def _log_leader(
    name: str, old: PartitionRegistration, new: PartitionRegistration, level: int
) -> None:
    if not logger.isEnabledFor(level):
        return  # this is called for each of very many partitions
    logger.log(
        level,
        "Partition change of %s: leader %s -> %s, leader epoch %d, ISR %s",
        name,
        _leader_text(old),
        _leader_text(new),
        new.leader_epoch,
        list(new.isr),
    )


def _leader_text(partition: PartitionRegistration) -> str:
    return "none" if partition.leader == NO_LEADER else str(partition.leader)


def _reason_of_unclean_election(old: PartitionRegistration, new: PartitionRegistration) -> str:
    truncates = "the other replicas truncate their logs to its log"
    if old.last_known_elr == (new.leader,):
        return (
            "all replicas of the ISR ended without a controlled shutdown, so none is known to have "
            f"all acknowledged records; broker {new.leader} was the last leader, and {truncates}"
        )
    return (
        f"no replica of the ISR can lead; broker {new.leader} may lack acknowledged records, "
        f"and {truncates}"
    )
