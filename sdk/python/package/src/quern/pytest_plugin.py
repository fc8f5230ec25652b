"""The plugin for pytest. Tests in the folder of a plugin import the packages that the plugin has, and there are the fixtures
quern_host and quern_plugin."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Iterator

import pytest

from .testing import Host, Plugin

PACKAGES = Path(".quern", "site-packages")
"""Where `quern plugin build` leaves a copy of the packages that are in the module."""

_KEPT = frozenset(("pytest", "_pytest", "pluggy", "iniconfig", "quern"))  # what runs the tests


@pytest.fixture
def quern_host() -> Host:
    """A host for one test: its services are in memory and empty, and stay from task to task. See quern.testing.Host."""
    return Host()


@pytest.fixture
def quern_plugin(request: pytest.FixtureRequest) -> Plugin:
    """The plugin itself, in its engine, with its manifest and its limits. See quern.testing.Plugin."""
    for folder in request.path.parents:
        if (folder / "handler.py").is_file():
            return Plugin(folder)
    raise FileNotFoundError(f"there is no handler.py in {request.path.parent} or above: put the test into the folder of a plugin")


def pytest_configure(config: pytest.Config) -> None:
    """Has tests below a plugin's folder find its handler.py, and the plugin's own packages."""
    for folder in dict.fromkeys((config.invocation_params.dir, config.rootpath)):
        if (folder / "handler.py").is_file():
            if str(folder) not in sys.path:
                sys.path.insert(0, str(folder))
            _use_packages(folder)


def _use_packages(folder: Path) -> None:
    packages, requirements = folder / PACKAGES, folder / "requirements.txt"
    remedy = f"run: quern plugin build {folder}"
    if not packages.is_dir():
        if wrong := list(_unmet(requirements)):
            raise pytest.UsageError(
                f"{requirements}: this Python has other packages than the plugin: {'; '.join(wrong)}: {remedy}, "
                f"which leaves the plugin's own in {PACKAGES} for tests"
            )
        return
    if requirements.is_file() and requirements.stat().st_mtime > packages.stat().st_mtime:
        raise pytest.UsageError(f"{requirements} has changed since {PACKAGES} was made from it: {remedy}")
    if str(packages) in sys.path:
        sys.path.remove(str(packages))
    # As in the engine: behind the standard library, and before what is installed on this machine.
    sys.path.insert(next((n for n, path in enumerate(sys.path) if Path(path).name in ("site-packages", "dist-packages")), len(sys.path)),
                    str(packages))
    importlib.invalidate_caches()
    for name in list(sys.modules):
        if (top := name.partition(".")[0]) not in _KEPT and _is_in(packages, top) and not _is_from(packages, sys.modules[name]):
            del sys.modules[name]  # what a plugin of pytest has imported from this machine


def _is_in(packages: Path, name: str) -> bool:
    return (packages / name / "__init__.py").is_file() or (packages / f"{name}.py").is_file()


def _is_from(packages: Path, module: object) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(f"{packages}{os.sep}")


def _unmet(requirements: Path) -> Iterator[str]:
    """The requirements that this Python does not meet. Lines that are not the name of a package and its versions are passed over."""
    from packaging.requirements import InvalidRequirement, Requirement

    if not requirements.is_file():
        return
    for line in requirements.read_text().splitlines():
        try:
            required = Requirement(line.partition("#")[0].strip())
        except InvalidRequirement:
            continue
        if required.url or required.marker and not required.marker.evaluate():
            continue
        try:
            there = importlib.metadata.version(required.name)
        except importlib.metadata.PackageNotFoundError:
            yield f"{required} is not installed"
        else:
            if not required.specifier.contains(there, prereleases=True):
                yield f"{required.name} is {there}, and the plugin takes {required.specifier}"
