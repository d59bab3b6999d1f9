"""A service and live pages in use, with something worth reading in every part, and what strangers ask all their ports.

The ports are found by listing the sockets of their processes, so that none is forgotten.
"""

import json
import os
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests import commands
from tests.lab.pages.live.client import Server, serving
from tests.lab.pages.live.growing import PLAN, Growing

from slslab.aws.clients import aws_client
from slslab.aws.keys import Pair
from slslab.host.reaper import marked_processes
from slslab.testing import ROLE, create_function, packaged
from slslab_workers.channels.endpoints import queue_url, tensor_urls
from slslab_workers.channels.events import Tracer
from slslab_workers.channels.queues import Queues, open_queues
from slslab_workers.channels.tensors import TensorDatabase

SECRET = "only its owner reads this"
MACHINE = json.dumps({"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}})
# Returns its environment's name, and all events that it has had but null.
CODE = """
import os

seen = [os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]]


def handler(event, context):
    if event is not None:
        seen.append(event)
    return seen
"""
CREATE = {
    **{"FunctionName": "theirs", "Runtime": "python3.11", "Role": ROLE, "Handler": "app.handler"},
    "Code": {"ZipFile": b64encode(packaged(CODE)).decode()},
}
SESSION = f"Action=AssumeRole&RoleArn={ROLE}&RoleSessionName=theirs&Version=2011-06-15"
# What strangers send to every port: method, path, headers and body.
REQUESTS: list[tuple[str, str, dict[str, str], str]] = [
    ("GET", "/2015-03-31/functions", {}, ""),
    ("GET", "/2015-03-31/functions/secretive", {}, ""),
    ("POST", "/2015-03-31/functions", {}, json.dumps(CREATE)),
    ("POST", "/2015-03-31/functions/secretive/invocations", {}, "{}"),
    ("POST", "/", {"X-Amz-Target": "AWSStepFunctions.ListStateMachines"}, "{}"),
    (
        "POST",
        "/",
        {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"},
        '{"MaxResults": 9}',
    ),
    ("GET", "/000000000000/jobs?Action=ReceiveMessage&Version=2012-11-05", {}, ""),
    ("GET", "/moto-api/data.json", {}, ""),
    ("GET", "/2018-06-01/runtime/invocation/next", {}, ""),
    ("GET", "/", {}, ""),
    ("POST", "/", {"Content-Type": "application/x-www-form-urlencoded"}, SESSION),
    ("GET", "/objects?list-type=2", {}, ""),
    ("GET", "/objects/key", {}, ""),
    ("PUT", "/objects/key", {}, "theirs"),
    ("GET", "/buckets/objects/key", {}, ""),
    ("DELETE", "/buckets/objects/key", {}, ""),
    ("GET", "/dir/status", {}, ""),
    ("GET", "/dir/assign", {}, ""),
    ("GET", f"/runs/{PLAN.run}", {}, ""),
    ("GET", "/events", {}, ""),
    ("GET", "/slslab/about", {}, ""),
    ("POST", "/", {}, "\r\nSET theirs theirs\r\nFLUSHALL\r\n"),
]


@dataclass
class Service:
    """A running service and live pages: processes and their ports, variables, the pages' server, the owner's folder."""

    pids: set[int]
    ports: list[int]
    described: dict[str, Any]
    variables: dict[str, str]
    live: Server
    folder: Path

    @property
    def home(self) -> Path:
        """The service's temporary directory."""
        return Path(self.described["logs"]).parent

    @property
    def secrets(self) -> list[str]:
        """What no stranger may see: keys, passwords, the live pages' token and cookie, and what `fill` puts in."""
        urls = [*tensor_urls(self.variables), queue_url(self.variables)]
        passwords = [url.partition("@")[0].rpartition(":")[2] for url in urls]
        live = [value.partition("=")[2] for value in (self.live.url, self.live.cookie)]
        return [self.variables["AWS_SECRET_ACCESS_KEY"], *passwords, *live, SECRET]

    def client(self, service: str) -> Any:
        names = {"stepfunctions": "SFN"}
        pair = Pair.of(self.variables)
        assert pair is not None
        own = f"AWS_ENDPOINT_URL_{names.get(service, service.upper())}"
        return aws_client(service, self.variables.get(own, self.variables["AWS_ENDPOINT_URL"]), pair)

    def databases(self) -> Iterator[TensorDatabase]:
        for url in tensor_urls(self.variables):
            with TensorDatabase(url, Tracer(lambda _event: None)) as database:
                yield database

    def queues(self) -> Queues:
        return open_queues(queue_url(self.variables), Tracer(lambda _event: None))

    def fill(self) -> None:
        """Put something into every part, which also starts what starts on demand; an environment rests afterwards."""
        with closing(self.client("lambda")) as client:
            create_function(client, "secretive", CODE, Environment={"Variables": {"MINE": SECRET}})
            client.invoke(FunctionName="secretive", Payload=json.dumps(SECRET))["Payload"].read()
        with closing(self.client("s3")) as s3:
            s3.create_bucket(Bucket="objects")
            s3.put_object(Bucket="objects", Key="key", Body=SECRET.encode())
        with closing(self.client("stepfunctions")) as states:
            states.create_state_machine(name="machine", definition=MACHINE, roleArn=ROLE)
        with closing(self.client("sqs")) as sqs:
            sqs.send_message(QueueUrl=sqs.create_queue(QueueName="jobs")["QueueUrl"], MessageBody=SECRET)
        for database in self.databases():
            database.command("SET", "key", SECRET)
        with self.queues() as queues:
            queues.declare("queue")
            queues.publish("queue", SECRET.encode(), "other")

    def find_ports(self) -> None:
        """Find all processes, and the ports at which they listen."""
        mark = self.home.name.removeprefix("slslab-")
        self.pids = {self.described["pid"], self.live.process.pid, *marked_processes(mark)}
        connections = [found for pid in self.pids for found in psutil.Process(pid).net_connections("tcp")]
        self.ports = sorted({found.laddr.port for found in connections if found.status == psutil.CONN_LISTEN})
        # Lambda, Step Functions, all services', S3, two databases, the queue, a Runtime API, the live pages.
        assert len(self.ports) >= 9

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Check that there is the same after the block as before it."""
        before = self.contents()
        yield
        assert self.contents() == before

    def contents(self) -> dict[str, Any]:
        """Return what there is in every part, by the owner's requests."""
        with closing(self.client("lambda")) as client:
            functions = client.list_functions()["Functions"]
            memory = json.load(client.invoke(FunctionName="secretive", Payload="null")["Payload"])
        with closing(self.client("s3")) as s3:
            keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket="objects").get("Contents", [])]
            objects = {key: s3.get_object(Bucket="objects", Key=key)["Body"].read() for key in keys}
            buckets = s3.list_buckets()["Buckets"]
        with closing(self.client("stepfunctions")) as states:
            machines = states.list_state_machines()["stateMachines"]
            executions = states.list_executions(stateMachineArn=machines[0]["stateMachineArn"])["executions"]
        values = [
            {bytes(key): bytes(database.command("GET", bytes(key))) for key in database.command("KEYS", "*")}
            for database in self.databases()
        ]
        with closing(self.client("sqs")) as sqs:
            (url,) = sqs.list_queues()["QueueUrls"]
            jobs = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])["Attributes"]
        with self.queues() as queues:
            messages = [message.body for message in iter(lambda: queues.consume("queue", 0, "other"), None)]
        return {
            **{"functions": functions, "memory": memory, "buckets": buckets, "objects": objects},
            **{"machines": machines, "executions": executions, "values": values, "messages": messages, "jobs": jobs},
            "runs": sorted(path.name for path in self.live.folder.iterdir()),
        }


@contextmanager
def in_use(folder: Path) -> Iterator[Service]:
    """Run a service and live pages with their state, code and runs in this folder, and a file of the owner's."""
    (folder / "file").write_text(SECRET)
    (folder / "code").mkdir()
    state = commands.state_in(folder)
    run = Growing(folder / "runs")
    described = commands.slslab(
        *"up --detach --port 0 --s3-port 0 --edge-port 0 --tensor-databases 2 --queue auto".split(),
        *("--code", folder / "code", "--json"),
        variables=state,
    ).document
    try:
        variables = commands.slslab("env", "--json", variables=state).document["variables"]
        with serving(folder / "runs") as live:
            service = Service(set(), [], described, variables, live, folder)
            service.fill()
            service.find_ports()
            yield service
    finally:
        commands.slslab("down", variables=state)
        os.waitpid(described["pid"], 0)
        run.end()
