"""Makes a wheel with the program: wheel.py PURE OUT [TAG FOLDER].

PURE is the wheel of the Python package. FOLDER is an archive of .ci/dist, unpacked: its program goes where scripts go, its engines
into share/quern/engines beside them, its licenses and its SBOM into the metadata. Without a folder the wheel has none of them.
Files have no time and a fixed order, so that the same content gives the same bytes.
"""

import base64
import hashlib
import sys
import zipfile
from pathlib import Path


def main(pure, out, tag="any", folder=None):
    with zipfile.ZipFile(pure) as wheel:
        files = {name: (wheel.read(name), 0o644) for name in wheel.namelist() if not name.endswith("/RECORD")}
    info = next(name for name in files if name.endswith(".dist-info/WHEEL")).removesuffix("/WHEEL")
    if folder:
        add(files, info, Path(folder))
        lines = files[f"{info}/WHEEL"][0].decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").splitlines()
        lines = [line for line in lines if line and not line.startswith("Tag: ")]
        lines += [f"Tag: py3-none-{platform}" for platform in tag.split(".")]
        files[f"{info}/WHEEL"] = ("\n".join(lines) + "\n\n").encode(), 0o644
    record = "".join(f"{name},sha256={digest(content)},{len(content)}\n" for name, (content, _) in sorted(files.items()))
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode(), 0o644
    path = Path(out) / f"{info.removesuffix('.dist-info')}-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        # The format wants the metadata last.
        for name, (content, mode) in sorted(files.items(), key=lambda file: (file[0].startswith(info + "/"), file[0])):
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            wheel.writestr(entry, content)


def add(files, info, folder):
    """Adds the program, the engines, the licenses and the SBOM of an archive."""
    data = info.removesuffix(".dist-info") + ".data"
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not path.is_file():
            continue
        if name == "quern":
            files[f"{data}/scripts/quern"] = path.read_bytes(), 0o755
        elif name.startswith("engines/"):
            files[f"{data}/data/share/quern/{name}"] = path.read_bytes(), 0o644
        elif name.startswith("licenses/"):
            files[f"{info}/{name}"] = path.read_bytes(), 0o644
        elif name == "sbom.cdx.json":
            files[f"{info}/sboms/{name}"] = path.read_bytes(), 0o644


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


main(*sys.argv[1:])
