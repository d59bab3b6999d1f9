"""Expand a SAM template to CloudFormation's resources, with the code of its local folders as archives.

https://github.com/aws/serverless-application-model: the specification, and the library that expands.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from slslab.aws.arns import REGION
from slslab.errors import RequestError
from slslab_aws.deploy.packages import content_of
from slslab_aws.deploy.parameters import parameters_of
from slslab_aws.deploy.template import Template, part

# The bucket that stands for files of this host, by the digest of their content.
LOCAL = "slslab-local"
# Properties that name a file or folder of this host, and whether it is code or a text.
FILES: Mapping[str, Mapping[str, bool]] = {
    "AWS::Serverless::Function": {"CodeUri": True},
    "AWS::Lambda::Function": {"Code": True},
    "AWS::Serverless::LayerVersion": {"ContentUri": True},
    "AWS::Lambda::LayerVersion": {"Content": True},
    "AWS::Serverless::StateMachine": {"DefinitionUri": False},
}


@dataclass
class Expanded:
    """A template's resources and outputs as CloudFormation's, the parameters' values, and local files by their keys.

    `order` has the resources in the order of making.
    """

    template: Template
    resources: dict[str, Any]
    outputs: dict[str, Any]
    parameters: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)


def expand(template: Template, given: Mapping[str, str]) -> Expanded:
    """Return the expanded template; problems are noted in the template."""
    parameters = parameters_of(template, given)
    files: dict[str, bytes] = {}
    written: dict[str, Any] = json.loads(json.dumps(template.root))
    for name in template.section("Resources"):
        _take_files(template, name, written["Resources"][name], files)
    if "Transform" not in written or template.problems:
        resources, outputs = ({**template.section(section)} for section in ("Resources", "Outputs"))
        if "Transform" not in written:
            resources = written["Resources"] if resources else {}
        return Expanded(template, resources, outputs, parameters, files)
    os.environ.setdefault("AWS_DEFAULT_REGION", REGION)  # the library asks boto3 for a Region
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.translator.transform import transform

    try:
        # Without managed policies by name: it knows Lambda's, and roles aren't enforced.
        found = transform(written, {**parameters, "AWS::Region": REGION}, SimpleNamespace(load=dict))
    except InvalidDocumentException as error:
        for cause in error.causes:
            name = str(getattr(cause, "_logical_id", ""))
            template.wrong(template.line(name), str(cause.message).rstrip(".") + ".")
        return Expanded(template, {}, {}, parameters, files)
    except Exception as error:  # the library doesn't check everything that it reads
        template.wrong(1, f"AWS's SAM library can't expand the template: {type(error).__name__}: {error}.")
        return Expanded(template, {}, {}, parameters, files)
    for resource in found["Resources"].values():
        match resource:
            case {"Properties": {"DefinitionS3Location": {"Key": str(key)}} as properties} if key in files:
                del properties["DefinitionS3Location"]
                properties["DefinitionString"] = files.pop(key).decode()
    return Expanded(template, found["Resources"], found.get("Outputs") or {}, parameters, files)


def _take_files(template: Template, name: str, written: Any, files: dict[str, bytes]) -> None:
    properties = template.properties(name)
    if not isinstance(written, dict) or not isinstance(written.setdefault("Properties", {}), dict):
        return  # noted already
    for member, is_code in FILES.get(template.type(name), {}).items():
        path = properties.get(member)
        if path is None and member == "CodeUri" and "InlineCode" not in properties and "ImageUri" not in properties:
            path = part(template.section("Globals"), "Function").get("CodeUri", ".")
        if not isinstance(path, str) or path.startswith("s3://"):
            continue
        try:
            content = content_of(template.path.parent, path, code=is_code)
        except RequestError as error:
            template.wrong(properties.lines.get(member, template.line(name)), f"{member} of {name}: {error.message}")
            continue
        key = f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
        files[key] = content
        kind = "Bucket" if member.endswith("Uri") else "S3Bucket"
        written["Properties"][member] = {kind: LOCAL, "Key" if kind == "Bucket" else "S3Key": key}
