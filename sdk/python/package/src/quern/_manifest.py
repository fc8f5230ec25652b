"""Reads from a plugin's manifest what its handler has in tests: config, the variables of capabilities.env, and what capabilities
grants. `quern` itself checks manifests; this reads mappings, lists and texts, as they are written there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Iterator, NamedTuple, Sequence
from urllib.parse import urlsplit

_KEY = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'\[\]{},#:]+)\s*:(?=\s|$)""")
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')""")
_PLAIN = re.compile(r"""(?:[^\s,\[\]{}:#]|:(?![\s,\[\]{}]|$)|(?<!\s)#|[ \t]+(?![\s#,\[\]{}:]))+""")
_SPACE = re.compile(r"(?:\s|(?<!\S)#[^\n]*)*")
_SAME_DEPTH = re.compile(r"\s*(?:-(?:\s|$)|[\]}])")  # of a key, below it: items, and the end of a list or mapping
_PORTS = {"http": 80, "https": 443}


class Manifest(NamedTuple):
    """What a manifest says. The methods return why the host denies a call, "" if it is granted."""

    config: dict[str, str]
    env: dict[str, str]
    capabilities: dict[str, Any]

    @property
    def buckets(self) -> list[str]:
        return [grant["bucket"] for grant in self._list("kv")]

    def bucket(self, name: str, write: bool) -> str:
        grants, entry = self._list("kv"), f"{{bucket: {_quote(name)}{', access: rw' if write else ''}}}"
        for grant in grants:
            if grant["bucket"] == name:
                if not write or grant.get("access") == "rw":
                    return ""
                return f"denied: bucket {_quote(name)} is granted for reading only: add access: rw to bucket {_quote(name)} in capabilities.kv"
        return _denied(f"bucket {_quote(name)}", entry, "capabilities.kv" if grants else "", f"kv: [{entry}]")

    def secret(self, name: str) -> str:
        granted = self._list("secrets")
        if name in granted:
            return ""
        return _denied(f"secret {_quote(name)}", _quote(name), "capabilities.secrets" if granted else "", f"secrets: [{_quote(name)}]")

    def database(self, name: str) -> str:
        grants, entry = self._list("sql"), f"{{database: {_quote(name)}}}"
        if any(grant["database"] == name for grant in grants):
            return ""
        return _denied(f"database {_quote(name)}", entry, "capabilities.sql" if grants else "", f"sql: [{entry}]")

    def queue(self, name: str) -> str:
        return self._sending("enqueue", "queue", name)

    def topic(self, name: str) -> str:
        return self._sending("publish", "topic", name)

    def _sending(self, capability: str, what: str, name: str) -> str:
        grant = self.capabilities.get(capability)
        if grant and matches(grant.get(what + "s") or [], name):
            return ""
        into = f"{what}s in capabilities.{capability}" if grant else ""
        return _denied(f"{what} {_quote(name)}", _quote(name), into, f"{capability}: {{{what}s: [{_quote(name)}]}}")

    def request(self, method: str, url: str) -> str:
        why, grants, asked = "denied: the manifest does not allow it: add ", self._list("http"), _origin(url)
        covering = [grant for grant in grants if _covers(_origin(grant["host"]), asked)]
        if any(method in grant["methods"] for grant in covering):
            return ""
        if covering:
            return f"{why}{method} to methods of {covering[0]['host']} in capabilities.http"
        scheme, host, port = asked
        host = f"[{host}]" if ":" in host else host
        entry = f"{{host: {_quote(f'{scheme}://{host}' + (f':{port}' if port != _PORTS[scheme] else ''))}, methods: [{method}]}}"
        return f"{why}{entry} to capabilities.http" if grants else f"{why}capabilities: {{http: [{entry}]}}"

    def _list(self, capability: str) -> list[Any]:
        return self.capabilities.get(capability) or []


def matches(patterns: Sequence[str], name: str) -> bool:
    """Whether a pattern, in which * stands for any text, matches a name."""
    for pattern in patterns:
        head, wild, tail = pattern.partition("*")
        if pattern == name or wild and len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail):
            return True
    return False


def _denied(what: str, entry: str, into: str, line: str) -> str:
    return f"denied: {what} is not granted: add " + (f"{entry} to {into}" if into else f"capabilities: {{{line}}}")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)


def _covers(granted: tuple[str, str, int], asked: tuple[str, str, int]) -> bool:
    scheme, host, port = granted
    if (scheme, port) != (asked[0], asked[2]):
        return False
    return host == asked[1] or host.startswith("*.") and asked[1].endswith(host[1:]) and asked[1] != host[1:]


def path_of(folder: Path) -> Path:
    """The manifest that has the folder's name, or else the only one, names the plugin. FileNotFoundError if there is none."""
    own, found = folder.resolve().name, sorted(folder.glob("*.yaml"))
    for path in found:
        if path.stem == own or len(found) == 1:
            return path
    raise FileNotFoundError(f"{folder} has {len(found)} manifests: expected {own}.yaml, after the folder")


def read(path: Path) -> Manifest:
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        read = {key: _value(rest, below) for key, rest, below in _entries(lines) if key in ("config", "capabilities")}
        capabilities = read.get("capabilities") or {}
        manifest = Manifest(read.get("config") or {}, capabilities.get("env") or {}, capabilities)
        _ = manifest.bucket("", True), manifest.database(""), manifest.queue(""), manifest.topic(""), manifest.request("", "http://a")
        return manifest  # whose grants can all be read
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = error if type(error) is ValueError else f"config or capabilities: {type(error).__name__}: {error}"
        raise ValueError(f"{path}: {why}: write config and capabilities as in `quern help manifest`, for tests to read them") from None


def _entries(lines: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """The keys of a mapping, each with what stands behind it and the lines below it."""
    lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#") and line.strip() != "---"]
    number, depth = 0, _depth(lines[0]) if lines else 0
    while number < len(lines):
        line = lines[number]
        found, below = _KEY.match(line), []
        if not found or _depth(line) != depth:
            raise ValueError(f"{line.strip()!r} is not read in tests")
        number += 1
        while number < len(lines) and _depth(lines[number]) >= depth + (not _SAME_DEPTH.match(lines[number])):
            below.append(lines[number])
            number += 1
        yield _text(found[1]), line[found.end():], below


def _value(rest: str, below: list[str]) -> Any:
    """A value: what stands behind its key, or else the lines below."""
    rest = "" if rest.lstrip().startswith("#") else rest.strip()
    if rest:
        if rest[0] in "|>":
            raise ValueError(f"{rest!r} is not read in tests")
        if rest[0] not in "[{":
            return _text(" ".join([rest, *(line.strip() for line in below)]))
        text = "\n".join([rest, *below])
        value, at = _flow(text, 0)
        if _space(text, at) < len(text):
            raise ValueError(f"{text[at:].strip()!r} is not read in tests")
        return value
    if not below:
        return None
    first = below[0].lstrip()
    if first[0] in "[{\"'" and not _KEY.match(first):
        return _value(first, below[1:])
    if _SAME_DEPTH.match(first):
        return list(_items(below))
    return {key: _value(behind, lines) for key, behind, lines in _entries(below)}


def _items(lines: list[str]) -> Iterator[Any]:
    depth, item = _depth(lines[0]), list[str]()
    for line in [*lines, " " * depth + "- "]:
        if _depth(line) == depth and _SAME_DEPTH.match(line):
            if item:
                yield _value(item[0], item[1:]) if not _KEY.match(item[0]) else _value("", item)
            item = [line.replace("-", " ", 1)]
        else:
            item.append(line)


def _flow(text: str, at: int) -> tuple[Any, int]:
    """The value in brackets, braces or quotes, or the text, at a place; and the place behind it."""
    at = _space(text, at)
    if found := _QUOTED.match(text, at) or _PLAIN.match(text, at):
        return _text(found[0]), found.end()
    if text[at:at + 1] not in ("[", "{"):
        raise ValueError(f"{text[at:].strip()!r} is not read in tests")
    close, items, pairs = "]" if text[at] == "[" else "}", [], {}
    at = _space(text, at + 1)
    while text[at:at + 1] != close:
        value, at = _flow(text, at)
        at = _space(text, at)
        if close == "]":
            items.append(value)
        elif text[at:at + 1] == ":":
            pairs[value], at = _flow(text, at + 1)
            at = _space(text, at)
        else:
            raise ValueError(f"{text.strip()!r} is not read in tests")
        if text[at:at + 1] == ",":
            at = _space(text, at + 1)
        elif text[at:at + 1] != close:
            raise ValueError(f"{text.strip()!r} is not read in tests")
    return items if close == "]" else pairs, at + 1


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _text(value: str) -> str:
    """The text that is written so."""
    value = value.strip()
    if (found := _QUOTED.match(value)) and re.fullmatch(r"\s*(\s#.*)?", value[found.end():]):
        quoted = found[1]
        return json.loads(quoted) if quoted[0] == '"' else quoted[1:-1].replace("''", "'")
    value = re.split(r"\s#", " " + value, maxsplit=1)[0].strip()
    if value[:1] in ("|", ">", "&", "*", "!", "[", "{", '"', "'"):
        raise ValueError(f"{value!r} is not read in tests")
    return value


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
