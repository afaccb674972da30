"""Operations that run at intervals until they are cancelled."""

import time
from collections.abc import Callable
from typing import Final, NoReturn

from spindle.client.admin.refusals import failure_text
from spindle.operations.cancellation import Sleep
from spindle.operations.errors import CLUSTER_FAILURES, OperationFailed

_MS: Final = 1000


def repeat(
    check: Callable[[], object],
    interval_ms: int,
    report_failure: Callable[[str], object],
    sleep: Sleep,
    *,
    is_from_begin: bool,
) -> NoReturn:
    """Call a function at intervals. A failure ends only a single call, and is reported.

    Args:
        report_failure: called with the reason.
        sleep: raises an exception when the operation is cancelled.
        is_from_begin: the interval is between two starts, not from an end to the next start.

    Raises:
        Cancelled, KeyboardInterrupt: the operation was cancelled.
    """
    while True:
        begun_s = time.monotonic()
        try:
            check()
        except OperationFailed as error:
            report_failure(str(error))
        except CLUSTER_FAILURES as error:
            report_failure(failure_text(error))
        passed_s = time.monotonic() - begun_s if is_from_begin else 0.0
        sleep(max(0.0, interval_ms / _MS - passed_s))
