"""Deploy an expanded template: make what is missing, change what is different, remove what is not in it any more.

What was made is remembered for as long as the service runs, in its temporary directory, for it ends with the service.
"""

import graphlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import botocore.exceptions

from slslab.deploy.expansion import Expanded, expand
from slslab.deploy.intrinsics import Scope, references
from slslab.deploy.resources import Made, Services, kinds
from slslab.deploy.template import PSEUDO, Node, Template
from slslab.errors import RequestError, RunError

FOLDER = "stacks"
AGAIN = "what was made until then stays: mend it and deploy again, or remove it with --delete."
NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,40}")
LONGEST_NAME = 63
# What a resource may have beside its type and its properties.
MEMBERS = ("Type", "Properties", "DependsOn", "Condition", "DeletionPolicy", "UpdateReplacePolicy", "Metadata")
Told = Callable[[str, str, str, str], object]


class Stack:
    """One stack of the running service, whose temporary directory is `home`."""

    def __init__(self, home: Path, name: str) -> None:
        if not NAME.fullmatch(name):
            raise RequestError(
                f"{name!r} cannot be the name of a stack.",
                "give --stack-name: a letter, then letters, digits or hyphens.",
            )
        self.name = name
        self._path = home / FOLDER / f"{name}.json"
        self.made: dict[str, dict[str, Any]] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def deploy(
        self,
        template: Template,
        given: Mapping[str, str],
        services: Callable[[Mapping[str, bytes]], Services],
        told: Told,
    ) -> dict[str, Any]:
        """Deploy a template with these parameters; returns its outputs.

        `told` receives what was done (made, changed, unchanged, removed, kept) with each resource: its id, type and
        reference. Raises RequestError with every mistake of the template before anything is made, and RunError where a
        service refuses a resource: what was made stays, and the next deployment goes on.
        """
        expanded = expand(template, given)
        order = _check(template, expanded)
        template.raise_problems()
        scope = Scope(
            self.name,
            dict(expanded.parameters),
            mappings=template.section("Mappings"),
            conditions=template.section("Conditions"),
        )
        clients = services(expanded.files)
        try:
            for name in order:
                resource = expanded.resources[name]
                if "Condition" not in resource or scope.holds(resource["Condition"]):
                    self._put(template, name, resource, scope, clients, told)
            for name in [name for name in reversed(self.made) if name not in scope.attributes]:
                self._remove(name, clients, told)
        finally:
            clients.close()
        outputs = template.section("Outputs").items()
        kept = [
            (name, output) for name, output in outputs if "Condition" not in output or scope.holds(output["Condition"])
        ]
        return {name: scope.resolve(json.loads(json.dumps(output["Value"]))) for name, output in kept}

    def delete(self, services: Services, told: Told) -> None:
        """Remove everything, what was made last first."""
        for name in list(reversed(self.made)):
            self._remove(name, services, told)

    def _put(
        self, template: Template, name: str, resource: Mapping[str, Any], scope: Scope, services: Services, told: Told
    ) -> None:
        kind, before = kinds()[resource["Type"]], self.made.get(name)
        try:
            properties = scope.resolve(resource.get("Properties") or {})
        except (LookupError, ValueError, TypeError) as error:
            raise RunError(
                f"{template.path}:{template.line(name)}: {name} cannot be resolved: {error}.", AGAIN
            ) from error
        digest = hashlib.sha256(json.dumps([resource["Type"], properties], sort_keys=True).encode()).hexdigest()
        what = "unchanged"
        if before is None or before["type"] != resource["Type"] or before["digest"] != digest:
            try:
                if before is not None and before["type"] == resource["Type"] and kind.update is not None:
                    what, made = "changed", kind.update(services, _made(before), properties)
                else:
                    if before is not None:
                        kinds()[before["type"]].delete(services, _made(before))
                        del self.made[name]
                    what = "made" if before is None else "replaced"
                    made = kind.create(services, self._physical(name), properties)
            except (botocore.exceptions.ClientError, botocore.exceptions.ParamValidationError) as error:
                self._write()
                raise RunError(
                    f"{template.path}:{template.line(name)}: {name} ({resource['Type']}) was refused: {_reason(error)}",
                    AGAIN,
                ) from error
            kept = resource.get("DeletionPolicy") == "Retain"
            # At its end, so that the order is that of making.
            self.made.pop(name, None)
            self.made[name] = {"type": resource["Type"], "digest": digest, "kept": kept, "made": asdict(made)}
            self._write()
        made = _made(self.made[name])
        scope.refs[name], scope.attributes[name] = made.ref, made.attributes
        told(what, name, resource["Type"], made.ref)

    def _remove(self, name: str, services: Services, told: Told) -> None:
        entry = self.made[name]
        if not entry["kept"]:
            try:
                kinds()[entry["type"]].delete(services, _made(entry))
            except botocore.exceptions.ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                    raise RunError(
                        f"{name} ({entry['type']}) could not be removed: {_reason(error)}",
                        "remove what it still holds, and try again.",
                    ) from error
        del self.made[name]
        self._write()
        told("kept" if entry["kept"] else "removed", name, entry["type"], entry["made"]["ref"])

    def _physical(self, name: str) -> str:
        """Return the name of a resource that has none of its own, which is the same at each deployment."""
        suffix = hashlib.sha256(f"{self.name}/{name}".encode()).hexdigest()[:10]
        return f"{self.name}-{name}"[: LONGEST_NAME - 11] + f"-{suffix}"

    def _write(self) -> None:
        if not self.made:
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(self.made))


def _made(entry: Mapping[str, Any]) -> Made:
    return Made(**entry["made"])


def _reason(error: Exception) -> str:
    response = getattr(error, "response", None)
    return f"{response['Error']['Code']}: {response['Error']['Message']}" if response else str(error)


def _check(template: Template, expanded: Expanded) -> list[str]:
    """Note types, properties and members that there are not; returns the resources in the order of their making."""
    source = template.section("Resources")
    for name, resource in expanded.resources.items():
        line = template.line(name)
        own = source.get(name)
        written = own.get("Properties", Node()) if isinstance(own, Node) else Node()
        kind = kinds().get(str(resource.get("Type")))
        if kind is None:
            serverless = str(resource.get("Type")).startswith("AWS::Serverless::") and template.problems
            if not serverless:  # with other mistakes it has not been expanded
                template.wrong(line, f"slslab does not deploy {resource.get('Type')} ({name}).")
            continue
        for member in sorted(resource.keys() - set(MEMBERS)):
            template.wrong(line, f"{name} has {member}, which is not emulated.")
        for property_ in (resource.get("Properties") or {}).keys() - kind.properties:
            at = written.lines.get(property_, line) if isinstance(written, Node) else line
            template.wrong(at, f"{resource['Type']} has no property {property_} here ({name}).")
    known = {*expanded.resources, *expanded.parameters, *PSEUDO}
    parts = [(template.line(name), resource) for name, resource in expanded.resources.items()]
    outputs = template.section("Outputs")
    parts += [(outputs.lines[name], output) for name, output in outputs.items()]
    if not template.problems:
        for line, part in parts:
            for name in sorted(name.partition(".")[0] for name in references(part)):
                if name not in known:
                    template.wrong(line, f"{name} is not a resource and not a parameter of this template.")
    depends = {name: _needs(resource) & set(expanded.resources) for name, resource in expanded.resources.items()}
    try:
        return list(graphlib.TopologicalSorter(depends).static_order())
    except graphlib.CycleError as error:
        circle = error.args[1]
        template.wrong(template.line(circle[0]), f"these resources need each other: {', '.join(circle)}.")
        return []


def _needs(resource: Mapping[str, Any]) -> set[str]:
    named = resource.get("DependsOn") or []
    return references(resource.get("Properties") or {}) | ({named} if isinstance(named, str) else set(named))
