"""Cordoned directories (KIP-1066), reassignments with log_dirs (KIP-455, KIP-113), and strays."""

from __future__ import annotations

from recordings.scenario import scenario
from recordings.stage import Stage

_ONE_CONTROLLER = {1: "broker,controller", 2: "broker", 3: "broker"}
_LIST = "cordoned.log.dirs"


def set_cordons(stage: Stage, broker: int, value: str, server: str = "") -> None:
    words = f"--alter --entity-type brokers --entity-name {broker} --add-config {_LIST}={value}"
    stage.tool("configs", words, server=server)


def delete_cordons(stage: Stage, broker: int) -> None:
    words = f"--alter --entity-type brokers --entity-name {broker} --delete-config {_LIST}"
    stage.tool("configs", words)


def cordoned(stage: Stage, broker: int, *places: str) -> None:
    """Return when the controller knows these directories as cordoned."""
    wanted = {stage.directory_id(broker, place) for place in places}
    stage.until(
        lambda state: set(state.brokers[broker].get("cordonedLogDirs", [])) == wanted,
        f"{places} of {broker} cordoned",
    )


def move(
    topic: str, replicas: list[int], log_dirs: list[str] | None = None, partition: int = 0
) -> dict[str, object]:
    return {
        "topic": topic,
        "partition": partition,
        "replicas": replicas,
        "log_dirs": ["any"] * len(replicas) if log_dirs is None else log_dirs,
    }


def moved(stage: Stage, topic: str, replicas: list[int]) -> None:
    """Return when a reassignment is complete."""
    stage.until(
        lambda state: (
            state.partition(topic)["replicas"] == replicas
            and not state.partition(topic)["addingReplicas"]
            and not state.partition(topic)["removingReplicas"]
        ),
        f"{topic}-0 on {replicas}",
    )


@scenario("06-cordons", roles=_ONE_CONTROLLER, own_overrides={3: {_LIST: "<n3d2>"}})
def cordons(stage: Stage) -> None:
    stage.step("first start; <n3d2> is cordoned in the file of 3")
    stage.format()
    stage.start()
    stage.records()
    stage.tool("configs", "--describe --entity-type brokers --entity-name 1")
    stage.tool("topics", "--create --topic s --replica-assignment 3,3,3")
    stage.records()
    stage.tool("log-dirs", "--describe --broker-list 3")

    stage.step("<n1d2> is cordoned on broker 1")
    set_cordons(stage, 1, "<n1d2>")
    cordoned(stage, 1, "d2")
    stage.records()
    stage.tool("configs", "--describe --entity-type brokers --entity-name 1")
    stage.tool("topics", "--create --topic d --replica-assignment 1,1")
    stage.records()

    stage.step("values that are refused")
    for value in ("n1d2", "/nowhere", "<n1d2>/", "[<n1d2>,*]", "<n2d1>"):
        set_cordons(stage, 1, value)
    for words in (f"--add-config {_LIST}=*", f"--delete-config {_LIST}"):
        stage.tool("configs", f"--alter --entity-type brokers --entity-default {words}")
    stage.records()

    stage.step("both directories as a list, then *")
    set_cordons(stage, 1, "[<n1d1>,<n1d2>]")
    cordoned(stage, 1, "d1", "d2")
    stage.records()
    set_cordons(stage, 1, "*")
    stage.records()
    wholly_cordoned(stage)
    restarted_with_cordons(stage)
    from_the_controller(stage)


def wholly_cordoned(stage: Stage) -> None:
    stage.step("broker 1 is wholly cordoned: topics and partitions")
    for words in (
        "--create --topic e3 --partitions 1 --replication-factor 3",
        "--create --topic e1 --replica-assignment 1:2",
        "--alter --topic e1 --partitions 2 --replica-assignment 1:2,1:3",
        "--alter --topic d --partitions 3 --replica-assignment 1,1,1",
    ):
        stage.tool("topics", words)
        stage.records(has_any_place=True)

    stage.step("reassignment onto the cordoned broker, keeping a replica there, away from it")
    stage.tool("topics", "--create --topic f --replica-assignment 2")
    for replicas in ([1], [1, 3], [3]):
        stage.reassign("execute", move("f", replicas))
        stage.settle()
    stage.records(has_any_place=True)

    stage.step("moves into cordoned directories of broker 1 and of broker 3")
    stage.reassign("execute", move("d", [1], ["<n1d2>"]), flags="--timeout 2000")
    stage.reassign("execute", move("s", [3], ["<n3d2>"]), flags="--timeout 2000")
    stage.records(has_any_place=True)


def restarted_with_cordons(stage: Stage) -> None:
    stage.step("all brokers are cordoned")
    for broker in (2, 3):
        set_cordons(stage, broker, "*")
        cordoned(stage, broker, "d1", "d2")
    stage.records()
    stage.tool("topics", "--create --topic g --partitions 1 --replication-factor 1")

    stage.step("the dynamic values of 2 and 3 are deleted; 3 has one in its file")
    for broker, places in ((2, ()), (3, ("d2",))):
        delete_cordons(stage, broker)
        cordoned(stage, broker, *places)
    stage.records()

    stage.step("restart of 3")
    stage.stop(3)
    stage.start(3)
    cordoned(stage, 3, "d2")
    stage.records()

    stage.step("files that are refused at the start of 2")
    stage.stop(2)
    for value in ("/nowhere", "n2d1", "<n2d1>,*"):
        stage.nodes[2].overrides[_LIST] = stage.real(value)
        stage.nodes[2].write_properties()
        stage.fail_start(2)
    del stage.nodes[2].overrides[_LIST]
    stage.nodes[2].write_properties()
    stage.start(2)
    stage.settle()
    stage.skip_records()


def from_the_controller(stage: Stage) -> None:
    stage.step("by the controller: fewer than *, fewer than both, then more, then none")
    set_cordons(stage, 1, "<n1d1>", server="<n1c>")
    set_cordons(stage, 1, "[<n1d1>,<n1d2>]")
    set_cordons(stage, 1, "<n1d1>", server="<n1c>")
    cordoned(stage, 1, "d1")
    for value in ("*", "<n1d2>", "/nowhere"):
        set_cordons(stage, 1, value, server="<n1c>")
    set_cordons(stage, 1, "", server="<n1c>")
    cordoned(stage, 1)
    stage.records()

    stage.step("broker 3 is emptied, stopped and unregistered; then 2, which runs")
    set_cordons(stage, 3, "*")
    cordoned(stage, 3, "d1", "d2")
    for topic, replicas in (("s", [1]), ("f", [2])):
        stage.reassign("execute", move(topic, replicas))
        moved(stage, topic, replicas)
    stage.stop(3)
    stage.fenced(3)
    stage.tool("cluster", "unregister --id 3")
    stage.tool("cluster", "unregister --id 9")
    stage.records(has_any_place=True)
    stage.tool("cluster", "unregister --id 2")
    stage.records(is_settled=False)


@scenario("07-reassignment", roles=_ONE_CONTROLLER)
def reassignment(stage: Stage) -> None:
    stage.format()
    stage.start()
    stage.create("r", "1:2", n1="d1", n2="d1")
    stage.produce("r", 0, 400, 10_000)
    stage.skip_records()
    plan = move("r", [2, 3], ["any", "<n3d2>"])

    stage.step("execute with log_dirs and a throttle")
    stage.reassign("execute", plan, flags="--throttle 10000")
    stage.tool("reassign-partitions", "--list")
    stage.records(is_settled=False, has_any_place=True)
    stage.tool("configs", "--describe --entity-type topics --entity-name r")
    stage.tool("configs", "--describe --entity-type brokers")

    stage.step("execute again, without --additional")
    stage.reassign("execute", plan)

    stage.step("cancel, twice")
    stage.reassign("cancel", plan)
    stage.records()
    stage.tool("topics", "--describe --topic r")
    stage.reassign("cancel", plan)
    stage.records()

    stage.step("another order of the same replicas")
    stage.reassign("execute", move("r", [1, 2]))
    moved(stage, "r", [1, 2])
    stage.records(is_settled=False)

    stage.step("execute without a throttle: it ends")
    target = stage.directory_id(3, "d2")
    stage.reassign("execute", plan)
    stage.until(
        lambda state: (
            state.partition("r")["replicas"] == [2, 3]
            and state.partition("r")["directories"][1] == target
        )
    )
    stage.records()
    stage.reassign("verify", plan)
    stage.tool("reassign-partitions", "--list")
    stage.tool("topics", "--describe --topic r")
    stage.records()

    stage.step("from 2 replicas to 3, and to 1")
    stage.reassign("execute", move("r", [2, 3, 1]), flags="--disallow-replication-factor-change")
    for replicas in ([2, 3, 1], [3]):
        stage.reassign("execute", move("r", replicas))
        moved(stage, "r", replicas)
        stage.records(has_any_place=True)
    refused_plans(stage)


def refused_plans(stage: Stage) -> None:
    stage.step("plans that are refused")
    for plan in (
        move("r", [9]),
        move("r", [3, 3]),
        move("r", [], []),
        move("unknown", [1]),
        move("r", [1], partition=7),
        move("r", [1, 2], ["any"]),
    ):
        stage.reassign("execute", plan)
    stage.records()

    stage.step("the target is stopped before, and while the reassignment waits")
    stage.stop(2)
    stage.fenced(2)
    stage.reassign("execute", move("r", [3, 2]))
    stage.start(2)
    stage.settle()
    stage.skip_records()


@scenario("09-strays", roles=_ONE_CONTROLLER)
def strays(stage: Stage) -> None:
    stage.format()
    stage.start()
    for topic in ("gone", "again", "stays"):
        stage.create(topic, "1:2:3", n1="d1", n2="d1", n3="d1")
        stage.produce(topic, 0, 20)
    stage.skip_records()

    stage.step("clean stop of 3")
    stage.stop(3)
    stage.fenced(3)
    stage.records()
    stage.files(3)

    stage.step("gone is deleted, again is created anew, stays leaves 3")
    stage.tool("topics", "--delete --topic gone")
    stage.tool("topics", "--delete --topic again")
    stage.tool("topics", "--create --topic again --replica-assignment 1:3")
    stage.reassign("execute", move("stays", [1, 2]))
    moved(stage, "stays", [1, 2])
    stage.records(has_any_place=True)

    stage.step("3 is started")
    stage.start(3)
    stage.settle()
    stage.place("again", 0, n1="d1", n3="d1")
    stage.skip_records()
    stage.wait(
        lambda: sum(len(list(path.glob("*-stray"))) for path in stage.nodes[3].log_dirs) == 3
    )
    stage.files(3)
    stage.tool("log-dirs", "--describe --broker-list 3")

    stage.step("restart of 3: the strays stay")
    stage.stop(3)
    stage.start(3)
    stage.records()
    stage.files(3)

    stage.step("clean stop of 3, partition.metadata of again-0 is removed, start")
    stage.stop(3)
    (path,) = stage.nodes[3].log_dirs[0].glob("again-0/partition.metadata")
    path.unlink()
    stage.start(3)
    stage.records()
    stage.files(3)
