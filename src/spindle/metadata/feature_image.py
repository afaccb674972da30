"""Finalized feature levels in the image (KIP-584)."""

from collections.abc import Mapping

from spindle.metadata.features import (
    ELR_VERSION,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    check_feature_level,
)
from spindle.metadata.immutable import immutable
from spindle.metadata.map_editor import MapEditor
from spindle.protocol.messages.metadata_records import FeatureLevelRecord


@immutable
class FeaturesImage:
    """Levels by feature name, in the order of the records. A feature at level 0 is not listed."""

    levels: Mapping[str, int]

    @property
    def metadata_version(self) -> int:
        """The format of metadata records; the minimum as long as no record has set it."""
        return self.levels.get(METADATA_VERSION, MINIMUM_METADATA_VERSION)

    @property
    def is_bootstrapped(self) -> bool:
        return METADATA_VERSION in self.levels

    @property
    def is_elr_enabled(self) -> bool:
        return self.levels.get(ELR_VERSION, 0) >= 1


EMPTY_FEATURES = FeaturesImage(levels={})


class FeaturesDelta:
    """Changes of feature levels."""

    def __init__(self, base: FeaturesImage) -> None:
        self.base = base
        self._levels = MapEditor(base.levels)

    def clear(self) -> None:
        """Forget every level, as at the start of a snapshot."""
        self._levels.clear()

    def replay(self, record: FeatureLevelRecord) -> None:
        check_feature_level(record.name, record.feature_level)
        if record.feature_level == 0 and record.name != METADATA_VERSION:
            self._levels.remove(record.name)
        else:
            self._levels.set(record.name, record.feature_level)

    @property
    def is_changed(self) -> bool:
        return dict(self._levels.current()) != dict(self.base.levels)

    def apply(self) -> FeaturesImage:
        return FeaturesImage(self._levels.result())
