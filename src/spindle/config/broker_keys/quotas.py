"""Broker keys: quotas and metrics."""

from spindle.config.definition import (
    CLASS,
    CLUSTER_WIDE,
    INT,
    LIST,
    LONG,
    READ_ONLY,
    STRING,
    ConfigKey,
)
from spindle.config.no_effect import NO_JAVA, OWN_METRICS
from spindle.config.validators import ListOf, Range

# fmt: off
QUOTAS_KEYS = (
    ConfigKey("client.quota.callback.class", CLASS, None, None, READ_ONLY,
              "Java class that sets client quotas.", no_effect=NO_JAVA),
    ConfigKey("controller.quota.window.num", INT, 11, Range(1), READ_ONLY,
              "Number of windows that are kept for controller mutation quotas."),
    ConfigKey("controller.quota.window.size.seconds", INT, 1, Range(1), READ_ONLY,
              "Length of a window of controller mutation quotas."),
    ConfigKey("kafka.metrics.polling.interval.secs", INT, 10, Range(1), READ_ONLY,
              "Polling interval of the older metrics reporters.", no_effect=OWN_METRICS),
    ConfigKey("kafka.metrics.reporters", LIST, (), ListOf(), READ_ONLY,
              "Java metrics reporters of the older kind.", no_effect=OWN_METRICS),
    ConfigKey("metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), ListOf(),
              CLUSTER_WIDE,
              "Java metrics reporters.", no_effect=OWN_METRICS),
    ConfigKey("metrics.num.samples", INT, 2, Range(1), READ_ONLY,
              "Number of samples that are kept for each rate.", no_effect=OWN_METRICS),
    ConfigKey("metrics.recording.level", STRING, "INFO", None, READ_ONLY,
              "Most detailed level at which metrics are recorded.", no_effect=OWN_METRICS),
    ConfigKey("metrics.sample.window.ms", LONG, 30_000, Range(1), READ_ONLY,
              "Length of a metrics sample.", no_effect=OWN_METRICS),
    ConfigKey("quota.window.num", INT, 11, Range(1), READ_ONLY,
              "Number of windows that are kept for client quotas."),
    ConfigKey("quota.window.size.seconds", INT, 1, Range(1), READ_ONLY,
              "Length of a window of client quotas."),
)
# fmt: on
