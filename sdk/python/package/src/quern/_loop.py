"""asyncio without sockets: tasks, sleep, timeouts, locks, queues. The host's functions do not wait for anything else, so
nothing but timers wakes the loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Optional

from .errors import Failure

LOST = "a task of asyncio that nothing has awaited failed: "

lost: list[BaseException] = []
"""What tasks have raised that nothing has awaited. The engine fails the task with the first of them."""


class _Timers:
    """The loop's selector, which has nothing to select from."""

    def select(self, timeout: Optional[float]) -> list[Any]:
        if timeout is None:
            raise Failure("the handler awaits what nothing can end: no task is ready, and no timer is set")
        if timeout > 0:
            time.sleep(timeout)
        return []


class Loop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._selector = _Timers()

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Calls the function now: there are no threads."""
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and self._exception_handler is None and "was never retrieved" in context.get("message", ""):  # type: ignore[attr-defined]
            lost.append(error)
        else:
            super().call_exception_handler(context)

    def close(self) -> None:
        self._find_lost()
        super().close()

    def _find_lost(self) -> None:
        """Looks at tasks that have ended and still exist. The others have told call_exception_handler."""
        if self._exception_handler is None:  # type: ignore[attr-defined]
            for task in list(asyncio.tasks._all_tasks):  # type: ignore[attr-defined]
                if task.get_loop() is self and task.done() and task._log_traceback and (error := task.exception()) is not None:
                    lost.append(error)

    def finish(self) -> None:
        """Cancels what the handler has left running, as asyncio.run does, and its timers: after a warm call tasks follow."""
        left = asyncio.all_tasks(self)
        if left:
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._find_lost()
        self._scheduled.clear()  # type: ignore[attr-defined]
        self._ready.clear()  # type: ignore[attr-defined]


class _Policy(asyncio.events.BaseDefaultEventLoopPolicy):
    _loop_factory = Loop


def install() -> None:
    asyncio.set_event_loop_policy(_Policy())  # type: ignore[abstract]
