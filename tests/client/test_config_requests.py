"""Which node a request for configurations is sent to."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spindle.client.admin import configs
from spindle.client.blocking.client import WireClient
from spindle.config.resources import ConfigResourceType


class AskedClient:
    """Records which broker is asked; None is any broker, or the active controller."""

    def __init__(self, *, asks_controllers: bool) -> None:
        self.settings = SimpleNamespace(asks_controllers=asks_controllers)
        self.asked: list[object] = []

    def current_view(self, topics: object) -> Any:
        assert not self.settings.asks_controllers, "controllers do not serve Metadata"
        return SimpleNamespace(broker=lambda name: f"broker {name}")

    def retrying(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    def ask(self, request: object, response: type, *, broker: object) -> Any:
        self.asked.append(broker)
        return response()


@pytest.mark.parametrize(("asks_controllers", "asked"), [(False, "broker 1"), (True, None)])
def test_a_broker_is_asked_for_its_configuration_unless_controllers_are(
    asks_controllers: bool, asked: str | None
) -> None:
    fake = AskedClient(asks_controllers=asks_controllers)
    client = cast("WireClient", fake)
    configs.alter(client, ConfigResourceType.BROKER, "1", {"log.cleaner.threads": "2"}, [])
    configs.describe(client, ConfigResourceType.BROKER, "1")
    assert fake.asked == [asked, asked]
