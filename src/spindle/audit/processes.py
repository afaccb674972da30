"""Worker processes of an audit."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.context import ForkContext
from typing import TypeVar

T = TypeVar("T")
ResultT = TypeVar("ResultT")


@contextmanager
def forked_pool(
    jobs: int, context: ForkContext, adopt: Callable[[T], None], state: T
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes that inherit a state of this one and share its locks.

    They end at once if an exception leaves the block, as after Ctrl-C.

    Args:
        adopt: called in each process with the state.
    """
    # The processes read from a pipe whose other end only this process has; when it ends, they end.
    reader, writer = os.pipe()
    with ExitStack() as stack:
        stack.callback(os.close, reader)
        end_processes = stack.enter_context(ExitStack())
        end_processes.callback(os.close, writer)
        pool = ProcessPoolExecutor(
            jobs, context, initializer=_begin, initargs=(reader, writer, adopt, state)
        )
        try:
            yield pool
        except BaseException:
            end_processes.close()
            with suppress(RuntimeError):  # Ctrl-C, before the pool has started its thread
                pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown()


def submitted_to(
    pool: ProcessPoolExecutor, function: Callable[[T], ResultT], argument: T
) -> Future[ResultT]:
    """Call a function in a process; if a process was killed before, the future has failed."""
    try:
        return pool.submit(function, argument)
    except BrokenProcessPool as error:
        failed: Future[ResultT] = Future()
        failed.set_exception(error)
        return failed


def _begin(reader: int, writer: int, adopt: Callable[[T], None], state: T) -> None:
    # A terminal sends Ctrl-C to this process as well. If it ended while holding a lock, the others
    # would wait forever; so only the parent ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.close(writer)
    adopt(state)
    threading.Thread(target=_end_after, args=(reader,), daemon=True).start()


def _end_after(reader: int) -> None:
    """End this process when the audit has ended or was killed."""
    os.read(reader, 1)
    os._exit(1)
