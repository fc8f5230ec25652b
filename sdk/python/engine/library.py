"""Packs the standard library, the SDK and the time zones, compiled, into one zip.

Each file of the folder of changes is appended to the module of the standard library that it is named after; - stands for a
dot. The zip has the same bytes for the same sources.
"""

import argparse
import importlib.util
import marshal
import pathlib
import sys
import zipfile

# What makes no sense in a handler; quern._missing says what to do instead.
LEFT_OUT = {
    "__phello__", "__pycache__", "crypt.py", "ctypes", "curses", "dbm", "distutils", "ensurepip", "idlelib", "lib2to3", "multiprocessing",
    "msilib", "pty.py", "pydoc_data", "site-packages", "ssl.py", "test", "tests", "tkinter", "tty.py", "turtle.py",
    "turtledemo", "venv", "windows_events.py", "windows_utils.py",
}
NATIVE_ONLY = {"_database.py", "_manifest.py", "_native.py", "pytest_plugin.py", "testing.py"}  # of the SDK
FOLDER = "/lib/python311.zip/"
EPOCH = (1980, 1, 1, 0, 0, 0)


def compiled(source: bytes, name: str) -> bytes:
    """The module as importlib keeps it: with the hash of its source, which is never compared."""
    code = compile(source, FOLDER + name, "exec", dont_inherit=True, optimize=2)
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    return header + marshal.dumps(code)


def library(root: pathlib.Path, changes: pathlib.Path):
    appended = {path.stem: path.read_bytes() for path in changes.glob("*.py")}
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if LEFT_OUT & set(inside.parts) or inside.parts[0].startswith("_sysconfigdata"):
            continue
        module = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
        source = path.read_bytes()
        if change := appended.pop(module.replace(".", "-"), b""):
            source += b"\n\n" + change
        yield str(inside), source
    # What the build would have left of its settings: the time zones are those of the package tzdata.
    yield "_sysconfigdata__wasi_wasm32-wasi.py", b'build_time_vars = {"TZPATH": ""}\n'
    if appended:
        sys.exit(f"library.py: there is no module for the changes {', '.join(sorted(appended))} in {changes}")


def quern(root: pathlib.Path):
    for path in sorted((root / "quern").glob("*.py")):
        if path.name not in NATIVE_ONLY:
            yield f"quern/{path.name}", path.read_bytes()


def data(root: pathlib.Path):
    """The SDK's files that are no modules."""
    return {f"quern/{path.name}": path.read_bytes() for path in (root / "quern").glob("*.json")}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("library", "tzdata", "quern", "changes", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=pathlib.Path, nargs="*", default=[], help="files to add as they are")
    arguments = parser.parse_args()
    files = {**{path.name: path.read_bytes() for path in arguments.texts}, **data(arguments.quern)}
    for name, source in [*library(arguments.library, arguments.changes), *quern(arguments.quern)]:
        files[name + "c"] = compiled(source, name)
    with zipfile.ZipFile(arguments.tzdata) as wheel:
        for name in wheel.namelist():
            if name.endswith(".py"):
                files[name + "c"] = compiled(wheel.read(name), name)
            elif name.startswith("tzdata/"):
                files[name] = wheel.read(name)
    partial = arguments.out.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o444 << 16
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, 9)
    partial.replace(arguments.out)


if __name__ == "__main__":
    main()
