"""Share groups of the group coordinator: requests of members, and the states of their partitions.

The group coordinator knows which partitions have a state; the share coordinator has the states.
Work on both is done in steps, each of which can be repeated by the next coordinator.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.coordinator_result import Client, GroupRequest, GroupResult, Token
from spindle.coordinator.shard import GroupShard
from spindle.coordinator.share.delivery import UNINITIALIZED_OFFSET
from spindle.coordinator.share.descriptions import (
    DescribedShareGroup,
    describe_share_group,
    share_description_error,
)
from spindle.coordinator.share.group_records import StateTopic
from spindle.coordinator.share.heartbeat import ShareStateChange, check_request
from spindle.coordinator.share.ports import ShareStateStore
from spindle.coordinator.share.state_records import ShareKey, Snapshot
from spindle.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from spindle.runtime import background
from spindle.runtime.coordinator.group_coordinator import GroupCoordinator
from spindle.runtime.coordinator.shard_driver import ShardDriver, ShardState

log = logging.getLogger(__name__)

_NO_STATE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST)
"""Errors of the deletion of a state that does not exist."""


class ShareGroupCoordinator:
    """Implements `ShareGroupsPort`. All calls must come from one event loop."""

    def __init__(self, groups: GroupCoordinator, store: ShareStateStore) -> None:
        self._groups = groups
        self._store = store
        self._working: dict[str, asyncio.Task[None]] = {}
        self._deleting: dict[str, int] = {}
        groups.delete_share_group = self.delete_group

    async def close(self) -> None:
        """Stop the work on states; another coordinator continues it."""
        await background.end(*self._working.values())

    # ------------------------------------------------------------ members

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: Client
    ) -> ShareGroupHeartbeatResponse:
        """Pass a ShareGroupHeartbeat to its shard; begin to create the states that are missing."""
        check_request(request)
        shard = await self._groups.wait_for_shard(request.group_id)
        core = shard.shard

        def operation(token: Token, out: GroupResult) -> ShareGroupHeartbeatResponse:
            self._groups.refresh(core)
            return core.share.heartbeat(GroupRequest(token, request, out, client))

        response = await shard.submit(operation, is_exclusive=True)
        self._continue_work(shard, request.group_id)
        return response

    def describe(self, group_ids: Sequence[str]) -> list[DescribedShareGroup]:
        """Describe share groups. Never raises: each group has its own error."""
        described = []
        for group_id in group_ids:
            try:
                shard = self._groups.shard_of(group_id)
                shard.check_active()
            except ApiError as error:
                described.append(share_description_error(group_id, error.code, error.message))
            else:
                self._groups.refresh(shard.shard)
                described.append(describe_share_group(shard.shard.groups, group_id))
        return described

    # ------------------------------------------------------------ states of new partitions

    def _continue_work(self, shard: ShardDriver[GroupShard], group_id: str) -> None:
        """Create missing states; finish a deletion that was interrupted."""
        if group_id in self._working or shard.state is not ShardState.ACTIVE:
            return
        core = shard.shard
        group = core.groups.share.get(group_id)
        change = core.share.due_initializations(group_id)
        if group is not None and group.state_partitions.deleting and group_id not in self._deleting:
            work = self._finish_deletion(shard, group_id, list(group.state_partitions.deleting))
        elif change is not None:
            work = self._initialize(shard, change)
        else:
            return
        self._working[group_id] = background.run_once(work, f"share states of {group_id}")

    async def _finish_deletion(
        self, shard: ShardDriver[GroupShard], group_id: str, topic_ids: Sequence[Uuid]
    ) -> None:
        topics = shard.shard.groups.view.topics.by_id
        try:
            partitions = [
                TopicIdPartition(topic_id, index)
                for topic_id in topic_ids
                if topic_id in topics
                for index in topics[topic_id].partitions
            ]
            errors = await self._delete(group_id, partitions)
            gone = [topic_id for topic_id in topic_ids if errors.get(topic_id) is None]
            core = shard.shard
            await shard.submit(
                lambda _, out: core.share.deleted(group_id, gone, out), is_exclusive=True
            )
        except ApiError as error:
            log.info("Share group %s: states are not deleted: %s", group_id, error)
        finally:
            self._working.pop(group_id, None)

    async def _initialize(self, shard: ShardDriver[GroupShard], change: ShareStateChange) -> None:
        """Create states; the next heartbeat tries again what fails."""
        try:
            done = await self._reset_all(
                change.group_id,
                change.state_epoch,
                dict.fromkeys(change.partitions, UNINITIALIZED_OFFSET),
            )
            ready = [where for where, error in done.items() if error is None]
            for error in dict.fromkeys(str(error) for error in done.values() if error):
                log.info("Share group %s: states are not created: %s", change.group_id, error)
            core = shard.shard
            await shard.submit(
                lambda _, out: core.share.initialized(change.group_id, ready, out),
                is_exclusive=True,
            )
        except ApiError as error:
            log.info("Share group %s: states are not created: %s", change.group_id, error)
        finally:
            self._working.pop(change.group_id, None)

    async def _reset_all(
        self, group_id: str, state_epoch: int, offsets: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, ApiError | None]:
        """Begin states at these offsets; return the error of each."""
        return await _all(
            offsets,
            lambda where: self._store.initialize(
                ShareKey(group_id, *where), state_epoch, offsets[where]
            ),
        )

    # ------------------------------------------------------------ administration

    def initialized_partitions(self, group_id: str) -> list[TopicIdPartition] | None:
        """Return the partitions of a group with states; None if there is no such group.

        Raises:
            ApiError: this broker is not the coordinator.
        """
        shard = self._groups.shard_of(group_id)
        shard.check_active()
        group = shard.shard.groups.share.get(group_id)
        return None if group is None else group.initialized_partitions()

    async def summaries(
        self, group_id: str, partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, Snapshot | ApiError | None]:
        """Return the states of partitions without their batches; None for one without a state."""
        wanted = list(partitions)

        async def one(where: TopicIdPartition) -> Snapshot | ApiError | None:
            try:
                return await self._store.summary(ShareKey(group_id, *where))
            except ApiError as error:
                return error

        results = await asyncio.gather(*map(one, wanted))
        return dict(zip(wanted, results, strict=True))

    async def reset(
        self, group_id: str, topics: Mapping[Uuid, tuple[str, Mapping[int, int]]]
    ) -> dict[TopicIdPartition, ApiError | None]:
        """Begin partitions of a group without members at other offsets.

        Args:
            topics: name and start offsets by partition, by topic id.

        Raises:
            ApiError: the group has members, or does not exist.
        """
        shard = await self._groups.wait_for_shard(group_id)
        core = shard.shard
        states = {
            topic_id: StateTopic(name, frozenset(offsets))
            for topic_id, (name, offsets) in topics.items()
        }
        await shard.submit(
            lambda _, out: core.share.begin_reset(group_id, states, out), is_exclusive=True
        )
        epoch = core.groups.share[group_id].epoch
        offsets = {
            TopicIdPartition(topic_id, index): offset
            for topic_id, (_, by_index) in topics.items()
            for index, offset in by_index.items()
        }
        done = await self._reset_all(group_id, epoch, offsets)
        ready = [where for where, error in done.items() if error is None]
        await shard.submit(
            lambda _, out: core.share.initialized(group_id, ready, out), is_exclusive=True
        )
        return done

    async def delete_offsets(
        self, group_id: str, topic_ids: Sequence[Uuid]
    ) -> dict[Uuid, ApiError | None]:
        """Delete the states of topics of a group without members; return an error for each.

        Raises:
            ApiError: the group has members, or does not exist.
        """
        shard = await self._groups.wait_for_shard(group_id)
        core = shard.shard
        self._deleting[group_id] = self._deleting.get(group_id, 0) + 1
        try:
            done = await self._delete_states(shard, group_id, topic_ids)
            gone = [topic_id for topic_id, error in done.items() if error is None]
            await shard.submit(
                lambda _, out: core.share.deleted(group_id, gone, out), is_exclusive=True
            )
        finally:
            self._end_deletion(group_id)
        return done

    def _end_deletion(self, group_id: str) -> None:
        left = self._deleting.pop(group_id) - 1
        if left:
            self._deleting[group_id] = left

    async def _delete_states(
        self,
        shard: ShardDriver[GroupShard],
        group_id: str,
        topic_ids: Sequence[Uuid] | None,
    ) -> dict[Uuid, ApiError | None]:
        core = shard.shard
        group = core.share.empty_group(group_id)
        stored = group.state_partitions
        partitions = [
            TopicIdPartition(topic_id, index)
            for topics in (stored.initialized, stored.initializing)
            for topic_id, topic in topics.items()
            if topic_ids is None or topic_id in topic_ids
            for index in topic.partitions
        ]
        topics = core.groups.view.topics.by_id
        partitions += [  # of a deletion that was interrupted
            TopicIdPartition(topic_id, index)
            for topic_id in stored.deleting
            if topic_id in topics and (topic_ids is None or topic_id in topic_ids)
            for index in topics[topic_id].partitions
        ]
        await shard.submit(
            lambda _, out: core.share.begin_deletion(group_id, topic_ids, out), is_exclusive=True
        )
        return await self._delete(group_id, partitions)

    async def _delete(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> dict[Uuid, ApiError | None]:
        done = await _all(partitions, lambda where: self._store.delete(ShareKey(group_id, *where)))
        errors: dict[Uuid, ApiError | None] = {where.topic_id: None for where in partitions}
        for where, error in done.items():
            if error is not None and error.code not in _NO_STATE:
                errors[where.topic_id] = error
        return errors

    async def delete_group(self, group_id: str) -> None:
        """Delete a share group and its states.

        Raises:
            ApiError: the group has members, or a state cannot be deleted.
        """
        shard = self._groups.shard_of(group_id)
        core = shard.shard
        self._deleting[group_id] = self._deleting.get(group_id, 0) + 1
        try:
            for error in (await self._delete_states(shard, group_id, None)).values():
                if error is not None:
                    raise error
            await shard.submit(
                lambda _, out: core.share.delete_group(group_id, out), is_exclusive=True
            )
        finally:
            self._end_deletion(group_id)


async def _all(
    partitions: Iterable[TopicIdPartition], act: Callable[[TopicIdPartition], Any]
) -> dict[TopicIdPartition, ApiError | None]:
    """Act on partitions at the same time; return the error of each."""
    wanted = list(partitions)

    async def one(where: TopicIdPartition) -> ApiError | None:
        try:
            await act(where)
        except ApiError as error:
            return error
        return None

    results = await asyncio.gather(*map(one, wanted))
    return dict(zip(wanted, results, strict=True))
