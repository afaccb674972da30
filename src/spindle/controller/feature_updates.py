"""UpdateFeatures: raising and lowering the cluster's feature levels (KIP-584, KIP-778, KIP-966)."""

from collections.abc import Mapping
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.controller.activation import default_min_insync_replicas
from spindle.controller.decision import (
    ControllerContext,
    ControllerSettings,
    Decision,
    OperationContext,
)
from spindle.controller.topic_settings import MIN_INSYNC_REPLICAS
from spindle.metadata.configs import BROKER_RESOURCE
from spindle.metadata.features import (
    CONTROLLER_REGISTRATION_LEVEL,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    SUPPORTED_FEATURES,
    VersionRange,
    downgrade_loses_metadata,
    unmet_dependency,
)
from spindle.metadata.image import MetadataImage
from spindle.protocol import versions
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from spindle.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3

_Update = UpdateFeaturesRequest.FeatureUpdateKey


def update_features(
    given: OperationContext, request: UpdateFeaturesRequest
) -> Decision[UpdateFeaturesResponse]:
    """Change all requested levels, or none.

    Raises:
        ApiError: INVALID_UPDATE_VERSION or INVALID_REQUEST, naming the feature that failed.
    """
    image = given.image
    current = {KRAFT_VERSION: given.kraft_version, **image.features.levels}
    planned = {**current, **{u.feature: u.max_version_level for u in request.feature_updates}}
    try:
        for update in request.feature_updates:
            kind = UPGRADE if given.api_version == 0 else update.upgrade_type
            _check_update(
                image, update, kind, current.get(update.feature, 0), planned, given.context
            )
        _check_lowered_dependencies(planned)
    except ApiError as error:
        text = (
            "The update failed for all features since the following feature had an error: "
            f"{error.message}"
        )
        raise ApiError(error.code, text) from None
    records = _records(image, request, given.context)
    results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(
            feature=u.feature, error_message=ErrorCode.NONE.name
        )
        for u in request.feature_updates
        if given.api_version < versions.UPDATE_FEATURES_NO_RESULTS
    ]
    response = UpdateFeaturesResponse(error_message=None, results=results)
    kraft_target = planned[KRAFT_VERSION]
    return Decision(
        response,
        [] if request.validate_only else records,
        is_atomic=True,
        kraft_version=kraft_target if kraft_target > given.kraft_version else None,
    )


def _check_update(
    image: MetadataImage,
    update: _Update,
    kind: int,
    current: int,
    planned: Mapping[str, int],
    context: ControllerContext,
) -> None:
    name, wanted = update.feature, update.max_version_level

    def refuse(reason: str) -> ApiError:
        return ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {wanted} for feature {name}. {reason}",
        )

    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise refuse("The controller does not support the given upgrade type.")
    if wanted < 0:
        raise refuse("A feature version cannot be less than 0.")
    if wanted == 0 and name not in SUPPORTED_FEATURES:
        raise refuse(f"Feature {name} not found.")
    reason = _unsupported(image, name, wanted, context.settings)
    if reason is not None:
        raise refuse(reason)
    if wanted < current:
        if name == KRAFT_VERSION:
            raise refuse("Can't downgrade the version of this feature.")
        if kind == UPGRADE:
            raise refuse(
                "Can't downgrade the version of this feature without setting the upgrade type to "
                "either safe or unsafe downgrade."
            )
        if name == METADATA_VERSION:
            _check_metadata_downgrade(current, wanted, kind)
    elif wanted > current and kind != UPGRADE:
        raise refuse("Can't downgrade to a newer version.")
    reason = unmet_dependency(name, wanted, planned)
    if reason is not None:
        raise refuse(reason)


def _unsupported(
    image: MetadataImage, name: str, level: int, settings: ControllerSettings
) -> str | None:
    """Return a text that names the nodes which may not support this level; None if all do."""
    node_id = settings.node_id
    nodes: list[tuple[str, Mapping[str, VersionRange]]] = [
        (f"Local controller {node_id}", SUPPORTED_FEATURES)
    ]
    nodes += [(f"Broker {b.broker_id}", b.features) for b in image.cluster.brokers.values()]
    nodes += [
        (f"Controller {c.controller_id}", c.features)
        for c in image.cluster.controllers.values()
        if c.controller_id != node_id
    ]
    for who, features in nodes:
        # Level 0 is what a node that does not know the feature works with.
        supported = features.get(name, VersionRange(0, 0))
        if level in supported or (level == 0 and supported.minimum <= 1):
            continue
        if supported.maximum == 0:
            return f"{who} does not support this feature."
        return f"{who} only supports versions {supported}"
    if image.metadata_version >= CONTROLLER_REGISTRATION_LEVEL:
        for voter_id in settings.static_voter_ids:
            if voter_id != node_id and voter_id not in image.cluster.controllers:
                return f"controller {voter_id} has not registered, and may not support this feature"
    return None


def _check_metadata_downgrade(current: int, wanted: int, kind: int) -> None:
    prefix = f"Unsupported metadata.version downgrade from {current} to {wanted}."
    if wanted < MINIMUM_METADATA_VERSION:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{prefix} The lowest level is {MINIMUM_METADATA_VERSION}.",
        )
    if not downgrade_loses_metadata(current, wanted):
        return
    if kind == UNSAFE_DOWNGRADE:
        text = "Unsafe metadata downgrade is not supported in this version."
    else:
        text = (
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
        )
    raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{prefix} {text}")


def _check_lowered_dependencies(planned: Mapping[str, int]) -> None:
    for name, level in planned.items():
        if name in SUPPORTED_FEATURES:
            reason = unmet_dependency(name, level, planned)
            if reason is not None:
                raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, reason)


def _records(
    image: MetadataImage, request: UpdateFeaturesRequest, context: ControllerContext
) -> list[Message]:
    records: list[Message] = []
    for update in request.feature_updates:
        if update.feature == ELR_VERSION and update.max_version_level > 0:
            records += _elr_records(image, context)
        if update.feature != KRAFT_VERSION:
            records.append(
                FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
            )
    return records


def _elr_records(image: MetadataImage, context: ControllerContext) -> list[Message]:
    """Set one min.insync.replicas for the cluster, and remove those of single brokers."""
    records: list[Message] = []
    if MIN_INSYNC_REPLICAS not in image.configs.default_broker():
        records.append(default_min_insync_replicas(context.settings.min_insync_replicas))
    for resource, values in image.configs.by_resource.items():
        if (
            resource.resource_type == BROKER_RESOURCE
            and resource.name
            and MIN_INSYNC_REPLICAS in values
        ):
            records.append(
                ConfigRecord(
                    resource_type=BROKER_RESOURCE,
                    resource_name=resource.name,
                    name=MIN_INSYNC_REPLICAS,
                    value=None,
                )
            )
    return records
