"""Properties of a node that must match the emulator's host, collected by a function that is sent there.

It must not import anything of the package, which a node may lack.
"""

import os
import platform
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def collect_facts() -> dict[str, Any]:
    """Return the version of slslab (empty without it) and a digest of its code, Python's version, the processor's kind,
    and the node's network."""
    try:
        found = version("slslab")
    except PackageNotFoundError:
        found = ""
    code = sha256()
    for package in ("slslab", "slslab_lab", "slslab_ray", "slslab_workers"):
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for file in sorted(Path(folder).rglob("*.py")):
                code.update(file.read_bytes())
    return {
        "slslab": found,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "code": code.hexdigest(),
        # Nodes of one host and network see the same loopback addresses.
        "network": [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/net")],
    }


def difference(own: dict[str, Any], other: dict[str, Any]) -> str:
    """Return why a node can't be used with this host; empty if it can."""
    if not other["slslab"]:
        return "slslab is not installed there"
    for name, what in (("slslab", "slslab"), ("python", "Python"), ("machine", "a processor of kind")):
        if own[name] != other[name]:
            return f"it has {what} {other[name]}, but this host has {own[name]}"
    if own["code"] != other["code"]:
        return f"its slslab {other['slslab']} differs from this host's code"
    return ""
