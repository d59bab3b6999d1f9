"""What is installed: the version, and the extras of the package, as in `pip install 'slslab[train]'`."""

import os
from importlib.util import find_spec
from pathlib import Path

from slslab.errors import HostError

__version__ = "0.1.0"
# The modules of the extras. What several extras install is named with the smallest of them.
EXTRAS = {
    "numpy": "report",
    "scipy": "report",
    "altair": "report",
    "jinja2": "report",
    "joblib": "report",
    "matplotlib": "report",
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
    """Return where slslab keeps what it can make again: below $XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "slslab")


def installed(module: str) -> bool:
    """Return whether a module is installed, without importing it."""
    return find_spec(module) is not None


def require(module: str) -> None:
    """Raise HostError if a module of an extra is not installed."""
    if not installed(module):
        raise lacking(module)


def lacking(module: str) -> HostError:
    """Return the error for a module of an extra that is not installed."""
    return HostError(f"The package {module} is not installed.", f"pip install 'slslab[{EXTRAS[module]}]'")
