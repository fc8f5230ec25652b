"""The plugin for pytest: the fixture quern_host."""

from __future__ import annotations

import sys

import pytest

from .testing import Host


@pytest.fixture
def quern_host() -> Host:
    """A host for one test: its services are in memory and empty, and stay from task to task. See quern.testing.Host."""
    return Host()


def pytest_configure(config: pytest.Config) -> None:
    """Has tests below a plugin's folder find its handler.py."""
    for folder in (config.invocation_params.dir, config.rootpath):
        if (folder / "handler.py").is_file() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
