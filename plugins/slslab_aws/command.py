"""`slslab deploy`: deploy a SAM or CloudFormation template to the running service."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from slslab.cli.terminal import json_option, print_document
from slslab.errors import RequestError
from slslab.installation import require
from slslab.report.page import WORDS, Part, Table

SCHEMA = 1


@click.command()
@click.argument("template", type=click.Path(path_type=Path, dir_okay=False), default="template.yaml")
@click.option("--stack-name", metavar="NAME", help="The stack (by default the name of the template's folder).")
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="The value of a parameter of the template. Repeatable.",
)
@click.option("--delete", "deletes", is_flag=True, help="Remove the stack's resources, the latest first.")
@json_option
def deploy(template: Path, stack_name: str | None, parameters: tuple[str, ...], deletes: bool, json_: bool) -> None:
    """Deploy a template of AWS SAM or CloudFormation to the service that `slslab up` started.

    \b
    slslab up --detach
    slslab deploy                            template.yaml of this folder
    slslab deploy app/template.yaml --parameter Size=1024
    slslab deploy --delete

    Functions, layers, versions, aliases, URLs, permissions, event sources, state machines, buckets, queues, topics,
    tables, log groups, rules and roles are made, changed if the template or the code is different, and removed once
    they are no longer in the template. Folders of code are zipped as they are: install their dependencies into them, as
    `sam build` does.

    Errors in the template are listed with their lines before anything is made. Policies of roles are checked, but
    neither stored nor enforced. A stack ends with the service.
    """
    from slslab.aws.keys import Pair
    from slslab.up import embedded

    require("samtranslator")
    from slslab_aws.deploy.resources import Services
    from slslab_aws.deploy.stacks import Stack, check
    from slslab_aws.deploy.template import read_template

    name = stack_name or template.absolute().parent.name
    expanded = None
    if not deletes:
        expanded = check(name, read_template(template), dict(_pair(parameter) for parameter in parameters))
    running, variables = embedded.status(), embedded.environment()
    if running is None or variables is None:
        raise RequestError("slslab is not up.", "start it with `slslab up --detach`.")
    endpoint, pair = running["endpoints"].get("aws"), Pair.of(variables)
    if endpoint is None or pair is None:
        raise RequestError(
            "The service has no endpoint for all services.", "start it again: `slslab down`, `slslab up --detach`."
        )
    stack = Stack(Path(running["logs"]).parent, name)
    done: list[dict[str, str]] = []

    def told(what: str, logical_id: str, kind: str, ref: str) -> None:
        done.append({"done": what, "resource": logical_id, "type": kind, "ref": ref})
        if not json_:
            click.echo(f"{what:9} {logical_id}", err=True)

    outputs: dict[str, Any] = {}
    with closing(Services(endpoint, pair, expanded.files if expanded else {})) as services:
        if expanded is None:
            stack.delete(services, told)
        else:
            outputs = stack.deploy(expanded, services, told)
    document = {"schema": SCHEMA, "stack": name, "resources": done, "outputs": outputs}
    print_document(document, lambda: _parts(document), json_)


def _parts(document: Mapping[str, Any]) -> Iterator[Part]:
    """Yield a summary in one sentence, the resources, and the outputs."""
    resources, outputs = document["resources"], document["outputs"]
    counts = Counter(resource["done"] for resource in resources)
    done = ", ".join(f"{count} {what}" for what, count in counts.items()) or "nothing to do"
    yield f"Stack {document['stack']}: {done}."
    if resources:
        rows = [(each["done"], each["resource"], each["type"], each["ref"]) for each in resources]
        yield Table(("", "resource", "type", "is"), rows, words=WORDS)
    if outputs:
        yield Table(("output", "value"), [(name, str(value)) for name, value in outputs.items()], words=WORDS)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise RequestError(f"{text!r} names no value.", "give --parameter KEY=VALUE.")
    return name, value
