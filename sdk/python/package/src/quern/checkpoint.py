"""A value that a task leaves for its next run, even if its host dies."""

from __future__ import annotations

from typing import Any, Optional

from . import _host
from .errors import NotFoundError


def save(value: Any) -> None:
    """Saves bytes, str or what JSON can express, at most 1 MiB, and replaces the last checkpoint. It returns when Redis has
    it. LostError: another host has the task, stop."""
    _host.functions.checkpoint_save(_host.encoded(value, "the checkpoint"))


def load() -> Optional[bytes]:
    """The last checkpoint, of this run or an earlier one; None if there is none."""
    try:
        return _host.functions.checkpoint_load()
    except NotFoundError:
        return None
