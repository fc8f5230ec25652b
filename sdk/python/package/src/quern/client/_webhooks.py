"""Receivers of webhooks: the signature of Standard Webhooks, version v1, with which hosts sign deliveries."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from typing import Mapping, Sequence, Union

PREFIX = "whsec_"


class SignatureError(ValueError):
    """A webhook does not come from the holder of the secret, or is a recording: answer 401."""


def verify(headers: Mapping[str, str], body: Union[bytes, str], secret: Union[str, Sequence[str]], *, tolerance: float = 300.0) -> str:
    """Checks the signature of a webhook, and returns its ID, which is the same whenever it is delivered again.

    body is that of the request as it came, not its JSON. secret is the text of the secret's file on the host; while it is
    changed, a sequence of the old and the new one. tolerance bounds the difference of the clocks, in seconds. SignatureError if
    the signature is wrong, missing or too old.
    """
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise TypeError(f"verify: the body is a {type(body).__name__}: give the bytes of the request as they came, before json.loads")
    keys = [_key(one) for one in ([secret] if isinstance(secret, str) else secret)]
    given = {name.lower(): value for name, value in headers.items()}
    values = []
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        if not given.get(name):
            raise SignatureError(f"the header {name} is missing: the webhook is not signed, or a proxy has removed it")
        values.append(given[name])
    id, timestamp, signatures = values
    try:
        age = abs(time.time() - int(timestamp))
    except ValueError:
        raise SignatureError(f"webhook-timestamp {timestamp!r}: expected seconds of Unix time") from None
    if age > tolerance:
        raise SignatureError(f"webhook-timestamp is {age:.0f} s away, more than {tolerance:.0f} s: a recording, or a wrong clock")
    signed = f"{id}.{timestamp}.".encode() + bytes(body)
    expected = [b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()) for key in keys]
    if not any(hmac.compare_digest(one.encode(), want) for one in signatures.split() for want in expected):
        raise SignatureError("webhook-signature: not of this secret, or not of this body: give the body as it came")
    return id


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.strip()[len(PREFIX) :], validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.strip().startswith(PREFIX) or not 24 <= len(key) <= 64:
        raise ValueError(f"verify: the secret: use {PREFIX} and the base64 of 24 to 64 bytes, as in the host's file webhook.NAME")
    return key
