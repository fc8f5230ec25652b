"""Reads from a plugin's manifest what its handler has in tests: config, the variables of capabilities.env, and the buckets of
capabilities.kv. `quern` itself checks manifests; this reads mappings of texts, as they are written there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Iterator, NamedTuple

_KEY = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'\[\]{},#:]+)\s*:(?=\s|$)""")
_BUCKET = re.compile(r"""(?:^|[\s{,-])bucket:\s+("[^"]*"|'[^']*'|[^,}\]#\n]+)""")
_QUOTED = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(?=$|[,}]|#)""")


class Manifest(NamedTuple):
    config: dict[str, str]
    env: dict[str, str]
    buckets: list[str]


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
        capabilities = _section(lines, "capabilities")
        buckets = [_text(found) for found in _BUCKET.findall("\n".join(_section(capabilities, "kv")))]
        return Manifest(_texts(_section(lines, "config")), _texts(_section(capabilities, "env")), buckets)
    except ValueError as error:
        raise ValueError(f"{path}: {error}: write config and capabilities.env as lines NAME: VALUE, for tests to read them") from None


def _section(lines: list[str], key: str) -> list[str]:
    """The value of a key: the lines below it, or what is behind the key."""
    lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(lines) == 1 and lines[0].lstrip().startswith("{"):
        return [value for name, value in _flow(lines[0]) if name == key]
    depth = min((_depth(line) for line in lines), default=0)
    for number, line in enumerate(lines):
        found = _KEY.match(line)
        if found and _depth(line) == depth and _text(found[1]) == key:
            rest = line[found.end():].strip()
            below = []
            for after in lines[number + 1:]:
                if _depth(after) < depth + (not after.lstrip().startswith("- ")):
                    break
                below.append(after)
            if rest.startswith(("{", "[")):
                return [" ".join([rest, *(line.strip() for line in below)])]
            return below
    return []


def _texts(lines: list[str]) -> dict[str, str]:
    if len(lines) == 1 and lines[0].lstrip().startswith("{"):
        return {name: _text(value) for name, value in _flow(lines[0])}
    texts = {}
    for line in lines:
        found = _KEY.match(line)
        if not found or _depth(line) != _depth(lines[0]):
            raise ValueError(f"{line.strip()!r} is not read in tests")
        texts[_text(found[1])] = _text(line[found.end():])
    return texts


def _flow(text: str) -> Iterator[tuple[str, str]]:
    """The keys and values of a mapping in braces."""
    at = text.index("{") + 1
    while text[at:].strip() and not text[at:].lstrip().startswith("}"):
        found = _KEY.match(text, at)
        if not found:
            raise ValueError(f"{text.strip()!r} is not read in tests")
        at, start, open, quote = found.end(), found.end(), 0, ""
        while at < len(text) and (quote or open or text[at] not in ",}"):
            c = text[at]
            if quote:
                quote = "" if c == quote and text[at - 1] != "\\" else quote
            elif c in "\"'" and not text[start:at].strip():
                quote = c
            else:
                open += (c in "{[") - (c in "}]")
            at += 1
        yield _text(found[1]), text[start:at]
        at += text[at:at + 1] == ","


def _text(value: str) -> str:
    """The text that is written so."""
    if found := _QUOTED.match(value):
        quoted = found[1]
        return json.loads(quoted) if quoted[0] == '"' else quoted[1:-1].replace("''", "'")
    value = re.split(r"\s#", " " + value, maxsplit=1)[0].strip()
    if value[:1] in ("|", ">", "&", "*", "!", "[", "{", '"', "'"):
        raise ValueError(f"{value!r} is not read in tests")
    return value


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
