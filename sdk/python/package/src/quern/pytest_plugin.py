"""The plugin for pytest. Tests in the folder of a plugin import its handler, with the config of its manifest, and the packages that
it has, also if pytest runs the tests of several plugins. There are the fixtures quern_host and quern_plugin."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Iterator, Optional

import pytest

from . import _manifest, _missing, _native
from .testing import Host, Plugin, Status

PACKAGES = Path(".quern", "site-packages")
"""Where `quern plugin build` leaves a copy of the packages that are in the module."""

_KEPT = frozenset(("pytest", "_pytest", "pluggy", "iniconfig", "quern"))  # what runs the tests


@pytest.fixture
def quern_host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """A host for one test: its services are in memory and empty, and stay from task to task. It has the buckets that the manifest
    beside the test grants, and denies what that does not grant. What tasks change in databases is undone after the test. See
    quern.testing.Host."""
    host = Host(kv={bucket: {} for bucket in _native.manifest.buckets} if _native.manifest else {})
    yield host
    host.close()


@pytest.fixture
def quern_plugin(request: pytest.FixtureRequest) -> Plugin:
    """The plugin itself, in its engine, with its manifest and its limits. See quern.testing.Plugin."""
    if folder := _plugin_of(request.path):
        return Plugin(folder)
    raise FileNotFoundError(f"there is no handler.py in {request.path.parent} or above: put the test into the folder of a plugin")


class _Refused:
    """Finds no module for a handler that no plugin can have, also if this Python has it: the build would refuse it."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        file = Path(frame.f_code.co_filename)
        test = file.name == "conftest.py" or file.stem.startswith("test_") or file.stem.endswith("_test") or "tests" in file.parts
        if _entered is None or test or _entered not in file.parents or PACKAGES.parts[0] in file.parts:
            return
        if why := _missing.obstacle(name):
            raise ModuleNotFoundError(f"No module named {name!r}: {why}", name=name)


def pytest_configure(config: pytest.Config) -> None:
    """Has tests below a plugin's folder find its handler.py, and the plugin's own packages."""
    if _Refused not in sys.meta_path:
        sys.meta_path.insert(0, _Refused)  # type: ignore[arg-type]
    for folder in dict.fromkeys((config.invocation_params.dir, config.rootpath)):
        if (folder / "handler.py").is_file():
            _enter(folder)
            break


def pytest_collectstart(collector: pytest.Collector) -> None:
    if isinstance(collector, pytest.Module):
        _enter(_plugin_of(collector.path))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _enter(_plugin_of(item.path))


def pytest_assertrepr_compare(op: str, left: object, right: object) -> Optional[list[str]]:
    for status in (left, right):
        if isinstance(status, Status) and status.why:
            return [f"{left!r} {op} {right!r}", "", *status.why.splitlines()]
    return None


_entered: Optional[Path] = None
"""The folder of the plugin whose modules imports find."""

_left: dict[Path, dict[str, ModuleType]] = {}
"""The modules of other plugins that tests have imported: each has its own handler."""

_variables: dict[str, Optional[str]] = {}
"""What the variables of the manifest's capabilities.env were before."""


def _plugin_of(path: Path) -> Optional[Path]:
    return next((folder for folder in path.parents if (folder / "handler.py").is_file()), None)


def _enter(folder: Optional[Path]) -> None:
    """Has imports find the modules of this plugin, and its handler the config and the variables of its manifest."""
    global _entered
    if folder is None or folder == _entered:
        return
    if _entered is not None:
        _leave(_entered)
    _entered = folder
    sys.path.insert(0, str(folder))
    _use_packages(folder)
    sys.modules.update(_left.pop(folder, {}))
    try:
        _native.manifest = _manifest.read(_manifest.path_of(folder))
    except (FileNotFoundError, ValueError) as error:
        if not isinstance(error, FileNotFoundError):
            warnings.warn(pytest.PytestWarning(str(error)), stacklevel=2)
        _native.manifest = None  # nothing is denied
    for name, value in (_native.manifest.env if _native.manifest else {}).items():
        _variables[name] = os.environ.get(name)
        os.environ[name] = value


def _leave(folder: Path) -> None:
    modules = {name: module for name, module in list(sys.modules.items()) if _file(module) and _is_own(folder, name, module)}
    for name in modules:
        del sys.modules[name]
    _left[folder] = modules
    sys.path[:] = [path for path in sys.path if path not in (str(folder), str(folder / PACKAGES))]
    for name, before in _variables.items():
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
    _variables.clear()


def _is_own(folder: Path, name: str, module: ModuleType) -> bool:
    """Whether a module is of a plugin: its handler, what that imports, and its tests. The package quern serves all of them."""
    file = _file(module)
    return file.startswith(f"{folder}{os.sep}") and name.partition(".")[0] not in _KEPT and _plugin_of(Path(file)) == folder


def _file(module: object) -> str:
    """The module's file, or the folder of a package without __init__.py."""
    return str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), ""))


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
