"""The versions of Kafka's APIs since which a field exists, or clients know an error.

A name is the API and the fact; the value is the first version.
"""

from typing import Final

ADD_PARTITIONS_TO_TXN_BATCHED: Final = 4
"""Brokers name several transactions, and can only verify (KIP-890)."""
ALTER_PARTITION_REASSIGNMENTS_FACTOR: Final = 1
"""The request has allow_replication_factor_change (KIP-860)."""
API_VERSIONS_CLIENT_SOFTWARE: Final = 3
"""The request names the software of the client (KIP-511)."""
API_VERSIONS_MIN_ZERO_FEATURES: Final = 4
"""A feature may be supported from level 0 on."""
BROKER_REGISTRATION_PREVIOUS_EPOCH: Final = 3
"""The request has the broker epoch before a clean stop (KIP-966)."""
CONSUMER_GROUP_HEARTBEAT_CLIENT_MEMBER_ID: Final = 1
"""The client chooses the member id (KIP-1082)."""
CREATE_TOPICS_DEFAULTS: Final = 4
"""-1 leaves the number of partitions and replicas to the broker (KIP-464)."""
DESCRIBE_GROUPS_AUTHORIZED_OPERATIONS: Final = 3
"""The response can have the authorized operations (KIP-430)."""
DESCRIBE_GROUPS_GROUP_ID_NOT_FOUND: Final = 6
"""An unknown group gets GROUP_ID_NOT_FOUND; before, it is described as Dead."""
END_TXN_EPOCH_BUMP: Final = 5
"""The response has the producer epoch of the next transaction (KIP-890)."""
END_TXN_PRODUCER_FENCED: Final = 2
"""Clients know PRODUCER_FENCED (KIP-588); so with AddPartitionsToTxn and AddOffsetsToTxn."""
FETCH_DIVERGING_EPOCH: Final = 12
"""The response can have a diverging epoch (KIP-595)."""
FETCH_FROM_FOLLOWER: Final = 11
"""A follower answers a consumer (KIP-392)."""
FETCH_NODE_ENDPOINTS: Final = 16
"""The response has the address of the current leader (KIP-951)."""
FETCH_REPLICA_STATE: Final = 15
"""The request has the broker epoch of the replica (KIP-903)."""
FETCH_TOPIC_IDS: Final = 13
"""Topics are named by id (KIP-516)."""
FIND_COORDINATOR_BATCHED: Final = 4
"""The request names several keys (KIP-699)."""
INIT_PRODUCER_ID_PRODUCER_FENCED: Final = 4
"""Clients know PRODUCER_FENCED (KIP-588)."""
JOIN_GROUP_KNOWN_MEMBER_ID: Final = 4
"""A new dynamic member must join with a member id given out before (KIP-394)."""
JOIN_GROUP_NULLABLE_PROTOCOL: Final = 7
"""The protocol name of a response may be null."""
JOIN_GROUP_REBALANCE_TIMEOUT: Final = 1
"""The request has a rebalance timeout of its own."""
JOIN_GROUP_SKIP_ASSIGNMENT: Final = 9
"""A returning static leader can be told to keep the assignment (KIP-814)."""
LEAVE_GROUP_BATCHED: Final = 3
"""The request names several members."""
LIST_OFFSETS_MAX_TIMESTAMP: Final = 7
"""The offset of the largest timestamp can be asked for (KIP-734)."""
LIST_OFFSETS_OFFSET_NOT_AVAILABLE: Final = 5
"""Clients know OFFSET_NOT_AVAILABLE (KIP-207)."""
LIST_TRANSACTIONS_DURATION: Final = 1
"""The request has a least duration (KIP-994)."""
LIST_TRANSACTIONS_PATTERN: Final = 2
"""The request has a pattern of transactional ids (KIP-1152)."""
METADATA_LISTENER_NOT_FOUND: Final = 6
"""Clients know LISTENER_NOT_FOUND."""
METADATA_OFFLINE_BROKER: Final = 1
"""Replicas that the client cannot reach are listed; before, they are left out, with an error."""
METADATA_TOPIC_ID_REQUEST: Final = 12
"""A request may name topics by id."""
OFFSET_COMMIT_GROUP_ID_NOT_FOUND: Final = 9
"""An unknown group gets GROUP_ID_NOT_FOUND; before, ILLEGAL_GENERATION."""
OFFSET_COMMIT_MEMBER_EPOCH: Final = 9
"""Members of the consumer protocol must commit with this version or a newer one."""
OFFSET_COMMIT_TOPIC_IDS: Final = 10
"""Topics are named by id (KIP-516)."""
OFFSET_FETCH_BATCHED: Final = 8
"""The request names several groups (KIP-709)."""
OFFSET_FETCH_TOPIC_IDS: Final = 10
"""Topics are named by id (KIP-516)."""
OFFSET_FETCH_TOP_LEVEL_ERROR: Final = 2
"""The response has an error of its own beside those of the partitions."""
PRODUCE_ADDS_PARTITION: Final = 12
"""The leader adds its partition to the transaction (KIP-890)."""
PRODUCE_CURRENT_LEADER: Final = 10
"""The response names the current leader (KIP-951)."""
PRODUCE_TOPIC_IDS: Final = 13
"""Topics are named by id (KIP-516)."""
PRODUCE_ABORTABLE: Final = 11
"""Clients know TRANSACTION_ABORTABLE."""
PRODUCE_ZSTD: Final = 7
"""Records may be compressed with zstd (KIP-110)."""
SYNC_GROUP_PROTOCOL: Final = 5
"""The request names the protocol type and the protocol (KIP-559)."""
TXN_OFFSET_COMMIT_ADDS_PARTITION: Final = 5
"""The group coordinator adds its partition to the transaction (KIP-890)."""
TXN_OFFSET_COMMIT_LOAD_IN_PROGRESS: Final = 2
"""Clients know COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
TXN_OFFSET_COMMIT_ABORTABLE: Final = 4
"""Clients know TRANSACTION_ABORTABLE."""
TXN_OFFSET_COMMIT_TOPIC_IDS: Final = 6
"""Topics are named by id (KIP-1319)."""
UPDATE_FEATURES_NO_RESULTS: Final = 2
"""The response has no result per feature: the request succeeds or fails as a whole."""
VOTE_PRE_VOTE: Final = 2
"""The request can ask for a pre-vote (KIP-996)."""
