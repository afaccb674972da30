"""Produce and Fetch of broker 1, request by request, over the replicas of a `BrokerScenario`.

`ask_produce` and `ask_fetch` send a request and return a token; `waits` tells whether it is still
parked, `produced` and `fetched` give the one partition of its answer. Time, disks and metadata are
moved as in `BrokerScenario`.
"""

from collections.abc import Awaitable, Sequence
from itertools import count
from random import Random
from typing import Any, Final, Unpack

from broker_scenario import ME, NOW_MS, BrokerScenario, ProducerFields, batch_of
from cluster_image import LISTENER
from metadata_history import uuid

from spindle.authorization.authorizer import NoAuthorizer
from spindle.common.errors import ErrorCode
from spindle.common.uuids import ZERO_UUID
from spindle.config.node_config import NodeConfig
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.metadata_records import ClientQuotaRecord
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.records.batch import batches
from spindle.protocol.records.record import decode_records
from spindle.protocol.sentinels import ACKS_ALL
from spindle.replication.fetch_session import FetchSessionCache
from spindle.serving.context import RequestContext
from spindle.serving.encoded_topics import EncodedTopics
from spindle.serving.fetch.fetch_memory import FetchMemory
from spindle.serving.handlers.fetch import fetch
from spindle.serving.handlers.produce import produce
from spindle.serving.produce_order import ProduceOrder
from spindle.serving.producer_ids import ProducerIds
from spindle.serving.quotas.enforcement import ClientQuotas
from spindle.serving.quotas.replication import ReplicationQuotas
from spindle.serving.services import BrokerServices
from spindle.serving.telemetry.telemetry import Telemetry
from spindle.serving.traffic import Traffic
from spindle.serving.unsupported_feature_log import RefusalLog

FETCH_VERSION: Final = 17
PRODUCE_VERSION: Final = 13
LONG_MS: Final = 60_000
_UNUSED: Final[Any] = None

Produced = ProduceResponse.TopicProduceResponse.PartitionProduceResponse
Fetched = FetchResponse.FetchableTopicResponse.PartitionData


class ServingScenario(BrokerScenario):
    """Broker 1 and its clients."""

    def __init__(self, brokers: Sequence[int] = (1, 2, 3), *, directories: int = 1) -> None:
        super().__init__(brokers, directories=directories)
        config = NodeConfig.from_properties(
            {
                "process.roles": "broker",
                "node.id": str(ME),
                "listeners": f"{LISTENER}://host1:9092",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "9@host9:9093",
                "log.dirs": "/disk0",
            }
        )
        ids = count(1000)
        replication = ReplicationQuotas(config, self.steady_ms)
        self.services = BrokerServices(
            node_id=ME,
            cluster_id="cluster",
            config=config,
            loop=self.loop,
            now_ms=lambda: NOW_MS,
            device_health=lambda _: {},
            steady_ms=self.steady_ms,
            random=Random(1),
            metadata=self.metadata,
            replicas=self.replicas,
            capacities=_UNUSED,
            alter_disks=_UNUSED,
            move_replica=_UNUSED,
            begin_rebuild=_UNUSED,
            cancel_rebuild=_UNUSED,
            controller=_UNUSED,
            fetch_sessions=FetchSessionCache(10, lambda: next(ids)),
            producer_ids=ProducerIds(ME, _UNUSED, self.loop),
            encoded_topics=EncodedTopics(),
            producer_turns=ProduceOrder(),
            groups=_UNUSED,
            transactions=_UNUSED,
            verification=_UNUSED,
            share=_UNUSED,
            share_groups=_UNUSED,
            share_coordinator=_UNUSED,
            latest_offsets=_UNUSED,
            ensure_internal_topic=_UNUSED,
            fetch_memory=FetchMemory(50 * 1024 * 1024),
            replica_memory=FetchMemory(50 * 1024 * 1024),
            leader_throttle=replication.leader,
            move_throttle=replication.directories,
            is_rack_aware=False,
            quotas=ClientQuotas(11, 1000, self.steady_ms),
            authorizer=NoAuthorizer(),
            traffic=Traffic(),
            refusals=RefusalLog(self.steady_ms),
            check_listeners=_UNUSED,
            telemetry=Telemetry(
                lambda: self.image.configs, self.steady_ms, lambda: uuid(next(ids)), 1_000, 20
            ),
        )
        self._answers: dict[str, Any] = {}
        self._tokens = 0

    # ------------------------------------------------------------ requests and answers

    def _send(self, handler: Any, version: int, request: Any, client_id: str = "app") -> str:
        """Hand the request to its handler; return the token of its answer."""
        self._tokens += 1
        token = f"request{self._tokens}"
        context = RequestContext(
            request.API_KEY, version, self._tokens, client_id, "127.0.0.1", LISTENER, "User:ann"
        )

        async def serve() -> None:
            try:
                answer = handler(self.services, context, request)
                self._answers[token] = await answer if isinstance(answer, Awaitable) else answer
            except Exception as error:  # noqa: BLE001 - the answer of the story
                self._answers[token] = error

        self.loop.create_task(serve())
        self.settle()
        return token

    def waits(self, token: str) -> bool:
        """Return True while the request has no answer."""
        return token not in self._answers

    def answer(self, token: str) -> Any:
        """Return the answer, which must have come; an exception if the handler raised one."""
        return self._answers[token]

    # ------------------------------------------------------------ produce

    def ask_produce(
        self,
        *values: str,
        topic: str = "t",
        index: int = 0,
        acks: int = ACKS_ALL,
        timeout_ms: int = LONG_MS,
        topic_id: bytes | None = None,
        version: int = PRODUCE_VERSION,
        client_id: str = "app",
        records: bytes | None = None,
        transactional_id: str | None = None,
        **batch: Unpack[ProducerFields],
    ) -> str:
        """Produce one batch to one partition; the id is that of the newest topic of the name."""
        if topic_id is None:
            known = self.image.topics.by_name.get(topic)
            topic_id = known.topic_id if known is not None else ZERO_UUID
        is_by_id = version >= PRODUCE_VERSION
        data = ProduceRequest.TopicProduceData.PartitionProduceData(
            index=index, records=batch_of(*values, **batch) if records is None else records
        )
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name="" if is_by_id else topic,
                    topic_id=topic_id if is_by_id else ZERO_UUID,
                    partition_data=[data],
                )
            ],
        )
        return self._send(produce, version, request, client_id)

    def batch(self, *values: str, **options: Unpack[ProducerFields]) -> bytes:
        """Return a batch; see `batch_of`."""
        return batch_of(*values, **options)

    def produced(self, token: str) -> Produced:
        """Return the one partition of the answer."""
        (topic,) = self.answer(token).responses
        (partition,) = topic.partition_responses
        produced: Produced = partition
        return produced

    def produce(self, *values: str, **options: Any) -> Produced:
        """Produce with an answer at once."""
        return self.produced(self.ask_produce(*values, **options))

    # ------------------------------------------------------------ fetch

    def ask_fetch(
        self,
        *offsets: int | tuple[str, int],
        replica: int = -1,
        broker_epoch: int | None = None,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        max_wait_ms: int = LONG_MS,
        min_bytes: int = 1,
        max_bytes: int = 1_000_000,
        partition_max_bytes: int = 1_000_000,
        session: tuple[int, int] = (0, -1),
        read_committed: bool = False,
        forget: Sequence[str] = (),
        topic_id: bytes | None = None,
        version: int = FETCH_VERSION,
        client_id: str = "app",
    ) -> str:
        """Fetch partition 0 of topics, from an offset of "t" or of (topic, offset) each.

        Args:
            replica: the follower that fetches; -1 for a consumer.
            session: (session id, session epoch); (0, 0) begins a session.
            forget: topics that leave the session.
        """
        is_by_id = version >= 13
        epoch = broker_epoch
        if epoch is None:
            epoch = self.cluster.broker_epoch(replica) if replica >= 0 else -1
        topics = []
        for wanted in offsets:
            name, offset = ("t", wanted) if isinstance(wanted, int) else wanted
            topics.append(
                FetchRequest.FetchTopic(
                    topic="" if is_by_id else name,
                    topic_id=(topic_id or self._id_of(name)) if is_by_id else ZERO_UUID,
                    partitions=[
                        FetchRequest.FetchTopic.FetchPartition(
                            partition=0,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=offset,
                            last_fetched_epoch=last_fetched_epoch,
                            log_start_offset=0 if replica >= 0 else -1,
                            partition_max_bytes=partition_max_bytes,
                        )
                    ],
                )
            )
        request = FetchRequest(
            replica_id=replica,
            replica_state=FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            session_id=session[0],
            session_epoch=session[1],
            topics=topics,
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic_id=self._id_of(name), partitions=[0])
                for name in forget
            ],
        )
        return self._send(fetch, version, request, client_id)

    def _id_of(self, topic: str) -> bytes:
        known = self.image.topics.by_name.get(topic)
        return known.topic_id if known is not None else bytes(15) + b"?"

    def fetched(self, token: str) -> Fetched:
        """Return the one partition of the answer."""
        (topic,) = self.answer(token).responses
        (partition,) = topic.partitions
        fetched: Fetched = partition
        return fetched

    def fetch(self, *offsets: int | tuple[str, int], **options: Any) -> Fetched:
        """Fetch without waiting."""
        return self.fetched(self.ask_fetch(*offsets, max_wait_ms=0, **options))

    def values(self, token: str) -> list[str]:
        """Return the values of all records of the answer, in order."""
        return [
            value
            for topic in self.answer(token).responses
            for partition in topic.partitions
            for value in values_in(partition)
        ]

    def topics(self, token: str) -> list[str]:
        """Return the names of the topics that the answer of a session tells something of."""
        by_id = self.image.topics.by_id
        return [by_id[topic.topic_id].name for topic in self.answer(token).responses]

    # ------------------------------------------------------------ quotas

    def limit(self, key: str, value: float, client_id: str = "app") -> None:
        """Set a quota of a client id."""
        entity = ClientQuotaRecord.EntityData(entity_type="client-id", entity_name=client_id)
        self.cluster.write(ClientQuotaRecord(entity=[entity], key=key, value=value, remove=False))
        self.publish()
        self.services.quotas.update(self.image.client_quotas)


def values_in(partition: Fetched) -> list[str]:
    """Return the values of a partition's records; those of control records are left out."""
    data = partition.records or b""
    return [
        (record.value or b"").decode()
        for at, header in batches(data)
        if not header.is_control
        for record in decode_records(data, at, header)
    ]


def code_of(partition: Produced | Fetched) -> ErrorCode:
    return ErrorCode(partition.error_code)
