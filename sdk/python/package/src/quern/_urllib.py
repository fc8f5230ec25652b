"""urllib.request over the host: the engine's urllib.request and quern.testing send requests by this."""

from __future__ import annotations

import http.client
import io
from typing import Any
from urllib.error import URLError
from urllib.response import addinfourl

from . import http as host

_SET_BY_HOST = ("host", "content-length", "connection", "transfer-encoding")


def send(request: Any) -> Any:
    """Sends a urllib.request.Request, and returns its answer as urllib's handlers do."""
    headers = {
        name: value for name, value in {**request.headers, **request.unredirected_hdrs}.items() if name.lower() not in _SET_BY_HOST
    }
    data = request.data
    if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
        data = data.read() if hasattr(data, "read") else b"".join(data)
    timeout = request.timeout if isinstance(request.timeout, (int, float)) else None
    try:
        answer = host.request(request.get_method(), request.full_url, headers=headers, data=data, timeout=timeout)
    except host.HostError as error:
        raise URLError(error) from error
    message = http.client.HTTPMessage()
    for name in answer.headers:
        for value in answer.headers.all(name):
            message[name] = value
    response: Any = addinfourl(io.BytesIO(answer.content), message, request.full_url, answer.status)
    response.msg = response.reason = http.client.responses.get(answer.status, "")
    return response
