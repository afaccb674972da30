"""Reports of a broker to its controller: one at a time, again until it is accepted."""

import asyncio
from typing import Any

from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from spindle.replicas.report_queues import Assignments
from spindle.runtime.backoff import Backoff
from spindle.runtime.broker.report_sender import ReportSender

TOPIC, DIRECTORY = b"t" * 16, b"d" * 16
LIMIT_S = 60


class Controller:
    """Keeps each request open until the test answers it."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[list[int], asyncio.Future[Any]]] = asyncio.Queue()

    async def request(self, message: Any, context: Any = None) -> Any:
        assert isinstance(message, AssignReplicasToDirsRequest)
        promise: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((partitions_of(message), promise))
        return await promise

    async def next(self) -> tuple[list[int], asyncio.Future[Any]]:
        return await asyncio.wait_for(self.asked.get(), LIMIT_S)


def partitions_of(request: AssignReplicasToDirsRequest) -> list[int]:
    (directory,) = request.directories
    return [p.partition_index for topic in directory.topics for p in topic.partitions]


def accepting(*partitions: int, refused: int | None = None) -> AssignReplicasToDirsResponse:
    data = AssignReplicasToDirsResponse.DirectoryData
    rows = [
        data.TopicData.PartitionData(partition_index=p, error_code=42 if p == refused else 0)
        for p in partitions
    ]
    topic = data.TopicData(topic_id=TOPIC, partitions=rows)
    return AssignReplicasToDirsResponse(directories=[data(id=DIRECTORY, topics=[topic])])


async def sending(controller: Controller) -> tuple[Assignments, ReportSender]:
    reports = Assignments(1, lambda _, __: True)
    sender = ReportSender("reports", reports, controller, lambda: 7, Backoff(1, 1, lambda: 0.5))
    sender.start()
    return reports, sender


async def test_reports_that_gather_go_into_the_next_request() -> None:
    controller = Controller()
    reports, sender = await sending(controller)
    reports.add(TOPIC, 0, DIRECTORY)
    sender.wake()
    first, promise = await controller.next()
    for partition in (1, 2):
        reports.add(TOPIC, partition, DIRECTORY)
        sender.wake()
    assert controller.asked.empty(), "one at a time"
    promise.set_result(accepting(0))
    second, promise = await controller.next()
    assert (first, second) == ([0], [1, 2])
    promise.set_result(accepting(1, 2))
    await sender.stop()


async def test_refused_or_unanswered_reports_are_sent_again() -> None:
    controller = Controller()
    reports, sender = await sending(controller)
    for partition in (0, 1):
        reports.add(TOPIC, partition, DIRECTORY)
    sender.wake()
    asked = []
    for answer in (
        ApiError(ErrorCode.REQUEST_TIMED_OUT),
        AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        accepting(0, 1, refused=1),
    ):
        partitions, promise = await controller.next()
        asked.append(partitions)
        if isinstance(answer, ApiError):
            promise.set_exception(answer)
        else:
            promise.set_result(answer)
    asked.append((await controller.next())[0])
    assert asked == [[0, 1], [0, 1], [0, 1], [1]]
    await sender.stop()


async def test_an_unexpected_answer_ends_no_reporting() -> None:
    mistakes: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: mistakes.append(context["message"]))
    controller = Controller()
    reports, sender = await sending(controller)
    reports.add(TOPIC, 0, DIRECTORY)
    sender.wake()
    _, promise = await controller.next()
    promise.set_result(object())
    again, promise = await controller.next()
    promise.set_result(accepting(0))
    await sender.stop()
    assert again == [0]
    assert mistakes == ["reports: unexpected failure"]
