"""DeleteRecords: move the start of partitions forward (KIP-107)."""

from collections.abc import Mapping

from spindle.client.admin.refusals import optional_error
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

LowWatermark = int


def delete_records(
    client: WireClient, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LowWatermark | ApiError]:
    """Delete the records before an offset of each partition; -1 means all records.

    Return for each partition the new log start offset, or the refusal.

    Raises:
        ClientError: a leader could not be asked.
    """
    outcome: dict[TopicPartition, LowWatermark | ApiError] = {}
    for partition, offset in before.items():
        try:
            outcome[partition] = client.retrying(
                lambda p=partition, o=offset: _delete(client, p, o)  # type: ignore[misc]
            )
        except ApiError as error:
            outcome[partition] = error
    return outcome


def _delete(client: WireClient, partition: TopicPartition, offset: int) -> LowWatermark:
    view = client.current_view((partition.topic,))
    leader = view.leader_of(partition)
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    request = DeleteRecordsRequest(
        topics=[
            topic(
                name=partition.topic,
                partitions=[
                    topic.DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
                ],
            )
        ],
        timeout_ms=client.settings.request_timeout_ms,
    )
    answer = client.ask(request, DeleteRecordsResponse, broker=leader)
    result = answer.topics[0].partitions[0]
    error = optional_error(result.error_code)
    if error is not None:
        raise error
    return result.low_watermark
