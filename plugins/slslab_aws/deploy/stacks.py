"""Deploy an expanded template: make missing resources, change different ones, remove those no longer in it.

The resources are remembered in the service's temporary directory, so a stack ends with the service.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import botocore.exceptions
import botocore.parsers

from slslab.errors import RequestError, RunError
from slslab_aws.deploy.expansion import Expanded, expand
from slslab_aws.deploy.intrinsics import Scope, Unresolvable
from slslab_aws.deploy.planning import (
    KINDS,
    expected,
    identity,
    output_values,
    physical_name,
    plan,
    resolved,
    scope_of,
)
from slslab_aws.deploy.resources import Made, Services
from slslab_aws.deploy.template import Template

FOLDER = "stacks"
AGAIN = "the resources made so far stay: fix the problem and deploy again, or remove them with --delete."
NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,40}")
# A client's exceptions: an error of the service, no connection, and an answer that doesn't come from the service.
REFUSALS = (
    botocore.exceptions.ClientError,
    botocore.exceptions.BotoCoreError,
    botocore.parsers.ResponseParserError,
)
Told = Callable[[str, str, str, str], object]


def check(stack: str, template: Template, given: Mapping[str, str]) -> Expanded:
    """Return the expanded template; RequestError with every mistake in it, or for the stack's name.

    It needs no service.
    """
    _check_name(stack)
    expanded = expand(template, given)
    expanded.order = plan(stack, expanded)
    template.raise_problems()
    return expanded


def _check_name(stack: str) -> None:
    if not NAME.fullmatch(stack):
        raise RequestError(
            f"{stack!r} cannot be the name of a stack.", "give --stack-name: a letter, then letters, digits or hyphens."
        )


class Stack:
    """One stack of the running service, which has its temporary directory at `home`."""

    def __init__(self, home: Path, name: str) -> None:
        _check_name(name)
        self.name = name
        self._path = home / FOLDER / f"{name}.json"
        self.made: dict[str, dict[str, Any]] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def deploy(self, expanded: Expanded, services: Services, told: Told) -> dict[str, Any]:
        """Deploy a checked template; return its outputs.

        `told` receives the action (made, changed, unchanged, removed, kept) for each resource: its id, type and
        reference. RunError if a service refuses a resource. The resources made so far stay, and the next deployment
        continues.
        """
        scope = scope_of(self.name, expanded)
        for name in expanded.order:
            self._put(expanded.template, name, expanded.resources[name], scope, services, told)
        for name in [name for name in reversed(self.made) if name not in scope.attributes]:
            self._remove(name, services, told)
        return {name: str(value) for name, value in output_values(expanded.outputs, scope)}

    def delete(self, services: Services, told: Told) -> None:
        """Remove everything, in reverse order."""
        for name in list(reversed(self.made)):
            self._remove(name, services, told)

    def _put(
        self, template: Template, name: str, resource: Mapping[str, Any], scope: Scope, services: Services, told: Told
    ) -> None:
        kind, before = KINDS[resource["Type"]], self.made.get(name)
        where = f"{template.path}:{template.line(name)}: {name} ({resource['Type']})"
        try:
            properties = resolved(name, resource, scope)
        except Unresolvable as error:
            raise RunError(f"{where} cannot be resolved: {error}.", AGAIN) from error
        digest = _digest([resource["Type"], properties])
        fixed = _digest([resource["Type"], identity(resource["Type"], properties)])
        what = "unchanged"
        if before is None or before["digest"] != digest:
            try:
                if before is not None and before.get("fixed") == fixed and kind.update is not None:
                    what, made = "changed", kind.update(services, _made(before), properties)
                else:
                    if before is not None:
                        KINDS[before["type"]].delete(services, _made(before))
                        del self.made[name]
                    what = "made" if before is None else "replaced"
                    upcoming = expected(resource["Type"], physical_name(self.name, name), properties)
                    made = kind.create(services, upcoming, properties)
            except REFUSALS as error:
                self._write()
                raise RunError(f"{where} was refused: {_reason(error)}", AGAIN) from error
            kept = resource.get("DeletionPolicy") == "Retain"
            # Move it to the end, so that the order is the order of making.
            self.made.pop(name, None)
            entry = {"type": resource["Type"], "digest": digest, "fixed": fixed, "kept": kept, "made": asdict(made)}
            self.made[name] = entry
            self._write()
        made = _made(self.made[name])
        scope.refs[name], scope.attributes[name] = made.ref, made.attributes
        told(what, name, resource["Type"], made.ref)

    def _remove(self, name: str, services: Services, told: Told) -> None:
        entry = self.made[name]
        if not entry["kept"]:
            try:
                KINDS[entry["type"]].delete(services, _made(entry))
            except botocore.exceptions.ClientError as error:
                gone = error.response["ResponseMetadata"]["HTTPStatusCode"] == 404
                if not gone and not error.response["Error"]["Code"].endswith("NonExistentQueue"):
                    raise RunError(
                        f"{name} ({entry['type']}) couldn't be removed: {_reason(error)}",
                        "remove its content, and try again.",
                    ) from error
        del self.made[name]
        self._write()
        told("kept" if entry["kept"] else "removed", name, entry["type"], entry["made"]["ref"])

    def _write(self) -> None:
        if not self.made:
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(self.made))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _made(entry: Mapping[str, Any]) -> Made:
    return Made(**entry["made"])


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    return f"{response['Error']['Code']}: {response['Error']['Message']}" if response else str(error)
