"""The snapshot of a cluster: everything that a user without a right may not change.

The administrator takes it before and after a run. It leaves out the things that the canary and the
coordinators change themselves: offsets of their topics, sizes, the canary's transactions.
"""

from collections.abc import Mapping
from typing import Any, Final

from spindle.client.admin.acls import AclQuery
from spindle.config.resources import ConfigResourceType
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.protocol.messages.describe_acls import DescribeAclsRequest
from spindle.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from spindle.protocol.messages.describe_cluster import DescribeClusterRequest
from spindle.protocol.messages.describe_configs import DescribeConfigsRequest
from spindle.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from spindle.protocol.messages.describe_disks import DescribeDisksRequest
from spindle.protocol.messages.describe_groups import DescribeGroupsRequest
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from spindle.protocol.messages.describe_quorum import DescribeQuorumRequest
from spindle.protocol.messages.describe_transactions import DescribeTransactionsRequest
from spindle.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from spindle.protocol.messages.list_config_resources import ListConfigResourcesRequest
from spindle.protocol.messages.list_groups import ListGroupsRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from spindle.protocol.messages.list_transactions import ListTransactionsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from verification.fuzz.secured.users import CANARY, STRANGER
from verification.fuzz.wire import RawConnection

_CHANGED_BY_OTHERS: Final = ("canary-", "__")
"""The canary writes its own topics and groups, and the coordinators write theirs."""
_NAMED: Final = 9
_MAX_SHOWN: Final = 400

StateSnapshot = Mapping[str, Any]


def differences(before: StateSnapshot, after: StateSnapshot) -> list[str]:
    """Return what has changed, one line for each subject."""
    return [
        f"{subject}: {_shown(before.get(subject))} became {_shown(after.get(subject))}"
        for subject in sorted({*before, *after})
        if before.get(subject) != after.get(subject)
    ]


def _shown(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


async def take_snapshot(admin: RawConnection) -> dict[str, Any]:
    """Return the present state by subject (`topic a`, `acls`, ...)."""
    snapshot: dict[str, Any] = {}
    for part in (_topics, _configs, _groups, _security, _disks, _cluster):
        snapshot |= await part(admin)
    return snapshot


async def _topics(admin: RawConnection) -> dict[str, Any]:
    metadata = await admin.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    snapshot: dict[str, Any] = {f"topic {topic.name}": topic for topic in metadata.topics}
    for topic in metadata.topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)
        if topic.name.startswith(_CHANGED_BY_OTHERS):
            continue
        for what, timestamp in (("first", -2), ("end", -1)):
            wanted = ListOffsetsRequest.ListOffsetsTopic
            parts = [
                wanted.ListOffsetsPartition(
                    partition_index=partition.partition_index, timestamp=timestamp
                )
                for partition in topic.partitions
            ]
            request = ListOffsetsRequest(
                replica_id=-1, topics=[wanted(name=topic.name, partitions=parts)]
            )
            answer = await admin.ask(request, _NAMED)
            snapshot[f"{what} offsets of topic {topic.name}"] = {
                part.partition_index: part.offset for part in answer.topics[0].partitions
            }
    return snapshot


async def _configs(admin: RawConnection) -> dict[str, Any]:
    listed = await admin.ask(ListConfigResourcesRequest())
    resource = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [
        resource(
            resource_type=row.resource_type,
            resource_name=row.resource_name,
            configuration_keys=None,
        )
        for row in listed.config_resources
    ]
    answer = await admin.ask(DescribeConfigsRequest(resources=wanted, include_synonyms=True))
    return {
        f"configuration of {ConfigResourceType(result.resource_type).name} {result.resource_name!r}"
        f", {row.name}": row
        for result in answer.results
        for row in result.configs
    }


async def _groups(admin: RawConnection) -> dict[str, Any]:
    listed = await admin.ask(ListGroupsRequest())
    snapshot: dict[str, Any] = {}
    for row in listed.groups:
        name = row.group_id
        described = await admin.ask(DescribeGroupsRequest(groups=[name]))
        snapshot[f"group {name}"] = (row, described.groups[0])
        if name.startswith(_CHANGED_BY_OTHERS):
            continue
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
        committed = await admin.ask(OffsetFetchRequest(groups=[group]), _NAMED)
        snapshot[f"offsets of group {name}"] = committed.groups[0]
    transactions = await admin.ask(ListTransactionsRequest())
    names = [
        row.transactional_id
        for row in transactions.transaction_states
        if row.transactional_id != CANARY
    ]
    response = await admin.ask(DescribeTransactionsRequest(transactional_ids=names))
    snapshot |= {
        f"transactional id {row.transactional_id}": row for row in response.transaction_states
    }
    return snapshot


async def _security(admin: RawConnection) -> dict[str, Any]:
    described = await admin.ask(DescribeAclsRequest(**AclQuery().filter_fields()))
    users = await admin.ask(DescribeUserScramCredentialsRequest(users=None))
    quotas = await admin.ask(DescribeClientQuotasRequest(components=[]))
    tokens = await admin.ask(DescribeDelegationTokenRequest(owners=None))
    return {
        "ACLs": sorted(
            (repr((row.resource_type, row.resource_name, row.pattern_type)), repr(acl))
            for row in described.resources
            for acl in row.acls
        ),
        **{f"SCRAM user {row.user}": row for row in users.results},
        "quotas": sorted(repr(row) for row in quotas.entries or ()),
        # Every user may create tokens for itself.
        **{
            f"delegation token {row.token_id}": (row.principal_name, row.expiry_timestamp)
            for row in tokens.tokens
            if row.principal_name != STRANGER
        },
    }


async def _disks(admin: RawConnection) -> dict[str, Any]:
    logs = await admin.ask(DescribeLogDirsRequest(topics=None))
    disks = await admin.ask(DescribeDisksRequest())
    snapshot: dict[str, Any] = {
        f"log directory {row.log_dir}": (
            row.error_code,
            row.is_cordoned,
            sorted(
                (topic.name, part.partition_index)
                for topic in row.topics
                for part in topic.partitions
            ),
        )
        for row in logs.results
    }
    snapshot |= {f"disk {disk.path}": (disk.failure, disk.cordons) for disk in disks.disks}
    snapshot["moves between disks"] = (disks.move_limit_bytes_per_second, disks.moves)
    return snapshot


async def _cluster(admin: RawConnection) -> dict[str, Any]:
    asked = DescribeQuorumRequest.TopicData
    part = asked.PartitionData(partition_index=0)
    topic = asked(topic_name="__cluster_metadata", partitions=[part])
    quorum = (await admin.ask(DescribeQuorumRequest(topics=[topic]))).topics[0].partitions[0]
    cluster = await admin.ask(DescribeClusterRequest())
    versions = await admin.ask(
        ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 4
    )
    moves = await admin.ask(ListPartitionReassignmentsRequest(topics=None))
    return {
        "voters": [(row.replica_id, row.replica_directory_id) for row in quorum.current_voters],
        "epoch of the quorum": quorum.leader_epoch,
        "brokers": cluster.brokers,
        "features": sorted(repr(row) for row in versions.finalized_features),
        "reassignments": moves.topics,
    }
