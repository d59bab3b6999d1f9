"""Make, change, remove and check a template's functions and everything of Lambda's, state machines and roles."""

import json
from collections.abc import Callable, Iterable, Iterator

from botocore.exceptions import ClientError

from slslab.aws.arns import ACCOUNT, REGION
from slslab.aws.limits import lambda_limits
from slslab.aws.requests import members
from slslab.lambda_.configuration import settings
from slslab.lambda_.event_sources import new_mapping
from slslab.lambda_.policies import function_statement
from slslab.lambda_.references import function_arn
from slslab.statemachines.definitions import SETTINGS, check_settings, problems
from slslab.statemachines.machines import check_name, check_role
from slslab_aws.deploy.expansion import LOCAL
from slslab_aws.deploy.packages import inline
from slslab_aws.deploy.resources import (
    ID,
    Kind,
    Made,
    Planned,
    Properties,
    Services,
    arn,
    as_text,
    by,
    call,
    change_tags,
    forms,
    function_of,
    lower_names,
    names,
    pairs,
    refused,
    tags_of,
)
from slslab_aws.deploy.schemas import properties_of, text_of

FUNCTION, MAPPING, QUEUE = "AWS::Lambda::Function", "AWS::Lambda::EventSourceMapping", "AWS::SQS::Queue"
# documented: API_CreateQueue.html
VISIBLE_S = 30


def _without(properties: Properties, *left_out: str) -> Properties:
    return {name: value for name, value in properties.items() if name not in left_out}


def _code(services: Services, code: Properties) -> Properties:
    if code.get("S3Bucket") == LOCAL:
        return {"ZipFile": services.files[code["S3Key"]]}
    return {"ZipFile": inline(code["ZipFile"])} if "ZipFile" in code else code


def _members(properties: Properties) -> Properties:
    """Return the members of CreateFunction, except its code."""
    found = _without(properties, "Code", "ReservedConcurrentExecutions")
    if "KmsKeyArn" in found:
        found["KMSKeyArn"] = found.pop("KmsKeyArn")
    return {**found, "Tags": tags_of(properties)}


def _reserve(services: Services, name: str, properties: Properties) -> None:
    if (reserved := properties.get("ReservedConcurrentExecutions")) is not None:
        services("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=reserved)


def _create_function(services: Services, made: Made, properties: Properties) -> Made:
    client = services("lambda")
    client.create_function(**_members(properties), Code=_code(services, properties["Code"]))
    try:
        _reserve(services, made.ref, properties)
    except ClientError:
        client.delete_function(FunctionName=made.ref)
        raise
    return made


def _change_function(services: Services, made: Made, properties: Properties) -> Made:
    """Change a function; settings that were removed from its template get their defaults."""
    client = services("lambda")
    found = _without(_members(properties), "FunctionName", "PackageType", "Architectures", "Tags")
    client.update_function_configuration(FunctionName=made.ref, **{**_defaults(), **found})
    architectures = {"Architectures": properties["Architectures"]} if "Architectures" in properties else {}
    client.update_function_code(FunctionName=made.ref, **_code(services, properties["Code"]), **architectures)
    if properties.get("ReservedConcurrentExecutions") is None:
        client.delete_function_concurrency(FunctionName=made.ref)
    _reserve(services, made.ref, properties)
    change_tags(services, "lambda", made.attributes["Arn"], properties)
    return made


def _defaults() -> Properties:
    limits = lambda_limits()
    return {
        **{"Description": "", "Environment": {"Variables": {}}, "Layers": [], "DeadLetterConfig": {"TargetArn": ""}},
        **{"MemorySize": limits.memory_mb.default, "Timeout": limits.timeout_s.default},
        "EphemeralStorage": {"Size": limits.ephemeral_mb.default},
        **{"KMSKeyArn": "", "TracingConfig": {"Mode": "PassThrough"}, "SnapStart": {"ApplyOn": "None"}},
        **{"LoggingConfig": {"LogFormat": "Text"}, "VpcConfig": {"SubnetIds": [], "SecurityGroupIds": []}},
        "FileSystemConfigs": [],
    }


def _check_function(properties: Properties) -> Iterator[str]:
    request = json.dumps({**_members(properties), "Code": properties["Code"]}).encode()
    yield from refused(lambda: settings(members("lambda", "CreateFunction", request), lambda_limits()))


def _check(operation: str) -> Callable[[Properties], Iterator[str]]:
    """Return a check by Lambda's model of an operation."""

    def check(properties: Properties) -> Iterator[str]:
        yield from refused(lambda: members("lambda", operation, json.dumps(properties).encode()))

    return check


def _check_permission(properties: Properties) -> Iterator[str]:
    named = {"StatementId": "name", **properties}
    yield from _check("AddPermission")(named)
    yield from refused(lambda: function_statement(named, "*"))


def _url(_name: str, properties: Properties) -> Made:
    ref = function_of(properties, properties.get("Qualifier"))
    return Made(ref, {"FunctionUrl": f"https://{ID.replace('-', '')}.lambda-url.{REGION}.on.aws/", "FunctionArn": ref})


def _url_members(properties: Properties) -> Properties:
    return {**_without(properties, "TargetFunctionArn"), "FunctionName": properties["TargetFunctionArn"]}


def _check_mapping(properties: Properties) -> Iterator[str]:
    request = json.dumps(properties).encode()
    yield from refused(lambda: new_mapping(members("lambda", "CreateEventSourceMapping", request)))


def visibility(mapping: Planned, others: Iterable[Planned]) -> Iterator[str]:
    """Yield why a queue of the template can't feed a function of the template: its messages return too early."""
    if mapping.kind != MAPPING:
        return
    given = {(each.kind, each.made.attributes.get("Arn")): each.properties for each in others}
    queue = given.get((QUEUE, str(mapping.properties.get("EventSourceArn"))))
    function = given.get((FUNCTION, function_of(mapping.properties)))
    if queue is None or function is None:
        return
    visible_s = queue.get("VisibilityTimeout", VISIBLE_S)
    timeout_s = function.get("Timeout", lambda_limits().timeout_s.default)
    if isinstance(visible_s, int) and isinstance(timeout_s, int) and visible_s < timeout_s:
        yield f"Queue visibility timeout: {visible_s} seconds is less than Function timeout: {timeout_s} seconds"


DEFINITIONS = ("Definition", "DefinitionS3Location", "DefinitionString")
SETTING_NAMES = {"LoggingConfiguration": "loggingConfiguration", "TracingConfiguration": "tracingConfiguration"}


def _definition(properties: Properties) -> str:
    """Return the definition of a state machine, with its substitutions."""
    text = properties["DefinitionString"] if "DefinitionString" in properties else json.dumps(properties["Definition"])
    for name, value in (properties.get("DefinitionSubstitutions") or {}).items():
        text = text.replace(f"${{{name}}}", text_of(value))
    return str(text)


def _machine_settings(properties: Properties) -> Properties:
    """Return the logging and tracing of a state machine; both are off by default."""
    return {name: lower_names(properties.get(key, SETTINGS[name])) for key, name in SETTING_NAMES.items()}


def _machine_members(properties: Properties) -> Properties:
    return {"definition": _definition(properties), "roleArn": properties["RoleArn"], **_machine_settings(properties)}


def _check_machine(properties: Properties) -> Iterator[str]:
    if len([name for name in DEFINITIONS if name in properties]) != 1:
        yield f"a state machine has one of {', '.join(DEFINITIONS)}"
        return
    if "DefinitionS3Location" in properties:
        yield "slslab reads definitions from files next to the template, not from S3"
        return
    for problem in problems(_definition(properties), lambda_limits().definition_bytes):
        yield f"the definition is refused: {problem}".rstrip(".")
    yield from refused(lambda: check_settings(_machine_settings(properties)))
    yield from refused(lambda: check_name(properties["StateMachineName"]))
    yield from refused(lambda: check_role(properties["RoleArn"]))


def _role(name: str, properties: Properties) -> Made:
    path = properties.get("Path", "/")
    return Made(name, {"Arn": f"arn:aws:iam::{ACCOUNT}:role{path}{name}", "RoleId": "AROA00000000000000000"})


def _create_role(services: Services, made: Made, properties: Properties) -> Made:
    """Create a role. Its policies aren't enforced, so it gets none; AWS's managed ones don't exist here."""
    members = {name: properties[name] for name in ("Description", "MaxSessionDuration", "Path") if name in properties}
    role = services("iam").create_role(
        RoleName=made.ref,
        AssumeRolePolicyDocument=as_text(properties["AssumeRolePolicyDocument"]),
        Tags=pairs(tags_of(properties)),
        **members,
    )["Role"]
    return Made(made.ref, {"Arn": role["Arn"], "RoleId": role["RoleId"]})


def _check_role(properties: Properties) -> Iterator[str]:
    from moto.iam.exceptions import MalformedPolicyDocument
    from moto.iam.policy_validation import IAMPolicyDocumentValidator

    for policy in properties.get("Policies") or ():
        try:
            # AWS treats a policy without a version as one of 2008; moto refuses it.
            IAMPolicyDocumentValidator(json.dumps({"Version": "2012-10-17", **policy["PolicyDocument"]})).validate()
        except MalformedPolicyDocument as error:
            yield f"the policy {policy['PolicyName']} is refused: {error.message}".rstrip(".")


LAYER, SOURCE = arn("lambda", "layer:{name}:1"), arn("lambda", f"event-source-mapping:{ID}")
CONFIG_KEYS = {"FunctionName": "FunctionName", "Qualifier": "Qualifier"}
MACHINE = arn("states", "stateMachine:{name}")
KINDS = {
    FUNCTION: Kind(
        names("""Architectures Code CodeSigningConfigArn DeadLetterConfig Description Environment EphemeralStorage
        FileSystemConfigs FunctionName Handler ImageConfig KmsKeyArn Layers LoggingConfig MemorySize PackageType
        ReservedConcurrentExecutions Role Runtime SnapStart Tags Timeout TracingConfig VpcConfig"""),
        forms("{name}", Arn=function_arn("{name}")),
        _create_function,
        by("lambda", "delete_function", "FunctionName"),
        _change_function,
        _check_function,
        named="FunctionName",
    ),
    "AWS::Lambda::LayerVersion": Kind(
        names("CompatibleArchitectures CompatibleRuntimes Content Description LayerName LicenseInfo"),
        forms(LAYER, LayerVersionArn=LAYER),
        call(
            "lambda",
            "publish_layer_version",
            lambda services, _made, given: {**given, "Content": _code(services, given["Content"])},
            ref="LayerVersionArn",
            attributes={"LayerVersionArn": "LayerVersionArn"},
            keys={"LayerName": "LayerArn", "VersionNumber": "Version"},
        ),
        by("lambda", "delete_layer_version"),
        check=_check("PublishLayerVersion"),
        named="LayerName",
    ),
    "AWS::Lambda::Version": Kind(
        names("FunctionName Description CodeSha256"),
        forms("{function}:1", Version="1", FunctionArn="{function}:1"),
        call(
            "lambda",
            "publish_version",
            ref="FunctionArn",
            attributes={"Version": "Version", "FunctionArn": "FunctionArn"},
            keys={"FunctionName": "FunctionName", "Qualifier": "Version"},
        ),
        by("lambda", "delete_function"),
        check=_check("PublishVersion"),
    ),
    "AWS::Lambda::Alias": Kind(
        names("FunctionName Name FunctionVersion Description"),
        forms("{function}:{Name}", AliasArn="{function}:{Name}"),
        call("lambda", "create_alias", keys={"FunctionName": "FunctionName", "Name": "Name"}),
        by("lambda", "delete_alias"),
        call("lambda", "update_alias"),
        _check("CreateAlias"),
    ),
    "AWS::Lambda::Permission": Kind(
        names("""Action EventSourceToken FunctionName FunctionUrlAuthType InvokedViaFunctionUrl Principal
        PrincipalOrgID SourceAccount SourceArn"""),
        forms("{name}", Id="{name}"),
        call(
            "lambda",
            "add_permission",
            lambda _services, made, given: {**given, "StatementId": made.ref},
            keys={"FunctionName": "FunctionName", "StatementId": "StatementId"},
        ),
        by("lambda", "remove_permission"),
        check=_check_permission,
    ),
    "AWS::Lambda::Url": Kind(
        names("TargetFunctionArn AuthType Cors InvokeMode Qualifier"),
        _url,
        call(
            "lambda",
            "create_function_url_config",
            lambda _services, _made, given: _url_members(given),
            attributes={"FunctionUrl": "FunctionUrl"},
            keys=CONFIG_KEYS,
        ),
        by("lambda", "delete_function_url_config"),
        call(
            "lambda",
            "update_function_url_config",
            lambda _services, _made, given: {"Cors": {}, "InvokeMode": "BUFFERED", **_url_members(given)},
        ),
        lambda properties: _check("CreateFunctionUrlConfig")(_url_members(properties)),
    ),
    "AWS::Lambda::EventInvokeConfig": Kind(
        names("DestinationConfig FunctionName MaximumEventAgeInSeconds MaximumRetryAttempts Qualifier"),
        forms("{name}"),
        call("lambda", "put_function_event_invoke_config", keys=CONFIG_KEYS),
        by("lambda", "delete_function_event_invoke_config"),
        check=_check("PutFunctionEventInvokeConfig"),
    ),
    MAPPING: Kind(
        properties_of(MAPPING),  # its check refuses properties that aren't emulated
        forms(ID, Id=ID, EventSourceMappingArn=SOURCE),
        call(
            "lambda",
            "create_event_source_mapping",
            ref="UUID",
            attributes={"Id": "UUID", "EventSourceMappingArn": "EventSourceMappingArn"},
            keys={"UUID": "UUID"},
        ),
        by("lambda", "delete_event_source_mapping"),
        call(
            "lambda",
            "update_event_source_mapping",
            lambda _services, made, given: {**_without(given, "EventSourceArn", "Tags"), **made.keys},
            tagged="EventSourceMappingArn",
        ),
        _check_mapping,
    ),
    "AWS::StepFunctions::StateMachine": Kind(
        names("""Definition DefinitionS3Location DefinitionString DefinitionSubstitutions LoggingConfiguration
        RoleArn StateMachineName StateMachineType Tags TracingConfiguration"""),
        forms(MACHINE, Arn=MACHINE, Name="{name}"),
        call(
            "stepfunctions",
            "create_state_machine",
            lambda _services, _made, given: {
                "name": given["StateMachineName"],
                **_machine_members(given),
                "tags": lower_names(pairs(tags_of(given))),
            },
        ),
        by("stepfunctions", "delete_state_machine", "stateMachineArn"),
        call(
            "stepfunctions",
            "update_state_machine",
            lambda _services, made, given: {"stateMachineArn": made.ref, **_machine_members(given)},
            tagged="Arn",
        ),
        _check_machine,
        named="StateMachineName",
        rules={"properties": {"StateMachineType": {"enum": ["STANDARD"]}}},
    ),
    "AWS::IAM::Role": Kind(
        names("""AssumeRolePolicyDocument Description ManagedPolicyArns MaxSessionDuration Path PermissionsBoundary
        Policies RoleName Tags"""),
        _role,
        _create_role,
        by("iam", "delete_role", "RoleName"),
        check=_check_role,
        named="RoleName",
        rules={
            "properties": {
                "AssumeRolePolicyDocument": {"type": "object"},
                "Policies": {"items": {"properties": {"PolicyDocument": {"type": "object"}}}},
            }
        },
    ),
}
