"""Feature levels, configurations, quotas, SCRAM credentials and ACLs through the controller."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import pytest
from controller_harness import Harness, uuid

from spindle.client.admin.acls import AclQuery
from spindle.common.errors import ErrorCode
from spindle.metadata.features import SUPPORTED_FEATURES
from spindle.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from spindle.protocol.messages.alter_configs import AlterConfigsRequest
from spindle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from spindle.protocol.messages.broker_registration import BrokerRegistrationRequest
from spindle.protocol.messages.controller_registration import ControllerRegistrationRequest
from spindle.protocol.messages.create_acls import CreateAclsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.delete_acls import DeleteAclsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    UnregisterControllerRecord,
)
from spindle.protocol.messages.unregister_broker import UnregisterBrokerRequest
from spindle.protocol.messages.unregister_controller import UnregisterControllerRequest
from spindle.protocol.messages.update_features import UpdateFeaturesRequest

UPDATE = UpdateFeaturesRequest.FeatureUpdateKey
PREFIX = "The update failed for all features since the following feature had an error: "


async def started(metadata_version: int = 30, *, has_authorizer: bool = False) -> Harness:
    node = Harness(metadata_version=metadata_version, has_authorizer=has_authorizer)
    node.quorum.become_leader(1, 1)
    await node.broker(1, [uuid(1), uuid(2)])
    return node


def features(*updates: tuple[str, int, int], dry_run: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            UPDATE(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=dry_run,
    )


async def test_levels_that_are_raised_are_written_even_if_they_are_so_already() -> None:
    node = await started(metadata_version=25)
    done = len(node.quorum.batches)
    for update in (("share.version", 1, 1), ("group.version", 1, 1)):
        assert (await node.request(features(update))).error_code == 0
    elr = "eligible.leader.replicas.version"
    assert (await node.request(features((elr, 1, 1)))).error_code == 0
    assert node.records(done) == [
        [FeatureLevelRecord(name="share.version", feature_level=1)],
        [FeatureLevelRecord(name="group.version", feature_level=1)],
        [
            ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
            FeatureLevelRecord(name=elr, feature_level=1),
        ],
    ]


async def test_everything_to_4_3_raises_kraft_version_in_the_quorum_first() -> None:
    node = await started(metadata_version=29)
    updates = [("metadata.version", 30, 1), ("kraft.version", 1, 1)]
    assert (await node.request(features(*updates, dry_run=True))).error_code == 0
    assert node.quorum.kraft_version == 0
    done = len(node.quorum.batches)
    assert (await node.request(features(*updates))).error_code == 0
    assert node.quorum.kraft_version == 1
    control, levels = node.quorum.batches[done:]
    assert control.records == []
    assert levels.records == [FeatureLevelRecord(name="metadata.version", feature_level=30)]
    await node.heartbeat(1, node.publisher.image.cluster.brokers[1].epoch)
    assert node.publisher.image.cluster.brokers[1].cordoned_directories == ()


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (
            ("nosuch", 1, 1),
            "Invalid update version 1 for feature nosuch. Local controller 1 does not support "
            "this feature.",
        ),
        (
            ("metadata.version", 99, 1),
            "Invalid update version 99 for feature metadata.version. Local controller 1 only "
            "supports versions 7-33",
        ),
        (
            ("metadata.version", 29, 2),
            "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the "
            "requested downgrade because it might delete metadata information.",
        ),
        (
            ("metadata.version", 29, 3),
            "Unsupported metadata.version downgrade from 30 to 29. Unsafe metadata downgrade is "
            "not supported in this version.",
        ),
    ],
)
async def test_levels_that_are_refused(update: tuple[str, int, int], text: str) -> None:
    node = await started()
    done = len(node.quorum.batches)
    answer = await node.request(features(update))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message == PREFIX + text
    assert node.records(done) == []


async def test_a_broker_that_supports_less_holds_a_level_back() -> None:
    node = Harness()
    node.quorum.become_leader(1, 1)
    await node.request(features(("share.version", 0, 2), ("streams.version", 0, 2)))
    less = [
        BrokerRegistrationRequest.Feature(
            name=name,
            min_supported_version=levels.minimum,
            max_supported_version=0 if name == "streams.version" else levels.maximum,
        )
        for name, levels in SUPPORTED_FEATURES.items()
        if name != "share.version"
    ]
    await node.broker(4, [uuid(4)], features=less)
    for name in ("share.version", "streams.version"):
        refused = await node.request(features((name, 1, 1)))
        assert refused.error_message == (
            f"{PREFIX}Invalid update version 1 for feature {name}. "
            "Broker 4 does not support this feature."
        )
    # Placement and elections require no feature level of a broker, so this broker takes part.
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    (created,) = (await node.request(CreateTopicsRequest(topics=[topic]))).topics
    assert created.error_code == ErrorCode.NONE
    await node.request(UnregisterBrokerRequest(broker_id=4))
    raised = await node.request(features(("share.version", 1, 1)))
    assert raised.error_code == ErrorCode.NONE
    refused = await node.register(4, 9, [uuid(4)], features=less)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_nodes_of_a_later_release_register_with_their_wider_ranges() -> None:
    node = Harness()
    node.quorum.become_leader(1, 1)
    feature = BrokerRegistrationRequest.Feature

    def later(lowest: int) -> list[BrokerRegistrationRequest.Feature]:
        return [
            feature(
                name="metadata.version", min_supported_version=lowest, max_supported_version=60
            ),
            *(
                feature(name=name, max_supported_version=levels.maximum + 3)
                for name, levels in SUPPORTED_FEATURES.items()
                if name != "metadata.version"
            ),
            feature(name="new.version", max_supported_version=2),
        ]

    await node.broker(4, [uuid(4)], features=later(lowest=20))
    assert node.publisher.image.cluster.brokers[4].features["new.version"].maximum == 2
    wide = {**node.publisher.image.features.levels, "metadata.version": 60, "new.version": 2}
    controller = await node.request(controller_registration(5, wide))
    assert controller.error_code == ErrorCode.NONE
    for name, level in (("metadata.version", 34), ("share.version", 3), ("new.version", 1)):
        refused = await node.request(features((name, level, 1)))
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "Local controller 1 " in refused.error_message
    refused = await node.register(6, 9, [uuid(6)], features=later(lowest=34))
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    request = controller_registration(7, wide)
    request.features[0].min_supported_version = 34
    refused = await node.request(request)
    assert refused.error_message == (
        "Unable to register because controller 7 does not support finalized version 30 of "
        "metadata.version. It wants a version between 34 and 60, inclusive."
    )
    assert 6 not in node.publisher.image.cluster.brokers
    assert 7 not in node.publisher.image.cluster.controllers


async def test_a_level_that_needs_another_feature_says_which() -> None:
    node = Harness(metadata_version=20)
    node.quorum.become_leader(1, 1)
    refused = await node.request(features(("eligible.leader.replicas.version", 1, 1)))
    assert refused.error_message == (
        f"{PREFIX}Invalid update version 1 for feature eligible.leader.replicas.version. "
        "eligible.leader.replicas.version could not be set to 1 because it depends on "
        "metadata.version level 23"
    )


async def test_a_voter_that_never_registered_may_not_support_a_level() -> None:
    node = Harness(static_voter_ids=(1, 2))
    node.quorum.become_leader(1, 1)
    update = features(("share.version", 0, 2))
    refused = await node.request(update)
    assert refused.error_message == (
        f"{PREFIX}Invalid update version 0 for feature share.version. controller 2 has not "
        "registered, and may not support this feature"
    )


async def test_kraft_version_cannot_go_down() -> None:
    node = await started()
    node.quorum.kraft_version = 1
    answer = await node.request(features(("kraft.version", 0, 2)))
    assert answer.error_message == PREFIX + (
        "Invalid update version 0 for feature kraft.version. Can't downgrade the version of "
        "this feature."
    )


async def test_other_features_go_down_freely_and_vanish_at_level_0() -> None:
    node = await started()
    done = len(node.quorum.batches)
    for update in (("group.version", 0, 2), ("transaction.version", 1, 2)):
        assert (await node.request(features(update))).error_code == 0
    assert node.records(done) == [
        [FeatureLevelRecord(name="group.version", feature_level=0)],
        [FeatureLevelRecord(name="transaction.version", feature_level=1)],
    ]
    levels = node.publisher.image.features.levels
    assert "group.version" not in levels
    assert levels["transaction.version"] == 1


async def test_one_bad_level_fails_all_and_old_versions_get_an_error_for_each() -> None:
    node = await started()
    done = len(node.quorum.batches)
    both = features(("group.version", 0, 2), ("nosuch", 1, 1))
    assert (await node.request(both)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert node.records(done) == []
    fine = await node.request(features(("group.version", 0, 2)), version=1)
    assert [result.feature for result in fine.results] == ["group.version"]


async def test_lists_are_appended_to_and_subtracted_from() -> None:
    node = await started()
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await node.request(CreateTopicsRequest(topics=[topic]))
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource

    async def alter(key: str, operation: int, value: str | None) -> int:
        config = resource.AlterableConfig(name=key, config_operation=operation, value=value)
        request = IncrementalAlterConfigsRequest(
            resources=[resource(resource_type=2, resource_name="t", configs=[config])]
        )
        code: int = (await node.request(request)).responses[0].error_code
        return code

    def policy() -> str | None:
        return node.publisher.image.configs.topic("t").get("cleanup.policy")

    assert await alter("cleanup.policy", 2, "compact") == 0
    assert policy() == "delete,compact"
    assert await alter("cleanup.policy", 2, "compact") == 0
    assert policy() == "delete,compact"
    assert await alter("cleanup.policy", 3, "delete") == 0
    assert policy() == "compact"
    assert await alter("cleanup.policy", 2, "a" * 32_759) == 0
    assert len(policy() or "") == 32_767
    assert await alter("cleanup.policy", 2, "b") == ErrorCode.INVALID_CONFIG
    assert await alter("retention.ms", 2, "5") == ErrorCode.INVALID_CONFIG
    assert await alter("retention.ms", 0, None) == ErrorCode.INVALID_REQUEST
    assert await alter("retention.ms", 0, "bad") == ErrorCode.INVALID_CONFIG
    assert await alter("retention.ms", 7, "1") == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("kind", "name", "is_written"), [(2, "t", False), (4, "1", True)])
async def test_an_unchanged_value_is_written_for_brokers_only(
    kind: int, name: str, is_written: bool
) -> None:
    node = await started()
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await node.request(CreateTopicsRequest(topics=[topic]))
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name="max.message.bytes", config_operation=0, value="9000")
    deletion = resource.AlterableConfig(name="retention.ms", config_operation=1, value=None)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=[change, deletion])]
    )
    assert (await node.request(request)).responses[0].error_code == 0
    done = len(node.quorum.batches)
    assert (await node.request(request)).responses[0].error_code == 0
    records = [record for batch in node.quorum.batches[done:] for record in batch]
    assert bool(records) == is_written


async def test_the_older_api_replaces_all_values_and_writes_unchanged_ones_of_brokers() -> None:
    node = await started()
    resource = AlterConfigsRequest.AlterConfigsResource

    async def alter(**values: str) -> None:
        configs = [resource.AlterableConfig(name=k, value=v) for k, v in values.items()]
        request = AlterConfigsRequest(
            resources=[resource(resource_type=4, resource_name="1", configs=configs)]
        )
        assert (await node.request(request)).responses[0].error_code == 0

    await alter(a="1", b="2")
    done = len(node.quorum.batches)
    await alter(a="1", c="3")
    assert node.records(done) == [
        [
            ConfigRecord(resource_type=4, resource_name="1", name="a", value="1"),
            ConfigRecord(resource_type=4, resource_name="1", name="c", value="3"),
            ConfigRecord(resource_type=4, resource_name="1", name="b", value=None),
        ]
    ]


async def test_a_client_may_only_uncordon_at_the_controller_itself() -> None:
    node = Harness(controller_listener_names=("CONTROLLER",))
    node.quorum.become_leader(1, 1)
    await node.broker(1, [uuid(1), uuid(2)])
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="cordoned.log.dirs", value="/d1")
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=4, resource_name="1", configs=[config])]
    )
    (answer,) = (await node.request(request)).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "must be a subset of the current configuration value" in answer.error_message
    handled: Any = await node.driver.handle(request)
    assert handled.responses[0].error_code == 0
    assert (await node.request(request)).responses[0].error_code == 0


@pytest.mark.parametrize("operation", [0, 1])
async def test_cordons_are_neither_set_nor_removed_before_the_metadata_can_hold_them(
    operation: int,
) -> None:
    node = await started(metadata_version=29)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(
        name="cordoned.log.dirs",
        config_operation=operation,
        value=None if operation else "/d1",
    )
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=4, resource_name="1", configs=[config])]
    )
    (answer,) = (await node.request(request)).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "requires metadata.version >= 4.3-IV0" in answer.error_message


ENTRY = AlterClientQuotasRequest.EntryData


def quota(entity: dict[str, str | None], **values: float | None) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            ENTRY(
                entity=[ENTRY.EntityData(entity_type=k, entity_name=v) for k, v in entity.items()],
                ops=[
                    ENTRY.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in values.items()
                ],
            )
        ]
    )


async def test_quotas_are_set_once_and_removed_once() -> None:
    node = await started()
    done = len(node.quorum.batches)
    for value in (100000.0, 100000.0, None, None):
        request = quota({"client-id": "c1"}, producer_byte_rate=value)
        assert (await node.request(request)).entries[0].error_code == 0
    entity = [ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="c1")]
    key = "producer_byte_rate"
    assert node.records(done) == [
        [ClientQuotaRecord(entity=entity, key=key, value=100000.0, remove=False)],
        [ClientQuotaRecord(entity=entity, key=key, value=0.0, remove=True)],
    ]
    assert node.publisher.image.client_quotas.by_entity == {}


@pytest.mark.parametrize("value", [1.0, -1.0])
async def test_an_entity_is_answered_in_its_one_order(value: float) -> None:
    node = await started()
    request = quota({"user": "u", "client-id": None}, producer_byte_rate=value)
    answer = (await node.request(request)).entries[0]
    assert [(part.entity_type, part.entity_name) for part in answer.entity] == [
        ("client-id", None),
        ("user", "u"),
    ]


@pytest.mark.parametrize(
    "request_",
    [
        quota({}, producer_byte_rate=1.0),
        quota({"planet": "x"}, producer_byte_rate=1.0),
        quota({"user": ""}, producer_byte_rate=1.0),
        quota({"ip": "::1", "user": "u"}, connection_creation_rate=1.0),
        quota({"user": "u"}, nosuch=1.0),
        quota({"user": "u"}, producer_byte_rate=0.0),
        quota({"user": "u"}, producer_byte_rate=1.5),
        quota({"user": "u"}, request_percentage=float("nan")),
    ],
)
async def test_quotas_that_are_refused(request_: AlterClientQuotasRequest) -> None:
    node = await started()
    (entry,) = (await node.request(request_)).entries
    assert entry.error_code == ErrorCode.INVALID_REQUEST
    assert entry.error_message


async def test_scram_credentials_are_derived_from_the_salted_password() -> None:
    node = await started()
    scram = AlterUserScramCredentialsRequest
    upsert = scram.ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32
    )
    few = scram.ScramCredentialUpsertion(name="bob", mechanism=1, iterations=4095)
    gone = scram.ScramCredentialDeletion(name="carol", mechanism=2)
    answer = await node.request(scram(upsertions=[upsert, few], deletions=[gone]))
    assert {result.user: result.error_code for result in answer.results} == {
        "alice": 0,
        "bob": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "carol": ErrorCode.RESOURCE_NOT_FOUND,
    }
    ((user, credential),) = node.publisher.image.security.scram.items()
    assert user == ("alice", 1)
    client_key = hmac.digest(b"p" * 32, b"Client Key", "sha256")
    assert credential.stored_key == hashlib.sha256(client_key).digest()
    delete = scram(deletions=[scram.ScramCredentialDeletion(name="alice", mechanism=1)])
    assert (await node.request(delete)).results[0].error_code == 0
    assert node.publisher.image.security.scram == {}


async def test_acls_need_an_authorizer_then_are_stored_once_and_deleted_by_filter() -> None:
    creation = CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="t",
        principal="User:u",
        host="*",
        operation=3,
        permission_type=3,
    )
    create = CreateAclsRequest(creations=[creation])
    plain = await started()
    answer = await plain.request(create)
    assert answer.results[0].error_code == ErrorCode.SECURITY_DISABLED
    node = await started(has_authorizer=True)
    for _ in range(2):
        assert (await node.request(create)).results[0].error_code == 0
    assert len(node.publisher.image.security.acls) == 1
    bad = CreateAclsRequest(creations=[CreateAclsRequest.AclCreation(resource_type=2)])
    assert (await node.request(bad)).results[0].error_code == ErrorCode.INVALID_REQUEST

    def deletion(query: AclQuery) -> DeleteAclsRequest:
        wanted = DeleteAclsRequest.DeleteAclsFilter(**query.filter_fields())
        return DeleteAclsRequest(filters=[wanted])

    other = await node.request(deletion(AclQuery(principal="User:v")))
    assert other.filter_results[0].matching_acls == []
    gone = await node.request(deletion(AclQuery()))
    assert [acl.resource_name for acl in gone.filter_results[0].matching_acls] == ["t"]
    assert node.publisher.image.security.acls == {}


def controller_registration(
    controller_id: int, levels: Mapping[str, int]
) -> ControllerRegistrationRequest:
    feature = ControllerRegistrationRequest.Feature
    return ControllerRegistrationRequest(
        controller_id=controller_id,
        incarnation_id=uuid(controller_id),
        features=[
            feature(name=name, min_supported_version=0, max_supported_version=level)
            for name, level in levels.items()
        ],
    )


async def test_a_controller_that_is_gone_bars_levels_until_it_is_unregistered() -> None:
    node = await started(metadata_version=33)
    levels = {**node.publisher.image.features.levels, "metadata.version": 33}
    await node.request(features(("share.version", 1, 2)))
    older = {**levels, "share.version": 1}
    registered = await node.request(controller_registration(3, older))
    assert registered.error_code == ErrorCode.NONE
    refused = await node.request(features(("share.version", 2, 1)))
    assert "Controller 3 only supports versions 0-1" in refused.error_message
    done = len(node.quorum.batches)
    response = await node.request(UnregisterControllerRequest(controller_id=3))
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert node.records(done) == [[UnregisterControllerRecord(controller_id=3)]]
    raised = await node.request(features(("share.version", 2, 1)))
    assert raised.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("level", "controller_id", "code", "text"),
    [
        (33, 9, "CONTROLLER_ID_NOT_REGISTERED", "Controller ID 9 is not currently registered."),
        (33, 1, "INVALID_REQUEST", "Controller cannot unregister itself while it is active."),
        (
            32,
            9,
            "UNSUPPORTED_VERSION",
            "The current MetadataVersion is too old to support controller unregistration.",
        ),
    ],
)
async def test_a_controller_that_is_not_unregistered(
    level: int, controller_id: int, code: str, text: str
) -> None:
    node = await started(metadata_version=level)
    response = await node.request(UnregisterControllerRequest(controller_id=controller_id))
    assert (ErrorCode(response.error_code).name, response.error_message) == (code, text)
