"""JSON of what Python has, and which part of a value JSON does not express."""

from __future__ import annotations

import math
from typing import Any, Iterator, Optional, Tuple

MOST_DEPTH = 900  # of values in each other, below the limit of recursion

_REMEDIES = {"bytes": ".decode()", "date": ".isoformat()", "datetime": ".isoformat()", "time": ".isoformat()"}
_CALLS = {"set": "list", "frozenset": "list", "generator": "list", "dict_keys": "list", "dict_values": "list"}

Part = Tuple[str, Any]


def plain(value: Any) -> Any:
    """What JSON expresses of a value of a common type; TypeError of others."""
    for method in ("model_dump", "isoformat", "_asdict"):
        if hasattr(value, method):
            return getattr(value, method)()
    if hasattr(value, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, (set, frozenset)):
        return list(value)
    kind = type(value)
    if f"{kind.__module__}.{kind.__qualname__}" in ("decimal.Decimal", "uuid.UUID"):
        return str(value)
    if hasattr(value, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in value.__attrs_attrs__}
    if hasattr(value, "__fields__") and hasattr(value, "dict"):
        return value.dict()
    raise TypeError(kind.__qualname__)


def culprit(what: str, value: Any, strict: bool = False) -> Optional[Exception]:
    """The error of the first part that JSON does not express, by its path from what on; None if there is none. strict: half a
    surrogate pair is an error, too."""
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
            if strict and (half := next((c for c in part if "\ud800" <= c <= "\udfff"), "")):
                return ValueError(f"{path} has half a surrogate pair (U+{ord(half):04X}), which UTF-8 does not express: use str(…).encode(errors='replace')")
        elif any(id(part) == seen for seen, _ in open):
            return ValueError(f"{path} contains itself, which JSON does not express: leave it out")
        elif len(open) > MOST_DEPTH:
            return ValueError(f"{what} has more than {MOST_DEPTH} values in each other: make it flatter")
        else:
            try:
                open.append((id(part), _parts(path, part)))
            except TypeError as error:
                return error
    return None


def _parts(path: str, value: Any) -> Iterator[Part]:
    if isinstance(value, dict):
        for key in value:
            if not (key is None or isinstance(key, (str, int, float))):
                raise TypeError(f"{path} has the key {key!r}, which JSON does not express: use a str")
        return iter([(f"{path}.{key}" if str(key).isidentifier() else f"{path}[{key!r}]", part) for key, part in value.items()])
    if isinstance(value, (list, tuple)):
        return iter([(f"{path}[{n}]", part) for n, part in enumerate(value)])
    try:
        return iter([(path, plain(value))])
    except TypeError:
        pass
    kind = type(value).__name__
    remedy = f"{_CALLS.get(kind, 'str')}(…)" if kind not in _REMEDIES else "…" + _REMEDIES[kind]
    if kind == "coroutine":
        remedy = "await …"
    article = "of the Python type" if kind == "object" else "an" if kind[:1] in "aeiouAEIO" else "a"  # JSON has objects
    raise TypeError(f"{path} is {article} {kind}, which JSON does not express: use {remedy}")
