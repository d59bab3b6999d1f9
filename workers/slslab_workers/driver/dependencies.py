"""Find the installed packages that functions import: a layer's, and what their own packages require.

Functions run on the driver's Python, so the files of an installed distribution are the ones that they need.
"""

import json
import re
import sys
from collections.abc import Container, Iterable, Iterator
from functools import cache
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    distributions,
    entry_points,
    packages_distributions,
)
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from slslab_workers.models import TORCHVISION
from slslab_workers.plan import Plan, PlanError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# What functions get from an image or a layer, in addition to Lambda's runtime.
LAYER = ("boto3", "cryptography", "numpy", "pika", "redis", "torch")
# The entry points of plug-ins.
GROUPS = ("slslab.architectures", "slslab.models", "slslab.datasets")
# The installer's own notes; some contain paths of this machine.
INSTALLER = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


class Requested(NamedTuple):
    """A requirement, the distribution that declares it, and the distribution that is installed under its name."""

    requirement: "Requirement"
    by: str
    name: str
    installed: Distribution | None


def layer_of(plan: Plan) -> tuple[str, ...]:
    """Return the distributions that a plan's functions get from an image or a layer, without their dependencies."""
    return (*LAYER, "torchvision") if plan.model.startswith(TORCHVISION) else LAYER


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
            installed = distribution(name)
        except PackageNotFoundError:
            installed = None
        yield Requested(wanted, by, name, installed)
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
def layer_distributions(names: tuple[str, ...] = LAYER) -> tuple[str, ...]:
    """Return the normalised names of these distributions and of all installed ones that they require."""
    return tuple(sorted({each.name for each in required(names) if each.installed is not None}))


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


def files_for(modules: Iterable[str]) -> dict[str, dict[str, Path]]:
    """Return the files that the distributions of these modules require and the layer lacks, by distribution.

    A module without a distribution, such as a file of the working directory, declares nothing. PlanError for a
    distribution that isn't installed as required, is compiled for something else, or is editable under another name.
    """
    own = {module.partition(".")[0] for module in modules} - {__name__.partition(".")[0]}
    owners = {owner for module in own if (owner := _owner(module, tuple(sys.path)))}
    if not owners:
        return {}
    files: dict[str, dict[str, Path]] = {}
    needed = {each.name: _satisfied(each) for each in required(owners, {"slslab", *layer_distributions()})}
    for name, installed in sorted(needed.items()):
        if not _is_editable(installed):
            found = _files_of(installed)
        elif name not in owners:
            found = files_below(_edited(name))
        else:
            continue
        if any(path.suffix == ".so" for path in found.values()):
            _check_build(installed)
        files[f"{name} {installed.version}"] = found
    return files


def _satisfied(requested: Requested) -> Distribution:
    """Return the installed distribution; PlanError if it is missing, or another version is required."""
    wanted, by, name, installed = requested
    if installed is None:
        raise PlanError(f"The package {name} is not installed, and {by} requires it.", f"pip install {name}")
    if not wanted.specifier.contains(installed.version, prereleases=True):
        raise PlanError(
            f"The package {name} {installed.version} is installed, and {by} requires {name}{wanted.specifier}.",
            f"pip install '{name}{wanted.specifier}'",
        )
    return installed


@cache
def _owner(module: str, _path: tuple[str, ...]) -> str | None:
    """Return the distribution of a top-level module, by slslab's entry points, or by where it is installed from."""
    from packaging.utils import canonicalize_name

    for group in GROUPS:
        for entry in entry_points(group=group):
            if entry.module.partition(".")[0] == module and entry.dist:
                return canonicalize_name(entry.dist.name)
    package = package_of(module)
    if not any(package.parent.glob("*.dist-info")):  # reading all that is installed takes half a second
        projects = {folder: name for name, folder in _edited_projects() if package.resolve().is_relative_to(folder)}
        return projects[max(projects, key=lambda folder: len(folder.parts))] if projects else None
    return next((canonicalize_name(name) for name in packages_distributions().get(module, ())), None)


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

    for installed in distributions():
        if _is_editable(installed):
            url = json.loads(str(installed.read_text("direct_url.json")))["url"]
            yield canonicalize_name(installed.name), Path(url2pathname(urlsplit(url).path)).resolve()


def _is_editable(installed: Distribution) -> bool:
    source = json.loads(installed.read_text("direct_url.json") or "{}")
    return bool(source.get("dir_info", {}).get("editable"))


def _files_of(installed: Distribution) -> dict[str, Path]:
    listed = [file for file in installed.files or () if ".." not in file.parts and file.name not in INSTALLER]
    files = {str(file): Path(str(file.locate())) for file in listed if file.suffix not in (".pyc", ".pth")}
    return {name: path for name, path in sorted(files.items()) if path.is_file()}


def _check_build(installed: Distribution) -> None:
    """Raise PlanError for a compiled distribution that functions can't load."""
    from packaging.tags import parse_tag, sys_tags

    builds = re.findall(r"^Tag: *(\S+)", installed.read_text("WHEEL") or "", re.MULTILINE)
    if builds and not {tag for build in builds for tag in parse_tag(build)} & set(sys_tags()):
        python, machine = f"python3.{sys.version_info[1]}", next(sys_tags()).platform
        raise PlanError(
            f"The package {installed.name} is compiled for {builds[0]}, and functions run on {python}, {machine}.",
            f"install the build for that: pip install --force-reinstall {installed.name}",
        )
