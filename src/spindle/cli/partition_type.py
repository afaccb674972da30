"""Partitions on the command line, as TOPIC-PARTITION."""

import click

from spindle.common.ids import TopicPartition


class _Partition(click.ParamType[TopicPartition]):
    """A partition as TOPIC-PARTITION."""

    name = "TOPIC-PARTITION"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicPartition:
        if isinstance(value, TopicPartition):
            return value
        topic, _, partition = str(value).rpartition("-")
        if not topic or not partition.isdecimal():
            self.fail(f"{value!r} is not TOPIC-PARTITION, such as orders-3", param, ctx)
        return TopicPartition(topic, int(partition))


PARTITION = _Partition()
