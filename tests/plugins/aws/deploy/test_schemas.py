"""The types of CloudFormation's registry: how values are converted, and that the copy is the registry's."""

from importlib.metadata import version
from typing import Any

import pytest
from tests.plugins.aws.deploy import registry

from slslab_aws.deploy import schemas
from slslab_aws.deploy.planning import KINDS, expected

FUNCTION = "AWS::Lambda::Function"
QUEUE = "AWS::SQS::Queue"


@pytest.mark.parametrize(
    ("kind", "properties", "converted"),
    [
        (FUNCTION, {"MemorySize": "256"}, {"MemorySize": 256}),
        (FUNCTION, {"MemorySize": 256.0}, {"MemorySize": 256}),
        (FUNCTION, {"MemorySize": "much"}, {"MemorySize": "much"}),
        (FUNCTION, {"MemorySize": "2_5_6"}, {"MemorySize": "2_5_6"}),
        (FUNCTION, {"MemorySize": "२५६"}, {"MemorySize": "२५६"}),
        (FUNCTION, {"MemorySize": True}, {"MemorySize": True}),
        (FUNCTION, {"Description": 5}, {"Description": "5"}),
        (FUNCTION, {"Description": False}, {"Description": "false"}),
        (
            FUNCTION,
            {"Environment": {"Variables": {"YES": True, "ONE": 1, "HALF": 0.5, "TEXT": "x"}}},
            {"Environment": {"Variables": {"YES": "true", "ONE": "1", "HALF": "0.5", "TEXT": "x"}}},
        ),
        (FUNCTION, {"Tags": [{"Key": "a", "Value": True}]}, {"Tags": [{"Key": "a", "Value": "true"}]}),
        (QUEUE, {"FifoQueue": "true", "DelaySeconds": "5"}, {"FifoQueue": True, "DelaySeconds": 5}),
        (QUEUE, {"FifoQueue": "yes"}, {"FifoQueue": "yes"}),
        (QUEUE, {"RedrivePolicy": {"maxReceiveCount": "5"}}, {"RedrivePolicy": {"maxReceiveCount": 5}}),
        (QUEUE, {"RedrivePolicy": '{"maxReceiveCount": "5"}'}, {"RedrivePolicy": {"maxReceiveCount": 5}}),
        (QUEUE, {"RedrivePolicy": "[1]"}, {"RedrivePolicy": "[1]"}),
        (FUNCTION, {"Environment": '{"Variables": {}}'}, {"Environment": '{"Variables": {}}'}),
        ("AWS::Lambda::EventSourceMapping", {"BatchSize": "5", "Enabled": "False"}, {"BatchSize": 5, "Enabled": False}),
        ("AWS::IAM::Role", {"AssumeRolePolicyDocument": {"a": True}}, {"AssumeRolePolicyDocument": {"a": True}}),
        ("AWS::Events::Rule", {"Targets": [{"Id": 1, "Arn": "a"}]}, {"Targets": [{"Id": "1", "Arn": "a"}]}),
        ("AWS::Logs::LogGroup", {"RetentionInDays": "7"}, {"RetentionInDays": 7}),
    ],
)
def test_values_have_the_types_of_their_properties(
    kind: str, properties: dict[str, Any], converted: dict[str, Any]
) -> None:
    found = schemas.convert(kind, properties)
    assert found == converted
    assert repr(found) == repr(converted)  # true is not 1


def test_what_is_deployed_is_in_the_registry() -> None:
    for name, kind in KINDS.items():
        assert kind.properties <= schemas.properties_of(name), name


def test_every_type_has_a_reference_before_it_is_made() -> None:
    for name in KINDS:
        made = expected(name, "stack-Name-0123456789", {"FunctionName": "f", "TargetFunctionArn": "f", "TopicArn": "t"})
        assert made.ref
        assert all(made.attributes.values())


def test_the_copy_is_what_cfn_lint_brings() -> None:
    copy = schemas.document()
    if not copy["source"].endswith(f"cfn-lint {version('cfn-lint')}"):
        pytest.skip(f"the copy is of {copy['source']}: python -m tests.plugins.aws.deploy.registry writes it again")
    assert registry.build() == copy
