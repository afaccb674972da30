"""The commands for people, against a node: topic, status, log-dirs, completion."""

import json
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from disk_reports import MIB, disk, move, report, silent
from up_command import Say

from spindle.cli.admin import topics as topic_module
from spindle.cli.main import run
from spindle.cli.status import cluster_status
from spindle.cli.status.cluster_status import Status
from spindle.cli.status.screen import status_document, status_lines
from spindle.cli.table import table_lines
from spindle.cli.tools import log_dirs
from spindle.client.admin.cluster import (
    ClusterDescription,
    ClusterNode,
    QuorumDescription,
    QuorumReplica,
    describe_brokers,
)
from spindle.client.admin.partitions import Reassignment
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import log_dirs_of
from spindle.client.cluster_metadata import BrokerAddress, ClusterView, PartitionView, TopicView
from spindle.client.disks import CordonView, DamageView
from spindle.client.errors import RequestTimedOut
from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID


def test_the_life_of_a_topic(say: Say, refused: Say) -> None:
    assert say("topic", "create", "life", "-p", "2", "-c", "retention.ms=5") == "created life\n"
    assert refused("topic", "create", "life") == "Topic 'life' already exists.\n"
    assert say("topic", "create", "life", "--if-not-exists") == ""
    assert ["life", "2", "1"] in [line.split() for line in say("topic", "list").splitlines()]
    lines = say("topic", "describe", "life").splitlines()
    assert lines[0].split() == ["topic", "life"]
    assert lines[2].split() == ["settings", "retention.ms=5"]
    assert lines[-1].split() == ["1", "1", "1", "1", "-"]
    say("topic", "alter", "life", "-p", "3", "-c", "cleanup.policy=compact", "-d", "retention.ms")
    (described,) = json.loads(say("topic", "describe", "life", "--json"))
    assert described["settings"] == {"cleanup.policy": "compact"}
    assert [partition["leader"] for partition in described["partitions"]] == [1, 1, 1]
    assert say("topic", "delete", "life") == "deleted life\n"
    assert refused("topic", "describe", "life") == "there is no topic 'life'\n"


def test_a_right_that_is_missing_is_named_with_its_topic(
    refused: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")

    def create(*_: object) -> None:
        raise denied

    monkeypatch.setattr(topic_module, "create_topic", create)
    monkeypatch.setattr(topic_module, "describe_topics", lambda *_: ([], {"t": denied}))
    for command, operation in (("create", "CREATE"), ("describe", "DESCRIBE")):
        text = refused("topic", command, "t")
        assert text == f"the user is not authorized for {operation} on topic 't'\n"


def test_internal_topics_are_shown_on_demand(say: Say) -> None:
    # The first request for a coordinator creates the topic of the groups.
    say("consume", "absent", "--group", "g", "--timeout", "0")
    names = [load["topic"] for load in json.loads(say("topic", "list", "--json"))]
    every = [load["topic"] for load in json.loads(say("topic", "list", "--internal", "--json"))]
    assert "__consumer_offsets" not in names
    assert "__consumer_offsets" in every


def test_a_consumer_names_the_offset_that_is_gone_and_where_it_continues(
    say: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    say("topic", "create", "gone")
    words = ("consume", "gone", "--partition", "0", "--offset", "7", "--timeout", "0")
    assert run(words) == 0
    told = "offset 7 is out of range for gone-0; the consumer continues at offset 0\n"
    assert told in capsys.readouterr().err


@pytest.mark.full
def test_a_consumer_names_the_partition_that_is_not_there(say: Say, refused: Say) -> None:
    say("topic", "create", "narrow", "-p", "2")
    text = refused("consume", "narrow", "--partition", "17")
    assert "there is no partition narrow-17; narrow has the partitions 0 to 1\n" in text


def test_tools_name_the_file_and_the_filter_that_do_not_do(refused: Say, tmp_path: Path) -> None:
    path = str(tmp_path / "nope.json")
    told = refused("kafka", "delete-records", "--offset-json-file", path)
    assert told == f"Unable to read file {path}: No such file or directory\n"
    told = refused("kafka", "get-offsets", "--topic", "nope", "--partitions", "7")
    assert told == "no partition matches --topic nope --partitions 7\n"


def test_an_operation_that_a_resource_does_not_have_is_named(refused: Say) -> None:
    words = ("--allow-principal", "User:app", "--topic", "t", "--operation")
    told = refused("kafka", "acls", "--add", *words, "Read", *words[-1:], "Reed")
    assert told.startswith("--operation Reed: a resource of the type TOPIC has ALL, ALTER, ")


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (("create",), "Missing argument 'NAME...'."),
        (("create", "t", "-p", "0"), "Invalid value for '-p' / '--partitions': 0 is not in the"),
        (("create", "t", "-c", "x"), "--config x: a setting has the form NAME=VALUE"),
        (("create", "t", "-c", "no=1"), "Unknown topic config name: no"),
        (("alter", "t"), "Give --partitions, --config or --delete-config."),
        (("alter", "nosuch", "-p", "2"), "there is no topic 'nosuch'"),
        (("delete", "nosuch"), "there is no topic 'nosuch'"),
        (("describe", "a b"), "there is no topic 'a b'"),
        (("descrbe", "t"), "There is no command 'descrbe'. Did you mean describe"),
    ],
)
def test_topic_commands_that_cannot_work(refused: Say, words: tuple[str, ...], err: str) -> None:
    assert refused("topic", *words).startswith(err)


def test_a_property_file_that_is_not_there(refused: Say) -> None:
    assert refused("status", "--command-config", "nofile") == "there is no property file nofile\n"


def test_new_positions_as_json(say: Say) -> None:
    say("topic", "create", "positions", "-p", "2", "-r", "1")
    select = ("--reset-offsets", "--group", "g", "--topic", "positions", "--to-earliest")
    positions = json.loads(say("kafka", "consumer-groups", *select, "--dry-run", "--json"))
    assert sorted(position["partition"] for position in positions) == [0, 1]
    assert {
        (position["group"], position["topic"], position["offset"]) for position in positions
    } == {("g", "positions", 0)}


def test_the_directories_of_a_node(say: Say, up: dict[str, Any]) -> None:
    document = json.loads(say("kafka", "log-dirs", "--describe", "--json"))
    (broker,) = document["brokers"]
    paths = [log_dir["logDir"] for log_dir in broker["logDirs"]]
    assert sorted(paths) == up["nodes"][0]["log_dirs"]
    assert all(log_dir["totalBytes"] >= log_dir["usableBytes"] > 0 for log_dir in broker["logDirs"])
    assert not any(log_dir["isCordoned"] for log_dir in broker["logDirs"])


def test_log_dirs_names_brokers_whose_directories_are_unknown(
    say: Say, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free_port = server.getsockname()[1]
    real_metadata = WireClient.metadata

    def with_a_dead_one(client: WireClient, topics: Sequence[str] | None = None) -> ClusterView:
        view = real_metadata(client, topics)
        dead = BrokerAddress(2, "127.0.0.1", free_port)
        return replace(view, brokers={**view.brokers, 2: dead})

    def with_a_fenced_one(client: WireClient) -> ClusterDescription:
        description = describe_brokers(client)
        fenced = ClusterNode(3, "127.0.0.1", free_port, None, True)
        return replace(description, nodes=(*description.nodes, fenced))

    monkeypatch.setattr(WireClient, "metadata", with_a_dead_one)
    monkeypatch.setattr(log_dirs, "describe_brokers", with_a_fenced_one)
    assert run(("kafka", "log-dirs", "--describe", "--json")) == 1
    out, err = capsys.readouterr()
    assert [broker["broker"] for broker in json.loads(out)["brokers"]] == [1]
    second, third = err.splitlines()
    assert second.startswith("the log directories of broker 2 are unknown: ")
    assert second.endswith("Connection refused")
    assert third == "the log directories of broker 3 are unknown: it is fenced"
    # Brokers that were not asked for have no line.
    say("kafka", "log-dirs", "--describe", "--broker-list", "1")


def test_log_dirs_asks_all_brokers_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, say: Say
) -> None:
    real_metadata, all_are_asked = WireClient.metadata, Barrier(2, timeout=10)

    def of_two(client: WireClient, topics: Sequence[str] | None = None) -> ClusterView:
        view = real_metadata(client, topics)
        return replace(view, brokers={**view.brokers, 2: replace(view.brokers[1], node_id=2)})

    def log_dirs_of_all(client: WireClient, broker: BrokerAddress) -> list[LogDirView]:
        all_are_asked.wait()
        if broker.node_id == 2:
            raise RequestTimedOut("no answer within 10 s")
        return log_dirs_of(client, broker)

    monkeypatch.setattr(WireClient, "metadata", of_two)
    monkeypatch.setattr(log_dirs, "log_dirs_of", log_dirs_of_all)
    assert run(("kafka", "log-dirs", "--describe", "--json")) == 1
    out, err = capsys.readouterr()
    assert [broker["broker"] for broker in json.loads(out)["brokers"]] == [1]
    assert err == "the log directories of broker 2 are unknown: no answer within 10 s\n"


def test_the_status_of_a_node(
    say: Say, up: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The disk of this machine may be full.
    monkeypatch.setattr(cluster_status, "FULL", 2.0)
    lines = say("status").splitlines()
    assert lines[0].split() == ["cluster", up["cluster_id"]]
    assert lines[3].split() == ["attention", "nothing"]
    assert lines[-1].split()[:4] == ["1", up["bootstrap_servers"], "-", "serving"]
    assert json.loads(say("status", "--json"))["clusterId"] == up["cluster_id"]


def test_the_status_names_damaged_replicas_and_the_remedy() -> None:
    damage = DamageView(TopicPartition("t", 0), 3, "/d/t-0/0.log at byte 70: length 5")
    answered = report(disk("/d"))
    assert answered.disks is not None
    answered = replace(answered, disks=replace(answered.disks, damages=(damage,)))
    description = ClusterDescription("id", 1, (answered.node,))
    status = Status(description, "unknown", ClusterView(topics={}), (answered,))
    (problem, _) = status.problems()
    assert (problem.kind, problem.broker_id) == ("damaged replicas", 1)
    assert problem.text == (
        "t-0 on broker 3 is damaged: /d/t-0/0.log at byte 70: length 5. Look for the extent with "
        "`spindle audit`, and copy the replica again from another one: `spindle disks rebuild 3 "
        "t-0`"
    )


def test_the_status_counts_what_needs_attention() -> None:
    nodes = (ClusterNode(1, "a", 9092, "r1", False), ClusterNode(2, "b", 9092, None, True))
    partitions = {
        0: PartitionView(0, 1, 3, (1, 2), (1,), (2,)),
        1: PartitionView(1, -1, 3, (2,), (2,), (2,)),
    }
    voter = QuorumReplica(1, ZERO_UUID, 9, -1, -1)
    status = Status(
        ClusterDescription("id", 1, nodes),
        QuorumDescription(1, 4, 9, (voter,), (), {}),
        ClusterView(topics={"t": TopicView("t", ZERO_UUID, False, partitions)}),
        (
            report(
                disk("/d", failure="[Errno 5] EIO", usable_bytes=-1),
                disk("/e", cordons=(CordonView("configuration"),)),
                disk("/f", usable_bytes=404 * 1024, stray_count=2, stray_bytes=3 * MIB),
            ),
            silent(2),
        ),
    )
    assert status_lines(status) == [
        "cluster     id",
        "controller  1 leads in epoch 4, voters 1",
        "topics      1 with 2 partitions",
        "attention   1 partition without a leader, 1 offline directory, 1 directory above 90%, "
        "1 directory with stray logs, 1 fenced broker, 1 unresponsive broker, "
        "1 under-replicated partition",
        "            1:/d is offline: [Errno 5] EIO",
        "            1:/f is 100.0% full, 404.0 KiB are free",
        "            1:/f has 2 stray logs with 3.0 MiB: the metadata places their replicas "
        "elsewhere; look at the folders with the suffix -stray, and delete what you do not need",
        "            broker 2: fenced, no answer: Connection refused",
        "            broker 2 has no session with the controller: stopped, cut off, or starting.",
        "            A broker that restarts after a kill registers when its old session ends: "
        "broker.session.timeout.ms, 9 s by default.",
        "            t-1: a leader is elected when a broker returns that has all records or was "
        "the last leader.",
        "cordoned    1 directory",
        "",
        "BROKER  ADDRESS  RACK  STATE    REPLICAS  LEADS  DIRECTORIES        FREE",
        "     1  a:9092   r1    serving         1      1  3, 1 offline  404.0 KiB",
        "     2  b:9092   -     fenced          2      0  -                     -",
    ]


def test_the_status_names_replicas_on_lost_disks_apart_from_those_of_brokers_that_are_away() -> (
    None
):
    nodes = (ClusterNode(1, "a", 9092, None, False), ClusterNode(2, "b", 9092, None, True))
    partitions = {
        0: PartitionView(0, -1, 3, (1,), (1,), (1,)),
        1: PartitionView(1, -1, 3, (1, 2), (1, 2), (1, 2)),
        2: PartitionView(2, -1, 3, (1,), (1,), ()),
        3: PartitionView(3, -1, 3, (1,), (), (1,)),
    }
    status = Status(
        ClusterDescription("id", 1, nodes),
        QuorumDescription(1, 4, 9, (), (), {}),
        ClusterView(topics={"t": TopicView("t", ZERO_UUID, False, partitions)}),
        (report(disk("/d", failure="EIO")), silent(2)),
    )
    assert status.leaderless_on_lost_disks == {TopicPartition("t", 0): (1,)}
    lines = status_lines(status)
    assert (
        "            t-0: broker 1 would lead, but the replica is on no directory that is online; "
        "bring its disk back, then run `spindle disks online`."
    ) in lines
    assert any(
        line.startswith("            t-1, t-2, t-3: a leader is elected when") for line in lines
    )


def test_the_status_counts_moves_between_directories() -> None:
    status = Status(
        ClusterDescription("id", 1, (ClusterNode(1, "a", 9092, None, False),)),
        QuorumDescription(1, 4, 9, (), (), {}),
        ClusterView(),
        (report(disk("/d/1"), disk("/d/2"), moves=(move(5),)),),
    )
    assert "moves       1 between directories" in status_lines(status)
    assert status.problems() == []


def test_a_replica_that_a_move_adds_is_no_problem_until_it_should_be_in_sync() -> None:
    partitions = {
        0: PartitionView(0, 1, 3, (1, 2), (1,), ()),
        1: PartitionView(1, 1, 3, (1, 2, 3), (1, 2), ()),
    }
    nodes = (ClusterNode(1, "a", 9092, None, False), ClusterNode(2, "b", 9092, None, False))
    status = Status(
        ClusterDescription("id", 1, nodes),
        QuorumDescription(1, 4, 9, (), (), {}),
        ClusterView(topics={"t": TopicView("t", ZERO_UUID, False, partitions)}),
        (report(disk("/d/1"), moves=(move(5),)),),
    )
    moves = {
        TopicPartition("t", 0): Reassignment((1, 2), (2,), ()),
        TopicPartition("t", 1): Reassignment((1, 2, 3), (3,), ()),
    }
    assert len(status.under_replicated) == 2
    moving = status._replace(reassigned=moves)
    assert moving.problems() == []
    assert "moves       2 between brokers, 1 between directories" in status_lines(moving)
    assert status_document(moving)["reassignedPartitions"] == ["t-0", "t-1"]


def test_throttles_without_moves_are_named_with_the_command_that_removes_them() -> None:
    status = Status(
        ClusterDescription("id", 1, ()),
        QuorumDescription(1, 4, 9, (), (), {}),
        ClusterView(),
        (),
        throttled=(2, 3),
    )
    lines = status_lines(status)
    assert "throttles   brokers 2, 3 have throttles for moves, but nothing moves" in lines
    assert any("configs unset broker 2 leader.replication" in line for line in lines)
    assert status.problems() == []


def test_a_table_without_rows_is_its_head() -> None:
    assert table_lines(("A", "B"), []) == ["A  B"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_completion_script(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["completion", shell]) == 0
    assert "_SPINDLE_COMPLETE=" in capsys.readouterr().out
    environment = {"bash": ("spindle topic cr", "2"), "zsh": ("spindle topic cr", "2")}
    words, number = environment.get(shell, ("spindle topic", "cr"))
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", number)
    monkeypatch.setenv("_SPINDLE_COMPLETE", f"{shell}_complete")
    with pytest.raises(SystemExit):
        run([])
    assert "create" in capsys.readouterr().out


def test_a_replica_moves_to_another_directory(say: Say, up: dict[str, Any], tmp_path: Path) -> None:
    say("topic", "create", "moved", "-p", "1")
    (broker,) = json.loads(say("kafka", "log-dirs", "--describe", "--json"))["brokers"]
    (here,) = (
        log_dir["logDir"]
        for log_dir in broker["logDirs"]
        if any(p["partition"] == "moved-0" for p in log_dir["partitions"])
    )
    there = next(path for path in up["nodes"][0]["log_dirs"] if path != here)
    plan = tmp_path / "plan.json"
    entry = {"topic": "moved", "partition": 0, "replicas": [1], "log_dirs": [there]}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    file = ("--reassignment-json-file", str(plan))
    assert f"started moving log directory to {there}" in say(
        "kafka", "reassign-partitions", "--execute", *file
    )
    done = "Reassignment of replica moved-0-1 completed successfully."
    while done not in (text := say("kafka", "reassign-partitions", "--verify", *file)):
        # Between the two renames of the swap, neither directory has the replica.
        assert "still in progress" in text or "is not found in" in text


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """A function that puts a text on standard input."""
    with ExitStack() as stack:

        def type_text(text: str) -> None:
            path = tmp_path / "stdin"
            path.write_text(text)
            monkeypatch.setattr(sys, "stdin", stack.enter_context(path.open()))

        yield type_text


def test_produce_says_what_it_sent_and_which_topic_it_created(
    bootstrap: str, typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed("a\nb\n")
    assert run(("produce", "fresh")) == 0
    assert capsys.readouterr().err == (
        "fresh did not exist: created with 1 partition\nsent 2 records to fresh\n"
    )
    typed("c")
    assert run(("produce", "fresh")) == 0
    assert capsys.readouterr().err == "sent 1 record to fresh\n"


def test_consume_takes_topics_as_words(
    say: Say, typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        typed(f"in {name}\n")
        say("produce", name)
    words = ("--from-beginning", "-n", "2", "--timeout", "60")
    assert sorted(say("consume", "one", "two", *words).splitlines()) == [
        "in one",
        "in two",
    ]


@pytest.mark.parametrize(
    ("words", "err"),
    [
        (("produce",), "Missing argument 'TOPIC'."),
        (("produce", "a", "b"), "Got unexpected extra argument (b)"),
        (("consume",), "Give topics, or a pattern with --include.\n"),
        (("consume", "a", "--include", "b"), "Give topics, or a pattern with --include.\n"),
        (("consume", "a", "b", "--partition", "0"), "--partition takes one topic, got a and b\n"),
        (("consume", "a", "--offset", "3"), "--offset needs --partition\n"),
        (("consume", "a", "-p", "0", "-o", "x"), "--offset x: give earliest, latest or an offset"),
        (("consume", "a", "-p", "0", "-g", "b"), "--partition cannot be used with --group\n"),
        (("consume", "a", "-g", ""), "--group is empty\n"),
        (("consume", "a", "--show", "x"), "--show x: give some of timestamp, partition, "),
        (("consume", "a", "-n", "x"), "Invalid value for '-n' / '--max-records': 'x' is not a"),
        (("consume", "a", "--from-begining"), "No such option '--from-begining'. Did you mean"),
    ],
)
def test_words_of_produce_and_consume_that_make_no_command(
    refused: Say, words: tuple[str, ...], err: str
) -> None:
    assert refused(*words).startswith(err)
