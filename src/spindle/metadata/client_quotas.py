"""Client quotas in the image: per entity, keys to limits (KIP-546)."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from spindle.metadata.immutable import immutable
from spindle.metadata.map_editor import MapEditor
from spindle.protocol.messages.metadata_records import ClientQuotaRecord

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""(entity type, name) pairs sorted by type; the name None is the default of that type."""


def quota_entity(pairs: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity with its parts in a fixed order."""
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


@immutable
class ClientQuotasImage:
    """Entities that have at least one limit."""

    by_entity: Mapping[QuotaEntity, Mapping[str, float]]


EMPTY_CLIENT_QUOTAS = ClientQuotasImage(by_entity={})


class ClientQuotasDelta:
    """Changes of quotas."""

    def __init__(self, base: ClientQuotasImage) -> None:
        self.base = base
        self._entities = MapEditor(base.by_entity)

    def clear(self) -> None:
        """Forget every quota, as at the start of a snapshot."""
        self._entities.clear()

    def replay(self, record: ClientQuotaRecord) -> None:
        entity = quota_entity([(part.entity_type, part.entity_name) for part in record.entity])
        limits = dict(self._entities.get(entity) or {})
        if record.remove:
            limits.pop(record.key, None)
        else:
            limits[record.key] = record.value
        if limits:
            self._entities.set(entity, limits)
        else:
            self._entities.remove(entity)

    @property
    def changed(self) -> dict[QuotaEntity, Mapping[str, float]]:
        """Entities that differ from the base, with all their limits now (empty: none left)."""
        now = self._entities.current()
        names = dict.fromkeys(self.base.by_entity) | dict.fromkeys(now)
        return {
            entity: now.get(entity, {})
            for entity in names
            if now.get(entity) != self.base.by_entity.get(entity)
        }

    def apply(self) -> ClientQuotasImage:
        return ClientQuotasImage(self._entities.result())
