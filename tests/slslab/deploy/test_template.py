"""What is read of a template, and what is wrong with it, by its lines."""

from pathlib import Path

import pytest

from slslab.deploy.expansion import expand
from slslab.deploy.intrinsics import Scope
from slslab.deploy.planning import plan
from slslab.deploy.template import Template, read_template
from slslab.errors import RequestError

# A queue whose first property is in the fifth line.
QUEUE = "Resources:\n  Q:\n    Type: AWS::SQS::Queue\n    Properties:\n      "


def template(folder: Path, text: str) -> Template:
    (folder / "template.yaml").write_text(text)
    return read_template(folder / "template.yaml")


def mistakes(folder: Path, text: str, **parameters: str) -> list[tuple[int, str]]:
    read = template(folder, text)
    plan("stack", read, expand(read, parameters))
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
        ("Resources: {}\n", 1, "the template has no Resources."),
        ("Rules: {}\nResources:\n  Q: {Type: AWS::SQS::Queue}\n", 1, "there is no section Rules here."),
        ("Resources:\n  Q: {}\n", 2, "the resource Q has no Type."),
        (
            QUEUE + "Colour: red\n",
            5,
            "AWS::SQS::Queue has no property Colour (Q).",
        ),
        (
            "Resources:\n  Q:\n    Type: AWS::SQS::Queue\n    CreationPolicy: {}\n",
            2,
            "Q has CreationPolicy, which is not emulated.",
        ),
        (
            QUEUE + "QueueName: !ImportValue other\n",
            5,
            "Fn::ImportValue is not resolved here.",
        ),
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
        (
            QUEUE + "QueueName: !If [Absent, a, b]\n",
            5,
            "there is no condition Absent.",
        ),
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
            "of transforms there is AWS::Serverless-2016-10-31 alone.",
        ),
    ],
)
def test_each_mistake_has_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    assert (line, message) in mistakes(tmp_path, text)


def test_what_sam_refuses_is_a_mistake_of_its_resource(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    text = "Transform: AWS::Serverless-2016-10-31\nResources:\n  F:\n    Type: AWS::Serverless::Function\n"
    ((line, message),) = mistakes(tmp_path, text + "    Properties: {Handler: app.handler, Runtimes: python3.11}\n")
    assert line == 3
    assert "Runtimes" in message


def test_a_name_that_no_expansion_makes_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    text = "Transform: AWS::Serverless-2016-10-31\nResources:\n  F:\n    Type: AWS::Serverless::Function\n"
    text += (
        "    Properties: {Handler: app.handler, Runtime: python3.11}\nOutputs:\n  Role: {Value: !GetAtt FRole.Arn}\n"
    )
    assert mistakes(tmp_path, text) == []
    wrong = text + "  Url: {Value: !GetAtt FUrl.FunctionUrl}\n"
    assert mistakes(tmp_path, wrong) == [(8, "FUrl is not a resource and not a parameter of this template.")]


def test_parameters_are_checked(tmp_path: Path) -> None:
    parameters = "Parameters:\n  Size: {Type: Number, Default: 1, AllowedValues: [1, 2]}\n"
    text = parameters + "Resources:\n  Q: {Type: AWS::SQS::Queue}\n"
    assert mistakes(tmp_path, text, Size="2") == []
    assert mistakes(tmp_path, text, Size="3") == [(2, "3 is not among the AllowedValues of Size.")]
    assert mistakes(tmp_path, text, Width="3") == [(1, "there is no parameter Width; there are Size.")]


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
