"""The cordoned directories of a broker: what its configuration and the cluster's level say."""

import logging
from collections.abc import Callable, Sequence

from spindle.config.log_dir_paths import EVERY_DIRECTORY, match_paths
from spindle.config.node_config import NodeConfig
from spindle.controller.configs import CORDONED_LOG_DIRS
from spindle.disks.cordons import cordon_entries, cordoned_paths
from spindle.disks.log_directory import LogDirectory
from spindle.metadata.features import CORDONED_DIRECTORIES_LEVEL, metadata_version_name
from spindle.metadata.image import MetadataImage

log = logging.getLogger(__name__)


class CordonKeeper:
    """Follows `cordoned.log.dirs` of one broker (KIP-1066).

    Args:
        tell: gets the cordoned directories whenever they may have changed.
    """

    def __init__(
        self,
        config: NodeConfig,
        directories: Sequence[LogDirectory],
        tell: Callable[[Sequence[LogDirectory]], None],
    ) -> None:
        self._config = config
        self._directories = {directory.path: directory for directory in directories}
        self._tell = tell
        self._followed: tuple[int, str | None] | None = None

    def follow(self, image: MetadataImage) -> None:
        """Apply the configuration in the image, if it differs from the one before."""
        dynamic = image.configs.broker(self._config.node_id).get(CORDONED_LOG_DIRS)
        followed = image.metadata_version, dynamic
        if followed == self._followed:
            return
        self._followed = followed
        configured = self._config.names(CORDONED_LOG_DIRS)
        paths = cordoned_paths(tuple(self._directories), configured, dynamic)
        if paths and image.metadata_version < CORDONED_DIRECTORIES_LEVEL:
            log.warning(
                "%s=%s has no effect: cordons need metadata.version %s, and the cluster has %s",
                CORDONED_LOG_DIRS,
                ",".join(configured) if dynamic is None else dynamic,
                metadata_version_name(CORDONED_DIRECTORIES_LEVEL),
                metadata_version_name(image.metadata_version),
            )
            paths = ()
        if dynamic is not None:
            self._warn_of_strangers(cordon_entries(dynamic))
        self._tell([self._directories[path] for path in paths])

    def _warn_of_strangers(self, entries: Sequence[str]) -> None:
        found = match_paths(entries, tuple(self._directories))
        strangers = [e for e, path in found.items() if path is None and e != EVERY_DIRECTORY]
        if strangers:
            log.warning(
                "%s names %s, which is no log directory of this broker; the entry has no effect",
                CORDONED_LOG_DIRS,
                ", ".join(strangers),
            )
