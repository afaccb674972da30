"""Groups and offsets for clients that lack rights: what is refused, and what is left out."""

from typing import Any

from coordinator_log import Broker, context, start_broker, topic
from rights import Rights

from spindle.authorization.operations import Operation
from spindle.common.errors import ErrorCode
from spindle.protocol.messages.delete_groups import DeleteGroupsRequest
from spindle.protocol.messages.describe_groups import DescribeGroupsRequest
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.join_group import JoinGroupRequest
from spindle.protocol.messages.list_groups import ListGroupsRequest
from spindle.protocol.messages.offset_commit import OffsetCommitRequest
from spindle.protocol.messages.offset_delete import OffsetDeleteRequest
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.serving.handlers import committed_offsets, groups

GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPICS = (topic("t", b"t" * 16, 1), topic("u", b"u" * 16, 1))
CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
DeleteTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic


async def guarded(*allowed: tuple[Operation, str]) -> Broker:
    """Return a broker on which group "g" has an offset in "t" and "u", with these rights."""
    broker = start_broker(*TOPICS)
    await broker.groups.wait_loaded()
    await commit(broker)
    broker.authorizer = Rights(*allowed)
    return broker


async def commit(broker: Broker) -> dict[str, int]:
    """Commit offset 1 for "t" and "u"; return the codes by topic."""
    partition = CommitTopic.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[CommitTopic(name=name, partitions=[partition]) for name in "tu"],
    )
    response = await committed_offsets.handle_offset_commit(broker, context(9), request)
    return {t.name: t.partitions[0].error_code for t in response.topics}


async def fetched(broker: Broker, *names: str) -> Any:
    """Return the answer for the named topics of group "g", for all if none is named."""
    topics = [FetchGroup.OffsetFetchRequestTopics(name=n, partition_indexes=[0]) for n in names]
    request = OffsetFetchRequest(groups=[FetchGroup(group_id="g", topics=topics or None)])
    return (await committed_offsets.handle_offset_fetch(broker, context(9), request)).groups[0]


async def test_offsets_are_committed_only_for_topics_that_the_client_may_read() -> None:
    broker = await guarded((Operation.READ, "g"), (Operation.READ, "t"))
    assert await commit(broker) == {"t": ErrorCode.NONE, "u": TOPIC_DENIED}
    broker.authorizer = Rights((Operation.READ, "t"))
    assert await commit(broker) == {"t": GROUP_DENIED, "u": GROUP_DENIED}
    broker.groups.close()


async def test_offsets_of_hidden_topics_are_refused_by_name_and_left_out_of_all() -> None:
    broker = await guarded((Operation.DESCRIBE, "g"), (Operation.DESCRIBE, "t"))
    named = await fetched(broker, "t", "u")
    by_topic = {t.name: t.partitions[0] for t in named.topics}
    assert (by_topic["t"].error_code, by_topic["t"].committed_offset) == (ErrorCode.NONE, 1)
    assert (by_topic["u"].error_code, by_topic["u"].committed_offset) == (TOPIC_DENIED, -1)
    assert [t.name for t in (await fetched(broker)).topics] == ["t"]
    broker.authorizer = Rights((Operation.DESCRIBE, "t"))
    assert (await fetched(broker, "t")).error_code == GROUP_DENIED
    broker.groups.close()


async def test_offsets_are_deleted_only_for_topics_that_the_client_may_read() -> None:
    broker = await guarded((Operation.DELETE, "g"), (Operation.READ, "t"))
    partition = DeleteTopic.OffsetDeleteRequestPartition(partition_index=0)
    request = OffsetDeleteRequest(
        group_id="g", topics=[DeleteTopic(name=name, partitions=[partition]) for name in "tu"]
    )
    response = await committed_offsets.handle_offset_delete(broker, context(0), request)
    codes = {t.name: t.partitions[0].error_code for t in response.topics}
    assert codes == {"t": ErrorCode.NONE, "u": TOPIC_DENIED}
    broker.groups.close()


async def test_groups_that_may_not_be_described_are_refused_by_name_and_not_listed() -> None:
    broker = await guarded()
    asked = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    (group,) = (await groups.handle_describe_groups(broker, context(5), asked)).groups
    assert group.error_code == GROUP_DENIED
    listing = ListGroupsRequest()
    assert (await groups.handle_list_groups(broker, context(5), listing)).groups == []
    broker.authorizer = Rights((Operation.DESCRIBE, "g"), (Operation.READ, "g"))
    (group,) = (await groups.handle_describe_groups(broker, context(5), asked)).groups
    assert group.authorized_operations == 1 << Operation.DESCRIBE | 1 << Operation.READ
    (listed,) = (await groups.handle_list_groups(broker, context(5), listing)).groups
    assert listed.group_id == "g"
    broker.groups.close()


async def test_members_and_deletions_need_a_right_on_the_group() -> None:
    broker = await guarded()
    joining = JoinGroupRequest(group_id="g", protocol_type="consumer")
    joined = await groups.handle_join_group(broker, context(9), joining)
    assert joined.error_code == GROUP_DENIED
    deletion = DeleteGroupsRequest(groups_names=["g"])
    (deleted,) = (await groups.handle_delete_groups(broker, context(2), deletion)).results
    assert deleted.error_code == GROUP_DENIED
    broker.groups.close()


async def test_a_hidden_group_gets_no_coordinator_and_no_topic() -> None:
    broker = await guarded((Operation.DESCRIBE, "g"))
    asked = FindCoordinatorRequest(coordinator_keys=["hidden", "g"])
    coordinators = (await groups.handle_find_coordinator(broker, context(4), asked)).coordinators
    assert [c.error_code for c in coordinators] == [GROUP_DENIED, ErrorCode.NONE]
    assert (coordinators[0].node_id, coordinators[0].host, coordinators[0].port) == (-1, "", -1)
    asked = FindCoordinatorRequest(key_type=1, coordinator_keys=["hidden"])
    await groups.handle_find_coordinator(broker, context(4), asked)
    assert broker.created == []
    broker.groups.close()
