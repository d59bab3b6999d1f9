"""Templates as people write them, deployed to a running service by the command."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests import commands

from slslab.aws.clients import HTTP, aws_client
from slslab.aws.keys import Pair
from slslab_aws.deploy.planning import expected, physical_name

pytestmark = pytest.mark.server

APP = """
import os

from shared import GREETING


def handler(event, context):
    said = {"said": GREETING, "size": context.memory_limit_in_mb, "data": os.environ["DATA"]}
    return said | {"flag": os.environ["FLAG"]}


def fail(event, context):
    raise ValueError("as asked")
"""
MACHINE = {"StartAt": "Call", "States": {"Call": {"Type": "Task", "Resource": "${Function}", "End": True}}}
TEMPLATE = """
AWSTemplateFormatVersion: 2010-09-09
Transform: AWS::Serverless-2016-10-31
Parameters:
  Size: {Type: Number, Default: 256}
  Batch: {Type: String, Default: 5}
  Greeting: {Type: String, Default: true, AllowedValues: [true, false]}
Globals:
  Function: {Runtime: python3.11, Timeout: 10}
Conditions:
  Greets: !Equals [!Ref Greeting, "true"]
Resources:
  Hello:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: app
      Handler: app.handler
      MemorySize: !Ref Size
      Layers: [!Ref Shared]
      AutoPublishAlias: live
      FunctionUrlConfig: {AuthType: NONE}
      Policies:
        - S3ReadPolicy: {BucketName: !Ref Data}
      Environment:
        Variables: {DATA: !Ref Data, QUEUE: !GetAtt Jobs.QueueName, FLAG: !If [Greets, true, 0]}
      Events:
        Jobs: {Type: SQS, Properties: {Queue: !GetAtt Jobs.Arn, BatchSize: !Ref Batch}}
        Daily: {Type: Schedule, Properties: {Schedule: rate(1 day), Input: "{}"}}
  Fail:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: app
      Handler: app.fail
      Layers: [!Ref Shared]
      EventInvokeConfig:
        MaximumRetryAttempts: 0
        DestinationConfig:
          OnFailure: {Type: SQS, Destination: !GetAtt Letters.Arn}
  Shared:
    Type: AWS::Serverless::LayerVersion
    Properties: {ContentUri: layer, CompatibleRuntimes: [python3.11]}
  Machine:
    Type: AWS::Serverless::StateMachine
    Properties:
      DefinitionUri: machine.json
      DefinitionSubstitutions: {Function: !GetAtt Hello.Arn}
      Policies:
        - LambdaInvokePolicy: {FunctionName: !Ref Hello}
      Tracing: {Enabled: true}
      Logging: {Level: ERROR, Destinations: [{CloudWatchLogsLogGroup: {LogGroupArn: !GetAtt Log.Arn}}]}
  Data: {Type: AWS::S3::Bucket}
  Jobs:
    Type: AWS::SQS::Queue
    Properties: {VisibilityTimeout: "60", SqsManagedSseEnabled: true}
  News: {Type: AWS::SNS::Topic, Properties: {DisplayName: The news}}
  Letters: {Type: AWS::SQS::Queue}
  Copies: {Type: AWS::SQS::Queue}
  CopiesPolicy:
    Type: AWS::SQS::QueuePolicy
    Properties:
      Queues: [!Ref Copies]
      PolicyDocument:
        Statement:
          - {Effect: Allow, Principal: {Service: events.amazonaws.com}, Action: sqs:SendMessage, Resource: "*"}
  Copying:
    Type: AWS::Events::Rule
    Properties:
      EventPattern: {source: [tests]}
      Targets: [{Id: copies, Arn: !GetAtt Copies.Arn, InputPath: $.detail}]
  Log:
    Type: AWS::Logs::LogGroup
    Properties: {LogGroupName: !Sub "/aws/lambda/${Hello}", RetentionInDays: "7"}
Outputs:
  Copies: {Value: !Ref Copies}
  Log: {Value: !Ref Log}
  Alias: {Value: !Ref Hello.Alias}
  Layer: {Value: !Ref Shared}
  Domain: {Value: !GetAtt Data.DomainName}
  RoleId: {Value: !GetAtt HelloRole.RoleId}
  Url: {Value: !GetAtt HelloUrl.FunctionUrl}
  Machine: {Value: !Ref Machine}
  Data: {Value: !Sub "s3://${Data}/"}
"""


class Service:
    """A running service, and the folder of a template."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "greeter"
        self.state = commands.state_in(folder)
        for name in ("app", "layer/python"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "app/app.py").write_text(APP)
        (self.folder / "layer/python/shared.py").write_text("GREETING = 'hello'\n")
        (self.folder / "machine.json").write_text(json.dumps(MACHINE))
        (self.folder / "template.yaml").write_text(TEMPLATE)
        options = ("--port", "0", "--s3-port", "0", "--edge-port", "0")
        self.described = commands.slslab("up", "--detach", *options, "--json", variables=self.state).document
        self.variables = commands.slslab("env", "--json", variables=self.state).document["variables"]

    def deploy(self, *arguments: str) -> commands.Done:
        return commands.slslab("deploy", *arguments, variables=self.state, directory=self.folder)

    def done(self, *arguments: str) -> dict[str, str]:
        """What was done with each resource, by its id."""
        resources = self.deploy(*arguments, "--json").document["resources"]
        return {each["resource"]: each["done"] for each in resources}

    def client(self, name: str) -> Any:
        pair = Pair.of(self.variables)
        assert pair is not None
        return closing(aws_client(name, self.variables["AWS_ENDPOINT_URL"], pair))

    def contents(self) -> list[int]:
        with self.client("lambda") as functions, self.client("s3") as s3, self.client("sqs") as sqs:
            return [
                len(functions.list_functions()["Functions"]),
                len(s3.list_buckets()["Buckets"]),
                len(sqs.list_queues().get("QueueUrls", [])),
            ]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("deploy"))
    try:
        yield made
    finally:
        commands.slslab("down", variables=made.state)
        os.waitpid(made.described["pid"], 0)


@pytest.fixture
def deployed(service: Service) -> Iterator[dict[str, Any]]:
    """The outputs of the template."""
    done = service.deploy("--json")
    assert done.code == 0, done.err
    yield done.document["outputs"]
    (service.folder / "template.yaml").write_text(TEMPLATE)
    (service.folder / "app/app.py").write_text(APP)
    assert service.deploy("--delete").code == 0
    assert service.contents() == [0, 0, 0]


def said(url: str) -> dict[str, Any]:
    return dict(json.loads(HTTP.open(url).read()))


def test_what_is_deployed_works_together(service: Service, deployed: dict[str, Any]) -> None:
    answer = said(deployed["Url"])
    assert (answer["said"], answer["size"], answer["flag"]) == ("hello", "256", "true")
    assert deployed["Data"] == f"s3://{answer['data']}/"
    with service.client("stepfunctions") as states:
        machine = states.describe_state_machine(stateMachineArn=deployed["Machine"])
        assert (machine["loggingConfiguration"]["level"], machine["tracingConfiguration"]) == (
            "ERROR",
            {"enabled": True},
        )
        run = states.start_execution(stateMachineArn=deployed["Machine"], input="{}")["executionArn"]
        while (found := states.describe_execution(executionArn=run))["status"] == "RUNNING":
            pass
        assert json.loads(found["output"]) == answer
    with service.client("sqs") as sqs, service.client("lambda") as functions:
        names = {
            function["FunctionName"].split("-")[1]: function["FunctionName"]
            for function in functions.list_functions()["Functions"]
        }
        functions.invoke(FunctionName=names["Fail"], InvocationType="Event", Payload=b"{}")
        letters = next(url for url in sqs.list_queues()["QueueUrls"] if "Letters" in url)
        (letter,) = sqs.receive_message(QueueUrl=letters, WaitTimeSeconds=20)["Messages"]
        assert json.loads(letter["Body"])["responsePayload"]["errorMessage"] == "as asked"
        (mapping,) = functions.list_event_source_mappings()["EventSourceMappings"]
        assert (mapping["BatchSize"], mapping["FunctionArn"].rpartition(":")[2]) == (5, "live")


def test_rules_queues_and_log_groups_of_a_template_work(service: Service, deployed: dict[str, Any]) -> None:
    assert deployed["Domain"] == f"{deployed['Data'][5:-1]}.s3.amazonaws.com"
    assert deployed["RoleId"].startswith("AROA")
    assert (deployed["Alias"].rpartition(":")[2], deployed["Layer"].split(":")[5]) == ("live", "layer")
    with service.client("events") as events, service.client("sqs") as sqs, service.client("logs") as logs:
        entries = [{"Source": source, "DetailType": "d", "Detail": '{"n": 1}'} for source in ("others", "tests")]
        assert events.put_events(Entries=entries)["FailedEntryCount"] == 0
        (message,) = sqs.receive_message(QueueUrl=deployed["Copies"], WaitTimeSeconds=20)["Messages"]
        assert json.loads(message["Body"]) == {"n": 1}
        policy = sqs.get_queue_attributes(QueueUrl=deployed["Copies"], AttributeNames=["Policy"])["Attributes"][
            "Policy"
        ]
        assert json.loads(policy)["Statement"][0]["Action"] == "sqs:SendMessage"
        (group,) = logs.describe_log_groups(logGroupNamePrefix=deployed["Log"])["logGroups"]
        assert (group["logGroupName"], group["retentionInDays"]) == (deployed["Log"], 7)
        schedules = [rule.get("ScheduleExpression") for rule in events.list_rules()["Rules"]]
        assert sorted(map(str, schedules)) == ["None", "rate(1 day)"]


def test_what_ref_and_attributes_will_be_is_known_before(service: Service, deployed: dict[str, Any]) -> None:
    """That what is checked before anything is made has the form of what is made."""
    assert deployed
    (state,) = (Path(service.described["logs"]).parent / "stacks").glob("greeter.json")
    for name, entry in json.loads(state.read_text()).items():
        given = {"FunctionName": entry["made"]["keys"].get("FunctionName"), "TargetFunctionArn": "f"}
        planned = expected(entry["type"], physical_name("greeter", name), given)
        assert set(planned.attributes) == set(entry["made"]["attributes"]), name


@pytest.mark.usefixtures("deployed")
def test_only_what_is_different_changes(service: Service) -> None:
    assert set(service.done().values()) == {"unchanged"}
    (service.folder / "app/app.py").write_text(APP.replace("GREETING,", "GREETING.upper(),", 1))
    changed = {name: what for name, what in service.done().items() if what != "unchanged"}
    versions = [name for name in changed if re.fullmatch("HelloVersion[0-9a-f]+", name)]
    assert {name: changed[name] for name in changed if name not in versions} == {
        **{"Hello": "changed", "Fail": "changed", "HelloAliaslive": "changed"}
    }
    assert sorted(changed[name] for name in versions) == ["kept", "made"]
    outputs = service.deploy("--parameter", "Size=512", "--json").document["outputs"]
    assert said(outputs["Url"])["said"] == "HELLO"
    smaller = TEMPLATE.replace("  Letters: {Type: AWS::SQS::Queue}\n", "").replace(
        "          OnFailure: {Type: SQS, Destination: !GetAtt Letters.Arn}\n",
        "          OnFailure: {Type: SQS, Destination: !GetAtt Jobs.Arn}\n",
    )
    (service.folder / "template.yaml").write_text(smaller)
    assert service.done()["Letters"] == "removed"


CHANGING = """
Resources:
  Table:
    Type: AWS::DynamoDB::Table
    Properties:
      KeySchema: [{AttributeName: id, KeyType: HASH}]
      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
  Data:
    Type: AWS::S3::Bucket
    Properties:
      Tags: [{Key: a, Value: 1}, {Key: b, Value: 2}]
      VersioningConfiguration: {Status: Enabled}
      CorsConfiguration: {CorsRules: [{AllowedMethods: [GET], AllowedOrigins: ["*"], MaxAge: "60"}]}
      PublicAccessBlockConfiguration: {BlockPublicPolicy: "true"}
  News: {Type: AWS::SNS::Topic, Properties: {DisplayName: old, Tags: [{Key: a, Value: 1}]}}
  Jobs: {Type: AWS::SQS::Queue, Properties: {VisibilityTimeout: 60, Tags: [{Key: a, Value: 1}]}}
  Rule: {Type: AWS::Events::Rule, Properties: {ScheduleExpression: rate(1 day), Tags: [{Key: a, Value: 1}]}}
  Fn:
    Type: AWS::Lambda::Function
    Properties:
      Handler: index.handler
      Runtime: python3.11
      Role: arn:aws:iam::000000000000:role/x
      Code: {ZipFile: "def handler(event, context): pass"}
      Tags: [{Key: a, Value: 1}]
      LoggingConfig: {LogFormat: JSON}
  Url: {Type: AWS::Lambda::Url, Properties: {TargetFunctionArn: !Ref Fn, AuthType: AWS_IAM}}
  Machine:
    Type: AWS::StepFunctions::StateMachine
    Properties:
      RoleArn: arn:aws:iam::000000000000:role/x
      Definition: {StartAt: A, States: {A: {Type: Succeed}}}
      Tags: [{Key: a, Value: 1}]
Outputs:
  Table: {Value: !Ref Table}
  Data: {Value: !Ref Data}
  News: {Value: !Ref News}
  Jobs: {Value: !Ref Jobs}
  Rule: {Value: !GetAtt Rule.Arn}
  Fn: {Value: !GetAtt Fn.Arn}
  Url: {Value: !GetAtt Url.FunctionUrl}
  Machine: {Value: !Ref Machine}
"""
CHANGED = {
    "      KeySchema": "      Tags: [{Key: b, Value: x}]\n      TableClass: STANDARD\n      KeySchema",
    "Tags: [{Key: a, Value: 1}, {Key: b, Value: 2}]\n      VersioningConfiguration: {Status: Enabled}": (
        "Tags: [{Key: b, Value: x}]"
    ),
    '      CorsConfiguration: {CorsRules: [{AllowedMethods: [GET], AllowedOrigins: ["*"], MaxAge: "60"}]}\n': "",
    '      PublicAccessBlockConfiguration: {BlockPublicPolicy: "true"}\n': "",
    "DisplayName: old, ": "",
    "VisibilityTimeout: 60, ": "",
    "      LoggingConfig: {LogFormat: JSON}\n": "",
    "AWS_IAM": "NONE",
    "Tags: [{Key: a, Value: 1}]": "Tags: [{Key: b, Value: x}]",
}


def test_a_change_keeps_what_a_resource_holds(service: Service) -> None:
    folder = service.folder / "changing"
    folder.mkdir()
    (folder / "template.yaml").write_text(CHANGING)
    first = service.deploy("changing/template.yaml", "--json").document["outputs"]
    with service.client("dynamodb") as tables, service.client("s3") as s3:
        tables.put_item(TableName=first["Table"], Item={"id": {"S": "kept"}})
        s3.put_object(Bucket=first["Data"], Key="kept", Body=b"")
        assert s3.get_bucket_cors(Bucket=first["Data"])["CORSRules"][0]["MaxAgeSeconds"] == 60
        assert s3.get_bucket_versioning(Bucket=first["Data"])["Status"] == "Enabled"
    text = CHANGING
    for before, after in CHANGED.items():
        assert before in text, before
        text = text.replace(before, after)
    (folder / "template.yaml").write_text(text)
    done = service.deploy("changing/template.yaml", "--json").document
    assert {each["done"] for each in done["resources"]} == {"changed"}
    assert done["outputs"] == first
    with service.client("dynamodb") as tables, service.client("s3") as s3, service.client("sqs") as sqs:
        assert tables.get_item(TableName=first["Table"], Key={"id": {"S": "kept"}})["Item"]
        arn = tables.describe_table(TableName=first["Table"])["Table"]["TableArn"]
        tags = [tables.list_tags_of_resource(ResourceArn=arn)["Tags"]]
        s3.head_object(Bucket=first["Data"], Key="kept")
        assert s3.get_bucket_versioning(Bucket=first["Data"])["Status"] == "Suspended"
        for read in (s3.get_bucket_cors, s3.get_public_access_block):
            with pytest.raises(ClientError):
                read(Bucket=first["Data"])
        tags.append(s3.get_bucket_tagging(Bucket=first["Data"])["TagSet"])
        attributes = sqs.get_queue_attributes(QueueUrl=first["Jobs"], AttributeNames=["VisibilityTimeout"])
        assert attributes["Attributes"] == {"VisibilityTimeout": "30"}
        assert sqs.list_queue_tags(QueueUrl=first["Jobs"])["Tags"] == {"b": "x"}
        for version in s3.list_object_versions(Bucket=first["Data"])["Versions"]:
            s3.delete_object(Bucket=first["Data"], Key="kept", VersionId=version["VersionId"])
    with service.client("sns") as sns, service.client("events") as events, service.client("lambda") as functions:
        assert sns.get_topic_attributes(TopicArn=first["News"])["Attributes"]["DisplayName"] == ""
        tags.append(sns.list_tags_for_resource(ResourceArn=first["News"])["Tags"])
        tags.append(events.list_tags_for_resource(ResourceARN=first["Rule"])["Tags"])
        assert functions.list_tags(Resource=first["Fn"])["Tags"] == {"b": "x"}
        configuration = functions.get_function_configuration(FunctionName=first["Fn"])
        assert configuration["LoggingConfig"]["LogFormat"] == "Text"
    with service.client("stepfunctions") as states:
        assert states.list_tags_for_resource(resourceArn=first["Machine"])["tags"] == [{"key": "b", "value": "x"}]
    assert tags == [[{"Key": "b", "Value": "x"}]] * 4
    assert service.deploy("changing/template.yaml", "--delete").code == 0


def test_a_wrong_template_makes_nothing(service: Service) -> None:
    wrong = TEMPLATE.replace("CodeUri: app\n      Handler: app.fail", "CodeUri: absent\n      Handler: app.fail")
    wrong = wrong.replace("!Ref Data, QUEUE", "!Ref Dat, QUEUE").replace(
        "Data: {Type: AWS::S3::Bucket}", "Data: {Type: AWS::S3::Buckets}"
    )
    (service.folder / "template.yaml").write_text(wrong)
    try:
        done = service.deploy()
    finally:
        (service.folder / "template.yaml").write_text(TEMPLATE)
    assert (done.code, done.out) == (2, "")
    lines = [line for line in done.err.splitlines() if line.startswith("template.yaml:")]
    numbered = dict(enumerate(wrong.splitlines(), 1))
    told = [(numbered[int(line.split(":")[1])].strip(), line.split(": ", 1)[1]) for line in lines]
    assert told == [
        (
            "Variables: {DATA: !Ref Dat, QUEUE: !GetAtt Jobs.QueueName, FLAG: !If [Greets, true, 0]}",
            "Dat is not a resource and not a parameter of this template.",
        ),
        ("CodeUri: absent", "CodeUri of Fail: there is no folder or file absent."),
        ("Data: {Type: AWS::S3::Buckets}", "slslab does not deploy AWS::S3::Buckets (Data)."),
    ]
    assert service.contents() == [0, 0, 0]


def test_a_resource_that_is_refused_is_named_and_the_next_deployment_goes_on(service: Service) -> None:
    folder = service.folder / "half"
    folder.mkdir()
    text = "Resources:\n  First: {Type: AWS::SQS::Queue}\n  Second:\n    Type: AWS::SQS::Queue\n    DependsOn: First\n"
    wrong = "    Properties: {Action: lambda:InvokeFunction, Principal: '*', FunctionName: absent}\n"
    (folder / "template.yaml").write_text(
        text.replace("    Type: AWS::SQS::Queue", "    Type: AWS::Lambda::Permission") + wrong
    )
    refused = service.deploy("half/template.yaml")
    assert refused.code == 1
    assert "half/template.yaml:3: Second (AWS::Lambda::Permission) was refused: ResourceNotFound" in refused.err
    (folder / "template.yaml").write_text(text)
    assert service.done("half/template.yaml") == {"First": "unchanged", "Second": "made"}
    assert service.done("half/template.yaml", "--delete") == {"First": "removed", "Second": "removed"}


def test_a_function_that_is_refused_half_way_can_be_deployed_again(service: Service) -> None:
    folder = service.folder / "reserved"
    folder.mkdir()
    text = CHANGING[: CHANGING.index("  Table:")] + CHANGING[CHANGING.index("  Fn:") : CHANGING.index("  Url:")]
    (folder / "template.yaml").write_text(text + "      ReservedConcurrentExecutions: 5000\n")
    assert "below its minimum value of [100]" in service.deploy("reserved/template.yaml").err
    (folder / "template.yaml").write_text(text)
    assert service.done("reserved/template.yaml") == {"Fn": "made"}
    assert service.done("reserved/template.yaml", "--delete") == {"Fn": "removed"}


@pytest.mark.usefixtures("deployed")
def test_the_url_of_an_alias_is_removed(service: Service) -> None:
    text = TEMPLATE.replace("      FunctionUrlConfig: {AuthType: NONE}\n", "")
    (service.folder / "template.yaml").write_text(text.replace("  Url: {Value: !GetAtt HelloUrl.FunctionUrl}\n", ""))
    assert service.done()["HelloUrl"] == "removed"
    with service.client("lambda") as functions:
        names = [function["FunctionName"] for function in functions.list_functions()["Functions"]]
        assert not any(functions.list_function_url_configs(FunctionName=name)["FunctionUrlConfigs"] for name in names)


def test_without_a_service_it_says_how_to_start_one(tmp_path: Path) -> None:
    state = {**os.environ, "SLSLAB_STATE": str(tmp_path)}
    template = "Resources:\n  Store:\n    Type: AWS::S3::Bucket\n"
    (tmp_path / "template.yaml").write_text(template)
    not_up = (2, "Error: slslab is not up.\nHint: start it with `slslab up --detach`.\n")
    for more in ((), ("--delete",)):
        done = commands.slslab("deploy", "--stack-name", "app", *more, variables=state, directory=tmp_path)
        assert (done.code, done.err) == not_up
    (tmp_path / "template.yaml").write_text(template.replace("Bucket", "Bukket"))
    wrong = commands.slslab("deploy", "--stack-name", "app", variables=state, directory=tmp_path)
    assert (wrong.code, "slslab does not deploy AWS::S3::Bukket (Store)" in wrong.err) == (2, True), wrong.err


def test_the_page_does_what_it_says(service: Service, tmp_path: Path) -> None:
    """Between its `up` and its `down`, which other tests run."""
    page = (Path(__file__).parents[4] / "docs" / "endpoint.md").read_text().partition("\n## Deploy a template\n")[2]
    (yaml,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "template.yaml").write_text(yaml)
    (tmp_path / "app").mkdir()
    (tmp_path / "app/app.py").write_text("def handler(event, context): pass\n")
    up, *deployments, down = re.findall(r"^\$ slslab (.*)$", page, re.MULTILINE)
    assert (up, down) == ("up --detach", "down")
    made, changed, removed = (
        commands.slslab(*line.split(), "--json", variables=service.state, directory=tmp_path).document["resources"]
        for line in deployments
    )
    assert {each["done"] for each in made} == {"made"}
    assert [each["resource"] for each in changed if each["done"] != "unchanged"] == ["Greeter"]
    assert {each["done"] for each in removed} == {"removed"}
