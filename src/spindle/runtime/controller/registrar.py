"""Registers this process as a controller of the cluster, once (KIP-919)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import Endpoint
from spindle.common.uuids import Uuid, uuid_text
from spindle.metadata.broker_registration import feature_rows, listener_rows
from spindle.metadata.cluster import ControllerRegistration
from spindle.metadata.features import CONTROLLER_REGISTRATION_LEVEL, SUPPORTED_FEATURES
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.controller_registration import ControllerRegistrationRequest
from spindle.publication.loader import Publication
from spindle.publication.publishers import MetadataPublisher
from spindle.raft.ready import LeaderAndEpoch
from spindle.runtime import background

log = logging.getLogger(__name__)

_PAUSE_S: Final = 5.0


class Metadata(Protocol):
    """The committed image and the quorum's leader, as this process knows them."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def leader(self) -> LeaderAndEpoch: ...


class ControllerRegistrar(MetadataPublisher):
    """Registers the local controller while the metadata does not contain this process.

    Two processes with the same id would replace each other forever. So a process that was replaced
    logs an error and waits before it registers again.

    Args:
        request: sends a request to the active controller.
        pause_s: the pause of a process that was replaced.
    """

    def __init__(
        self,
        node_id: int,
        incarnation_id: Uuid,
        metadata: Metadata,
        request: Callable[[Message], Awaitable[Any]],
        pause_s: float = _PAUSE_S,
    ) -> None:
        self.endpoints: Sequence[Endpoint] = ()
        """The controller listeners, with the addresses at which other nodes reach them."""
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._metadata = metadata
        self._request = request
        self._pause_s = pause_s
        self._was_known = False
        self._superseded: ControllerRegistration | None = None
        self._is_acknowledged = False
        self._task: asyncio.Task[None] | None = None

    def on_publication(self, publication: Publication) -> None:
        self._register_if_due()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._register_if_due()

    async def close(self) -> None:
        await background.end(self._task)

    def _register_if_due(self) -> None:
        image = self._metadata.image
        known = image.cluster.controllers.get(self._node_id)
        if known is not None and known.incarnation_id == self._incarnation_id:
            self._was_known = True
            self._is_acknowledged = False
        elif (
            (self._task is None or self._task.done())
            # The metadata shows a committed registration shortly after the response.
            and not (self._is_acknowledged and known is self._superseded)
            and self._metadata.leader.leader_id >= 0
            and image.features.is_bootstrapped
            and image.metadata_version >= CONTROLLER_REGISTRATION_LEVEL
        ):
            pause_s = 0.0
            if known is not None and self._was_known:
                log.error(
                    "another process registered as controller %d after this one: incarnation %s at "
                    "%s; two nodes must not have the same node.id",
                    self._node_id,
                    uuid_text(known.incarnation_id),
                    ", ".join(f"{e.listener}://{e.host}:{e.port}" for e in known.endpoints),
                )
                pause_s = self._pause_s
            self._superseded, self._is_acknowledged = known, False
            self._task = background.run_once(self._register(pause_s), "controller registration")

    async def _register(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        request = ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            listeners=listener_rows(ControllerRegistrationRequest.Listener, self.endpoints),
            features=feature_rows(ControllerRegistrationRequest.Feature, SUPPORTED_FEATURES),
        )
        try:
            response = await self._request(request)
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code), response.error_message)
            self._is_acknowledged = True
        except ApiError as error:
            log.warning("controller registration: %s", error)
