"""A cluster as it will be after some time, if it grows as its history says."""

from collections.abc import Mapping
from dataclasses import replace

from spindle.common.ids import TopicPartition
from spindle.planner.growth import DirectoryGrowth, PartitionRates
from spindle.planner.model import ClusterModel, PartitionModel
from spindle.planner.trend import Trend


def cluster_ahead(
    cluster: ClusterModel,
    rates: Mapping[TopicPartition, PartitionRates],
    growths: Mapping[tuple[int, str], DirectoryGrowth],
    ahead_s: float,
) -> ClusterModel:
    """Return the cluster with the sizes that it will have. Nothing shrinks in it.

    Partitions and directories without a known growth stay as they are. The produced bytes of
    partitions become the rates with which copies must keep up.

    Args:
        growths: by broker id and path.
    """
    used = [each.used_bytes for each in cluster.directories]
    for number, directory in enumerate(cluster.directories):
        found = growths.get((directory.broker_id, directory.path))
        if found is not None:
            used[number] += _more(found.other_files, ahead_s)
    partitions: list[PartitionModel] = []
    for model in cluster.partitions:
        found_rates = rates.get(model.name, PartitionRates(None, 0.0))
        more = _more(found_rates.growth, ahead_s)
        for place in model.directories:
            used[place] += more
        partitions.append(
            replace(
                model,
                size_bytes=tuple(size + more for size in model.size_bytes),
                write_bytes_per_second=round(found_rates.produced_bytes_per_second),
            )
        )
    directories = [
        replace(each, used_bytes=use) for each, use in zip(cluster.directories, used, strict=True)
    ]
    return ClusterModel(cluster.brokers, directories, partitions)


def _more(growth: Trend | None, ahead_s: float) -> int:
    return round(max(0.0, growth.slope) * ahead_s) if growth is not None else 0
