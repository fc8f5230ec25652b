"""Which server a client speaks to."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple, Optional

class Server(NamedTuple):
    url: str
    token: str
    tenant: str


def find(url: Optional[str], token: str, tenant: str) -> Server:
    """The server of these arguments. Without a URL it is that of QUERN_SERVER, with QUERN_TOKEN and QUERN_TENANT, as of the program
    `quern`; else that of a running `quern dev`."""
    import httpx

    if url is None and (url := os.environ.get("QUERN_SERVER", "")):
        token, tenant = token or os.environ.get("QUERN_TOKEN", ""), tenant or os.environ.get("QUERN_TENANT", "")
    url = url if url is not None and url != "" else _dev()
    parsed = httpx.URL(url)
    if parsed.scheme in ("redis", "rediss"):
        raise ValueError("the URL is that of Redis, and Client speaks HTTP: for Redis use RedisClient(url), or give the URL of the API")
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise ValueError(f"the URL of the server {url!r}: use one like http://127.0.0.1:9465")
    if parsed.userinfo:
        raise ValueError("the URL of the server has a user: leave that out, and give a token")
    token = token.strip()
    if not all("!" <= c <= "~" for c in token):
        raise ValueError("the token has characters that no token has: give it as it was printed")
    return Server(url.rstrip("/"), token, tenant or "blueque")


def _dev() -> str:
    """The URL of a running `quern dev`, which writes it into a file."""
    try:
        fields = json.loads(_dev_file().read_text())
        url, process = fields["admin"], fields["pid"]
        os.kill(process, 0)
    except (OSError, OverflowError, ValueError, TypeError, KeyError):
        raise ValueError(
            "no URL of a server: give one, such as Client('http://127.0.0.1:9465'), set QUERN_SERVER, or start `quern dev`"
        ) from None
    if not url:
        raise ValueError("the running `quern dev` serves no API: start it without --admin '', or give the URL of a server")
    return url


def _dev_file() -> Path:
    """As in cmd/quern/connect."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(folder):
        folder = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(folder):
        folder = str(Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache"))
    return Path(folder, "quern", "dev.json")
