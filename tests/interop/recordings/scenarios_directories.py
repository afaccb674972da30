"""Directories that fail (KIP-858) and moves between directories (KIP-113)."""

from __future__ import annotations

from recordings.scenario import scenario
from recordings.stage import Stage

_ONE_CONTROLLER = {1: "broker,controller", 2: "broker", 3: "broker"}


def log_dirs(stage: Stage, words: str) -> None:
    stage.tool("log-dirs", f"--describe {words}")


@scenario("03-directory-failure", roles=_ONE_CONTROLLER, failing=[(2, 2)])
def directory_failure(stage: Stage) -> None:
    stage.format()
    stage.start()
    stage.create("t", "1:2:3,2:3:1", n1="d1", n2="d2", n3="d1")
    stage.create("k", "2:1:3", n1="d1", n2="d1", n3="d1")
    stage.produce("t", 0, 20)
    stage.produce("t", 1, 20)
    stage.skip_records()

    stage.step("<n2d2> fails: every access gives EIO")
    stage.disks[2, 2].fail()
    stage.produce("t", 0, 20)
    stage.produce("t", 1, 20)
    stage.until(lambda state: len(state.brokers[2]["logDirs"]) == 1, "one directory offline")
    stage.records()
    stage.describe("k", "t")
    log_dirs(stage, "--broker-list 2")
    stage.files(2)

    stage.step("a new topic while <n2d2> is offline")
    stage.tool("topics", "--create --topic u --replica-assignment 2:1,2:3")
    stage.records(has_any_place=True)

    stage.step("a move to the offline directory")
    move = {
        "topic": "k",
        "partition": 0,
        "replicas": [2, 1, 3],
        "log_dirs": ["<n2d2>", "any", "any"],
    }
    stage.reassign("execute", move)
    stage.reassign("verify", move)
    stage.records()

    stage.step("clean stop of 2 and start without <n2d2>")
    stage.stop(2)
    stage.start(2)
    stage.records()
    log_dirs(stage, "--broker-list 2")

    stage.step("2 stopped, <n2d2> replaced by an empty one, start without format")
    stage.stop(2)
    stage.replace(2, 2)
    stage.fail_start(2)
    stage.records()

    stage.step("format --ignore-formatted and start")
    stage.tool("storage", "format -t <cluster> -c <n2.properties> --ignore-formatted", server="-")
    stage.start(2)
    stage.records(has_any_place=True)
    stage.files(2)
    stage.tool("topics", "--describe --topic t")

    other_order(stage)


def other_order(stage: Stage) -> None:
    stage.step("log.dirs in the other order")
    stage.stop(2)
    node = stage.nodes[2]
    node.overrides["metadata.log.dir"] = str(node.log_dirs[0])
    node.overrides["log.dirs"] = f"{node.log_dirs[1]},{node.log_dirs[0]}"
    node.write_properties()
    stage.start(2)
    stage.records()


@scenario(
    "04-all-directories-fail",
    roles=_ONE_CONTROLLER,
    directory_count=3,
    failing=[(2, 1), (2, 2), (3, 3)],
    own_overrides={
        number: {"log.dirs": f"<n{number}d1>,<n{number}d2>", "metadata.log.dir": f"<n{number}d3>"}
        for number in _ONE_CONTROLLER
    },
)
def all_directories_fail(stage: Stage) -> None:
    stage.format()
    stage.start()
    stage.create("t", "1:2:3,2:3:1", n1="d1", n2="d1", n3="d1")
    stage.create("v", "2:3:1", n1="d1", n2="d2", n3="d1")
    stage.skip_records()

    stage.step("<n2d1> fails")
    stage.disks[2, 1].fail()
    stage.produce("t", 0, 20)
    stage.until(lambda state: len(state.brokers[2]["logDirs"]) == 1, "one directory offline")
    stage.records()

    stage.step("<n2d2> fails, too")
    stage.disks[2, 2].fail()
    stage.produce("v", 0, 20)
    stage.ended(2)
    stage.fenced(2)
    stage.records()
    stage.describe("t", "v")

    stage.step("2 started with both dead")
    stage.fail_start(2)
    stage.records()

    stage.step("both replaced, format --ignore-formatted, start")
    stage.replace(2, 1)
    stage.replace(2, 2)
    stage.tool("storage", "format -t <cluster> -c <n2.properties> --ignore-formatted", server="-")
    stage.start(2)
    stage.records(has_any_place=True)

    stage.step("the metadata directory of 3 fails")
    stage.disks[3, 3].fail()
    stage.ended(3)
    stage.fenced(3)
    stage.records(has_any_place=True)

    stage.step("3 started with the dead directory; then with an empty one, without format")
    stage.fail_start(3)
    stage.replace(3, 3)
    stage.fail_start(3)

    stage.step("format --ignore-formatted and start")
    stage.tool("storage", "format -t <cluster> -c <n3.properties> --ignore-formatted", server="-")
    stage.start(3)
    stage.records()


_THROTTLE = "--replica-alter-log-dirs-throttle 60000"


def move_of(topic: str, place: str, partition: int = 0) -> dict[str, object]:
    return {"topic": topic, "partition": partition, "replicas": [1], "log_dirs": [place]}


def future_in(stage: Stage, topic: str, place: int) -> bool:
    """Return True if a directory of node 1 has the future log of a partition."""
    return bool(list(stage.nodes[1].log_dirs[place - 1].glob(f"{topic}-*-future")))


@scenario(
    "05-moves",
    directory_count=3,
    overrides={"log.initial.task.delay.ms": "300"},
)
def moves(stage: Stage) -> None:
    stage.format()
    stage.start()
    for topic in ("mv", "gone"):
        stage.create(topic, "1", n1="d1")
        stage.produce(topic, 0, 400, 10_000)
    stage.skip_records()

    stage.step("a throttled move of mv-0 to <n1d2>")
    stage.reassign("execute", move_of("mv", "<n1d2>"), flags=_THROTTLE)
    stage.wait(lambda: future_in(stage, "mv", 2))
    stage.records()
    stage.files()
    stage.reassign("verify", move_of("mv", "<n1d2>"), flags="--preserve-throttles")

    stage.step("another target while it moves: <n1d3>")
    stage.reassign("execute", move_of("mv", "<n1d3>"), flags=_THROTTLE)
    stage.wait(lambda: future_in(stage, "mv", 3) and not future_in(stage, "mv", 2))
    stage.records()
    stage.files()

    stage.step("--cancel")
    stage.reassign("cancel", move_of("mv", "<n1d3>"), flags="--preserve-throttles")
    stage.wait(lambda: not future_in(stage, "mv", 3))
    stage.records()
    stage.files()

    stage.step("targets that are refused")
    for move in (
        move_of("mv", "/nowhere"),
        move_of("mv", "relative"),
        move_of("mv", "<n1d2>/"),
        move_of("mv", "<n1d2>", 7),
        move_of("unknown", "<n1d2>"),
        {"topic": "mv", "partition": 0, "replicas": [1], "log_dirs": ["<n1d2>", "<n1d3>"]},
    ):
        stage.reassign("execute", move, flags=_THROTTLE)
    stage.records()

    stage.step("gone-0 is deleted while it moves")
    stage.reassign("execute", move_of("gone", "<n1d2>"), flags=_THROTTLE)
    stage.wait(lambda: future_in(stage, "gone", 2))
    stage.tool("topics", "--delete --topic gone")
    stage.wait(lambda: not future_in(stage, "gone", 2))
    stage.records()
    stage.files()
    interrupted_moves(stage)


def interrupted_moves(stage: Stage) -> None:
    stage.step("a move, and kill -9 in the middle")
    stage.reassign("execute", move_of("mv", "<n1d2>"), flags=_THROTTLE)
    stage.wait(lambda: future_in(stage, "mv", 2))
    stage.kill(1)
    stage.files()
    stage.start()
    stage.leave_out_records("the session may expire before or after the broker asks again")
    stage.files()

    stage.step("clean stop in the middle")
    stage.stop(1)
    stage.start()
    stage.records()

    stage.step("the throttle is raised: the move ends")
    target = stage.directory_id(1, "d2")
    stage.reassign(
        "execute",
        move_of("mv", "<n1d2>"),
        flags="--additional --replica-alter-log-dirs-throttle 100000000",
    )
    stage.until(lambda state: state.partition("mv")["directories"] == [target], "moved")
    stage.wait(lambda: not future_in(stage, "mv", 2))
    stage.records()
    stage.reassign("verify", move_of("mv", "<n1d2>"))
    stage.records()
    stage.files()
