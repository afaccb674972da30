"""Cordons of an execution: set after the file names them, and removed reliably."""

import time
from typing import Final

from spindle.client.admin.cordons import CordonRefused, cordon, cordoned_entries, uncordon
from spindle.client.blocking.client import WireClient
from spindle.config.cordon_notes import CordonNote
from spindle.operations.events import Cordoned, NotUncordoned, OnProgress
from spindle.operations.execution.execution_file import ExecutionFile

_CORDON_SEEN_S: Final = 3.0
"""Time for a broker to learn a cordon that was just set."""
_CORDON_GONE_S: Final = 15.0
"""Time for a broker to learn the removal of a cordon."""
_PAUSE_S: Final = 0.2


def set_cordon(client: WireClient, broker_id: int, path: str, report: OnProgress) -> None:
    """Cordon a directory; the file of the execution names it already.

    Raises:
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    cordon(client, broker_id, CordonNote(path))
    report(Cordoned(broker_id, path))


def remove_cordons(
    client: WireClient, broker_id: int, file: ExecutionFile, report: OnProgress
) -> None:
    """Remove the cordons that an execution has set; failed ones stay in the file.

    A broker reports its own configuration, and learns a change later than the controller. So it may
    not report a cordon yet that was set already.

    Raises:
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    for path in list(file.cordoned):
        problem = remove_cordon(client, broker_id, path)
        if problem is not None:
            report(NotUncordoned(broker_id, path, problem))
        if problem is None or path not in cordoned_entries(client, broker_id):
            file.cordoned.remove(path)


def remove_cordon(client: WireClient, broker_id: int, path: str) -> str | None:
    """Remove one cordon, and return why it could not be removed or is still there.

    Raises:
        ApiError, ClientError: the cluster refused, or could not be asked.
    """
    deadline = time.monotonic() + _CORDON_SEEN_S
    while True:
        try:
            uncordon(client, broker_id, path)
            break
        except CordonRefused as error:
            # The execution may have been killed before it set this cordon, or an operator removed
            # it.
            if time.monotonic() >= deadline:
                return str(error)
        time.sleep(_PAUSE_S)
    deadline = time.monotonic() + _CORDON_GONE_S
    while path in cordoned_entries(client, broker_id):
        if time.monotonic() >= deadline:
            return (
                f"broker {broker_id} still shows the cordon of {path}, {_CORDON_GONE_S:.0f} s "
                f"after it was removed: look with spindle disks list --broker {broker_id}"
            )
        time.sleep(_PAUSE_S)
    return None
