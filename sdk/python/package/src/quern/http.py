"""HTTP through the host, which resolves names, speaks TLS and keeps connections. The manifest grants it:

    capabilities:
      http: [{host: "https://api.example.com", methods: [GET, POST]}]

Redirects are answers like any other status. urllib.request works as well, over the same.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Sequence, Union

from . import _host
from .errors import Duration, Failure, HostError, Retry

_AGAIN = frozenset((408, 425, 500, 502, 503, 504))
_MOST_DELAY = 365 * 86400


class HTTPError(Failure):
    """An answer whose status is none of success; see Response.raise_for_status."""

    def __init__(self, text: str, response: Response) -> None:
        super().__init__(text)
        self.response = response


class Headers(Mapping[str, str]):
    """Headers by name, in any case. Several values of one name are joined by ", "; all returns them one by one."""

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = {name.lower(): list(value) for name, value in values.items()}

    def __getitem__(self, name: str) -> str:
        return ", ".join(self._values[name.lower()])

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def all(self, name: str) -> list[str]:
        return self._values.get(name.lower(), [])

    def __repr__(self) -> str:
        return f"Headers({dict(self)!r})"


class Response:
    """An answer of any status."""

    def __init__(self, method: str, url: str, status: int, headers: Headers, content: bytes) -> None:
        self.method, self.url, self.status, self.headers, self.content = method, url, status, headers, content

    @property
    def status_code(self) -> int:
        return self.status

    @property
    def ok(self) -> bool:
        return 200 <= self.status <= 299

    @property
    def text(self) -> str:
        charset = "utf-8"
        for part in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = part.partition("=")
            if name.strip().lower() == "charset":
                charset = value.strip(" \"'")
        try:
            return self.content.decode(charset, "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        return _host.from_json(self.content)

    @property
    def retry_after(self) -> Optional[float]:
        """The seconds of the header Retry-After, a number or a date; at most a year. None without a valid one."""
        value = self.headers.get("retry-after", "").strip()
        if value.isascii() and value.isdigit():
            return min(float(value), _MOST_DELAY)
        if not value:
            return None
        from datetime import datetime, timezone
        from email.utils import parsedate_to_datetime

        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (at.replace(tzinfo=at.tzinfo or timezone.utc) - datetime.now(timezone.utc)).total_seconds()
        return min(max(seconds, 0.0), _MOST_DELAY)

    def raise_for_status(self) -> None:
        """Raises Retry, which counts no attempt, if the server asks to come again later: with 429, or with the header Retry-After and
        408, 425, 500, 502, 503 or 504. Raises HTTPError for any other status that is none of success."""
        if self.ok:
            return
        text = f"{self.method} {_shown(self.url)}: the answer has status {self.status}"
        if self.status == 429 or self.status in _AGAIN and self.retry_after is not None:
            raise Retry(text, delay=self.retry_after)
        raise HTTPError(text, self)

    def __repr__(self) -> str:
        return f"<Response {self.status}>"


def request(
    method: str,
    url: str,
    *,
    params: Union[Mapping[str, Any], Sequence[tuple[str, Any]], None] = None,
    headers: Optional[Mapping[str, Union[str, Sequence[str]]]] = None,
    data: Any = None,
    json: Any = None,
    timeout: Optional[Duration] = None,
) -> Response:
    """Sends a request and waits for the answer.

    params go into the URL; data is bytes, str or a mapping for a form; json is sent as JSON. timeout shortens the host's.
    DeniedError: the manifest does not grant the method or the host. UnavailableError: there is no answer, or not in time.
    """
    sent = dict(headers or {})
    names = {name.lower() for name in sent}
    if params:
        from urllib.parse import urlencode

        url, mark, fragment = url.partition("#")
        url += ("&" if "?" in url else "?") + urlencode(params, doseq=True) + mark + fragment
    if json is not None:
        data = _host.to_json(json)
        if "content-type" not in names:
            sent["Content-Type"] = "application/json"
    elif isinstance(data, Mapping):
        from urllib.parse import urlencode

        data = urlencode(data, doseq=True)
        if "content-type" not in names:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
    head: dict[str, Any] = {"method": method, "url": url}
    if sent:
        head["headers"] = sent
    if timeout is not None:
        head["timeout_ms"] = _host.milliseconds(timeout)
    try:
        answer, content = _host.functions.http(_host.to_json(head), _host.encoded(data))
    except HostError as error:
        error.args = error.args or (f"{method} {_shown(url)}",)
        if error.about.startswith(f"{method} "):
            error.about = error.about.partition(": ")[2]  # the request is named above, with its path
        raise
    answer = _host.from_json(answer)
    return Response(method, url, answer["status"], Headers(answer["headers"]), content)


def get(url: str, **options: Any) -> Response:
    return request("GET", url, **options)


def head(url: str, **options: Any) -> Response:
    return request("HEAD", url, **options)


def post(url: str, data: Any = None, **options: Any) -> Response:
    return request("POST", url, data=data, **options)


def put(url: str, data: Any = None, **options: Any) -> Response:
    return request("PUT", url, data=data, **options)


def patch(url: str, data: Any = None, **options: Any) -> Response:
    return request("PATCH", url, data=data, **options)


def delete(url: str, **options: Any) -> Response:
    return request("DELETE", url, **options)


def _shown(url: str) -> str:
    """The URL without what may be secret, for errors."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        return "an invalid URL"
