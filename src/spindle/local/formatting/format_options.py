"""The request that the flags of `storage format` and the configuration of a node describe."""

from collections.abc import Callable
from dataclasses import dataclass

from spindle.common.uuids import UuidSource
from spindle.config.node_config import NodeConfig
from spindle.local.errors import FormatError
from spindle.local.formatting.directories import FormatRequest
from spindle.local.formatting.feature_levels import parse_feature, parse_release, starting_levels
from spindle.local.formatting.initial_controllers import (
    InitialController,
    parse_initial_controllers,
    standalone_controller,
)
from spindle.local.formatting.scram_credentials import parse_scram
from spindle.metadata.features import SCRAM_LEVEL, metadata_version_name


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The flags, as given."""

    cluster_id: str
    ignore_formatted: bool = False
    release_version: str | None = None
    features: tuple[str, ...] = ()
    standalone: bool = False
    initial_controllers: str | None = None
    no_initial_controllers: bool = False
    scram: tuple[str, ...] = ()


def format_request(
    config: NodeConfig,
    options: FormatOptions,
    new_uuid: UuidSource,
    random_bytes: Callable[[int], bytes],
) -> FormatRequest:
    """Return the request that the flags describe, after the checks of Kafka's tool in its order.

    Raises:
        ConfigError: a flag's value cannot be used.
        FormatError: flags and configuration contradict each other.
    """
    text = options.release_version
    release = None if text is None else parse_release(text)
    features = [parse_feature(feature) for feature in options.features]
    controllers = _controllers(config, options, new_uuid)
    levels = starting_levels(release, features, has_dynamic_quorum=not config.quorum_voters)
    if options.scram and levels.metadata_version < SCRAM_LEVEL:
        raise FormatError(
            f"SCRAM is only supported in metadata.version {metadata_version_name(SCRAM_LEVEL)} or "
            "later."
        )
    return FormatRequest(
        cluster_id=options.cluster_id,
        node_id=config.node_id,
        log_dirs=config.log_dirs,
        metadata_log_dir=config.metadata_log_dir,
        levels=levels,
        controller_listener=config.controller_listener_names[0],
        initial_controllers=controllers,
        scram_credentials=tuple(parse_scram(text, random_bytes) for text in options.scram),
        ignore_formatted=options.ignore_formatted,
        is_controller=config.is_controller,
    )


def _controllers(
    config: NodeConfig, options: FormatOptions, new_uuid: UuidSource
) -> tuple[InitialController, ...]:
    is_given = options.standalone or options.initial_controllers is not None
    if config.quorum_voters and is_given:
        raise FormatError(
            "You cannot specify controller.quorum.voters and format the node with "
            "--initial-controllers or --standalone. If you want to use dynamic quorum, please "
            "remove controller.quorum.voters and specify controller.quorum.bootstrap.servers "
            "instead."
        )
    if options.initial_controllers is not None:
        return parse_initial_controllers(options.initial_controllers)
    if options.standalone:
        return (standalone_controller(config, new_uuid),)
    if config.is_controller and not config.quorum_voters and not options.no_initial_controllers:
        raise FormatError(
            "Because controller.quorum.voters is not set on this controller, you must specify one "
            "of the following: --standalone, --initial-controllers, or --no-initial-controllers."
        )
    return ()
