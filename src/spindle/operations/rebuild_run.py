"""Rebuilds: copy replicas of a running broker again from their leaders."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from spindle.client.admin.rebuilds import rebuild_replicas
from spindle.client.admin.refusals import failure_text
from spindle.client.blocking.client import WireClient
from spindle.client.disks import RebuildView, disks_of_spindle
from spindle.common.ids import TopicPartition
from spindle.operations.cancellation import Cancellation, Sleep
from spindle.operations.errors import CLUSTER_FAILURES, OperationFailed
from spindle.operations.events import OnProgress, RebuildEnded, Rebuilding, ignore_progress
from spindle.protocol.messages.describe_disks import DescribeDisksRequest, DescribeDisksResponse

_PAUSE_S: Final = 0.5
_SILENCE_S: Final = 60.0
"""Time limit for a broker that does not respond, for instance during a restart."""
_GONE: Final = (
    "the broker was restarted, or lost the replica: if the replica is there, it follows its leader "
    "with the log that the start found; audit it again"
)


def rebuild(
    client: WireClient,
    broker: int,
    replicas: Iterable[TopicPartition],
    *,
    on_progress: OnProgress = ignore_progress,
    cancellation: Cancellation | None = None,
) -> tuple[RebuildEnded, ...]:
    """Copy replicas of a running broker again from their leaders, because their logs are damaged.

    Each replica leaves the ISR first, and cannot be elected until it has all committed records
    again. Its old log stays until the new one is in the ISR, and is used again if nothing is copied
    for ten minutes. The broker refuses a replica that leads, and one without which the ISR would be
    below min.insync.replicas. If the call is cancelled, the broker continues the rebuild.

    Returns:
        The end of each rebuild: first those that the broker refused.

    Raises:
        ApiError: the broker refused all; there is no such broker.
        ClientError: the broker could not be asked, or is not a Spindle broker.
        OperationFailed: the broker has not responded for a minute, so the ends are unknown.
        Cancelled, KeyboardInterrupt: the call was cancelled.

    Examples:
        >>> ends = rebuild(client, 2, [TopicPartition("orders", 3)], on_progress=print)
        >>> print([end.partition for end in ends if not end.is_done])
    """
    wanted = list(dict.fromkeys(replicas))
    refused = _ask(client, broker, wanted, is_cancellation=False)
    for end in refused:
        on_progress(end)
    ends = {end.partition: end for end in refused}
    sleep = time.sleep if cancellation is None else cancellation.sleep
    while left := [where for where in wanted if where not in ends]:
        views = _asked(client, broker, sleep)
        for where in left:
            view = views.get(where)
            if view is not None:
                on_progress(Rebuilding(view))
            if view is None:
                ends[where] = RebuildEnded(where, "failed", error=_GONE)
            elif not view.is_under_way:
                ends[where] = RebuildEnded(
                    where, view.state, view.former_bytes, view.copied_bytes, view.failure
                )
            if where in ends:
                on_progress(ends[where])
        if len(ends) < len(wanted):
            sleep(_PAUSE_S)
    return tuple(ends.values())


def cancel_rebuild(
    client: WireClient, broker: int, replicas: Iterable[TopicPartition]
) -> tuple[RebuildEnded, ...]:
    """Cancel rebuilds, and use the old logs again. Return those that the broker refused to cancel.

    Raises:
        ApiError: the broker refused all; there is no such broker.
        ClientError: the broker could not be asked, or is not a Spindle broker.
    """
    return _ask(client, broker, list(dict.fromkeys(replicas)), is_cancellation=True)


def _ask(
    client: WireClient, broker: int, wanted: list[TopicPartition], *, is_cancellation: bool
) -> tuple[RebuildEnded, ...]:
    """Begin or cancel rebuilds; return those that the broker refused."""
    refusals = rebuild_replicas(client, broker, wanted, is_cancellation=is_cancellation)
    return tuple(
        RebuildEnded(where, "refused", error=error.message or error.code.name)
        for where, error in refusals.items()
        if error is not None
    )


def _asked(client: WireClient, broker: int, sleep: Sleep) -> Mapping[TopicPartition, RebuildView]:
    """Return the rebuilds of a broker; wait a while for one that does not respond."""
    ends_s = time.monotonic() + _SILENCE_S
    while True:
        try:
            address = client.metadata(()).broker(str(broker))
            answer = client.ask_spindle(address, DescribeDisksRequest(), DescribeDisksResponse)
            return {view.partition: view for view in disks_of_spindle(answer).rebuilds}
        except CLUSTER_FAILURES as error:
            if time.monotonic() > ends_s:
                raise OperationFailed(
                    f"broker {broker} has not answered for {_SILENCE_S:.0f} s, so the end of the "
                    "rebuild is unknown; `spindle disks watch` shows it: "
                    f"{failure_text(error)}"
                ) from None
        sleep(_PAUSE_S)
