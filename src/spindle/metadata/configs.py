"""Dynamic configuration in the image: per resource, names to values (KIP-226)."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from spindle.metadata.immutable import immutable
from spindle.metadata.map_editor import MapEditor
from spindle.protocol.messages.metadata_records import ConfigRecord

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32


class ConfigResource(NamedTuple):
    """The owner of a configuration; broker "" is the default of all brokers."""

    resource_type: int
    name: str


DEFAULT_BROKER: Final = ConfigResource(BROKER_RESOURCE, "")


@immutable
class ConfigsImage:
    """Resources that have at least one value."""

    by_resource: Mapping[ConfigResource, Mapping[str, str]]

    def of(self, resource: ConfigResource) -> Mapping[str, str]:
        return self.by_resource.get(resource, {})

    def topic(self, name: str) -> Mapping[str, str]:
        return self.of(ConfigResource(TOPIC_RESOURCE, name))

    def broker(self, broker_id: int) -> Mapping[str, str]:
        return self.of(ConfigResource(BROKER_RESOURCE, str(broker_id)))

    def default_broker(self) -> Mapping[str, str]:
        return self.of(DEFAULT_BROKER)

    def dynamic_values(self, broker_id: int) -> dict[str, str]:
        """Return the dynamic values of a broker: its own over those of all brokers."""
        return {**self.default_broker(), **self.broker(broker_id)}


EMPTY_CONFIGS = ConfigsImage(by_resource={})


class ConfigsDelta:
    """Changes of configurations. `changed` lists resources in order of the records."""

    def __init__(self, base: ConfigsImage) -> None:
        self.base = base
        self._resources = MapEditor(base.by_resource)
        self._editors: dict[ConfigResource, MapEditor[str, str]] = {}
        self._cleared: dict[ConfigResource, None] = {}

    def clear(self) -> None:
        """Forget every value, as at the start of a snapshot."""
        self._resources.clear()
        self._editors.clear()
        self._cleared = dict.fromkeys(self.base.by_resource)

    @property
    def changed(self) -> list[ConfigResource]:
        return [
            resource
            for resource in self._cleared | dict.fromkeys(self._editors)
            if self.current(resource) != self.base.of(resource)
        ]

    def current(self, resource: ConfigResource) -> Mapping[str, str]:
        """Return the values of a resource after the records so far."""
        editor = self._editors.get(resource)
        return editor.current() if editor else self._resources.get(resource) or {}

    def replay(self, record: ConfigRecord) -> None:
        editor = self._editor(ConfigResource(record.resource_type, record.resource_name))
        if record.value is None:
            editor.remove(record.name)
        else:
            editor.set(record.name, record.value)

    def forget_topics(self, names: Iterable[str]) -> None:
        """Remove the configuration of deleted topics; no record does so."""
        for name in names:
            resource = ConfigResource(TOPIC_RESOURCE, name)
            if self.current(resource):
                self._editor(resource).clear()

    def _editor(self, resource: ConfigResource) -> MapEditor[str, str]:
        editor = self._editors.get(resource)
        if editor is None:
            editor = MapEditor(self._resources.get(resource) or {})
            self._editors[resource] = editor
        return editor

    def apply(self) -> ConfigsImage:
        for resource, editor in self._editors.items():
            values = editor.result()
            if values:
                self._resources.set(resource, values)
            else:
                self._resources.remove(resource)
        return ConfigsImage(self._resources.result())
