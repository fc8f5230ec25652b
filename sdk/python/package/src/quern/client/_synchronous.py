from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional

from .._hints import CLIENT, HANDLE, QUEUE, Hinted
from . import _calls as calls
from ._errors import APIError, TaskFailed, headline
from ._models import Publication, Task
from ._options import Options, defaults, keywords
from ._server import find

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Never, Unpack


class Handle(Hinted):
    """An enqueued task. existed: it was there before, or, with an ID of your own, a repeated request had enqueued it.
    taken: what existed is something else, a task of another queue or with other parameters. unserved: no host serves the queue, and
    none is known to have done so."""

    _what, _others = "a handle", HANDLE

    def __init__(self, client: Client, enqueued: calls.Enqueued) -> None:
        self._client = client
        self.id, self.queue, self.existed, self.taken, self.unserved = enqueued

    def wait(self, timeout: Optional[float] = None) -> Task:
        """Waits for the end of the task: see Client.wait."""
        return self._client.wait(self.id, timeout)

    def task(self) -> Task:
        """The task as it is now."""
        return self._client.task(self.id)

    def cancel(self) -> bool:
        return self._client.cancel(self.id)

    def __repr__(self) -> str:
        return f"<task {self.id} of {self.queue}>"


class Queue(Hinted):
    """A queue of a client, with the options of its tasks. Options of a call go before these."""

    _what, _others = "a queue", QUEUE

    def __init__(self, client: Client, name: str, **options: Unpack[Options]) -> None:
        self._client, self.name, self._options = client, name, defaults(options)

    def enqueue(self, parameters: Any = None, **options: Unpack[Options]) -> Handle:
        return self.enqueue_many([(parameters, options)])[0]

    def delay(self, /, *values: Never, **parameters: Any) -> Handle:
        """Enqueues a task whose parameters are the keyword arguments, as an object of JSON."""
        return self.enqueue(keywords(values, parameters))

    def enqueue_many(self, items: Iterable[calls.Item]) -> list[Handle]:
        return self._client.enqueue_many(self.name, calls.with_defaults(items, self._options))


class Client(Hinted):
    """A client of the API at a URL such as http://127.0.0.1:9465, with the base path if there is one. Without a
    URL it is the server of QUERN_SERVER, or a running `quern dev`.

    Threads may share a client: it keeps its connections. Requests that find no server, or a busy one, are repeated up to
    retries times; a repeated request enqueues nothing twice. timeout bounds each answer, in seconds. http is an httpx.Client
    of your own, for instance with a private CA or a client certificate. Errors are APIError.
    """

    _what, _others = "a client", CLIENT

    def __init__(
        self, url: Optional[str] = None, *, token: str = "", tenant: str = "", timeout: float = 30.0, retries: int = 5,
        http: Optional[httpx.Client] = None,
    ) -> None:
        try:
            import httpx
        except ImportError as missing:
            raise ImportError("quern.client needs httpx: pip install 'quern[client]'") from missing
        self._url, token, self.tenant = find(url, token, tenant)
        self._retries, self._timeout = retries, timeout
        self._own, self._process = http is None, os.getpid()
        self._http = http or httpx.Client()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def enqueue(self, queue: str, parameters: Any = None, **options: Unpack[Options]) -> Handle:
        """Enqueues a task. Parameters are bytes, a str, None, or what JSON can express."""
        return self.enqueue_many(queue, [(parameters, options)])[0]

    def enqueue_many(self, queue: str, items: Iterable[calls.Item]) -> list[Handle]:
        """Enqueues tasks in their order: parameters, or tuples of parameters and options. An error can come after some of the
        tasks are enqueued: give them IDs to repeat the call."""
        handles: list[Handle] = []
        for call in calls.batches(queue, items):
            answer = self._send(call)
            with answer.understood():
                handles += [Handle(self, one) for one in calls.receipts(call, answer)]
        return handles

    def queue(self, name: str, **options: Unpack[Options]) -> Queue:
        """A queue, with options for all tasks that are enqueued through it."""
        return Queue(self, name, **options)

    def task(self, id: str) -> Task:
        """The task as it is now, with its result if it is complete. A missing one is a NoTaskError."""
        return self._with_result(self._task(calls.task(id)))

    def wait(self, id: str, timeout: Optional[float] = None) -> Task:
        """Waits until the task is complete, for timeout seconds at most (None: without end). It raises TaskFailed if the task
        has failed, and TimeoutError if it has not ended in time."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = calls.LONG_POLL if end is None else min(calls.LONG_POLL, end - time.monotonic())
            task = self._task(calls.task(id, max(left, 0.0)), end)
            if task.status == "failed":
                raise TaskFailed(task, self._cause_of(task))
            if task.finished:
                return self._with_result(task)
            if end is not None and time.monotonic() >= end:
                raise calls.late(task, timeout)

    def _cause_of(self, task: Task) -> str:
        """Describes the task that failed by itself and so made this one fail; "" if none did, or it cannot be read."""
        cause = ""
        for _ in range(calls.MOST_CAUSES):
            if not (id := calls.culprit(task)):
                break
            try:
                task = self._task(calls.task(id))
            except APIError:
                break
            cause = f"{task.queue}: {headline(task)}"
        return cause

    def cancel(self, id: str) -> bool:
        """Cancels a task. True: it has ended. False: a host runs it and stops it now."""
        try:
            return self._send(calls.cancel(id)).fields().get("ended", False)
        except APIError as refused:
            if refused.status == 409 and self.task(id).reason == "cancelled":
                return True  # a repeated request, whose first answer was lost, or somebody else's
            raise

    def publish(
        self, topic: str, payload: Any = None, *, id: str = "", attributes: Mapping[str, str] = {}, parent: str = "",
        traceparent: str = "", tracestate: str = "",
    ) -> Publication:
        """Publishes to a topic: each of its subscriptions gets a task with the payload. parent is the task that it comes from."""
        call = calls.publish(topic, payload, id, attributes, parent=parent, traceparent=traceparent, tracestate=tracestate)
        answer = self._send(call)
        with answer.understood():
            return calls.publication(call, answer.fields())

    def close(self) -> None:
        if self._own:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with_result(self, task: Task) -> Task:
        return Task(task.fields, self._send(calls.result(task.id)).body) if task.result_missing else task

    def _task(self, call: calls.Call, end: Optional[float] = None) -> Task:
        return Task(self._send(call, end).task())

    def _send(self, call: calls.Call, end: Optional[float] = None) -> calls.Answer:
        """Sends a request until it is answered; end is when the caller waits no longer, by time.monotonic."""
        import httpx

        if self._own and self._process != os.getpid():  # after a fork: both processes would read from one connection
            self._http, self._process = httpx.Client(), os.getpid()
        patience = calls.Patience(self._retries, end)
        url = self._url + calls.path_of(self.tenant, call.path)
        while True:
            try:
                answer = self._http.request(
                    call.method, url, params=call.query, content=call.body, json=call.json,
                    headers={**self._headers, **call.headers}, timeout=patience.bound(self._timeout + call.wait),
                )
            except (httpx.TransportError, httpx.DecodingError) as error:
                time.sleep(patience.without_answer(error, self._url))
                continue
            body = calls.Answer(f"{call.method} {url}", answer.content, answer.headers.get("Quern-Warning", ""))
            if answer.is_success:
                return body
            time.sleep(patience.after(answer.status_code, body, answer.headers.get("Retry-After", "")))
