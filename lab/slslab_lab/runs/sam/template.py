"""The AWS SAM template of a plan: functions, their roles, a bucket and a state machine.

It has two variants, which package functions differently. On AWS they share a container image, because PyTorch alone
exceeds the 250 MB limit of an unpacked archive with its layers. On the emulator they are archives that use the host's
PyTorch, as in any run. Both need only CloudFormation's transform `AWS::Serverless-2016-10-31`.
"""

import json
import platform
import sys
from collections.abc import Mapping
from typing import Any

from slslab_workers.architecture import Requirements
from slslab_workers.channels.endpoints import QUEUE_URL, TENSOR_URLS
from slslab_workers.driver.deployed import BUCKET
from slslab_workers.driver.deployment import PASSIVE, Deployment, FunctionSpec, worker_function

Template = dict[str, Any]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
# Images of earlier versions are Amazon Linux 2, whose glibc 2.26 is too old for PyTorch's wheels (manylinux_2_28).
# documented: lambda/latest/dg/python-image.html, "AWS base images for Python".
IMAGE_PYTHON = "{}.{}".format(*max(sys.version_info[:2], (3, 12)))
CODE, ADDRESSES = "code/", {"QueueUrl": QUEUE_URL, "TensorUrls": TENSOR_URLS}
# Lambda uses the function's own role to put a failed invocation's record into the bucket.
# documented: lambda/latest/dg/invocation-async-retain-records.html, "Configuring destination permissions".
RECORDS = ("s3:PutObject", "s3:ListBucket")
LOGS = ("logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents")


def make_template(deployment: Deployment, requirements: Requirements, *, image: bool) -> Template:
    """Return the template: functions are images (their address is a parameter) or archives of the folder `code`."""
    plan = deployment.plan
    parameters = _parameters(requirements) if image else {}
    variables = {BUCKET: {"Ref": "Bucket"}} | {
        ADDRESSES[name]: {"Ref": name} for name in parameters if name in ADDRESSES
    }
    resources: Template = {"Bucket": {"Type": "AWS::S3::Bucket"}}
    ids = {spec.name: _logical_id(spec, deployment) for spec in deployment.functions()}
    for spec in deployment.functions():
        resources |= _function(spec, ids[spec.name], image, _arn("states", f"stateMachine:{worker_function(plan)}"))
    arns = {name: {"Fn::GetAtt": [logical, "Arn"]} for name, logical in ids.items()}
    if (definition := deployment.machine(arns)) is not None:
        resources |= _machine(worker_function(plan), json.loads(definition), arns)
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Transform": "AWS::Serverless-2016-10-31",
        "Description": f"{plan.architecture} of {plan.model} on {plan.dataset.partition(':')[0]}, "
        f"{plan.workers} workers: the run {plan.run}",
        **({"Parameters": parameters} if parameters else {}),
        "Globals": {
            "Function": {
                "Timeout": plan.timeout,
                "Architectures": ["arm64" if platform.machine() == "aarch64" else "x86_64"],
                "Environment": {"Variables": {**PASSIVE, **variables}},
            }
        },
        "Resources": resources,
    }


def _parameters(requirements: Requirements) -> Template:
    """Return the parameters: the image, and addresses of services that the template can't create."""
    found: Template = {
        "ImageUri": {"Type": "String", "Description": "The image of this folder in your registry (Amazon ECR)"}
    }
    if requirements.queue:
        found["QueueUrl"] = {
            "Type": "String",
            "NoEcho": True,
            "Description": "RabbitMQ, amqps://USER:PASSWORD@HOST:5671/%2F",
        }
    if number := requirements.tensor_databases:
        found["TensorUrls"] = {
            "Type": "String",
            "NoEcho": True,
            "Description": f"RedisAI, {number} of redis://:PASSWORD@HOST:6379, with a space between two",
        }
    return found


def _logical_id(spec: FunctionSpec, deployment: Deployment) -> str:
    suffix = "worker" if spec.name == deployment.function else spec.name.rpartition("-")[2]
    return "".join(part.capitalize() for part in suffix.split("_"))


def _function(spec: FunctionSpec, logical: str, image: bool, machine: Template) -> Template:
    code: Template = {"CodeUri": CODE, "Runtime": f"python{PYTHON}", "Handler": spec.handler}
    if image:
        code = {"PackageType": "Image", "ImageUri": {"Ref": "ImageUri"}, "ImageConfig": {"Command": [spec.handler]}}
    properties: Template = {
        "FunctionName": spec.name,
        **code,
        "MemorySize": spec.memory_mb,
        "Role": {"Fn::GetAtt": [f"{logical}Role", "Arn"]},
    }
    actions = list(spec.actions)
    if spec.invokes == spec.name:
        # It is invoked asynchronously, too. Don't retry it: a repeated worker would change its peers' view of a step.
        destination = {"Type": "S3Bucket", "Destination": {"Fn::GetAtt": ["Bucket", "Arn"]}}
        if image:
            # Lambda stops a chain after some 16 invocations; the emulator has no such limit.
            # documented: lambda/latest/dg/invocation-recursion.html
            properties["RecursiveLoop"] = "Allow"
        properties["EventInvokeConfig"] = {"MaximumRetryAttempts": 0, "DestinationConfig": {"OnFailure": destination}}
        actions += [action for action in RECORDS if action not in actions]
    log = f"log-group:/aws/lambda/{spec.name}"
    statements = [_allow(LOGS, _arn("logs", log), _arn("logs", f"{log}:*"))]
    bucket = {"Fn::GetAtt": ["Bucket", "Arn"]}
    if objects := [action for action in actions if action.startswith("s3:") and action != "s3:ListBucket"]:
        statements.append(_allow(objects, {"Fn::Sub": "${Bucket.Arn}/*"}))
    if "s3:ListBucket" in actions:
        statements.append(_allow(["s3:ListBucket"], bucket))
    if "states:StartExecution" in actions:
        statements.append(_allow(["states:StartExecution"], machine))
    if spec.invokes:
        statements.append(_allow(["lambda:InvokeFunction"], _arn("lambda", f"function:{spec.invokes}")))
    return {
        logical: {"Type": "AWS::Serverless::Function", "Properties": properties},
        f"{logical}Role": _role("lambda", statements),
    }


def _machine(name: str, definition: Template, arns: Mapping[str, Any]) -> Template:
    """Return the state machine and its role, which may invoke the functions in its states."""
    text = json.dumps(definition)
    called = [arn for arn in arns.values() if json.dumps(arn) in text]
    return {
        "Machine": {
            "Type": "AWS::Serverless::StateMachine",
            "Properties": {"Name": name, "Definition": definition, "Role": {"Fn::GetAtt": ["MachineRole", "Arn"]}},
        },
        "MachineRole": _role("states", [_allow(["lambda:InvokeFunction"], *called)]),
    }


def _role(service: str, statements: list[Template]) -> Template:
    trust = {"Effect": "Allow", "Principal": {"Service": f"{service}.amazonaws.com"}, "Action": "sts:AssumeRole"}
    policy = {"PolicyName": "least", "PolicyDocument": _document(statements)}
    properties = {"AssumeRolePolicyDocument": _document([trust]), "Policies": [policy]}
    return {"Type": "AWS::IAM::Role", "Properties": properties}


def _document(statements: list[Template]) -> Template:
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(actions: "list[str] | tuple[str, ...]", *resources: Template) -> Template:
    return {"Effect": "Allow", "Action": list(actions), "Resource": list(resources)}


def _arn(service: str, resource: str) -> Template:
    """Return the ARN of a resource in the stack's region and account."""
    return {"Fn::Sub": f"arn:${{AWS::Partition}}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{resource}"}
