"""Find errors in an expanded template before anything is made.

Each resource is resolved as if the resources it refers to were made, converted to the types of CloudFormation's
registry, and checked by the registry and by the services' own rules.
"""

import graphlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from slslab_aws.deploy import functions, other_resources
from slslab_aws.deploy.expansion import Expanded
from slslab_aws.deploy.intrinsics import PSEUDO, Scope, Unresolvable, references
from slslab_aws.deploy.resources import Kind, Made, Planned, Properties
from slslab_aws.deploy.schemas import closest, convert, fixed_properties, properties_of, schema_of, text_of, violations
from slslab_aws.deploy.template import SERVERLESS, Template

# The types that slslab deploys; Tags are passed on where the operation knows them.
KINDS: Mapping[str, Kind] = {**functions.KINDS, **other_resources.KINDS}
LONGEST_NAME = 63
RULE = "AWS::Events::Rule"
# Allowed members of a resource, in addition to its properties.
MEMBERS = ("Type", "Properties", "DependsOn", "Condition", "DeletionPolicy", "UpdateReplacePolicy", "Metadata")
# Documented, but missing in the schemas: changing these also replaces a resource.
REPLACING = {"AWS::DynamoDB::Table": frozenset(("KeySchema", "LocalSecondaryIndexes"))}


def physical_name(stack: str, name: str) -> str:
    """Return the name of a resource that sets none; it is the same at each deployment."""
    suffix = hashlib.sha256(f"{stack}/{name}".encode()).hexdigest()[:10]
    return f"{stack}-{name}"[: LONGEST_NAME - 11] + f"-{suffix}"


def with_name(kind: str, name: str, properties: Properties) -> Properties:
    """Return properties with this name, in the form that the service accepts, if resources of the type have names."""
    named = KINDS[kind].named
    if kind == "AWS::S3::Bucket":
        name = name.lower()
    elif kind == "AWS::SQS::Queue":
        name += ".fifo" * bool(properties.get("FifoQueue"))
    return {named: name, **properties} if named else properties


def expected(kind: str, name: str, properties: Mapping[str, Any]) -> Made:
    """Return the values of Ref and the attributes of a resource before it is made; its properties may name it."""
    complete = with_name(kind, name, dict(properties))
    return KINDS[kind].expect(str(complete.get(KINDS[kind].named, name)), complete)


def scope_of(stack: str, expanded: Expanded) -> Scope:
    """Return the meaning of a template's names before any resource is made."""
    section = expanded.template.section
    return Scope(stack, dict(expanded.parameters), mappings=section("Mappings"), conditions=section("Conditions"))


def resolved(name: str, resource: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """Return a resource's properties, resolved and converted to their types, with its name. Raises Unresolvable."""
    kind, properties = resource["Type"], scope.resolve(resource.get("Properties") or {})
    return with_name(kind, physical_name(scope.stack, name), convert(kind, properties))


def identity(kind: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties that replace a resource when they change."""
    names = fixed_properties(kind) | REPLACING.get(kind, frozenset())
    return {name: properties[name] for name in sorted(names) if name in properties}


def output_values(outputs: Mapping[str, Any], scope: Scope) -> Iterator[tuple[str, str | Unresolvable]]:
    """Yield each output with a true condition, or why it has no value."""
    for name, output in outputs.items():
        try:
            if "Condition" not in output or scope.holds(output["Condition"]):
                value = scope.resolve(output["Value"])
                if not isinstance(value, str | int | float):
                    raise Unresolvable("the value of an output must be a text")
                yield name, text_of(value)
        except Unresolvable as error:
            yield name, error


def plan(stack: str, expanded: Expanded) -> list[str]:
    """Note errors in the template; return the resources to make, in order."""
    template = expanded.template
    for name, resource in expanded.resources.items():
        if isinstance(resource, dict):
            _check_form(template, name, resource)
    if template.problems:
        return []
    known = {*expanded.resources, *expanded.parameters, *PSEUDO}
    parts = [(template.line(name), resource) for name, resource in expanded.resources.items()]
    lines = template.section("Outputs").lines
    parts += [(lines.get(name, 1), output) for name, output in expanded.outputs.items()]
    for line, part in parts:
        for name in sorted(references(part) - known):
            template.wrong(line, f"{name} is not a resource and not a parameter of this template.")
    order = _order(expanded)
    scope = scope_of(stack, expanded)
    for name, line in template.section("Conditions").lines.items():
        try:
            scope.holds(name)
        except Unresolvable as error:
            template.wrong(line, f"the condition {name} cannot be resolved: {error}.")
    if template.problems:
        return []
    made = [
        name for name in order if "Condition" not in (it := expanded.resources[name]) or scope.holds(it["Condition"])
    ]
    planned = {name: _planned(expanded, name, scope) for name in made}
    owners: dict[tuple[str, str], str] = {}
    for name, resource in planned.items():
        own = resource.properties.get("Name" if resource.kind == RULE else f"{resource.kind.rpartition('::')[2]}Name")
        if own is not None and (first := owners.setdefault((resource.kind, str(own)), name)) != name:
            template.wrong(template.line(name), f"{name} has the name of {first}, {own}.")
        for problem in functions.visibility(resource, planned.values()):
            template.wrong(template.line(name), f"{name}: {problem}.")
    if not template.problems:
        for name, value in output_values(expanded.outputs, scope):
            if isinstance(value, Unresolvable):
                template.wrong(lines.get(name, 1), f"the output {name} cannot be resolved: {value}.")
    return made


def _check_form(template: Template, name: str, resource: Mapping[str, Any]) -> None:
    """Note an unknown type, property or member."""
    line, kind = template.line(name), str(resource.get("Type"))
    if kind not in KINDS:
        if not kind.startswith("AWS::Serverless::"):
            template.wrong(line, f"slslab does not deploy {kind} ({name}).")
        elif "Transform" not in template.root:  # otherwise another problem prevented its expansion
            template.wrong(line, f"{kind} needs Transform: {SERVERLESS} ({name}).")
        return
    for member in sorted(resource.keys() - set(MEMBERS)):
        template.wrong(line, f"{name} has {member}, which is not emulated.")
    condition = resource.get("Condition")
    if condition is not None and condition not in list(template.section("Conditions")):
        template.wrong(line, f"there is no condition {condition}.")
    written, properties = template.properties(name), resource.get("Properties") or {}
    for property_ in sorted(properties.keys() - KINDS[kind].properties) if isinstance(properties, dict) else ():
        at = written.lines.get(property_, line)
        if property_ in properties_of(kind):
            template.wrong(at, f"slslab does not deploy the property {property_} of {kind} ({name}).")
        else:
            template.wrong(at, f"{kind} has no property {property_} ({name}).")


def _order(expanded: Expanded) -> list[str]:
    template, resources = expanded.template, expanded.resources
    needs: dict[str, set[str]] = {}
    for name, resource in resources.items():
        named = resource.get("DependsOn") or []
        depends = [named] if isinstance(named, str) else named
        for absent in sorted(set(depends) - set(resources)):
            template.wrong(template.line(name), f"{absent}, on which {name} depends, is not a resource.")
        needs[name] = (references(resource.get("Properties") or {}) | set(depends)) & set(resources)
    try:
        return list(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError as error:
        circle = error.args[1]
        template.wrong(template.line(circle[0]), f"these resources need each other: {', '.join(circle)}.")
        return []


def _planned(expanded: Expanded, name: str, scope: Scope) -> Planned:
    resource, template = expanded.resources[name], expanded.template
    line, written = template.line(name), template.properties(name)
    kind = resource["Type"]
    try:
        properties = resolved(name, resource, scope)
    except Unresolvable as error:
        template.wrong(line, f"{name} cannot be resolved: {error}.")
        properties = {}
    else:
        found: list[tuple[int, str]] = []
        for schema in (schema_of(kind), KINDS[kind].rules):
            found = found or [
                (closest(written, path, line), problem) for path, problem in violations(schema, properties, kind)
            ]
        found = found or [(line, problem) for problem in KINDS[kind].check(properties)]
        for at, problem in found:
            template.wrong(at, f"{name}: {problem}.")
    made = expected(kind, physical_name(scope.stack, name), properties)
    scope.refs[name], scope.attributes[name] = made.ref, made.attributes
    return Planned(kind, properties, made)
