"""The commands for people on what a cluster stores, against a node without an authorizer."""

import json
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.admin import ResourceType as AdminResourceType
from up_command import Say

from spindle.authorization.operations import Operation, PatternType, Permission, ResourceType
from spindle.cli.admin import acls, quorum
from spindle.cli.admin import groups as groups_module
from spindle.cli.admin.transactions import transaction_lines
from spindle.cli.main import run
from spindle.client.admin.acls import AclQuery
from spindle.client.admin.cluster import QuorumDescription, QuorumReplica
from spindle.client.admin.transactions import TransactionDescription
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.metadata.security import AccessControlEntry


def produce(path: Path, topic: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(text)
    with path.open() as lines, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", lines)
        assert run(["produce", topic, "-k", ":"]) == 0


def test_a_share_group_shows_its_lag_and_its_members(say: Say, bootstrap: str) -> None:
    say("topic", "create", "jobs", "-p", "1")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce("jobs", value=str(number))
    assert producer.flush(30) == 0
    earliest = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    group = ConfigResource(AdminResourceType.GROUP, "pool", incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for changed in admin.incremental_alter_configs([group]).values():
        changed.result(30)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "pool",
        "client.id": "worker",
        "share.acknowledgement.mode": "explicit",
    }
    worker = ShareConsumer(settings)
    try:
        worker.subscribe(["jobs"])
        while not (messages := list(worker.poll(1))):
            pass
        for message in messages[:2]:
            worker.acknowledge(message)
        worker.commit_sync(30)
        lines = say("groups", "describe", "pool").splitlines()
        assert lines[1].startswith("state        Stable, Share protocol")
        members = say("groups", "describe", "--members", "pool")
        (document,) = json.loads(say("groups", "describe", "pool", "--json"))
    finally:
        worker.close()
    assert lines[3] == "members      1, lag 3"
    assert ["jobs", "0", "2", "3"] in [line.split() for line in lines]
    assert "worker" in members
    assert document["offsets"] == [{"topic": "jobs", "partition": 0, "startOffset": 2, "lag": 3}]
    assert [member["clientId"] for member in document["members"]] == ["worker"]


def test_the_life_of_the_offsets_of_a_group(
    say: Say, refused: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("topic", "create", "offsets", "-p", "2")
    produce(tmp_path / "lines", "offsets", "k:1\nk:2\nk:3\n", monkeypatch)
    rows = json.loads(say("topic", "offsets", "offsets", "--json"))
    (full,) = (row["partition"] for row in rows if row["end"] == 3)
    consumed = say(
        "consume", "offsets", "-g", "og", "--from-beginning", "-n", "2", "--show", "key,value"
    )
    assert consumed == "k\t1\nk\t2\n"
    lines = say("groups", "describe", "og").splitlines()
    assert lines[0] == "group        og"
    assert lines[3] == "members      0, lag 1"
    assert ["offsets", str(full), "2", "3", "1", "-", "-"] in [line.split() for line in lines]
    assert "og" in say("groups", "list")
    reset = ("groups", "reset", "og", "--json")
    place = f"offsets:{full}"
    for words, offset in (
        (("--to", "earliest"), 0),
        (("--shift", "-9", "--dry-run"), 0),
        (("--topic", place, "--to", "99"), 3),
        (("--topic", place, "--to", "2026-05-01T12:00:00Z"), 0),
        (("--ago", "1s", "--topic", place), 0),
    ):
        monkeypatch.setattr("spindle.cli.admin.groups.time.time", lambda: 1.0)
        changed = {row["partition"]: row["new"] for row in json.loads(say(*reset, *words))}
        assert changed[full] == offset, words
    (row,) = json.loads(say("groups", "delete-offsets", "og", place, "--json"))
    assert row["error"] is None
    assert say("groups", "delete", "og") == "deleted og\n"
    assert refused("groups", "describe", "og") == "there is no group 'og'\n"
    assert refused("groups", "delete", "og") == ("there is no group 'og'\n")


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (("reset", "g"), "Give exactly one of --to, --ago and --shift."),
        (("reset", "g", "--to", "noon"), "--to noon: give earliest, latest, an offset, or a time"),
        (("reset", "g", "--to", "1"), "group 'g' has no committed offsets: give --topic"),
        (("reset", "g", "--to", "1", "--topic", "a:b"), "'a:b' is not TOPIC or TOPIC:N,..."),
        (("reset", "g", "--to", "1", "--topic", "nosuch"), "there is no topic 'nosuch'"),
        (("lst",), "There is no command 'lst'. Did you mean list?"),
    ],
)
def test_group_commands_that_cannot_work(refused: Say, words: tuple[str, ...], err: str) -> None:
    assert refused("groups", *words).startswith(err)


def test_a_group_with_members_is_not_reset(refused: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "_state", lambda *_: "Stable")
    text = refused("groups", "reset", "g", "--to", "earliest")
    assert text.startswith("group 'g' is Stable: stop its members first")


def test_records_are_deleted_up_to_an_offset_of_the_log(
    say: Say, refused: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("topic", "create", "old", "-p", "1")
    produce(tmp_path / "lines", "old", "k:1\nk:2\nk:3\n", monkeypatch)
    assert say("topic", "delete-records", "old-0", "--before", "2") == (
        "old-0 begins at offset 2 now\n"
    )
    assert say("topic", "offsets", "old").splitlines()[1].split() == ["old", "0", "2", "3"]
    assert refused("topic", "delete-records", "old-0", "--before", "9") == (
        "--before 9: old-0 ends at offset 3\n"
    )
    assert say("topic", "elect", "old-0") == "old-0: the leader stays\n"
    assert refused("topic", "elect").startswith("Give either partitions, such as orders-0, or ")
    assert refused("topic", "elect", "nosuch-0").startswith("nosuch-0: no leader is elected: ")


def test_consume_prints_records_as_json(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("topic", "create", "objects", "-p", "1")
    produce(tmp_path / "lines", "objects", "k:ü\n", monkeypatch)
    (line,) = say("consume", "objects", "--from-beginning", "-n", "1", "--json").splitlines()
    record = json.loads(line)
    assert (record["offset"], record["key"], record["value"]) == (0, "k", "ü")


def test_settings_are_set_shown_and_removed(say: Say, refused: Say) -> None:
    say("topic", "create", "own", "-p", "1")
    assert say("configs", "set", "topic", "own", "retention.ms=5") == "changed topic own\n"
    described = json.loads(say("configs", "describe", "topic", "own", "--json"))
    assert {"key": "retention.ms", "value": "5", "source": "topic"} in described
    assert {"type": "topic", "name": "own"} in json.loads(say("configs", "list", "--json"))
    say("configs", "unset", "topic", "own", "retention.ms")
    assert {"type": "topic", "name": "own"} not in json.loads(say("configs", "list", "--json"))
    (row,) = json.loads(say("configs", "describe", "broker", "1", "log.dirs", "--json"))
    assert row["source"] == "property file"
    assert refused("configs", "describe", "broker", "1", "nosuch") == (
        "broker 1 has no setting 'nosuch'\n"
    )
    for words in (("set", "topic", "gone", "retention.ms=5"), ("describe", "topic", "gone")):
        assert refused("configs", *words) == "there is no topic 'gone'\n"
    text = refused("configs", "set", "broker", "x", "a=b")
    assert text.startswith("broker x: give the node id of a broker, or all\n")


def test_quotas_are_set_listed_and_removed(say: Say, refused: Say) -> None:
    say("quotas", "set", "--user", "app", "--client-defaults", "producer_byte_rate=1048576")
    assert say("quotas", "list").splitlines()[1].split() == [
        *("app", "<default>", "-"),
        *("producer_byte_rate", "1048576"),
    ]
    say("quotas", "unset", "--user", "app", "--client-defaults", "producer_byte_rate")
    assert json.loads(say("quotas", "list", "--json")) == []
    for words, err in (
        (("producer_byte_rate=1",), "Name the client to limit: --user, --client-id or --ip."),
        (("--ip", "10.0.0.1", "producer_byte_rate=1"), "producer_byte_rate is not a quota here"),
        (("--user", "a", "producer_byte_rate=x"), "producer_byte_rate=x: 'x' is not a number"),
        (("--user", "a", "--user-defaults", "x=1"), "--user-defaults cannot be used with 'a'"),
    ):
        assert refused("quotas", "set", *words).startswith(err)


def test_the_password_of_a_user_comes_from_standard_input(
    say: Say, refused: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "password"
    path.write_text("secret\n")
    with path.open() as password:
        monkeypatch.setattr(sys, "stdin", password)
        assert say("users", "set", "alice") == "alice can log in with SCRAM-SHA-512\n"
        assert refused("users", "set", "bob").startswith("the password on standard input is empty")
        assert "alice" in say("users", "list")
        say("users", "delete", "alice")
        err = refused("users", "delete", "alice")
        assert err == "there is no user 'alice' with SCRAM credentials\n"


def test_nodes_quorum_and_features(say: Say, refused: Say) -> None:
    assert say("brokers", "list").splitlines()[1].split()[-1] == "serving"
    assert "broker 1 is serving: stop it first" in refused("brokers", "unregister", "1", "--yes")
    err = refused("brokers", "unregister", "9", "--yes")
    assert err == "there is no broker 9; there are 1\n"
    assert "leader" in say("quorum", "list")
    features = {row["feature"]: row for row in json.loads(say("features", "list", "--json"))}
    assert features["metadata.version"]["level"] == features["metadata.version"]["highest"]
    assert say("features", "upgrade", "transaction.version=2", "--dry-run") == (
        "possible: transaction.version=2\n"
    )
    assert refused("features", "upgrade", "foo").startswith("foo: give FEATURE=LEVEL")
    assert refused("quorum", "remove-controller", "9") == (
        "controller 9 is not a voter; the voters are 1\n"
    )


def test_transactions_of_a_quiet_cluster(
    bootstrap: str, capsys: pytest.CaptureFixture[str], refused: Say
) -> None:
    assert run(["transactions", "hanging"]) == 0
    assert capsys.readouterr() == ("", "No transaction hangs.\n")
    run(["topic", "create", "open", "-p", "2"])
    for words, err in (
        (("describe", "x"), "there is no transactional id 'x'\n"),
        (("terminate", "x"), "there is no transactional id 'x'\n"),
        (("hanging", "--topic", "nosuch"), "there is no topic 'nosuch'\n"),
        (("hanging", "--broker", "77"), "broker 77 is unknown or down; known brokers: 1\n"),
        (("list", "--pattern", "("), "--pattern (: this is not a regular expression (RE2)\n"),
        (("producers", "nosuch-0"), "there is no topic 'nosuch'\n"),
        (("abort", "open-9", "0"), "topic 'open' has no partition 9; it has 2\n"),
        (("abort", "open-1", "0"), "no open transaction of open-1 begins at offset 0\n"),
    ):
        assert refused("transactions", *words).startswith(err)


def test_an_input_of_a_delegation_token_that_cannot_work_is_named(refused: Say) -> None:
    assert refused("tokens", "renew", "x").startswith("HMAC: give the text that ")
    assert refused("tokens", "create", "--renewer", "bob").startswith("bob: a principal has the ")


def test_the_lines_about_an_open_transaction() -> None:
    described = TransactionDescription(
        "pay", 3, 7, 1, "Ongoing", 60_000, 1_000, (TopicPartition("t", 1),)
    )
    assert transaction_lines(described, 31_000) == [
        "transactional id  pay",
        "state             Ongoing",
        "coordinator       broker 3",
        "producer          id 7, epoch 1",
        "timeout           60 s",
        "open for          30 s",
        "partitions        t-1",
    ]


def test_the_rows_of_the_quorum() -> None:
    replicas = [QuorumReplica(n, ZERO_UUID, end, -1, at) for n, end, at in ((1, 9, -1), (2, 12, 0))]
    observer = QuorumReplica(5, ZERO_UUID, 2, -1, 1_000)
    described = QuorumDescription(2, 4, 9, tuple(replicas), (observer,), {})
    assert quorum.quorum_rows(described, 31_000) == [
        (2, "leader", 0, "31 s ago", None),
        (1, "voter", 3, None, None),
        (5, "observer", 10, "30 s ago", None),
    ]


class Authorizer:
    """The ACLs of a cluster, in place of the requests to it."""

    def __init__(self) -> None:
        self.acls: list[AccessControlEntry] = []

    def create(self, _: object, new: list[AccessControlEntry]) -> None:
        self.acls += new

    def describe(self, _: object, query: AclQuery) -> list[AccessControlEntry]:
        return [acl for acl in self.acls if query.principal in (None, acl.principal)]

    def delete(self, _: object, queries: list[AclQuery]) -> None:
        self.acls.clear()


def test_the_operations_of_a_consumer_depend_on_the_resource(
    say: Say, refused: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer = Authorizer()
    monkeypatch.setattr(acls, "create_acls", authorizer.create)
    monkeypatch.setattr(acls, "describe_acls", authorizer.describe)
    monkeypatch.setattr(acls, "delete_acls", authorizer.delete)
    say("acls", "add", "User:app", "consume", "--topic", "t", "--group", "g", "--prefix")
    assert {(a.resource_type, a.resource_name, a.operation) for a in authorizer.acls} == {
        (ResourceType.TOPIC, "t", Operation.READ),
        (ResourceType.TOPIC, "t", Operation.DESCRIBE),
        (ResourceType.GROUP, "g", Operation.READ),
    }
    assert {a.pattern_type for a in authorizer.acls} == {PatternType.PREFIXED}
    assert {a.permission_type for a in authorizer.acls} == {Permission.ALLOW}
    assert len(json.loads(say("acls", "list", "--principal", "User:app", "--json"))) == 3
    say("acls", "remove", "User:app", "--topic", "t", "--prefix")
    assert authorizer.acls == []
    for words, err in (
        (("User:app", "consume", "--cluster"), "consume: a cluster has no such operation; it has "),
        (("User:app", "read"), "Name a resource, such as --topic orders"),
        (("app", "read", "--topic", "t"), "app: a principal has the form User:NAME"),
        (
            ("User:app", "reed", "--topic", "t"),
            "Invalid value for 'OPERATION...': 'reed' is not one of",
        ),
    ):
        assert refused("acls", "add", *words).startswith(err)
