"""Cordons of an execution: set once the file names them, and removed for certain."""

import time
from typing import Final

from spindle.client.admin.cordons import CordonRefused, cordon, cordoned_entries, uncordon
from spindle.client.blocking.client import WireClient
from spindle.config.cordon_notes import CordonNote
from spindle.operations.events import Cordoned, NotUncordoned, OnProgress
from spindle.operations.execution.execution_file import ExecutionFile

_CORDON_SEEN_S: Final = 3.0
"""Time in which a broker hears of a cordon that was set a moment ago."""
_CORDON_GONE_S: Final = 15.0
"""Time in which a broker hears that a cordon was removed."""
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
    """Remove the cordons that an execution has set; those that stay are left in the file.

    A broker shows its own configuration, and gets a change later than the controller. So a cordon
    that it does not show may be one that it does not have yet.

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
            # Perhaps the execution was killed before it set this cordon, or an operator removed it.
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
