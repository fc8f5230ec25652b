"""Tells of names that there are not which ones are meant: misspelled ones, and those of other libraries."""

from __future__ import annotations

from typing import Iterable, Mapping

_OPTIONS = {
    "countdown": "delay", "defer": "delay", "delay_seconds": "delay", "eta": "at", "schedule": "at", "run_at": "at",
    "expires": "deadline", "expires_at": "deadline", "max_retries": "max_attempts", "retries": "max_attempts", "attempts": "max_attempts",
    "retry_backoff": "backoff", "retry_jitter": "jitter", "soft_time_limit": "timeout", "time_limit": "timeout",
    "job_timeout": "timeout", "task_id": "id", "job_id": "id", "depends_on": "after", "link": "after", "dead_letter": "dead_queue",
}
_NOTES = {"max_attempts": " (the first run counts, too)", "at": " (a datetime, or Unix time)", "delay": " (seconds, or a timedelta)"}


def nearest(name: str, known: Iterable[str], others: Mapping[str, str] = {}) -> str:
    """The name that is meant, "" if none is near. others has the names that another library has for it."""
    from difflib import get_close_matches

    known = list(known)
    if others.get(name) in known:
        return others[name]
    near = get_close_matches(name, known, 1) or get_close_matches(name.lower(), known, 1)
    return near[0] if near else ""


def option(function: str, name: str, known: Iterable[str]) -> TypeError:
    """The error about an option that a function does not have."""
    known = sorted(known)
    near = nearest(name, known, _OPTIONS)
    if near:
        return TypeError(f"{function} has no option {name!r}: did you mean {near}?{_NOTES.get(near, '') if name in _OPTIONS else ''}")
    return TypeError(f"{function} has no option {name!r}: use {', '.join(known) or 'none'}")


def attribute(what: str, name: str, known: Iterable[str], others: Mapping[str, str]) -> AttributeError:
    """The error about an attribute that a thing does not have. others has the remedies for names of other libraries."""
    if name in others:
        return AttributeError(f"{what} has no {name!r}: {others[name]}")
    known = [one for one in known if not one.startswith("_")]
    near = nearest(name, known)
    return AttributeError(f"{what} has no {name!r}: " + (f"did you mean {near}?" if near else f"it has {', '.join(sorted(known))}"))
