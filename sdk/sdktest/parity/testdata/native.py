"""Runs handler.py as quern.testing does, with the services that the sandbox has, and prints what became of it."""

import json
import sys
from http.client import HTTPConnection
from urllib.parse import urlsplit

import handler
import quern
from quern import testing


def http(method, url, headers, body):
    parts = urlsplit(url)
    if parts.hostname == "denied.example":
        raise quern.DeniedError()
    connection = HTTPConnection(parts.netloc)
    connection.putrequest(method, url.removeprefix(f"{parts.scheme}://{parts.netloc}") or "/")
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        for one in [value] if isinstance(value, str) else value:
            connection.putheader(name, one)
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, {name: answer.headers.get_all(name) for name in answer.headers}, answer.read()


result = testing.run(
    handler.handle, sys.argv[1], id="7f", queue="print", tenant="acme", plugin="printer", attempt=2, max_attempts=5,
    previous_error="oh", parent="6e", key="k", traceparent="00-1-2-01", headers={"x-b": "2: ü", "x-a": ""}, config={"size": "200x200"},
    secrets={"api_key": "xyz"}, queues=["done", "mail.*"], topics=["orders", "bills.*"],
    after={"empty": b"", "full": b"full\0", "bad": None}, kv={"rw": {}, "list": {}}, http=http,
)
json.dump({
    "status": result.status, "output": result.output.decode(), "error": result.error, "delay": result.delay or 0,
    "log": [
        ("" if level == "INFO" else level.lower() + ": ") + text + (" " + quern._host.to_json(fields).decode() if fields else "")
        for level, text, fields in result.log
    ],
    "progress": result.progress,
}, sys.stdout)
