"""Processes that work for an audit, and end with it."""

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import ForkContext
from typing import TypeVar

T = TypeVar("T")
ResultT = TypeVar("ResultT")


def forked_pool(
    jobs: int, context: ForkContext, adopt: Callable[[T], None], state: T
) -> ProcessPoolExecutor:
    """Return processes that have a state of this one; what is locked in it, they share.

    Args:
        adopt: is called in each of them with the state.
    """
    return ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(adopt, state))


def submitted_to(
    pool: ProcessPoolExecutor, function: Callable[[T], ResultT], argument: T
) -> Future[ResultT]:
    """Call a function in a process; the future has failed already if one was killed before."""
    try:
        return pool.submit(function, argument)
    except BrokenProcessPool as error:
        failed: Future[ResultT] = Future()
        failed.set_exception(error)
        return failed


def _begin(adopt: Callable[[T], None], state: T) -> None:
    adopt(state)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process if the audit is killed: the pool would let it read on, and then wait."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
