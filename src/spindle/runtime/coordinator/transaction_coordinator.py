"""All shards of the transaction coordinator on this broker.

A shard exists for each partition of `__transaction_state` that this broker leads. Requests for
transactional ids of other partitions get NOT_COORDINATOR. While a partition is loaded, requests of
producers wait, up to `request.timeout.ms`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TRANSACTIONS_TOPIC, TopicPartition
from spindle.coordinator.config import TransactionsConfig
from spindle.coordinator.transactions.descriptions import (
    DescribedTransaction,
    TransactionFilter,
    describe_transaction,
    transaction_error,
    unknown_states,
)
from spindle.coordinator.transactions.end_txn import EndRequest
from spindle.coordinator.transactions.init_producer_id import check_initialization
from spindle.coordinator.transactions.shard import TRANSACTION_RECORDS, TransactionShard
from spindle.metadata.features import TRANSACTION_VERSION
from spindle.protocol.messages.end_txn import EndTxnResponse
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from spindle.replicas.metadata_view import MetadataView
from spindle.runtime import background
from spindle.runtime.coordinator.marker_sender import MarkerSender
from spindle.runtime.coordinator.shard_driver import ShardDriver, ShardState
from spindle.runtime.coordinator.shard_table import ShardTable
from spindle.runtime.coordinator.shard_writer import Clock, CoordinatorLog, ShardSettings
from spindle.runtime.metrics.durations import Durations
from spindle.runtime.peers.port import Peers
from spindle.serving.producer_ids import NoProducerId, ProducerIds

log = logging.getLogger(__name__)

T = TypeVar("T")


class TransactionCoordinator:
    """Implements `TransactionCoordinatorPort`. All calls must come from one event loop."""

    def __init__(
        self,
        node_id: int,
        config: TransactionsConfig,
        coordinator_log: CoordinatorLog,
        metadata: MetadataView,
        clock: Clock,
        settings: ShardSettings,
        producer_ids: ProducerIds,
        listener: str,
        peers: Peers,
    ) -> None:
        """Create a coordinator without shards; markers go to brokers on `listener`."""
        self.shards: ShardTable[TransactionShard] = ShardTable(
            node_id, TRANSACTIONS_TOPIC, metadata, lambda: settings.commit_timeout_ms / 1000
        )
        self.loads = Durations()
        """Loads of partitions that succeeded."""
        self._config = config
        self._log = coordinator_log
        self._metadata = metadata
        self._clock = clock
        self._settings = settings
        self._producer_ids = producer_ids
        self.markers = MarkerSender(metadata, listener, peers, self.shards.by_partition.get)
        self._is_allocating = False
        self._allocation: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ leadership

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load a partition of `__transaction_state` that this broker now leads.

        A shard of an earlier epoch is loaded again, because an append of that epoch may have failed
        although its record stays in the log.
        """
        shard = self.shards.by_partition.get(partition)
        if shard is not None and leader_epoch <= shard.leader_epoch:
            return
        self.shards.close(partition)
        core = TransactionShard(
            self._config,
            self._take_producer_id,
            self._transaction_version,
            lambda transaction, partitions: self.markers.add(
                partition, core, transaction, partitions
            ),
        )
        log.debug("Loading %s-%d at epoch %d", TRANSACTIONS_TOPIC, partition, leader_epoch)
        self.shards.by_partition[partition] = ShardDriver(
            TopicPartition(TRANSACTIONS_TOPIC, partition),
            leader_epoch,
            core,
            TRANSACTION_RECORDS,
            self._log,
            self._clock,
            self._settings,
            self._on_loaded,
        )

    def _on_loaded(self, shard: ShardDriver[TransactionShard]) -> None:
        if shard.state is not ShardState.ACTIVE:
            return
        self.loads.observe(shard.loading_s)
        log.log(
            logging.INFO if shard.loaded_records else logging.DEBUG,
            "Loaded %d transactional ids of %s (%d records)",
            len(shard.shard.ids),
            shard.partition,
            shard.loaded_records,
        )

    def on_resigned(self, partition: int) -> None:
        """Close the shard of a partition that this broker no longer leads."""
        self.shards.close(partition)

    async def close(self) -> None:
        """Close all shards, and send no markers any more."""
        for shard in self.shards:
            self.on_resigned(shard.partition.partition)
        await self.markers.close()

    # ------------------------------------------------------------ requests of producers

    async def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Pass InitProducerId to the shard of the transactional id."""
        check_initialization(request, self._config)
        name = request.transactional_id or ""

        async def ask() -> InitProducerIdResponse:
            shard = await self.shards.wait_for(name)
            core = shard.shard
            return await shard.submit(lambda _, out: core.init_producer_id(request, out))

        return await self._with_producer_id(ask)

    def add_partitions(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        client_version: int,
    ) -> Awaitable[Mapping[TopicPartition, ErrorCode]]:
        """Add partitions to a transaction; return NONE for each when the change is committed."""

        async def add() -> Mapping[TopicPartition, ErrorCode]:
            shard = await self._shard_of(transactional_id)
            core = shard.shard
            await shard.submit(
                lambda _, out: core.add_partitions(
                    transactional_id, producer, partitions, client_version, out
                )
            )
            return dict.fromkeys(partitions, ErrorCode.NONE)

        return asyncio.ensure_future(add())

    async def verify_partitions(
        self, transactional_id: str, producer: tuple[int, int], partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return NONE for each partition that belongs to the producer's transaction."""
        shard = await self._shard_of(transactional_id)
        shard.check_active()
        return shard.shard.verify_partitions(transactional_id, producer, partitions)

    async def end_transaction(self, transactional_id: str, request: EndRequest) -> EndTxnResponse:
        """Pass EndTxn to the shard of the transactional id."""

        async def ask() -> EndTxnResponse:
            shard = await self._shard_of(transactional_id)
            core = shard.shard
            return await shard.submit(
                lambda _, out: core.end_transaction(transactional_id, request, out)
            )

        return await self._with_producer_id(ask)

    async def _shard_of(self, transactional_id: str) -> ShardDriver[TransactionShard]:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        return await self.shards.wait_for(transactional_id)

    # ------------------------------------------------------------ questions

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Describe a transactional id. Never raises: it has its own error."""
        if not transactional_id:
            return transaction_error(transactional_id, ErrorCode.INVALID_REQUEST)
        try:
            shard = self.shards.of(transactional_id)
            shard.check_active()
        except ApiError as error:
            return transaction_error(transactional_id, error.code)
        return describe_transaction(shard.shard.ids, transactional_id)

    def list_transactions(self, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """List the transactional ids of all shards.

        Raises:
            ApiError: a shard is loading, or the pattern is not a regular expression.
        """
        if self.shards.is_loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        wanted = TransactionFilter(request)
        response = ListTransactionsResponse(unknown_state_filters=unknown_states(request))
        now_ms = self._clock()
        for shard in self.shards:
            if shard.state is ShardState.ACTIVE:
                response.transaction_states += wanted.listed(shard.shard.ids, now_ms)
        return response

    # ------------------------------------------------------------ what the shards need

    def _transaction_version(self) -> int:
        return self._metadata.image.features.levels.get(TRANSACTION_VERSION, 0)

    def _take_producer_id(self) -> int:
        """Return an unused producer id; request more from the controller if there is none.

        Raises:
            NoProducerId: none is available yet.
        """
        try:
            return self._producer_ids.take_now()
        except NoProducerId:
            if not self._is_allocating:
                self._is_allocating = True
                # The event loop alone would not keep the task.
                self._allocation = background.run_once(self._allocate(), "allocating producer ids")
            raise

    async def _allocate(self) -> None:
        try:
            await self._producer_ids.prepare()
        except ApiError as error:
            log.info("No producer ids from the controller: %s", error)
        finally:
            self._is_allocating = False

    async def _with_producer_id(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the response of `ask`; repeat it when a missing producer id is available."""
        while True:
            try:
                return await ask()
            except NoProducerId:
                # Other requests may use up the whole block before this one continues.
                await self._producer_ids.prepare()
