"""A result that comes later; its listener is called as soon as it is there.

A future of asyncio calls back in a later turn of the event loop, which costs a turn for every
request. A promise calls its listener within `settle`, so the listener runs in the middle of
whatever called `settle`, and must not rely on that being finished.
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

T = TypeVar("T")

Listener: TypeAlias = Callable[[T | None, BaseException | None], None]
"""Called with (result, None), or with (None, error)."""


class PromiseLoop(Protocol):
    """The part of an event loop that a promise uses."""

    def create_future(self) -> Any: ...
    def call_exception_handler(self, context: dict[str, Any], /) -> None: ...


class Promise(Generic[T]):
    """One answer for one listener, or for one coroutine that awaits it.

    Attributes:
        is_done: the promise was kept, broken or cancelled.
        on_cancel: called when nobody waits for the answer any more.
    """

    __slots__ = ("_error", "_listener", "_loop", "_result", "is_done", "on_cancel")

    def __init__(self, loop: PromiseLoop) -> None:
        self.is_done = False
        self.on_cancel: Callable[[], object] | None = None
        self._loop = loop
        self._listener: Listener[T] | None = None
        self._result: T | None = None
        self._error: BaseException | None = None

    def settle(self, result: T | None, error: BaseException | None = None) -> None:
        """Set the result, or the error. Do nothing if the promise is done.

        An exception of the listener goes to the event loop's exception handler, not to the caller.
        """
        if self.is_done:
            return
        self.is_done = True
        self.on_cancel = None  # it usually refers to the owner of this promise
        self._result, self._error = result, error
        listener = self._listener
        if listener is not None:
            self._listener = None
            try:
                listener(result, error)
            except Exception as failure:  # noqa: BLE001 - reported
                self._report(failure)

    def cancel(self) -> None:
        """Cancel the work without calling the callbacks. Do nothing if the promise is done."""
        if self.is_done:
            return
        self.is_done = True
        on_cancel, self.on_cancel, self._listener = self.on_cancel, None, None
        if on_cancel is not None:
            on_cancel()

    def on_done(self, listener: Listener[T]) -> None:
        """Call `listener` with the outcome, now if it is known already."""
        if not self.is_done:
            self._listener = listener
            return
        try:
            listener(self._result, self._error)
        except Exception as failure:  # noqa: BLE001 - reported
            self._report(failure)

    def _report(self, failure: Exception) -> None:
        self._loop.call_exception_handler(
            {"message": "the listener of a promise failed", "exception": failure}
        )

    def __await__(self) -> Generator[Any, None, T]:
        if not self.is_done:
            future = self._loop.create_future()
            self.on_done(lambda *_: future.done() or future.set_result(None))
            try:
                yield from future.__await__()
            except BaseException:
                self.cancel()
                raise
        if self._error is not None:
            raise self._error
        return cast(T, self._result)
