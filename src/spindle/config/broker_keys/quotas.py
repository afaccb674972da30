"""Broker keys: quotas and metrics."""

from spindle.config.definition import CLASS, CLUSTER_WIDE, INT, LIST, LONG, LOW, STRING, ConfigKey
from spindle.config.validators import ListOf, Range

QUOTAS_KEYS = (
    ConfigKey(
        "client.quota.callback.class",
        CLASS,
        None,
        LOW,
        "Java class that sets client quotas; Java classes cannot be loaded by Spindle.",
    ),
    ConfigKey(
        "controller.quota.window.num",
        INT,
        11,
        LOW,
        "Windows kept for controller mutation quotas.",
        validator=Range(1),
    ),
    ConfigKey(
        "controller.quota.window.size.seconds",
        INT,
        1,
        LOW,
        "Length of a window of controller mutation quotas.",
        validator=Range(1),
    ),
    ConfigKey(
        "kafka.metrics.polling.interval.secs",
        INT,
        10,
        LOW,
        "Polling interval of the older metrics reporters; only accepted.",
        validator=Range(1),
    ),
    ConfigKey(
        "kafka.metrics.reporters",
        LIST,
        (),
        LOW,
        "Older Java metrics reporters; only accepted.",
        validator=ListOf(),
    ),
    ConfigKey(
        "metric.reporters",
        LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        LOW,
        "Java metric reporters; Spindle serves Prometheus metrics instead.",
        validator=ListOf(),
        update_mode=CLUSTER_WIDE,
    ),
    ConfigKey(
        "metrics.num.samples", INT, 2, LOW, "Samples kept for each rate.", validator=Range(1)
    ),
    ConfigKey(
        "metrics.recording.level",
        STRING,
        "INFO",
        LOW,
        "Most detailed level of metrics that is recorded.",
    ),
    ConfigKey(
        "metrics.sample.window.ms",
        LONG,
        30_000,
        LOW,
        "Length of a metrics sample.",
        validator=Range(1),
    ),
    ConfigKey(
        "quota.window.num", INT, 11, LOW, "Windows kept for client quotas.", validator=Range(1)
    ),
    ConfigKey(
        "quota.window.size.seconds",
        INT,
        1,
        LOW,
        "Length of a window of client quotas.",
        validator=Range(1),
    ),
)
