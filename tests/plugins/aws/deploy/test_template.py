"""What is read of a template, and what is wrong with it, by its lines."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from slslab.errors import RequestError
from slslab_aws.deploy.expansion import expand
from slslab_aws.deploy.intrinsics import Scope
from slslab_aws.deploy.planning import plan, scope_of
from slslab_aws.deploy.template import SCHEMA, Template, read_template

# A queue whose first property is in the fifth line.
QUEUE = "Resources:\n  Q:\n    Type: AWS::SQS::Queue\n    Properties:\n      "


LETTERS = r"does not match '^[A-Za-z0-9]{1,255}\\Z'."
SECTIONS = [*SCHEMA["properties"]]


def template(folder: Path, text: str) -> Template:
    (folder / "template.yaml").write_text(text)
    return read_template(folder / "template.yaml")


def mistakes(folder: Path, text: str, **parameters: str) -> list[tuple[int, str]]:
    read = template(folder, text)
    plan("stack", expand(read, parameters))
    return sorted(set(read.problems))


def test_three_mistakes_are_named_with_their_lines(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        """\
Transform: AWS::Serverless-2016-10-31
Resources:
  Hello:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: absent
      Handler: app.handler
      Runtime: python3.11
      Environment:
        Variables:
          QUEUE: !Ref Queue
  Graph:
    Type: AWS::Neptune::DBCluster
""",
    )
    assert found == [
        (6, "CodeUri of Hello: there is no folder or file absent."),
        (11, "Queue is not a resource and not a parameter of this template."),
        (12, "slslab does not deploy AWS::Neptune::DBCluster (Graph)."),
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("Resources: {}\n", 1, "Resources: {} should be non-empty."),
        ("Resources:\n  Q: {Type: AWS::SQS::Queue}\nRules: {}\n", 3, f"Rules: 'Rules' is not one of {SECTIONS}."),
        ("Resources:\n  Q: {}\n", 2, "Resources.Q: 'Type' is a required property."),
        (QUEUE + "Colour: red\n", 5, "AWS::SQS::Queue has no property Colour (Q)."),
        (
            "Resources:\n  Q:\n    Type: AWS::SQS::Queue\n    CreationPolicy: {}\n",
            2,
            "Q has CreationPolicy, which is not emulated.",
        ),
        (QUEUE + "QueueName: !ImportValue other\n", 5, "slslab doesn't resolve Fn::ImportValue."),
        (
            QUEUE + "QueueName: !Sub '${Absent.Arn}-${AWS::Region}'\n",
            5,
            "Absent is not a resource and not a parameter of this template.",
        ),
        (
            QUEUE + "QueueName: !GetAtt Absent.Arn\n",
            5,
            "Absent is not a resource of this template.",
        ),
        (QUEUE + "QueueName: !If [Absent, a, b]\n", 5, "there is no condition Absent."),
        (
            "Parameters:\n  Size: {Type: Number}\nResources:\n  Q: {Type: AWS::SQS::Queue}\n",
            2,
            "the parameter Size has no default: give --parameter Size=VALUE.",
        ),
        (
            "Resources:\n  A: {Type: AWS::SQS::Queue, DependsOn: B}\n  B: {Type: AWS::SQS::Queue, DependsOn: [A]}\n",
            2,
            "these resources need each other: A, B, A.",
        ),
        (
            "Transform: Macro\nResources:\n  Q: {Type: AWS::SQS::Queue}\n",
            1,
            "Transform: 'Macro' is not one of ['AWS::Serverless-2016-10-31', ['AWS::Serverless-2016-10-31']].",
        ),
    ],
)
def test_each_mistake_has_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    assert (line, message) in mistakes(tmp_path, text)


# A function whose further properties begin in the ninth line.
FUNCTION = """\
Resources:
  F:
    Type: AWS::Lambda::Function
    Properties:
      Handler: a.b
      Runtime: python3.11
      Role: arn:aws:iam::000000000000:role/x
      Code: {ZipFile: "x"}
"""
# What it is that a state machine's definition is in the third line.
MACHINE = """\
Resources:
  M: {Type: AWS::StepFunctions::StateMachine, Properties: {RoleArn: "arn:aws:iam::000000000000:role/x",
"""
SUCCEEDS = "Definition: {StartAt: A, States: {A: {Type: Succeed}}}}}\n"
TOPIC = "Resources:\n  T: {Type: AWS::SNS::Topic, Properties: {"
QUEUE_POLICY = "Resources:\n  P: {Type: AWS::SQS::QueuePolicy, Properties: {"
TABLE = """\
Resources:
  T: {Type: AWS::DynamoDB::Table, Properties: {KeySchema: [{AttributeName: a, KeyType: HASH}],
    AttributeDefinitions: [{AttributeName: a, AttributeType: S}], """
CONDITION = "Resources: {Q: {Type: AWS::SQS::Queue}}\nConditions:\n  A: "
OUTPUT = "Resources: {Q: {Type: AWS::SQS::Queue}}\nOutputs: {A: {Value: "
RULE = "Resources:\n  R:\n    Type: AWS::Events::Rule\n    Properties: "
NO_CONDITION = "a condition is one of Condition, Fn::And, Fn::Equals, Fn::Not and Fn::Or."


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "Resources:\n  Q: {Type: AWS::SQS::Queue, Properties: [a]}\n",
            2,
            "Resources.Q.Properties: ['a'] is not of type 'object'.",
        ),
        ("Resources: [a]\n", 1, "Resources: ['a'] is not of type 'object'."),
        (
            "Resources:\n  F: {Type: AWS::Serverless::Function}\n",
            2,
            "AWS::Serverless::Function needs Transform: AWS::Serverless-2016-10-31 (F).",
        ),
        (
            "Resources:\n  T: {Type: AWS::DynamoDB::Table, Properties: "
            "{KeySchema: [{AttributeName: a, KeyType: HASH}], "
            "AttributeDefinitions: [{AttributeName: b, AttributeType: S}]}}\n",
            2,
            "T: AttributeDefinitions must name the keys, a, not b.",
        ),
        (
            "Resources:\n  P: {Type: AWS::Lambda::Permission, Properties: {Action: lambda:InvokeFunction, "
            "FunctionName: f, Principal: '::'}}\n",
            2,
            "P: The provided principal was invalid. Please check the principal and try again.",
        ),
        (
            "Resources: {Q: {Type: AWS::SQS::Queue}}\nParameters: {A: b}\n",
            2,
            "Parameters.A: 'b' is not of type 'object'.",
        ),
        (
            "Resources: {Q: {Type: AWS::SQS::Queue}}\nOutputs: {A: {}}\n",
            2,
            "Outputs.A: 'Value' is a required property.",
        ),
        ("Resources: {Q: {Type: AWS::SQS::Queue}}\nMetadata: {A: }\n", 2, "a value is missing (null)."),
        ("Resources:\n  a b: {Type: AWS::SQS::Queue}\n", 2, f"Resources.a b: 'a b' {LETTERS}"),
        ("Outputs: {a-b: {Value: a}}\nResources: {Q: {Type: AWS::SQS::Queue}}\n", 1, f"Outputs.a-b: 'a-b' {LETTERS}"),
        (
            "Parameters: {a_b: {Type: String}}\nResources: {Q: {Type: AWS::SQS::Queue}}\n",
            1,
            f"Parameters.a_b: 'a_b' {LETTERS}",
        ),
        ("AWSTemplateFormatVersion: 2020-01-01\n", 1, "AWSTemplateFormatVersion: '2010-09-09' was expected."),
        (
            "Resources:\n  T: {Type: AWS::DynamoDB::Table, Properties: {StreamSpecification: {}}}\n",
            2,
            "slslab does not deploy the property StreamSpecification of AWS::DynamoDB::Table (T).",
        ),
        (
            QUEUE + "KmsMasterKeyId: k\n",
            5,
            "slslab does not deploy the property KmsMasterKeyId of AWS::SQS::Queue (Q).",
        ),
        (
            QUEUE + "RedrivePolicy: {deadLetterTargetArn: a, colour: red}\n",
            5,
            "Q: RedrivePolicy: Additional properties are not allowed ('colour' was unexpected).",
        ),
        (QUEUE + "VisibilityTimeout: long\n", 5, "Q: VisibilityTimeout: 'long' is not of type 'integer'."),
        (
            QUEUE + "VisibilityTimeout: 99999\n",
            5,
            "Q: VisibilityTimeout: 99999 is greater than the maximum of 43200.",
        ),
        (QUEUE + "Tags: {a: b}\n", 5, "Q: Tags: {'a': 'b'} is not of type 'array'."),
        (
            "Resources:\n  A: {Type: AWS::S3::Bucket, Properties: {BucketName: data}}\n"
            "  B: {Type: AWS::S3::Bucket, DependsOn: A, Properties: {BucketName: data}}\n",
            3,
            "B has the name of A, data.",
        ),
        (
            TOPIC + "TopicName: a.fifo}}\n",
            2,
            "T: TopicName: 'a.fifo' does not match '^[A-Za-z0-9_-]+\\\\Z'.",
        ),
        (TABLE + "TableName: a b}}\n", 3, "T: TableName: 'a b' does not match '^[a-zA-Z0-9_.-]{3,255}\\\\Z'."),
        (TABLE + "BillingMode: PROVISIONED}}\n", 2, "T: BillingMode PROVISIONED needs ProvisionedThroughput."),
        (
            TABLE + "BillingMode: PAY_PER_REQUEST, ProvisionedThroughput: {ReadCapacityUnits: 1, "
            "WriteCapacityUnits: 1}}}\n",
            2,
            "T: ProvisionedThroughput cannot be specified when BillingMode is PAY_PER_REQUEST.",
        ),
        (
            TABLE.replace("HASH", "RANGE") + "Tags: []}}\n",
            2,
            "T: a KeySchema must have one HASH key, and one RANGE key at most after it.",
        ),
        (MACHINE + "    StateMachineName: a b, " + SUCCEEDS, 2, "M: Invalid Name: 'a b'."),
        (MACHINE.replace("arn:aws:iam::000000000000:role/x", "x") + "    " + SUCCEEDS, 2, "M: Invalid Role Arn: 'x'."),
        (
            QUEUE + "{FifoQueue: true, RedrivePolicy: {maxReceiveCount: 1, "
            "deadLetterTargetArn: 'arn:aws:sqs:us-east-1:000000000000:q'}}\n",
            2,
            "Q: only FIFO queues have a FIFO queue for dead letters, and they need one.",
        ),
        (
            "Resources:\n  B: {Type: AWS::S3::Bucket, Properties: {BucketName: 192.168.0.1}}\n",
            2,
            "B: '192.168.0.1' cannot be the name of a bucket.",
        ),
        (
            "Resources:\n  B: {Type: AWS::S3::BucketPolicy, Properties: {Bucket: data, PolicyDocument: {Statement: "
            "[{Effect: Allow, Principal: {Service: a.amazonaws.com}, Action: 's3:*', Resource: '*'}]}}}\n",
            2,
            'B: slslab knows only the principals "*" and {"AWS": ...}.',
        ),
        (
            QUEUE + "QueueName: not a name\n",
            5,
            "Q: QueueName: 'not a name' does not match '^[A-Za-z0-9_-]+(\\\\.fifo)?\\\\Z'.",
        ),
        (QUEUE + "QueueName: a.fifo\n", 2, "Q: the names of FIFO queues end with .fifo, and no other names."),
        (QUEUE + "ContentBasedDeduplication: true\n", 2, "Q: ContentBasedDeduplication is for FIFO queues."),
        (QUEUE + "RedrivePolicy: '[]'\n", 5, "Q: RedrivePolicy: '[]' is not of type 'object'."),
        (QUEUE + "RedrivePolicy: '{}'\n", 5, "Q: RedrivePolicy: 'maxReceiveCount' is a required property."),
        (
            QUEUE + "RedrivePolicy: {maxReceiveCount: 0, deadLetterTargetArn: a}\n",
            5,
            "Q: RedrivePolicy.maxReceiveCount: 0 is less than the minimum of 1.",
        ),
        (
            TOPIC + "Subscription: [{Protocol: sqs, Endpoint: 'arn:aws:lambda:us-east-1:000000000000:function:f'}]}}\n",
            2,
            "T: Subscription.0.Endpoint: 'arn:aws:lambda:us-east-1:000000000000:function:f' does not match "
            "'^arn:aws:sqs:'.",
        ),
        (
            TOPIC + "Subscription: [{Protocol: email, Endpoint: 'a@b'}]}}\n",
            2,
            "T: Subscription.0.Protocol: 'email' is not one of ['sqs', 'lambda'].",
        ),
        (
            QUEUE_POLICY + "Queues: [q], PolicyDocument: {Statement: []}}}\n",
            2,
            "P: Queues.0: 'q' does not match '^http'.",
        ),
        (
            QUEUE_POLICY + "Queues: ['http://q'], PolicyDocument: {}}}\n",
            2,
            "P: PolicyDocument: 'Statement' is a required property.",
        ),
        (FUNCTION + "      Environment: abc\n", 9, "F: Environment: 'abc' is not of type 'object'."),
        (
            FUNCTION + "      Environment: {Colour: red}\n",
            9,
            "F: Environment: Additional properties are not allowed ('Colour' was unexpected).",
        ),
        (
            FUNCTION + "      Environment: {Variables: {N: 1}}\n",
            9,
            "F: Environment.Variables: 'N' does not match any of the regexes: '[a-zA-Z][a-zA-Z0-9_]+'.",
        ),
        (
            FUNCTION + "  M:\n    Type: AWS::Lambda::EventSourceMapping\n    Properties: {FunctionName: !Ref F, "
            "StartingPosition: LATEST, EventSourceArn: 'arn:aws:dynamodb:us-east-1:000000000000:table/t/stream/1'}\n",
            9,
            "M: slslab emulates event source mappings of SQS, not of dynamodb.",
        ),
        (
            FUNCTION + "  M:\n    Type: AWS::Lambda::EventSourceMapping\n    Properties: {FunctionName: !Ref F, "
            "StartingPosition: LATEST, EventSourceArn: 'arn:aws:sqs:us-east-1:000000000000:q'}\n",
            9,
            "M: slslab does not emulate StartingPosition of an event source mapping of SQS.",
        ),
        (
            MACHINE
            + "    LoggingConfiguration: {Level: ALL}, Definition: {StartAt: A, States: {A: {Type: Succeed}}}}}\n",
            2,
            "M: Invalid Logging Configuration: Must specify exactly one Log Destination.",
        ),
        (FUNCTION + "      MemorySize: 64\n", 9, "F: MemorySize: 64 is less than the minimum of 128."),
        (
            FUNCTION.replace("python3.11", "nodejs22.x"),
            2,
            "F: slslab runs Python functions; package one of nodejs22.x as a container image.",
        ),
        (
            "Resources:\n  P: {Type: AWS::Lambda::Permission, Properties: {Action: a}}\n",
            2,
            "P: AWS::Lambda::Permission: 'FunctionName' is a required property.",
        ),
        (
            MACHINE + "    Definition: {StartAt: A, States: {A: {Type: Pas}}}}}\n",
            2,
            "M: the definition is refused: SCHEMA_VALIDATION_FAILED: The field 'Type' should have one of these values: "
            "[Task, Wait, Pass, Succeed, Fail, Choice, Parallel, Map] at /States/A/Type.",
        ),
        (
            MACHINE + "    DefinitionS3Location: {Bucket: b, Key: k}}}\n",
            2,
            "M: slslab reads definitions from files next to the template, not from S3.",
        ),
        (
            MACHINE + "    Tags: []}}\n",
            2,
            "M: a state machine has one of Definition, DefinitionS3Location, DefinitionString.",
        ),
        (CONDITION + "!And abc\n", 3, 'Fn::And takes a list of 2 to 10 conditions, not "abc".'),
        (CONDITION + "!Not [abc]\n", 3, 'Fn::Not takes a list of one condition, not ["abc"].'),
        (CONDITION + "true\n", 3, f"the condition A cannot be resolved: {NO_CONDITION}"),
        (CONDITION + "!Not [!Ref AWS::Region]\n", 3, f"the condition A cannot be resolved: {NO_CONDITION}"),
        (
            CONDITION + "!Not [!Condition B]\n  B: !Not [!Condition A]\n",
            3,
            "the condition A cannot be resolved: the condition A refers to itself.",
        ),
        (CONDITION + "!Not [!Condition B]\n", 3, "the condition A cannot be resolved: there is no condition B."),
        (
            CONDITION + "!Equals [!Ref Q, a]\n",
            3,
            "the condition A cannot be resolved: Q is not a parameter, and not a resource that this deployment makes.",
        ),
        (
            OUTPUT + "!GetAtt Q.Colour}}\n",
            2,
            "the output A cannot be resolved: Q has no attribute Colour here; it has Arn, QueueName, QueueUrl.",
        ),
        (OUTPUT + "!GetAtt Q}}\n", 2, 'Fn::GetAtt takes the name of a resource and of an attribute, not ["Q"].'),
        (OUTPUT + "[a]}}\n", 2, "the output A cannot be resolved: the value of an output must be a text."),
        (
            OUTPUT + "!Select [2, !Split ['-', a-b]]}}\n",
            2,
            "the output A cannot be resolved: Fn::Select asks for the item 2 of a list that has 2, from 0 on.",
        ),
        (OUTPUT + "!FindInMap [M, a, b]}}\n", 2, "the output A cannot be resolved: there is no M.a.b in Mappings."),
        (
            "Conditions: {Never: !Equals [a, b]}\nResources:\n  Q: {Type: AWS::SQS::Queue, Condition: Never}\n"
            "Outputs: {A: {Value: !Ref Q}}\n",
            4,
            "the output A cannot be resolved: Q is not a parameter, and not a resource that this deployment makes.",
        ),
        ("Resources:\n  Q: {Type: AWS::SQS::Queue, DependsOn: X}\n", 2, "X, on which Q depends, is not a resource."),
        (
            "Resources:\n  Q: {Type: AWS::SQS::Queue, Condition: {a: b}}\n",
            2,
            "Resources.Q.Condition: {'a': 'b'} is not of type 'string'.",
        ),
        (
            "Resources:\n  Q: {Type: AWS::SQS::Queue, DependsOn: [{a: b}]}\n",
            2,
            "Resources.Q.DependsOn: [{'a': 'b'}] is not valid under any of the given schemas.",
        ),
        (
            "Resources:\n  Q: {Type: AWS::SQS::Queue, DeletionPolicy: Snapshot}\n",
            2,
            "Resources.Q.DeletionPolicy: 'Snapshot' is not one of ['Delete', 'Retain', 'RetainExceptOnCreate'].",
        ),
        (
            "Parameters: {P: {Type: String, Default: a, MinLength: .inf}}\nResources: {Q: {Type: AWS::SQS::Queue}}\n",
            1,
            "the rules of P cannot be read.",
        ),
        (
            "Parameters: {P: {Type: String, Default: a}}\nConditions: {C: !Equals [a, b]}\n"
            "Outputs: {A: {Condition: C, Value: !GetAtt P.Arn}}\nResources: {Q: {Type: AWS::SQS::Queue}}\n",
            3,
            "P is not a resource of this template.",
        ),
        (OUTPUT + 'x}, "O\\n": {Value: x}}\n', 2, f"Outputs.O\n: 'O\\n' {LETTERS}"),
        (RULE + "{State: ENABLED}\n", 2, "R: a rule needs ScheduleExpression or EventPattern."),
        (
            RULE + "{ScheduleExpression: rate(1 minutes)}\n",
            2,
            "R: rate(1 minutes) is not a rate, such as rate(1 minute) or rate(5 minutes).",
        ),
        (
            RULE + "{EventPattern: {source: a}}\n",
            2,
            "R: EventPattern.source: 'a' is not of type 'array'.",
        ),
        (
            RULE + "{EventPattern: {source: [a]}, Targets: [{Id: t, Arn: 'arn:aws:kinesis:us-east-1:1:stream/s'}]}\n",
            2,
            "R: the target arn:aws:kinesis:us-east-1:1:stream/s must be one of lambda, states, sqs, logs.",
        ),
        (
            "Resources:\n  L: {Type: AWS::Logs::LogGroup, Properties: {LogGroupName: a b}}\n",
            2,
            r"L: LogGroupName: 'a b' does not match '^[.\\-_/#A-Za-z0-9]{1,512}\\Z'.",
        ),
    ],
)
def test_what_can_be_known_is_refused_with_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    assert (line, message) in mistakes(tmp_path, text)


def test_a_queue_is_refused_whose_messages_come_back_while_its_function_runs(tmp_path: Path) -> None:
    mapping = (
        "      Timeout: 31\n  Q: {Type: AWS::SQS::Queue}\n  M: {Type: AWS::Lambda::EventSourceMapping, Properties: "
        "{FunctionName: !Ref F, EventSourceArn: !GetAtt Q.Arn}}\n"
    )
    assert mistakes(tmp_path, FUNCTION + mapping) == [
        (11, "M: Queue visibility timeout: 30 seconds is less than Function timeout: 31 seconds.")
    ]
    assert mistakes(tmp_path, FUNCTION + mapping.replace("31", "30")) == []


TOO_LARGE = "with its aliases, the template has more than 1,000,000 characters, or values nested more than 100 deep."


def bomb() -> str:
    """A text of 400 bytes with 9 to the 10 values."""
    lines = ["  a: &a [x,x,x,x,x,x,x,x,x]"]
    for above, name in zip("abcdefghi", "bcdefghij", strict=True):
        lines.append(f"  {name}: &{name} [{','.join([f'*{above}'] * 9)}]")
    return "\n".join(["Metadata:", *lines, ""])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(), f":7: {TOO_LARGE}"),
        (bomb() + "Globals: *j\n", f":7: {TOO_LARGE}"),
        (bomb().replace("Metadata:", "Metadata:\n Fn::Join:"), f":8: {TOO_LARGE}"),
        (f"Metadata: &a {{{'k' * 200}: 1}}\nGlobals: [{'*a,' * 6000}]\n", f":1: {TOO_LARGE}"),
        ("Metadata: &a {b: *a}\n", ":1: this is not YAML: found unconstructable recursive node."),
        ("Metadata: " + "[" * 20000 + "]" * 20000, ":1: this is not YAML: values are nested more than 100 deep."),
        ("Metadata:\n" + "\n".join(" " * (depth + 1) + "a:" for depth in range(110)), f":100: {TOO_LARGE}"),
        # Whether Python's own limit ends it depends on what has set that.
        ("Metadata:\n" + "\n".join(" " * (depth + 1) + "a:" for depth in range(1200)), " nested "),
        ("Metadata: '\0'\n", ": this is not YAML: special characters are not allowed."),
        ('Metadata: {a: "\\0"}\n', ":1: a text contains a character that isn't allowed."),
        ('Metadata: {"\\0": a}\n', ":1: a text contains a character that isn't allowed."),
        (
            'Metadata: "\\UFFFFFFFF"\n',
            ": this is not YAML: a value is nested too deeply, or a number is too large.",
        ),
        (f"Metadata:\n  b: c\n  a: {'9' * 5000}\n", f":3: this is not YAML: {'9' * 40} can't be read as int; quote it"),
        (
            "Parameters:\n  P: {Type: Number, MinValue: " + "9" * 400 + "}",
            f":2: this is not YAML: {'9' * 40} can't be read",
        ),
        ("Metadata: {a: 0x" + "f" * 5000 + "}\n", ":1: this is not YAML: 0xff"),
        ("Metadata: {a: !!int foo}\n", ":1: this is not YAML: foo can't be read as int; quote it if it is a text."),
        ("Metadata: {a: !!int ''}\n", ":1: this is not YAML:  can't be read as int"),
        ("Metadata: {a: !!bool foo}\n", ":1: this is not YAML: foo can't be read as bool"),
        ("Metadata: {a: .inf}\n", ":1: inf is not a number here."),
        ("Metadata: {a: !!binary aGk=}\n", "could not determine a constructor for the tag 'tag:yaml.org,2002:binary'"),
        ("Metadata: {[a]: b}\n", ":1: this is not YAML: a key is not a text."),
        ("Metadata: !!map [a]\n", ":1: this is not YAML: a mapping has keys and values."),
        ("Metadata: !!map a\n", ":1: this is not YAML: a mapping has keys and values."),
        ("#" * 1_000_001, " has more than 1,000,000 bytes."),
    ],
)
def test_hostile_text_is_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(RequestError) as refused:
        template(tmp_path, text).raise_problems()
    assert message in refused.value.message
    assert time.process_time() - began < 2


def test_an_alias_is_a_copy(tmp_path: Path) -> None:
    read = template(tmp_path, "Metadata: {a: &a {b: [c]}, d: *a}\nResources: {Q: {Type: AWS::SQS::Queue}}\n")
    assert read.section("Metadata") == {"a": {"b": ["c"]}, "d": {"b": ["c"]}}


def test_conditions_in_a_long_chain_are_a_mistake(tmp_path: Path) -> None:
    chain = "".join(f"  C{number}: !Not [!Condition C{number + 1}]\n" for number in range(2000))
    text = f"Conditions:\n{chain}  C2000: !Equals [a, a]\nResources: {{Q: {{Type: AWS::SQS::Queue}}}}\n"
    reason = "conditions refer to each other more than 100 deep"
    assert mistakes(tmp_path, text)[0] == (2, f"the condition C0 cannot be resolved: {reason}.")


def test_conditions_that_share_others_are_tested_once_each(tmp_path: Path) -> None:
    text = "".join(f"  A{i + 1}: !And [!Condition A{i}, !Condition A{i}]\n" for i in range(200))
    assert mistakes(tmp_path, f"{CONDITION}!Equals [a, a]\n  A0: !Equals [a, a]\n{text}") == []


def test_a_text_that_grows_without_bound_is_refused(tmp_path: Path) -> None:
    value: Any = "x"
    for _ in range(9):
        value = {"Fn::Sub": ["${a}" * 10, {"a": value}]}
    ((_, message),) = mistakes(tmp_path, OUTPUT + json.dumps(value) + "}}\n")
    assert message == "the output A cannot be resolved: a text has more than 4 MB."


def test_what_sam_refuses_is_a_mistake_of_its_resource(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    text = "Transform: AWS::Serverless-2016-10-31\nResources:\n  F:\n    Type: AWS::Serverless::Function\n"
    ((line, message),) = mistakes(tmp_path, text + "    Properties: {Handler: app.handler, Runtimes: python3.11}\n")
    assert line == 3
    assert "Runtimes" in message


def test_what_sams_library_cannot_read_is_a_sentence(tmp_path: Path) -> None:
    text = "Transform: AWS::Serverless-2016-10-31\nResources:\n  F:\n    Type: AWS::Serverless::Function\n"
    text += "    Properties: {Handler: a.b, Runtime: python3.11, InlineCode: x, EventInvokeConfig: !Ref AWS::Region}\n"
    ((_, message),) = mistakes(tmp_path, text)
    assert message.startswith("AWS's SAM library can't expand the template: AttributeError: ")


def test_a_name_that_no_expansion_makes_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    text = "Transform: AWS::Serverless-2016-10-31\nResources:\n  F:\n    Type: AWS::Serverless::Function\n"
    text += (
        "    Properties: {Handler: app.handler, Runtime: python3.11}\nOutputs:\n  Role: {Value: !GetAtt FRole.Arn}\n"
    )
    assert mistakes(tmp_path, text) == []
    api = text.replace("3.11}", "3.11, Events: {E: {Type: HttpApi, Properties: {Path: /, Method: get}}}}")
    (_, refused), _ = mistakes(tmp_path, api + "  Api: {Value: !Ref ServerlessHttpApi}\n")
    assert refused == "slslab does not deploy AWS::ApiGatewayV2::Api (ServerlessHttpApi)."
    wrong = text + "  Url: {Value: !GetAtt FUrl.FunctionUrl}\n"
    assert mistakes(tmp_path, wrong) == [(8, "FUrl is not a resource and not a parameter of this template.")]


def test_parameters_are_checked(tmp_path: Path) -> None:
    parameters = "Parameters:\n  Size: {Type: Number, Default: 1, AllowedValues: [1, 2]}\n"
    text = parameters + "Resources:\n  Q: {Type: AWS::SQS::Queue}\n"
    assert mistakes(tmp_path, text, Size="2") == []
    assert mistakes(tmp_path, text, Size="3") == [(2, "3 is not among the AllowedValues of Size.")]
    assert mistakes(tmp_path, text, Width="3") == [(1, "the template has no parameter Width; it has Size.")]


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("{Type: Number, Default: many}", "many is not a number (P)."),
        ("{Type: Number, Default: 5, MaxValue: 4}", "5 is above the MaxValue of P, 4."),
        ("{Type: 'List<Number>', Default: '1,x'}", "1,x is not a number (P)."),
        ("{Type: String, Default: abc, MinLength: 4}", "P must have 4 to 4096 characters."),
        (
            "{Type: String, Default: abc, AllowedPattern: '[0-9]+'}",
            "abc does not match the AllowedPattern of P, [0-9]+.",
        ),
        ("{Type: String, Default: abc, AllowedPattern: '['}", "the rules of P cannot be read."),
        (
            f"{{Type: String, Default: {'a' * 40}b, AllowedPattern: '(a+)+'}}",
            "matching the AllowedPattern of P takes too long.",
        ),
        ("{Type: String, Default: [a]}", "Parameters.P.Default: ['a'] is not of type 'string', 'number', 'boolean'."),
        (
            "{Type: Text, Default: a}",
            "Parameters.P.Type: 'Text' does not match '^(String|Number|CommaDelimitedList|List<|AWS::)'.",
        ),
        (
            "{Type: 'AWS::SSM::Parameter::Value<String>', Default: a}",
            "AWS::SSM::Parameter::Value<String> reads from Systems Manager, which slslab doesn't emulate (P).",
        ),
    ],
)
def test_a_wrong_parameter_is_named(tmp_path: Path, parameter: str, message: str) -> None:
    text = f"Resources: {{Q: {{Type: AWS::SQS::Queue}}}}\nParameters:\n  P: {parameter}\n"
    assert mistakes(tmp_path, text) == [(3, message)]


@pytest.mark.parametrize(
    ("default", "given", "holds"), [("true", None, True), ("false", None, False), ("false", "true", True)]
)
def test_a_parameter_is_a_text_whatever_its_default_is_in_yaml(
    tmp_path: Path, default: str, given: str | None, holds: bool
) -> None:
    read = template(
        tmp_path,
        f"Parameters: {{P: {{Type: String, Default: {default}, AllowedValues: [true, false]}}}}\n"
        "Conditions: {C: !Equals [!Ref P, 'true'], D: !Equals [!Ref P, true]}\n"
        "Resources: {Q: {Type: AWS::SQS::Queue, Condition: C}}\n",
    )
    expanded = expand(read, {} if given is None else {"P": given})
    assert plan("stack", expanded) == (["Q"] if holds else [])
    scope = scope_of("stack", expanded)
    assert (read.problems, scope.holds("C"), scope.holds("D")) == ([], holds, holds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Resources: [", "template.yaml:1: this is not YAML"),
        ("A: 1\nA: 2\n", "template.yaml:2: this is not YAML: A stands here twice"),
        ("- a\n", "is not a template"),
    ],
)
def test_what_is_not_a_template(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        template(tmp_path, text)
    assert message in refused.value.message
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        read_template(tmp_path / "absent.yaml")


SCOPE = Scope(
    "stack",
    {"Size": "512", "List": ["a", "b"], "Queue": "url"},
    {"Queue": {"Arn": "arn:queue"}},
    {"Regions": {"us-east-1": {"Name": "Virginia"}}},
    {
        "Large": {"Fn::Equals": [{"Ref": "Size"}, 512]},
        "Small": {"Fn::Not": [{"Condition": "Large"}]},
        "Both": {"Fn::And": [{"Condition": "Large"}, {"Condition": "Small"}]},
        "Any": {"Fn::Or": [{"Condition": "Large"}, {"Condition": "Small"}]},
    },
)


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("!Ref Size", "512"),
        ("!Ref AWS::AccountId", "000000000000"),
        ("!GetAtt Queue.Arn", "arn:queue"),
        ("!Sub '${Queue} ${Queue.Arn} ${AWS::StackName} ${!Literal}'", "url arn:queue stack ${Literal}"),
        ("!Sub ['${own}-${Size}', {own: !Ref Queue}]", "url-512"),
        ("!Join [',', !Ref List]", "a,b"),
        ("!Select [1, !Split ['-', a-b-c]]", "b"),
        ("!FindInMap [Regions, !Ref AWS::Region, Name]", "Virginia"),
        ("!If [Large, big, small]", "big"),
        ("!If [Small, big, small]", "small"),
        ("!If [Both, 1, !If [Any, 2, 3]]", 2),
        ("!Base64 text", "dGV4dA=="),
        ("{kept: 1, dropped: !Ref AWS::NoValue}", {"kept": 1}),
        ("[1, !If [Small, 2, !Ref AWS::NoValue]]", [1]),
    ],
)
def test_functions_are_resolved(tmp_path: Path, text: str, resolved: object) -> None:
    (tmp_path / "template.yaml").write_text(f"Resources:\n  Q: {{Type: AWS::SQS::Queue}}\nMetadata:\n  Value: {text}\n")
    value = read_template(tmp_path / "template.yaml").section("Metadata")["Value"]
    assert SCOPE.resolve(value) == resolved
