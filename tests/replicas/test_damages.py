"""Damage that a broker has met is known as long as the replica has it."""

import pytest
from broker_scenario import BrokerScenario

from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.replicas.damages import Damage

WHERE = TopicPartition("t", 0)


def scenario() -> BrokerScenario:
    s = BrokerScenario()
    s.create("t", [1, 2])
    s.append("a" * 100)
    return s


def findings(s: BrokerScenario) -> list[Damage]:
    return list(s.replicas.damaged())


def test_damage_is_known_until_the_log_is_another_one() -> None:
    s = scenario()
    partition = s.partition()
    log = partition.log
    damage = CorruptLog(log.segments.first.path, 0, "length 5")
    s.replicas.damages.note(log, damage)
    assert findings(s) == [Damage(WHERE, 1, str(damage))]
    partition.log = s.directories[0].store.replace_with_empty(log, bytes(16), 0)
    assert findings(s) == []


@pytest.mark.parametrize("position", [10_000, 0])
def test_damage_is_not_known_where_the_log_has_no_bytes(position: int) -> None:
    s = scenario()
    partition = s.partition()
    path = partition.log.segments.first.path if position else "/disk0/t-0/gone.log"
    s.replicas.damages.note(partition.log, CorruptLog(path, position, "length 5"))
    assert findings(s) == []


def test_damage_that_a_load_passed_is_known() -> None:
    s = scenario()
    s.partition().log.producers.note_unread(3, 9)
    assert findings(s) == [Damage(WHERE, 1, "/disk0/t-0: damaged between offsets 3 and 9")]


def test_bad_records_of_a_leader_are_known_until_an_append_succeeds() -> None:
    s = BrokerScenario()
    s.create("t", [2, 1])
    partition, damages = s.partition(), s.replicas.damages
    damages.note_sent(partition.log, 2, "checksum 1, computed 2")
    assert findings(s) == [Damage(WHERE, 2, "it sent bad records: checksum 1, computed 2")]
    damages.appended(partition.log)
    assert findings(s) == []
    damages.note_sent(partition.log, 2, "checksum 1, computed 2")
    s.change("t", leader=1)
    assert findings(s) == []
