"""The layers of one emulator: versions of archives, which are merged into the directory that a function sees as /opt.

https://docs.aws.amazon.com/lambda/latest/dg/chapter-layers.html; errors and answers are as recorded from AWS,
unless a comment says otherwise.
"""

import os
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.errors import invalid, missing
from slslab.aws.keys import OWNER
from slslab.lambda_.api import Answer, Call, Operations
from slslab.lambda_.packages import HOT_RELOAD_BUCKET, Code, Packages
from slslab.lambda_.runtimes import link_or_copy

NO_RESOURCE = "The resource you requested does not exist."
# documented: gettingstarted-limits.html.
MOST = 5
ARN = re.compile(
    r"arn:[a-zA-Z0-9-]+:lambda:(?P<region>[a-zA-Z0-9-]+):(?P<account>\d{12}):layer:(?P<name>[a-zA-Z0-9-_]+)"
    r"(:(?P<version>[0-9]+))?"
)


def layer_arn(name: str, version: int | None = None) -> str:
    """Return the ARN of a layer, or of one of its versions."""
    return f"arn:aws:lambda:{REGION}:{ACCOUNT}:layer:{name}" + (f":{version}" if version is not None else "")


@dataclass(frozen=True)
class LayerVersion:
    """One version of a layer; `listed` is the API's LayerVersionsListItem."""

    name: str
    version: int
    code: Code
    listed: dict[str, Any]

    @property
    def arn(self) -> str:
        """The version's ARN."""
        return layer_arn(self.name, self.version)


class LayerVersions:
    """The registry; its methods take a layer's name or its ARN."""

    def __init__(self) -> None:
        # In the order in which they were published.
        self._layers: dict[tuple[str, int], LayerVersion] = {}
        # Version numbers are never reused.
        self._published: Counter[str] = Counter()

    def publish(self, name: str, request: Mapping[str, Any], code: Code) -> LayerVersion:
        """Carry out PublishLayerVersion; its content is stored already."""
        name = _name(name)
        self._published[name] += 1
        version = self._published[name]
        listed = {
            "LayerVersionArn": layer_arn(name, version),
            "Version": version,
            "CreatedDate": timestamp(),
            "Description": request.get("Description", ""),
        }
        repeated = ("LicenseInfo", "CompatibleRuntimes", "CompatibleArchitectures")
        listed |= {key: request[key] for key in repeated if key in request}
        layer = self._layers[name, version] = LayerVersion(name, version, code, listed)
        return layer

    def get(self, name: str, version: int) -> LayerVersion:
        """Return a version of a layer."""
        layer = self._layers.get(_key(name, version))
        if layer is None:
            raise missing(NO_RESOURCE)
        return layer

    def delete(self, name: str, version: int) -> None:
        """Carry out DeleteLayerVersion; functions that have it keep it."""
        self._layers.pop(_key(name, version), None)

    def matching(self, request: Mapping[str, Any]) -> list[LayerVersion]:
        """Return the versions that match a request's layer, if it names one, and its filters, oldest first."""
        name = _name(request["LayerName"]) if "LayerName" in request else None
        filters = {"CompatibleRuntimes": "CompatibleRuntime", "CompatibleArchitectures": "CompatibleArchitecture"}
        wanted = {kind: request[member] for kind, member in filters.items() if member in request}
        return [
            layer
            for layer in self._layers.values()
            if name in (None, layer.name) and all(value in layer.listed.get(kind, ()) for kind, value in wanted.items())
        ]

    def chosen(self, arns: Sequence[str]) -> tuple[LayerVersion, ...]:
        """Return the layers that a function's configuration names."""
        if len(arns) > MOST:
            raise invalid(f"Cannot reference more than {MOST} layers.")
        found = {arn: ARN.fullmatch(arn) for arn in arns}
        if any(match is not None and match["region"] != REGION for match in found.values()):
            raise invalid(
                f"Layers are not in the same region as the function. Layers are expected to be in region {REGION}."
            )
        chosen: dict[str, LayerVersion] = {}
        for arn in arns:
            match = found[arn]
            if match is not None:
                _check_account(arn, match)
            layer = self._layers.get((match["name"], int(match["version"] or 0))) if match is not None else None
            if layer is None:
                raise invalid(f"Layer version {arn} does not exist.")
            if (other := chosen.get(layer.name)) is not None:
                raise invalid(
                    "Two different versions of the same layer are not allowed to be referenced in the same function. "
                    f"{other.arn} and {layer.arn} are versions of the same layer."
                )
            chosen[layer.name] = layer
        return tuple(chosen.values())

    def codes(self) -> list[Code]:
        """Return the content of every version."""
        return [layer.code for layer in self._layers.values()]


def timestamp() -> str:
    """Return the present time as Lambda's answers have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "+0000")


def _key(name: str, version: int) -> tuple[str, int]:
    if version < 1:
        raise invalid("Layer Version Cannot be less than 1")
    return _name(name), version


def _name(reference: str) -> str:
    found = ARN.fullmatch(reference)
    if found is None:
        return reference
    _check_account(reference, found)
    if found["region"] != REGION:
        raise missing(NO_RESOURCE)  # assumed
    return found["name"]


def _check_account(arn: str, found: re.Match[str]) -> None:
    """Raise AccessDeniedException for a layer of another account, because its layers aren't visible here."""
    if found["account"] != ACCOUNT:
        raise OWNER.denied("lambda:GetLayerVersion", arn, "resource-based")


class LayerOperations(Operations):
    """The operations on layers of one emulator; `remove_unused` is called when a version is gone."""

    def __init__(self, layers: LayerVersions, packages: Packages, remove_unused: Callable[[], None]) -> None:
        self._layers = layers
        self._packages = packages
        self._remove_unused = remove_unused

    async def _publish_layer_version(self, call: Call) -> Answer:
        name = call.members["LayerName"]
        if call.members["Content"].get("S3Bucket") == HOT_RELOAD_BUCKET:
            raise invalid("A layer is an archive: only a function's code can be a directory that is used in place.")
        async with self._packages.stored("layer", call.members["Content"], self._remove_unused) as stored:
            layer = self._layers.publish(name, call.members, stored)
        return self._document(layer, call)

    async def _get_layer_version(self, call: Call) -> Answer:
        return self._document(self._layers.get(*_named(call)), call)

    async def _list_layers(self, call: Call) -> Answer:
        newest = {layer.name: layer.listed for layer in self._layers.matching(call.members)}
        return call.page(
            "Layers",
            {
                name: {"LayerName": name, "LayerArn": layer_arn(name), "LatestMatchingVersion": listed}
                for name, listed in newest.items()
            },
        )

    async def _list_layer_versions(self, call: Call) -> Answer:
        layers = self._layers.matching(call.members)
        # Pages are sorted by key, and the newest version must come first.
        return call.page("LayerVersions", {f"{10**12 - layer.version}": layer.listed for layer in layers})

    async def _delete_layer_version(self, call: Call) -> None:
        self._layers.delete(*_named(call))
        self._remove_unused()

    def _document(self, layer: LayerVersion, call: Call) -> Answer:
        code = layer.code
        location = self._packages.location(code, call.headers["host"])
        content = {"Location": location, "CodeSha256": code.sha256, "CodeSize": code.size}
        return {"Content": content, "LayerArn": layer_arn(layer.name), **layer.listed}


def _named(call: Call) -> tuple[str, int]:
    return call.members["LayerName"], call.members["VersionNumber"]


class Layers:
    """Merged layers below one directory, each combination made once."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._merged: dict[tuple[Path, ...], Path] = {}
        self._lock = threading.Lock()

    def merged(self, layers: tuple[Path, ...]) -> Path:
        """Return one directory with these layers' files; a later layer's files replace an earlier one's.

        documented: adding-layers.html, "Lambda extracts the layer contents into the /opt directory … each layer
        overwrites any identical files of the layers before it".
        """
        if (merged := self._merged.get(layers)) is not None:
            return merged  # without waiting for another merge
        with self._lock:
            if layers not in self._merged:
                self._remove_outdated()
                self._merged[layers] = self._merge(layers)
            return self._merged[layers]

    def _merge(self, layers: tuple[Path, ...]) -> Path:
        if len(layers) == 1:
            return layers[0].resolve()
        self._home.mkdir(parents=True, exist_ok=True)
        merged = Path(tempfile.mkdtemp(dir=self._home))
        try:
            for layer in layers:
                shutil.copytree(
                    layer,
                    merged,
                    symlinks=True,
                    ignore=partial(_remove_replaced, layer, merged),
                    copy_function=link_or_copy,
                    dirs_exist_ok=True,
                )
            for top, _, _ in os.walk(merged):  # environments have users of their own
                os.chmod(top, 0o755)
        except BaseException:
            shutil.rmtree(merged, ignore_errors=True)
            raise
        return merged

    def _remove_outdated(self) -> None:
        """Remove merged directories of deleted layers, which no function or environment uses any more."""
        for layers in [layers for layers in self._merged if not all(layer.exists() for layer in layers)]:
            shutil.rmtree(self._merged.pop(layers), ignore_errors=True)


def _remove_replaced(layer: Path, merged: Path, folder: str, names: Sequence[str]) -> list[str]:
    """Remove what a layer's folder replaces, before it is copied; return the names to leave out: none."""
    into = merged / Path(folder).relative_to(layer)
    for name in names:
        if not _is_folder(into / name):
            (into / name).unlink(missing_ok=True)
        elif not _is_folder(Path(folder, name)):
            shutil.rmtree(into / name)
    return []


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
