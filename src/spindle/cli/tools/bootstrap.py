"""The client of a tool, from addresses and a property file."""

from collections.abc import Mapping

from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.options import Options
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.config.properties import read_properties

_MISSING_FILE = "java.nio.file.NoSuchFileException"


def properties_of(file: str | None) -> dict[str, str]:
    """Return the properties in a file; none if `file` is None.

    Raises:
        ToolFailed: the file cannot be read; Kafka's message is only its name.
        ConfigError: it is not a property file.
    """
    if file is None:
        return {}
    try:
        return dict(read_properties(file))
    except FileNotFoundError:
        raise ToolFailed(file, _MISSING_FILE, f"there is no property file {file}") from None
    except OSError as error:
        raise ToolFailed(f"{file}: {error.strerror}", _MISSING_FILE) from None


def connect(
    servers: str | None,
    properties: Mapping[str, str],
    *,
    controllers: str | None = None,
    client_id: str = "",
    api_timeout_ms: int | None = None,
) -> WireClient:
    """Return a client of the cluster at these addresses; it connects with its first request.

    Args:
        servers: addresses of brokers.
        controllers: addresses of controllers, in place of those.

    Raises:
        ConfigError: an address or a property has no usable value.
    """
    merged = dict(properties)
    if servers is not None:
        merged["bootstrap.servers"] = servers
    if controllers is not None:
        merged["bootstrap.controllers"] = controllers
    if client_id:
        merged.setdefault("client.id", client_id)
    merged.setdefault("client.id", "adminclient-1")
    if api_timeout_ms is not None:
        merged["default.api.timeout.ms"] = str(api_timeout_ms)
    return WireClient(client_settings(merged))


def connect_as(options: Options, **settings: str | int) -> WireClient:
    """Return a client from `--bootstrap-server` and `--command-config`.

    Args:
        settings: further arguments of `connect`.

    Raises:
        ToolFailed: the property file cannot be read.
        ConfigError: an address or a property has no usable value.
    """
    properties = properties_of(options.one("command-config"))
    return connect(
        options.one("bootstrap-server"),
        properties,
        client_id=str(settings.get("client_id", "")),
        api_timeout_ms=int(settings["api_timeout_ms"]) if "api_timeout_ms" in settings else None,
    )


def connect_either(options: Options) -> WireClient:
    """Return a client from `--bootstrap-server` or `--bootstrap-controller` and a property file.

    Raises:
        UsageError: none or both of the addresses were given.
        ToolFailed: the property file cannot be read.
        ConfigError: an address or a property has no usable value.
    """
    options.require_servers()
    return connect(
        options.one("bootstrap-server"),
        properties_of(options.one("command-config")),
        controllers=options.one("bootstrap-controller"),
    )
