"""Reasons why a configuration key that Kafka has does nothing in Spindle.

A row of a key table names its reason as `no_effect`. DescribeConfigs, the warnings at the start of
a node and docs/reference/keys-without-effect.md show the reason.
"""

from typing import Final

NO_ASSERTIONS: Final = "client assertions are not supported"
TOKEN_PER_LOGIN: Final = "a token is asked for once, when a login needs it"
NO_KERBEROS: Final = "Kerberos is not supported"
NO_JAVA: Final = "Java classes cannot be loaded"
NO_PLACEHOLDERS: Final = "placeholders in values are not replaced"
NO_TIERED_STORAGE: Final = "tiered storage is not supported"
NO_WARMUPS: Final = "streams groups have no warm-up tasks"
NO_CLIENT_TAGS: Final = "standby tasks are not spread over client tags"
ONE_STREAMS_ASSIGNOR: Final = "sticky is the only assignor of streams groups"
ONE_SHARE_ASSIGNOR: Final = "share groups have one assignor, simple"
SHARE_WRITES: Final = "the share coordinator appends its records at once"
FIXED_SHARE_LOAD_BUFFER: Final = "share state is loaded 1 MiB at a time"
SHARE_RETRIES: Final = "the next heartbeat of a member tries again"
ASSIGNS_AT_ONCE: Final = "assignments are computed as part of the request that needs them"
REGEX_BY_CHANGE: Final = "regular expressions are compared again when topics change"

FIXED_THREADS: Final = "the number of threads is fixed"
LIMITED_BY_BYTES: Final = "waiting requests are limited by their bytes, not by their number"
NO_PURGATORY: Final = "answered requests leave no purgatory entry to purge"
SYSTEM_BUFFERS: Final = "the operating system sizes the buffers of sockets"
FIXED_BACKLOG: Final = "up to 512 connections wait to be accepted"
NO_SETUP_TIMEOUT: Final = "setting up a connection counts against the timeout of the request"
NO_CONNECTION_RATE: Final = "the rate of new connections is not limited"
OWN_METRICS: Final = "metrics are served to Prometheus, without samples, levels and reporters"
NO_EVENT_TIMES: Final = "the controller does not log how long its events take"

ONE_LZ4_LEVEL: Final = "lz4 compresses with a single level"
NO_PREALLOCATION: Final = (
    "segment files grow as records are appended, into disk space that is reserved in steps of 8 MiB"
)
GROUP_WRITES: Final = "a group coordinator appends its records at once"
FIXED_LOAD_BUFFER: Final = "group metadata is loaded 1 MiB at a time"
FIXED_TRANSACTIONS_BUFFER: Final = "transactions are loaded 1 MiB at a time"
NO_LINGER: Final = "metadata records are written at once"
FIXED_METADATA_BATCH: Final = "the largest metadata batch is fixed at 8 MiB"
NOTHING_UNSTABLE: Final = "there are no unstable versions"
