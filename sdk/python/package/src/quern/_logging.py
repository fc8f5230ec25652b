"""logging writes to the task's log: levels as they are, the logger's name and extra fields as fields of the line."""

from __future__ import annotations

import logging
from typing import Any

from . import _host
from .errors import HostError

MOST_FIELDS = 3072

_ordinary = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime", "taskName"}


class TaskLog(logging.Handler):
    """The handler of the root logger."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record).split("\n")
            _write(_level(record.levelno), lines[0], _fields(record))
            for line in lines[1:]:
                _write(_level(record.levelno), line, b"")
        except (HostError, RecursionError):
            raise
        except Exception:
            self.handleError(record)


def _level(number: int) -> int:
    return min(max(number // 10, 0), 4)


def _write(level: int, text: str, fields: bytes) -> None:
    _host.functions.log(level, text.encode(errors="replace").decode(), fields)


def _fields(record: logging.LogRecord) -> bytes:
    fields: dict[str, Any] = {name: value for name, value in record.__dict__.items() if name not in _ordinary}
    if record.name != "root":
        fields["logger"] = record.name
    if not fields:
        return b""
    try:
        data = _host.to_json(fields)
    except (TypeError, ValueError):
        data = _host.to_json({name: str(value) for name, value in fields.items()})
    return data if len(data) <= MOST_FIELDS else _shortest(fields)


def _shortest(fields: dict[str, Any]) -> bytes:
    """The fields that there is room for. The others are left out whole: the host does not find a secret that was cut."""
    texts = sorted(((name, str(value)) for name, value in fields.items()), key=lambda field: len(field[0]) + len(field[1]))
    kept, room = {}, MOST_FIELDS - 100
    for name, text in texts:
        room -= len(_host.to_json([name, text]))
        if room < 0:
            break
        kept[name] = text
    return _host.to_json({**kept, "left out": f"{len(texts) - len(kept)} fields: together they are over 3 KiB"})


_basic_config = logging.basicConfig


def _configure(**options: Any) -> None:
    """logging.basicConfig: a level and a format without another destination are for the task's log."""
    root = logging.getLogger()
    if options.get("force") or options.keys() & {"handlers", "filename", "stream"} or not _is_ours(root):
        return _basic_config(**options)
    if (format := options.get("format")) is not None:
        root.handlers[0].setFormatter(logging.Formatter(format, options.get("datefmt"), options.get("style", "%")))
    if (level := options.get("level")) is not None:
        root.setLevel(level)


def _is_ours(root: logging.Logger) -> bool:
    return len(root.handlers) == 1 and isinstance(root.handlers[0], TaskLog)


def install() -> None:
    root = logging.getLogger()
    root.addHandler(TaskLog())
    root.setLevel(logging.INFO)
    logging.basicConfig = _configure  # type: ignore[assignment]
    logging.captureWarnings(True)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._startTime = 0.0  # type: ignore[attr-defined]  # not when the snapshot was taken
