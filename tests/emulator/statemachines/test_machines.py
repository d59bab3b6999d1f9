"""State machines through the API: revisions, versions, aliases, tags, pages, refusals. Tests have numbers of rows."""

import json
import re
import uuid
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.emulator.statemachines.written import MACHINE, ROLE, answer, chain, create, ended, error, run, start, told

from slslab.aws.clients import aws_client
from slslab.lambda_.emulator import Emulator
from slslab.statemachines.api import OPERATIONS

pytestmark = pytest.mark.server

UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
FIRST, SECOND = (json.dumps(chain({"Type": "Pass", "Result": number})) for number in (1, 2))
SETTINGS = {
    "loggingConfiguration": {"level": "OFF", "includeExecutionData": False},
    "tracingConfiguration": {"enabled": False},
    "encryptionConfiguration": {"type": "AWS_OWNED_KEY"},
}
GONE = "Request references a resource that does not exist."


def made(client: Any, name: str, **further: Any) -> dict[str, Any]:
    """What CreateStateMachine answers."""
    return answer(client.create_state_machine(name=name, definition=FIRST, roleArn=ROLE, **further))


def routed(*shares: tuple[str, int]) -> list[dict[str, Any]]:
    """A routing configuration of these versions of the machine `aliased`."""
    return [{"stateMachineVersionArn": f"{MACHINE}aliased{version}", "weight": weight} for version, weight in shares]


@pytest.mark.parametrize(
    ("state", "status", "redrive"),
    [
        ({"Type": "Pass"}, "SUCCEEDED", "Execution is SUCCEEDED and cannot be redriven"),
        ({"Type": "Fail", "Error": "E", "Cause": "C"}, "FAILED", None),
        ({"Type": "Wait", "Seconds": 3600}, "RUNNING", "Execution is RUNNING and cannot be redriven"),
        ({"Type": "Wait", "Seconds": 3600}, "ABORTED", None),
    ],
)
def test_s05_executions_tell_whether_they_can_be_redriven(
    states_client: Any, state: dict[str, Any], status: str, redrive: str | None
) -> None:
    machine = create(states_client, "redrive", chain(state))
    execution = states_client.start_execution(stateMachineArn=machine, name="one", input="{}")["executionArn"]
    if status == "ABORTED":
        states_client.stop_execution(executionArn=execution, error="E", cause="C")
    if status != "RUNNING":
        ended(states_client, execution)
    described = answer(states_client.describe_execution(executionArn=execution))
    listed = states_client.list_executions(stateMachineArn=machine)["executions"]
    known: dict[str, Any] = {
        "executionArn": execution,
        "stateMachineArn": machine,
        "name": "one",
        "status": status,
        "redriveCount": 0,
        "startDate": described["startDate"],
    }
    if status != "RUNNING":
        known["stopDate"] = described["stopDate"]
    assert listed == [known]
    whole = {**known, "input": "{}", "inputDetails": {"included": True}}
    if status == "SUCCEEDED":
        whole |= {"output": "{}", "outputDetails": {"included": True}}
    if status in ("FAILED", "ABORTED"):
        whole |= {"error": "E", "cause": "C", "redriveStatus": "REDRIVABLE"}
    else:
        whole |= {"redriveStatus": "NOT_REDRIVABLE", "redriveStatusReason": redrive}
    assert described == whole
    assert states_client.list_executions(stateMachineArn=machine, redriveFilter="REDRIVEN")["executions"] == []


def test_s08_a_revision_changes_with_the_content_alone(states_client: Any) -> None:
    arn = made(states_client, "revised")["stateMachineArn"]
    update, describe = states_client.update_state_machine, states_client.describe_state_machine
    whole = {
        "stateMachineArn": arn,
        "name": "revised",
        "status": "ACTIVE",
        "definition": FIRST,
        "roleArn": ROLE,
        "type": "STANDARD",
        "creationDate": describe(stateMachineArn=arn)["creationDate"],
        **SETTINGS,
    }
    assert answer(describe(stateMachineArn=arn)) == whole
    unchanged = answer(update(stateMachineArn=arn, definition=FIRST, roleArn=ROLE))
    assert unchanged == {"updateDate": unchanged["updateDate"]}
    changed = answer(update(stateMachineArn=arn, definition=SECOND))
    assert re.fullmatch(UUID, changed["revisionId"])
    assert [*changed] == ["updateDate", "revisionId"]
    again = answer(update(stateMachineArn=arn, definition=SECOND))
    assert again["revisionId"] == changed["revisionId"]
    role = update(stateMachineArn=arn, roleArn=ROLE + "-2")["revisionId"]
    assert role != changed["revisionId"]
    assert answer(describe(stateMachineArn=arn)) == {
        **whole,
        "definition": SECOND,
        "roleArn": ROLE + "-2",
        "revisionId": role,
    }


def test_s09_a_name_that_is_taken(states_client: Any) -> None:
    arn = made(states_client, "taken")["stateMachineArn"]
    assert made(states_client, "taken")["stateMachineArn"] == arn
    expected = ("StateMachineAlreadyExists", f"State Machine Already Exists: '{arn}'", 400)
    call = states_client.create_state_machine
    assert error(call, name="taken", definition=SECOND, roleArn=ROLE) == expected
    spaced = json.dumps(json.loads(FIRST), indent=1)
    assert error(call, name="taken", definition=spaced, roleArn=ROLE) == expected
    traced = {"enabled": True}
    assert error(call, name="taken", definition=FIRST, roleArn=ROLE, tracingConfiguration=traced) == expected


def test_s10_a_status_that_there_is_not(states_client: Any) -> None:
    arn = made(states_client, "statuses")["stateMachineArn"]
    values = "[SUCCEEDED, TIMED_OUT, PENDING_REDRIVE, ABORTED, FAILED, RUNNING]"
    for status in ("succeeded", "x"):
        assert error(states_client.list_executions, stateMachineArn=arn, statusFilter=status) == (
            "ValidationException",
            f"1 validation error detected: Value '{status}' at 'statusFilter' failed to satisfy constraint: Member "
            f"must satisfy enum value set: {values}",
            400,
        )
    assert states_client.list_executions(stateMachineArn=arn, statusFilter="PENDING_REDRIVE")["executions"] == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "Invalid execution input."),
        ("not some json", "Expecting value: line 1 column 1 (char 0)"),
        ("{'a': 1}", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)
def test_s11_inputs_that_are_refused(states_client: Any, text: str, what: str) -> None:
    arn = made(states_client, "inputs")["stateMachineArn"]
    message = f"Invalid State Machine Execution Input: '{what}'"
    assert error(states_client.start_execution, stateMachineArn=arn, input=text) == (
        "InvalidExecutionInput",
        message,
        400,
    )
    for accepted in ("2", '"text"', "null"):
        states_client.start_execution(stateMachineArn=arn, input=accepted)


def test_s11_arns_and_definitions_that_are_refused(states_client: Any) -> None:
    for call, member in (
        (states_client.describe_state_machine, "stateMachineArn"),
        (states_client.list_executions, "stateMachineArn"),
        (states_client.start_execution, "stateMachineArn"),
        (states_client.delete_state_machine, "stateMachineArn"),
        (states_client.describe_execution, "executionArn"),
        (states_client.get_execution_history, "executionArn"),
        (states_client.list_tags_for_resource, "resourceArn"),
    ):
        assert error(call, **{member: "x"}) == ("InvalidArn", "Invalid Arn: 'Invalid ARN prefix: x'", 400)
    absent = f"{MACHINE}absent"
    assert error(states_client.describe_state_machine, stateMachineArn=absent) == (
        "StateMachineDoesNotExist",
        f"State Machine Does Not Exist: '{absent}'",
        400,
    )
    assert error(states_client.create_state_machine, name="wrong", definition='{"StartAt": "A"}', roleArn=ROLE) == (
        "InvalidDefinition",
        "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: These fields are required: [States] at /'",
        400,
    )


def test_s11_definitions_are_validated_without_a_machine(states_client: Any) -> None:
    validate = states_client.validate_state_machine_definition
    assert answer(validate(definition=FIRST)) == {"result": "OK", "diagnostics": [], "truncated": False}
    assert answer(validate(definition="{}")) == {
        "result": "FAIL",
        "diagnostics": [
            {
                "severity": "ERROR",
                "code": "SCHEMA_VALIDATION_FAILED",
                "message": "These fields are required: [States, StartAt]",
                "location": "/",
            }
        ],
        "truncated": False,
    }
    wrong = chain({"Type": "Pass", "Catch": [], "Retry": []})
    limited = answer(validate(definition=json.dumps(wrong), maxResults=1))
    assert (limited["truncated"], len(limited["diagnostics"])) == (True, 1)


def test_s12_machines_are_listed_by_name_and_tokens_are_checked(states_client: Any) -> None:
    for name in ("b", "a", "c"):
        made(states_client, name)
    pages = states_client.get_paginator("list_state_machines").paginate(PaginationConfig={"PageSize": 2})
    found = [machine for page in pages for machine in page["stateMachines"]]
    assert [machine["name"] for machine in found] == ["a", "b", "c"]
    assert {key: value for key, value in found[0].items() if key != "creationDate"} == {
        "stateMachineArn": f"{MACHINE}a",
        "name": "a",
        "type": "STANDARD",
    }
    assert error(states_client.list_state_machines, nextToken="x" * 1025) == (
        "ValidationException",
        f"1 validation error detected: Value '{'x' * 1000}' at 'nextToken' failed to satisfy constraint: Member must "
        "have length less than or equal to 1024",
        400,
    )
    assert error(states_client.list_state_machines, nextToken="x") == (
        "InvalidToken",
        "Invalid Token: 'Invalid token'",
        400,
    )
    assert error(states_client.list_state_machines, maxResults=1001)[1] == (
        "1 validation error detected: Value '1001' at 'maxResults' failed to satisfy constraint: Member must have "
        "value less than or equal to 1000"
    )


def test_s15_another_account_s_machines_are_denied_everywhere(states_client: Any) -> None:
    foreign = "arn:aws:states:us-east-1:123456789012"
    for call, operation, member, arn in (
        (states_client.start_execution, "StartExecution", "stateMachineArn", f"{foreign}:stateMachine:x"),
        (
            states_client.describe_state_machine,
            "DescribeStateMachine",
            "stateMachineArn",
            f"{foreign}:stateMachine:x:1",
        ),
        (states_client.delete_state_machine, "DeleteStateMachine", "stateMachineArn", f"{foreign}:stateMachine:x"),
        (states_client.describe_execution, "DescribeExecution", "executionArn", f"{foreign}:execution:x:y"),
    ):
        assert error(call, **{member: arn}) == (
            "AccessDeniedException",
            f"User: arn:aws:iam::000000000000:root is not authorized to perform: states:{operation} on resource: {arn} "
            f"because no resource-based policy allows the states:{operation} action",
            400,
        )


def test_s16_versions_are_published_described_listed_and_deleted(states_client: Any) -> None:
    arn = f"{MACHINE}published"
    first = made(states_client, "published", publish=True, versionDescription="one")
    assert first == {
        "stateMachineArn": arn,
        "creationDate": first["creationDate"],
        "stateMachineVersionArn": f"{arn}:1",
    }
    assert made(states_client, "published", publish=True)["stateMachineVersionArn"] == f"{arn}:1"
    described = answer(states_client.describe_state_machine(stateMachineArn=f"{arn}:1"))
    assert described == {
        "stateMachineArn": f"{arn}:1",
        "name": "published",
        "status": "ACTIVE",
        "definition": FIRST,
        "roleArn": ROLE,
        "type": "STANDARD",
        "creationDate": described["creationDate"],
        "description": "one",
        **SETTINGS,
    }
    # Without a change there is no revision, and no second version.
    unchanged = answer(states_client.update_state_machine(stateMachineArn=arn, definition=FIRST, publish=True))
    assert unchanged == {"updateDate": unchanged["updateDate"], "stateMachineVersionArn": f"{arn}:1"}
    changed = answer(states_client.update_state_machine(stateMachineArn=arn, definition=SECOND))
    publish = states_client.publish_state_machine_version
    second = answer(publish(stateMachineArn=arn, revisionId=changed["revisionId"], description="two"))
    assert second == {"creationDate": second["creationDate"], "stateMachineVersionArn": f"{arn}:2"}
    assert answer(publish(stateMachineArn=arn)) == second
    other = "00000000-0000-0000-0000-000000000000"
    assert error(publish, stateMachineArn=arn, revisionId=other) == (
        "ConflictException",
        f"Failed to publish the State Machine version for revision {other}. The current State Machine revision is "
        f"{changed['revisionId']}.",
        400,
    )
    listed = states_client.list_state_machine_versions(stateMachineArn=arn)["stateMachineVersions"]
    assert listed == [
        {"stateMachineVersionArn": f"{arn}:2", "creationDate": second["creationDate"]},
        {"stateMachineVersionArn": f"{arn}:1", "creationDate": described["creationDate"]},
    ]
    for _ in range(2):
        assert answer(states_client.delete_state_machine_version(stateMachineVersionArn=f"{arn}:2")) == {}
    assert answer(publish(stateMachineArn=arn))["stateMachineVersionArn"] == f"{arn}:3"
    assert error(states_client.update_state_machine, stateMachineArn=f"{arn}:3", definition=FIRST) == (
        "StateMachineDoesNotExist",
        f"State Machine Does Not Exist: '{arn}:3'",
        400,
    )
    call = {"name": "other", "definition": FIRST, "roleArn": ROLE, "versionDescription": "one"}
    assert error(states_client.create_state_machine, **call) == (
        "ValidationException",
        "Version description can only be set when publish is true",
        400,
    )


def test_s16_executions_of_versions_and_aliases(states_client: Any) -> None:
    arn = made(states_client, "aliased", publish=True)["stateMachineArn"]
    states_client.update_state_machine(stateMachineArn=arn, definition=SECOND, publish=True)
    create_alias = states_client.create_state_machine_alias
    alias = create_alias(name="live", routingConfiguration=routed((":1", 100)))["stateMachineAliasArn"]
    assert alias == f"{arn}:live"
    begin = states_client.start_execution
    of = {target: begin(stateMachineArn=target)["executionArn"] for target in (arn, f"{arn}:1", f"{arn}:2", alias)}
    described = {target: ended(states_client, execution) for target, execution in of.items()}
    assert {target: found["output"] for target, found in described.items()} == {
        arn: "2",
        f"{arn}:1": "1",
        f"{arn}:2": "2",
        alias: "1",
    }
    published = ("stateMachineArn", "stateMachineVersionArn", "stateMachineAliasArn")
    assert {target: [found.get(key) for key in published] for target, found in described.items()} == {
        arn: [arn, None, None],
        f"{arn}:1": [arn, f"{arn}:1", None],
        f"{arn}:2": [arn, f"{arn}:2", None],
        alias: [arn, f"{arn}:1", alias],
    }
    for target, expected in ((arn, set(of.values())), (f"{arn}:1", {of[f"{arn}:1"], of[alias]}), (alias, {of[alias]})):
        listed = states_client.list_executions(stateMachineArn=target)["executions"]
        assert {execution["executionArn"] for execution in listed} == expected
    assert told(states_client, of[alias])[0]["executionStartedEventDetails"] == {
        "input": "{}",
        "inputDetails": {"truncated": False},
        "roleArn": ROLE,
        "stateMachineAliasArn": alias,
        "stateMachineVersionArn": f"{arn}:1",
    }
    own = answer(states_client.describe_state_machine_for_execution(executionArn=of[f"{arn}:1"]))
    assert (own["stateMachineArn"], own["definition"]) == (arn, FIRST)
    # An alias with two versions goes by their weights: nothing of one that has none.
    states_client.update_state_machine_alias(
        stateMachineAliasArn=alias, routingConfiguration=routed((":1", 0), (":2", 100))
    )
    again = [begin(stateMachineArn=alias)["executionArn"] for _ in range(5)]
    assert {ended(states_client, execution)["stateMachineVersionArn"] for execution in again} == {f"{arn}:2"}


def test_s16_aliases_are_made_changed_listed_and_deleted(states_client: Any) -> None:
    arn = made(states_client, "aliased", publish=True)["stateMachineArn"]
    states_client.update_state_machine(stateMachineArn=arn, definition=SECOND, publish=True)
    make = states_client.create_state_machine_alias
    first = answer(make(name="live", routingConfiguration=routed((":1", 100)), description="d"))
    assert first == {"stateMachineAliasArn": f"{arn}:live", "creationDate": first["creationDate"]}
    assert answer(make(name="live", routingConfiguration=routed((":1", 100)), description="d")) == first
    conflict = (
        "ConflictException",
        "Failed to create alias because an alias with the same name and a different routing configuration already "
        "exists.",
        400,
    )
    assert error(make, name="live", routingConfiguration=routed((":1", 100)), description="e") == conflict
    assert error(make, name="live", routingConfiguration=routed((":2", 100)), description="d") == conflict
    second = answer(make(name="next", routingConfiguration=routed((":2", 100))))
    aliases = [
        {"stateMachineAliasArn": f"{arn}:live", "creationDate": first["creationDate"]},
        {"stateMachineAliasArn": f"{arn}:next", "creationDate": second["creationDate"]},
    ]
    listing = states_client.list_state_machine_aliases
    assert listing(stateMachineArn=arn)["stateMachineAliases"] == aliases
    assert listing(stateMachineArn=f"{arn}:2")["stateMachineAliases"] == aliases[1:]
    describe = states_client.describe_state_machine_alias
    whole = {
        "stateMachineAliasArn": f"{arn}:live",
        "name": "live",
        "description": "d",
        "routingConfiguration": routed((":1", 100)),
        "creationDate": first["creationDate"],
        "updateDate": answer(describe(stateMachineAliasArn=f"{arn}:live"))["updateDate"],
    }
    assert answer(describe(stateMachineAliasArn=f"{arn}:live")) == whole
    updated = answer(
        states_client.update_state_machine_alias(
            stateMachineAliasArn=f"{arn}:live", routingConfiguration=routed((":1", 50), (":2", 50))
        )
    )
    assert [*updated] == ["updateDate"]
    assert answer(describe(stateMachineAliasArn=f"{arn}:live")) == {
        **whole,
        **updated,
        "routingConfiguration": routed((":1", 50), (":2", 50)),
    }
    assert error(states_client.delete_state_machine_version, stateMachineVersionArn=f"{arn}:1") == (
        "ConflictException",
        "Version to be deleted must not be referenced by an alias. Current list of aliases referencing this version: "
        "[live]",
        400,
    )
    for _ in range(2):
        assert answer(states_client.delete_state_machine_alias(stateMachineAliasArn=f"{arn}:live")) == {}
    assert error(describe, stateMachineAliasArn=f"{arn}:live") == ("ResourceNotFound", GONE, 400)
    update = states_client.update_state_machine_alias
    assert error(update, stateMachineAliasArn=f"{arn}:live", description="x") == ("ResourceNotFound", GONE, 400)
    assert answer(states_client.delete_state_machine_version(stateMachineVersionArn=f"{arn}:1")) == {}
    states_client.delete_state_machine(stateMachineArn=arn)
    assert error(describe, stateMachineAliasArn=f"{arn}:next") == ("ResourceNotFound", GONE, 400)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([("", 100)], "Routing configuration must contain state machine version ARNs. Received: [{arn}]"),
        (
            [(":1", 50), (":1", 50)],
            "Routing configuration must contain distinct state machine version ARNs. Received: [{arn}:1, {arn}:1]",
        ),
        ([(":1", 70), (":2", 29)], "Sum of routing configuration weights must equal 100. Received: [70, 29]"),
        ([(":1", 70), (":2", 31)], "Sum of routing configuration weights must equal 100. Received: [70, 31]"),
        (
            [(":1", 101)],
            "1 validation error detected: Value '101' at 'routingConfiguration.1.member.weight' failed to satisfy "
            "constraint: Member must have value less than or equal to 100",
        ),
    ],
)
def test_s16_routings_that_are_refused(states_client: Any, shares: list[tuple[str, int]], message: str) -> None:
    arn = made(states_client, "aliased", publish=True)["stateMachineArn"]
    states_client.update_state_machine(stateMachineArn=arn, definition=SECOND, publish=True)
    call = states_client.create_state_machine_alias
    expected = ("ValidationException", message.format(arn=arn), 400)
    assert error(call, name="live", routingConfiguration=routed(*shares)) == expected
    absent = error(call, name="live", routingConfiguration=routed((":9", 100)))
    assert absent == ("ResourceNotFound", GONE, 400)
    name = error(call, name="123", routingConfiguration=routed((":1", 100)))
    assert name == (
        "ValidationException",
        "1 validation error detected: Value '123' at 'name' failed to satisfy constraint: Member must satisfy regular "
        r"expression pattern: ^(?=.*[a-zA-Z_\-\.])[a-zA-Z0-9_\-\.]+$",
        400,
    )


def test_s16_tags_of_machines(states_client: Any) -> None:
    tags = [{"key": "a", "value": "1"}, {"key": "b", "value": ""}]
    arn = made(states_client, "tagged", tags=tags, publish=True)["stateMachineArn"]
    listing = states_client.list_tags_for_resource
    assert answer(listing(resourceArn=arn)) == {"tags": tags}
    change = [{"key": "a", "value": "2"}, {"key": "c", "value": "3"}]
    assert answer(states_client.tag_resource(resourceArn=arn, tags=change)) == {}
    assert answer(states_client.untag_resource(resourceArn=arn, tagKeys=["b", "nobody"])) == {}
    assert answer(listing(resourceArn=arn)) == {"tags": change}
    for resource in (f"{arn}:1", f"{MACHINE}absent"):
        expected = ("ResourceNotFound", f"Resource not found: '{resource}'", 400)
        assert error(states_client.tag_resource, resourceArn=resource, tags=change) == expected
    many = [{"key": str(number), "value": ""} for number in range(50)]
    assert error(states_client.tag_resource, resourceArn=arn, tags=many)[0] == "TooManyTags"
    assert answer(listing(resourceArn=arn)) == {"tags": change}


def test_an_operation_that_is_not_emulated_is_named(states_client: Any, emulator: Emulator) -> None:
    assert "RedriveExecution" not in OPERATIONS
    execution = start(states_client, "redriven", chain({"Type": "Fail"}))
    assert error(states_client.redrive_execution, executionArn=execution) == (
        "UnknownOperationException",
        "slslab does not emulate Step Functions' operation RedriveExecution",
        400,
    )
    machine = create(states_client, "sync", chain({"Type": "Pass"}))
    # By default the client asks a host of another name for this one.
    with closing(
        aws_client("stepfunctions", states_client.meta.endpoint_url, emulator.keys.owner, inject_host_prefix=False)
    ) as client:
        assert error(client.start_sync_execution, stateMachineArn=machine) == (
            "StateMachineTypeNotSupported",
            "This operation is not supported by this type of state machine",
            400,
        )


def test_an_execution_s_dates_are_dates(states_client: Any) -> None:
    described = run(states_client, "dates", chain({"Type": "Pass"}))
    assert all(isinstance(described[name], datetime) for name in ("startDate", "stopDate"))


GROUP = {"cloudWatchLogsLogGroup": {"logGroupArn": "arn:aws:logs:us-east-1:000000000000:log-group:g:*"}}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {"level": "OFF", "includeExecutionData": False}),
        ({"level": "OFF", "destinations": []}, {"level": "OFF", "includeExecutionData": False, "destinations": []}),
        (
            {"level": "ALL", "destinations": [GROUP]},
            {"level": "ALL", "includeExecutionData": False, "destinations": [GROUP]},
        ),
        ({"level": "ALL"}, None),
        ({"level": "ERROR", "destinations": []}, None),
        ({"level": "ALL", "destinations": [{}]}, None),
        ({"level": "OFF", "destinations": [GROUP, GROUP]}, None),
    ],
)
def test_a_logging_configuration_is_validated_and_completed(
    states_client: Any, given: dict[str, Any], kept: dict[str, Any] | None
) -> None:
    name = f"logging-{uuid.uuid4()}"
    if kept is None:
        what = "Invalid Logging Configuration: Must specify exactly one Log Destination."
        call = {"name": name, "definition": FIRST, "roleArn": ROLE, "loggingConfiguration": given}
        assert error(states_client.create_state_machine, **call) == ("InvalidLoggingConfiguration", what, 400)
        return
    arn = made(states_client, name, loggingConfiguration=given)["stateMachineArn"]
    assert states_client.describe_state_machine(stateMachineArn=arn)["loggingConfiguration"] == kept


def test_the_process_has_a_limit_of_memory(state_machines: Any) -> None:
    limits = Path(f"/proc/{state_machines.pid}/limits").read_text()
    most = state_machines.memory_mb << 20
    assert re.search(rf"^Max data size +{most} +{most} ", limits, re.MULTILINE)
