"""Expand a SAM template to CloudFormation's resources, with the code of its local folders as archives.

https://github.com/aws/serverless-application-model: the specification, and the library that expands.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slslab.aws.arns import REGION
from slslab.deploy.packages import archive_of
from slslab.deploy.template import Node, Template

# The bucket that stands for files of this host, by the digest of their content.
LOCAL = "slslab-local"
# Where a resource names a file or a folder of this host, and whether it is code or a text.
FILES: Mapping[str, Mapping[str, bool]] = {
    "AWS::Serverless::Function": {"CodeUri": True},
    "AWS::Lambda::Function": {"Code": True},
    "AWS::Serverless::LayerVersion": {"ContentUri": True},
    "AWS::Lambda::LayerVersion": {"Content": True},
    "AWS::Serverless::StateMachine": {"DefinitionUri": False},
}
# Values of parameters that are lists of texts.
LISTS = ("CommaDelimitedList", "List<String>", "List<Number>")


@dataclass
class Expanded:
    """CloudFormation's resources, the parameters' values, and the content of local files by their keys."""

    resources: dict[str, Any]
    parameters: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)


def expand(template: Template, given: Mapping[str, str]) -> Expanded:
    """Return the expanded template; what is wrong with it is noted in the template."""
    parameters = _parameters(template, given)
    files: dict[str, bytes] = {}
    written: dict[str, Any] = json.loads(json.dumps(template.root))
    for name, resource in template.section("Resources").items():
        if isinstance(resource, Node):
            _take_files(template, name, resource, written["Resources"][name], files)
    if "Transform" not in written or template.problems:
        return Expanded(written.get("Resources") or {}, parameters, files)
    os.environ.setdefault("AWS_DEFAULT_REGION", REGION)  # the library asks boto3 for a Region when it is called
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.translator.transform import transform

    try:
        found = transform(written, {**parameters, "AWS::Region": REGION}, _NoPolicies())
    except InvalidDocumentException as error:
        for cause in error.causes:
            name = str(getattr(cause, "_logical_id", ""))
            template.wrong(template.line(name), str(cause.message).rstrip(".") + ".")
        return Expanded({}, parameters, files)
    return Expanded(found["Resources"], parameters, files)


class _NoPolicies:
    """The managed policies that SAM may ask for by name: SAM knows those of Lambda, and roles are not enforced."""

    def load(self) -> dict[str, str]:
        return {}


def _parameters(template: Template, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the value of each parameter: the given one, or its default."""
    values: dict[str, Any] = {}
    section = template.section("Parameters")
    for name in given:
        if name not in section:
            template.wrong(1, f"there is no parameter {name}; there are {', '.join(section) or 'none'}.")
    for name, parameter in section.items():
        value = given.get(name, parameter.get("Default") if isinstance(parameter, Node) else None)
        if value is None:
            template.wrong(section.lines[name], f"the parameter {name} has no default: give --parameter {name}=VALUE.")
            continue
        allowed = parameter.get("AllowedValues")
        if allowed is not None and str(value) not in map(str, allowed):
            template.wrong(section.lines[name], f"{value} is not among the AllowedValues of {name}.")
        listed = parameter.get("Type") in LISTS and isinstance(value, str)
        values[name] = [part.strip() for part in value.split(",")] if listed else value
    return values


def _take_files(
    template: Template, name: str, resource: Node, written: dict[str, Any], files: dict[str, bytes]
) -> None:
    """Replace the local paths of a resource by keys of their content."""
    properties = resource.get("Properties", Node())
    for member, is_code in FILES.get(str(resource.get("Type")), {}).items():
        path = properties.get(member)
        if path is None and member == "CodeUri" and "InlineCode" not in properties and "ImageUri" not in properties:
            path = template.section("Globals").get("Function", {}).get("CodeUri", ".")
        if not isinstance(path, str) or path.startswith("s3://"):
            continue
        place = template.path.parent / path
        line = properties.lines.get(member, template.line(name))
        if not place.exists() or (place.is_dir() and not is_code):
            template.wrong(line, f"{member} of {name}: there is no {'folder or file' if is_code else 'file'} {path}.")
            continue
        content = archive_of(place) if is_code else Path(place).read_bytes()
        key = f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
        files[key] = content
        kind = "Bucket" if member.endswith("Uri") else "S3Bucket"
        written.setdefault("Properties", {})[member] = {kind: LOCAL, "Key" if kind == "Bucket" else "S3Key": key}
