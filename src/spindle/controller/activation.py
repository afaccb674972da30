"""The records that a controller writes when it becomes active (KIP-868).

On an empty log these are the bootstrap records of the formatted disk, inside a metadata transaction
if metadata.version supports that. A transaction that the predecessor left open is aborted.
"""

from collections.abc import Sequence

from spindle.controller.decision import ControllerSettings, Decision
from spindle.controller.topic_settings import MIN_INSYNC_REPLICAS
from spindle.metadata.configs import BROKER_RESOURCE
from spindle.metadata.features import (
    ELR_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_TRANSACTION_LEVEL,
    METADATA_VERSION,
)
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)


def activation_records(
    image: MetadataImage,
    bootstrap: Sequence[Message],
    settings: ControllerSettings,
    *,
    is_in_transaction: bool,
) -> Decision[None]:
    """Return the first records of a newly active controller; often none.

    Args:
        bootstrap: the first records on a formatted disk, metadata.version first. Disks formatted by
            a release that wrote none give none; the newest metadata.version is taken then.
    """
    records: list[Message] = []
    if is_in_transaction:
        records.append(AbortTransactionRecord(reason="Controller failover"))
    if image.features.is_bootstrapped:
        return Decision(None, records, is_atomic=True)
    body = list(bootstrap)
    levels = {
        record.name: record.feature_level
        for record in bootstrap
        if isinstance(record, FeatureLevelRecord)
    }
    if METADATA_VERSION not in levels:
        levels[METADATA_VERSION] = LATEST_METADATA_VERSION
        newest = FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_METADATA_VERSION)
        body.insert(0, newest)
    if levels.get(ELR_VERSION, 0) >= 1:
        body.append(default_min_insync_replicas(settings.min_insync_replicas))
    if levels[METADATA_VERSION] >= METADATA_TRANSACTION_LEVEL:
        body = [
            BeginTransactionRecord(name="Bootstrap records"),
            *body,
            EndTransactionRecord(),
        ]
    return Decision(None, records + body, is_atomic=True)


def default_min_insync_replicas(value: int) -> ConfigRecord:
    """Return the record of the cluster-wide min.insync.replicas that the ELR needs (KIP-966)."""
    return ConfigRecord(
        resource_type=BROKER_RESOURCE,
        resource_name="",
        name=MIN_INSYNC_REPLICAS,
        value=str(value),
    )
