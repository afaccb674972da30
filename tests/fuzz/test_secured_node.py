"""A node with TLS, logins and ACLs under attack for seconds; `make fuzz SECURE=1` takes longer.

Other tests prove that the judgement can fail: on nodes that let a stranger in, they want a finding.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from spindle.authorization.operations import Operation, ResourceType
from spindle.protocol.message import Message
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from spindle.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from spindle.protocol.messages.create_partitions import CreatePartitionsRequest
from spindle.protocol.messages.delete_groups import DeleteGroupsRequest
from spindle.protocol.messages.delete_records import DeleteRecordsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from verification.fuzz.run import FuzzPlan
from verification.fuzz.secured.fixtures import Right, create_fixtures, grant
from verification.fuzz.secured.port import SecuredPort
from verification.fuzz.secured.run import run_secured
from verification.fuzz.secured.state_snapshot import differences, take_snapshot
from verification.fuzz.secured.target import SecuredNode
from verification.fuzz.secured.users import ADMIN, STRANGER
from verification.fuzz.wire import Finding, RawConnection

SECONDS = [4.0, pytest.param(60.0, marks=pytest.mark.full)]
SEED = int(os.environ.get("SPINDLE_FUZZ_SEED", "2026"))
StartSecured = Callable[..., SecuredNode]


def as_admin(node: SecuredNode, act: Callable[[RawConnection], Awaitable[Any]]) -> Any:
    """Run a function with a connection of the administrator."""

    async def story() -> Any:
        port = SecuredPort(node.host, node.port, node.client_context(), node.users)
        admin = await port.logged_in(ADMIN)
        try:
            return await act(admin)
        finally:
            admin.close()

    return asyncio.run(story())


def finding(node: SecuredNode, seconds: float = 20.0) -> str:
    """Run until something is found."""
    plan = FuzzPlan(node.host, node.port, SEED, seconds, most_latency_ms=20_000.0)
    outcome = asyncio.run(run_secured(plan, node))
    assert outcome.finding is not None
    return outcome.finding


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seconds", SECONDS)
async def test_nobody_without_a_right_sees_or_changes_anything(
    start_secured: StartSecured, seconds: float
) -> None:
    node = start_secured()
    plan = FuzzPlan(
        node.host, node.port, SEED, seconds, attackers=4, min_cases=120, min_canary_requests=60
    )
    outcome = await run_secured(plan, node)
    assert outcome.finding is None, f"seed {SEED}: {outcome.finding}"
    assert outcome.cases > 100
    assert outcome.answers > 100
    assert outcome.logins > 5
    assert len(outcome.latencies_ms) > 50


@pytest.mark.full
def test_a_node_without_an_authorizer_is_found(start_secured: StartSecured) -> None:
    node = start_secured(authorizer_class_name="")
    text = finding(node)
    assert "an answer shows" in text or "as the stranger gave" in text


@pytest.mark.full
@pytest.mark.parametrize(
    "right",
    [
        (ResourceType.TOPIC, "hidden-topic", Operation.DESCRIBE),
        (ResourceType.TOPIC, "fuzz-0", Operation.READ),
        (ResourceType.GROUP, "fuzz-group-a", Operation.READ),
        (ResourceType.CLUSTER, "kafka-cluster", Operation.ALTER_CONFIGS),
    ],
    ids=lambda right: f"{right[2].name} {right[1]}",
)
def test_a_right_of_the_stranger_is_found(start_secured: StartSecured, right: Right) -> None:
    node = start_secured()
    as_admin(node, lambda admin: grant(admin, STRANGER, [right]))
    text = finding(node)
    assert "an answer shows" in text or "as the stranger gave" in text


def changes() -> dict[str, Message]:
    """Return a change of each kind, by the beginning of its line in the differences."""
    config = IncrementalAlterConfigsRequest.AlterConfigsResource
    value = config.AlterableConfig(name="retention.bytes", config_operation=0, value="1000")
    quota = AlterClientQuotasRequest.EntryData
    op = quota.OpData(key="consumer_byte_rate", value=5.0)
    entity = quota.EntityData(entity_type="user", entity_name=STRANGER)
    scram = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    records = DeleteRecordsRequest.DeleteRecordsTopic
    part = records.DeleteRecordsPartition(partition_index=0, offset=1)
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name="fuzz-1", count=3, assignments=None)
    return {
        "topic fuzz-1": CreatePartitionsRequest(topics=[topic], timeout_ms=5_000),
        "first offsets of topic fuzz-0": DeleteRecordsRequest(
            topics=[records(name="fuzz-0", partitions=[part])], timeout_ms=5_000
        ),
        "configuration of TOPIC 'fuzz-2', retention.bytes": IncrementalAlterConfigsRequest(
            resources=[config(resource_type=2, resource_name="fuzz-2", configs=[value])]
        ),
        "offsets of group fuzz-group-a": DeleteGroupsRequest(groups_names=["fuzz-group-a"]),
        "SCRAM user other": AlterUserScramCredentialsRequest(
            upsertions=[
                scram(
                    name="other",
                    mechanism=1,
                    iterations=4096,
                    salt=b"salt",
                    salted_password=bytes(32),
                )
            ]
        ),
        "quotas": AlterClientQuotasRequest(entries=[quota(entity=[entity], ops=[op])]),
        "delegation token": CreateDelegationTokenRequest(max_lifetime_ms=-1),
    }


def test_every_change_is_a_difference_between_snapshots(start_secured: StartSecured) -> None:
    node = start_secured()

    async def story(admin: RawConnection) -> list[str]:
        await create_fixtures(admin)
        before = await take_snapshot(admin)
        assert differences(before, await take_snapshot(admin)) == []
        for request in changes().values():
            await admin.ask(request)
        await grant(admin, STRANGER, [(ResourceType.TOPIC, "fuzz-0", Operation.READ)])
        wanted = len(changes()) + 1
        for _ in range(200):
            difference = differences(before, await take_snapshot(admin))
            if len(difference) >= wanted:
                break
            await asyncio.sleep(0.05)
        return difference

    difference = as_admin(node, story)
    for beginning in (*changes(), "ACLs"):
        assert any(line.startswith(beginning) for line in difference), difference


def test_a_secret_in_the_log_is_found(start_secured: StartSecured) -> None:
    node = start_secured()
    node.check()
    password = node.users.passwords[ADMIN].text
    with node.output.open("a") as log:
        log.write(f"user admin has {password.encode().hex()}\n")
    with pytest.raises(Finding, match="contains the password of admin") as exception_info:
        node.check()
    assert password not in str(exception_info.value)
