"""A Python of 64-bit ARM on another processor: Debian's packages, run by qemu's user mode.

Nothing is installed. apt-get downloads the packages of the system's own release into a folder,
where they are unpacked. Needs apt's servers and qemu-user-static.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PACKAGES = ("python3-minimal", "libpython3-stdlib", "libpython3-dev", "libstdc++6")
# Of what these bring along, the headers of others are the cross compiler's.
LEFT_OUT = re.compile(r"(?!libpython).*-dev_")
# A script, so that it runs without the kernel's help (binfmt_misc). As the Python of an environment
# it is called by the name of the link there.
WRAPPER = """#!/bin/sh
exec qemu-aarch64-static -L '{root}' -0 "$0" '{program}' "$@"
"""


def make(folder: Path) -> Path:
    """The Python, with its headers."""
    root = folder / "root"
    found = list(root.glob("usr/bin/python3.?[0-9]"))
    if found:
        return found[0]
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()  # as if nothing were installed
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*apt, "update"], check=True)
    options = ("-y", "--download-only", "--no-install-recommends")
    subprocess.run([*apt, *options, "install", *PACKAGES], check=True)
    for package in sorted((folder / "cache" / "archives").glob("*.deb")):
        if not LEFT_OUT.match(package.name):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    (python,) = root.glob("usr/bin/python3.?[0-9]")
    # Its pyconfig.h includes that of the processor, by a folder that compilers do not know here.
    (headers,) = root.glob("usr/include/python3.*[0-9]")
    (headers / "aarch64-linux-gnu").symlink_to("../aarch64-linux-gnu")
    program = python.rename(python.with_name("python.aarch64"))
    python.write_text(WRAPPER.format(root=root, program=program))
    python.chmod(0o755)
    return python
