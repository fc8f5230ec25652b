"""Tells which part of a value JSON does not express."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterator, Optional, Tuple

MOST_DEPTH = 900  # of values in each other, below the limit of recursion

_REMEDIES = {"bytes": ".decode()", "date": ".isoformat()", "datetime": ".isoformat()", "time": ".isoformat()"}
_CALLS = {"set": "list", "frozenset": "list", "generator": "list", "dict_keys": "list", "dict_values": "list"}

Part = Tuple[str, Any]


def culprit(what: str, value: Any, plain: Optional[Callable[[Any], Any]] = None) -> Optional[Exception]:
    """The error of the first part that JSON does not express, by its path from what on; None if there is none. plain makes what JSON
    expresses of other values, or raises TypeError."""
    open: list[tuple[int, Iterator[Part]]] = [(0, iter([(what, value)]))]
    while open:
        path, part = next(open[-1][1], ("", None))
        if not path:
            open.pop()
        elif part is None or isinstance(part, int):
            pass
        elif isinstance(part, float):
            if not math.isfinite(part):
                return ValueError(f"{path} is {part}, which JSON does not express: use None, or str(…)")
        elif isinstance(part, str):
            if plain is None and (half := next((c for c in part if "\ud800" <= c <= "\udfff"), "")):
                return ValueError(f"{path} has half a surrogate pair (U+{ord(half):04X}), which UTF-8 does not express: use str(…).encode(errors='replace')")
        elif any(id(part) == seen for seen, _ in open):
            return ValueError(f"{path} contains itself, which JSON does not express: leave it out")
        elif len(open) > MOST_DEPTH:
            return ValueError(f"{what} has more than {MOST_DEPTH} values in each other: make it flatter")
        else:
            try:
                open.append((id(part), _parts(path, part, plain)))
            except TypeError as error:
                return error
    return None


def _parts(path: str, value: Any, plain: Optional[Callable[[Any], Any]]) -> Iterator[Part]:
    if isinstance(value, dict):
        for key in value:
            if not (key is None or isinstance(key, (str, int, float))):
                raise TypeError(f"{path} has the key {key!r}, which JSON does not express: use a str")
        return iter([(f"{path}.{key}" if str(key).isidentifier() else f"{path}[{key!r}]", part) for key, part in value.items()])
    if isinstance(value, (list, tuple)):
        return iter([(f"{path}[{n}]", part) for n, part in enumerate(value)])
    if plain is not None:
        try:
            return iter([(path, plain(value))])
        except TypeError:
            pass
    kind = type(value).__name__
    remedy = f"{_CALLS.get(kind, 'str')}(…)" if kind not in _REMEDIES else "…" + _REMEDIES[kind]
    if kind == "coroutine":
        remedy = "await …"
    article = "an" if kind[:1] in "aeiouAEIO" else "a"
    raise TypeError(f"{path} is {article} {kind}, which JSON does not express: use {remedy}")
