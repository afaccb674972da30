"""Configuration rules for a node without key tables: every key is accepted as a plain string."""

from collections.abc import Mapping

from spindle.controller.decision import ConfigEntry


class AnyConfig:
    """`ConfigRules` that know no keys; lists are recognised by nothing, defaults are unknown."""

    def validate(self, resource_type: int, resource_name: str, values: Mapping[str, str]) -> None:
        """Accepts all values."""

    def is_list(self, resource_type: int, name: str) -> bool:
        return False

    def default(self, resource_type: int, name: str) -> str | None:
        return None

    def effective_topic_configs(
        self, values: Mapping[str, str], default_broker: Mapping[str, str]
    ) -> list[ConfigEntry]:
        return []
