"""Find the installed packages that functions import: a layer's, and what their own packages require.

Functions run on the driver's Python, so the files of an installed distribution are the ones that they need.
"""

import json
import sys
from collections.abc import Container, Iterable, Iterator
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from slslab_workers.plan import PlanError

# What functions get from an image or a layer, in addition to Lambda's runtime.
LAYER = ("boto3", "cryptography", "numpy", "pika", "redis", "torch")
# The entry points of plug-ins.
GROUPS = ("slslab.architectures", "slslab.models", "slslab.datasets")
# The installer's own notes; some contain paths of this machine.
INSTALLER = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


class Requested(NamedTuple):
    """A required distribution's name, the one that requires it, and what is installed under that name."""

    name: str
    by: str
    installed: metadata.Distribution | None


def required(names: Iterable[str], without: Container[str] = ()) -> Iterator[Requested]:
    """Yield these distributions and all that they require, each as often as it is required.

    Distributions in `without`, and what only these require, are left out. PlanError for metadata that can't be read.
    """
    # Only drivers of plug-ins need it, and images don't have it.
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    waiting = [(Requirement(name), "", name) for name in names]
    seen = set()
    while waiting:
        wanted, extra, by = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in without or (wanted.marker and not wanted.marker.evaluate({"extra": extra})):
            continue
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            installed = None
        yield Requested(name, by, installed)
        extras = frozenset({"", *wanted.extras})
        if installed is None or (name, extras) in seen:
            continue
        seen.add((name, extras))
        for text in installed.requires or ():
            try:
                waiting += [(Requirement(text), extra, name) for extra in extras]
            except InvalidRequirement as error:
                raise PlanError(
                    f"The package {name} {installed.version} requires {text!r}, which can't be read.",
                    f"install a newer version: pip install --upgrade {name}",
                ) from error


@cache
def layer_distributions() -> tuple[str, ...]:
    """Return the normalised names of the layer's distributions and of all installed ones that they require."""
    return tuple(sorted({each.name for each in required(LAYER) if each.installed is not None}))


def package_of(module: str) -> Path:
    """Return the folder or file of a module's top-level package; PlanError if it can't be imported."""
    spec = find_spec(module.partition(".")[0])
    if spec is None or not (spec.submodule_search_locations or spec.has_location):
        raise PlanError(f"The package of {module} cannot be imported.", "install it.")
    return Path(next(iter(spec.submodule_search_locations or [str(spec.origin)])))


def files_below(root: Path) -> dict[str, Path]:
    """Return a package's files without bytecode, by their names in an archive."""
    found = [root] if root.is_file() else sorted(root.rglob("*"))
    return {str(path.relative_to(root.parent)): path for path in found if path.is_file() and path.suffix != ".pyc"}


def files_for(modules: Iterable[str]) -> dict[str, Path]:
    """Return the files that the distributions of these modules require and the layer lacks, by name in an archive.

    A module without a distribution, such as a file of the working directory, declares nothing. PlanError for a
    distribution that isn't installed, or is editable under another name.
    """
    own = {module.partition(".")[0] for module in modules} - {__name__.partition(".")[0]}
    owners = {owner for module in own if (owner := _owner(module, tuple(sys.path)))}
    if not owners:
        return {}
    files: dict[str, Path] = {}
    needed = {each.name: each for each in required(owners, {"slslab", *layer_distributions()})}
    for name, by, installed in sorted(needed.values(), key=lambda each: each.name):
        if installed is None:
            raise PlanError(f"The package {name} is not installed, and {by} requires it.", f"pip install {name}")
        if not _is_editable(installed):
            files |= _files_of(installed)
        elif name not in owners:
            files |= files_below(_edited(name))
    return files


@cache
def _owner(module: str, _path: tuple[str, ...]) -> str | None:
    """Return the distribution of a top-level module, by slslab's entry points, or by where it is installed from."""
    from packaging.utils import canonicalize_name

    for group in GROUPS:
        for entry in metadata.entry_points(group=group):
            if entry.module.partition(".")[0] == module and entry.dist:
                return canonicalize_name(entry.dist.name)
    package = package_of(module)
    if not any(package.parent.glob("*.dist-info")):  # reading all that is installed takes half a second
        projects = {folder: name for name, folder in _edited_projects() if package.resolve().is_relative_to(folder)}
        return projects[max(projects, key=lambda folder: len(folder.parts))] if projects else None
    return next((canonicalize_name(name) for name in metadata.packages_distributions().get(module, ())), None)


def _edited(name: str) -> Path:
    """Return the folder of an editable distribution that is named like its package, since it lists no files."""
    try:
        return package_of(name.replace("-", "_"))
    except PlanError as error:
        raise PlanError(
            f"The package {name} is installed as editable, and its files can't be found.",
            "install it without --editable.",
        ) from error


def _edited_projects() -> Iterator[tuple[str, Path]]:
    """Yield each editable distribution and its project's folder."""
    from packaging.utils import canonicalize_name

    for installed in metadata.distributions():
        if _is_editable(installed):
            url = json.loads(str(installed.read_text("direct_url.json")))["url"]
            yield canonicalize_name(installed.name), Path(url2pathname(urlsplit(url).path)).resolve()


def _is_editable(installed: metadata.Distribution) -> bool:
    return bool(json.loads(installed.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"))


def _files_of(installed: metadata.Distribution) -> dict[str, Path]:
    listed = [file for file in installed.files or () if ".." not in file.parts and file.name not in INSTALLER]
    files = {str(file): Path(str(file.locate())) for file in listed if file.suffix not in (".pyc", ".pth")}
    return {name: path for name, path in sorted(files.items()) if path.is_file()}
