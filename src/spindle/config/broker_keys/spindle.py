"""Broker keys that only Spindle has. DescribeConfigs shows them where they are set."""

from typing import Final

from spindle.config.cordon_notes import CordonNotes
from spindle.config.definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    STRING,
    ConfigKey,
)
from spindle.config.endpoints import HostAndPort
from spindle.config.validators import OneOf, Range

METRICS_LISTENER: Final = "spindle.metrics.listener"
METRICS_PROTOCOL: Final = "spindle.metrics.security.protocol"
METRICS_USER: Final = "spindle.metrics.user"
LOG_FORMAT: Final = "spindle.log.format"
NATIVE_LANE_ENABLE: Final = "spindle.native.lane.enable"
HANG_TIMEOUT: Final = "spindle.log.dir.hang.timeout.ms"
CORDON_HIGH_WATERMARK: Final = "spindle.log.dir.cordon.high.watermark"
CORDON_LOW_WATERMARK: Final = "spindle.log.dir.cordon.low.watermark"
CORDON_NOTES: Final = "spindle.cordon.notes"
NATIVE_ENABLE: Final = "spindle.native.enable"
CLIENT_METRICS_MAX_SERIES: Final = "spindle.client.metrics.max.series"

# fmt: off
SPINDLE_KEYS = (
    ConfigKey(CORDON_NOTES, STRING, "", CordonNotes(), PER_BROKER,
              "Reason, owner and end of the cordons in cordoned.log.dirs, as a JSON list. Written "
              "by spindle disks cordon; the broker removes a cordon when its time is over.",
              is_internal=True),
    ConfigKey(CORDON_HIGH_WATERMARK, DOUBLE, 1.0, Range(0, 1), CLUSTER_WIDE,
              "Used share of a file system, from 0 to 1, above which the broker itself cordons a "
              "log directory, so that it gets no new replicas. With 1 it cordons nothing.",
              is_internal=True),
    ConfigKey(CORDON_LOW_WATERMARK, DOUBLE, 0.8, Range(0, 1), CLUSTER_WIDE,
              "Used share up to which it has to fall before that cordon ends. Must be less than "
              "spindle.log.dir.cordon.high.watermark.",
              is_internal=True),
    ConfigKey(CLIENT_METRICS_MAX_SERIES, INT, 20_000, Range(0), READ_ONLY,
              "Most series of metrics pushed by clients (KIP-714) that /metrics shows. A series is "
              "a metric of a client with its labels; further ones are counted and dropped.",
              is_internal=True),
    ConfigKey(METRICS_LISTENER, STRING, None, HostAndPort(), READ_ONLY,
              "Address of the HTTP server for /metrics (Prometheus), /health and /ready, as "
              "{host}:{port}; port 0 takes a free one. Unset, nothing is served.",
              is_internal=True),
    ConfigKey(METRICS_PROTOCOL, STRING, "PLAINTEXT", OneOf("PLAINTEXT", "SSL"), READ_ONLY,
              "PLAINTEXT for HTTP, SSL for HTTPS with the keys ssl.*, or those of its own with the "
              "prefix listener.name.metrics.",
              is_internal=True),
    ConfigKey(METRICS_USER, PASSWORD, None, None, READ_ONLY,
              "NAME:PASSWORD with which /metrics is read (basic authentication). Unset, everyone "
              "who reaches the address may read it.",
              is_internal=True),
    ConfigKey(LOG_FORMAT, STRING, "text", OneOf("text", "json"), READ_ONLY,
              "Format of the log lines: text in Kafka's layout, or json with one object per line.",
              is_internal=True),
    ConfigKey(NATIVE_LANE_ENABLE, BOOLEAN, False, None, READ_ONLY,
              "Serve Produce and Fetch of plain connections in native threads, one for each log "
              "directory, where the native code was built. With false, Python serves them.",
              is_internal=True),
    ConfigKey(HANG_TIMEOUT, INT, 60_000, Range(1_000), READ_ONLY,
              "Time after which a log directory whose disk does not answer counts as failed, as if "
              "the disk had reported an error. After 10 seconds a log line says that it hangs.",
              is_internal=True),
    ConfigKey(NATIVE_ENABLE, BOOLEAN, True, None, READ_ONLY,
              "Use the native code (Rust) where the installation has built it. With false, or "
              "where it was not built, everything runs in Python: the results are the same, and "
              "compaction is slower. The log of a start says which.",
              is_internal=True),
)
# fmt: on
