"""Find out what is installed: the version, extras and how to add them, and plug-ins.

A plug-in is found by an entry point in one of the groups below, or in `slslab.architectures`
(`slslab_workers.architecture`), `slslab.models` (`slslab_workers.models`) or `slslab.datasets`
(`slslab_workers.training.datasets`).
"""

import json
import os
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from slslab.errors import HostError

__version__ = "0.2.0"
# Commands of `slslab`, each a click.Command by its name.
COMMANDS = "slslab.commands"
# Modules with the endpoint for services other than Lambda, S3 and Step Functions: `Edge`, its PORT, and `installed`.
ENDPOINTS = "slslab.endpoints"
# Modules that run functions on other hosts: `Cluster`, and the `budgets_mb` of its nodes.
HOSTS = "slslab.hosts"
# Functions that compute on many hosts (`compute`), and that make measured runs on them (`make_runs`).
SWEEPS, RECORDINGS = "slslab.sweeps", "slslab.recordings"
# The modules of the extras. A module of several extras is listed under the smallest one.
EXTRAS = {
    "numpy": "report",
    "scipy": "report",
    "altair": "report",
    "jinja2": "report",
    "pyarrow": "report",
    "vl_convert": "report",
    "watchfiles": "report",
    "moto": "stepfunctions",
    "jsonata": "stepfunctions",
    "aiohttp": "aws",
    "flask": "aws",
    "samtranslator": "aws",
    "yaml": "aws",
    "torch": "train",
    "PIL": "train",
    "awscrt": "checksums",
    "docker": "docker",
    "ray": "ray",
    "testcontainers": "testcontainers",
    "minio": "compose",
    "mlflow": "mlflow",
    "tensorboard": "tensorboard",
}


def cache_directory() -> Path:
    """Return the folder for data that slslab can recreate: below $XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "slslab")


def installed(module: str) -> bool:
    """Return whether a module is installed, without importing it."""
    return find_spec(module) is not None


def require(module: str) -> None:
    """Raise HostError if a module of an extra isn't installed."""
    if not installed(module):
        raise lacking(module)


def lacking(module: str) -> HostError:
    """Return the error for a module of an extra that isn't installed."""
    return HostError(f"The package {module} is not installed.", install_command(EXTRAS[module]))


def install_command(extra: str) -> str:
    """Return what to type to add an extra, from where pip got slslab: a clone, a wheel, a repository or an index."""
    try:
        # PEP 610; an index leaves no such file.
        recorded = distribution("slslab").read_text("direct_url.json")
    except PackageNotFoundError:
        recorded = None
    wanted = f"slslab[{extra}]"
    if not recorded:
        return f"pip install '{wanted}'"
    source = json.loads(recorded)
    if source.get("dir_info", {}).get("editable"):
        return f"pip install --editable '{unquote(urlsplit(source['url']).path)}[{extra}]'"
    commit = source.get("vcs_info")
    url = f"{commit['vcs']}+{source['url']}@{commit['commit_id']}" if commit else source["url"]
    return f"pip install '{wanted} @ {url}'"


def plugin(group: str, name: str) -> Any:
    """Return the object of an entry point; HostError if it doesn't exist."""
    entry = entry_point(group, name)
    if entry is None:
        raise HostError(f"Nothing is installed as {name} of {group}.", "reinstall slslab.")
    return entry.load()


def cluster() -> Any:
    """Return the module for clusters; HostError if Ray, which only clusters need, isn't installed."""
    require("ray")
    return plugin(HOSTS, "ray")


def entry_point(group: str, name: str) -> EntryPoint | None:
    """Return the entry point with this name in a group, or None.

    slslab's own are searched first, because searching all packages takes tens of milliseconds.
    """
    return next((entry for entry in _own(group) if entry.name == name), None) or plugins(group).get(name)


def plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; slslab's own come first, sorted by name."""
    own = {entry.name: entry for entry in _own(group)}
    return own | {entry.name: entry for entry in entry_points(group=group) if entry.name not in own}


def _own(group: str) -> tuple[EntryPoint, ...]:
    try:
        return tuple(distribution("slslab").entry_points.select(group=group))
    except PackageNotFoundError:
        return ()
