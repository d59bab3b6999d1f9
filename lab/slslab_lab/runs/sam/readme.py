"""The README of an exported folder, which begins with the run's expected cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slslab.report.formats import listed
from slslab.report.summaries import IMPORTS_UNKNOWN, quantity
from slslab_lab.runs.sam.template import PYTHON
from slslab_workers.architecture import Requirements
from slslab_workers.driver.deployment import worker_function
from slslab_workers.plan import Plan

TEXT = """\
# {run}

{sentence}
{source}
{bill}{missing}
Not included: logs (CloudWatch), the image's storage (ECR), tax, and idle hosts of databases and a broker.

`template.yaml` is for AWS. Its functions share a container image, because PyTorch exceeds the size limit of archives.
`emulator.yaml` is for slslab. It has the same functions as archives of `code/`. `driver.py` needs Python {python} with
the packages in requirements.txt; it prints the outcome as JSON, and empties the bucket at the end.

On the emulator, in this folder:

```
slslab up --detach{databases} && eval "$(slslab env)"
slslab deploy emulator.yaml --stack-name {stack}
python driver.py
```

On AWS, in this folder, with your own credentials{needs}:

```
IMAGE=ACCOUNT.dkr.ecr.REGION.amazonaws.com/slslab:latest
aws ecr create-repository --repository-name slslab
aws ecr get-login-password | docker login --username AWS --password-stdin ${{IMAGE%%/*}}
docker build --provenance=false -t $IMAGE . && docker push $IMAGE
aws cloudformation deploy --stack-name {stack} --template-file template.yaml \\
    --capabilities CAPABILITY_IAM --parameter-overrides ImageUri=$IMAGE{overrides}
python driver.py
aws cloudformation delete-stack --stack-name {stack}
```
"""


@dataclass(frozen=True)
class Cost:
    """A run's expected cost on AWS: a sentence, its source, and the replayed bill (None if unknown)."""

    sentence: str
    source: str
    bill: Mapping[str, Any] | None


def make_readme(plan: Plan, cost: Cost, requirements: Requirements, missing: Sequence[str] | None) -> str:
    """Return the README's text; `missing` packages are ones that the functions imported and `code/` lacks."""
    needs, overrides, databases = "", "", ""
    if requirements.queue:
        needs += ", a RabbitMQ broker (amqps://USER:PASSWORD@HOST:5671/%2F)"
        overrides += ' QueueUrl="$QUEUE"'
    if number := requirements.tensor_databases:
        needs += f", {number} RedisAI (redis://:PASSWORD@HOST:6379, with spaces between)"
        overrides += ' TensorUrls="$TENSORS"'
        databases = f" --tensor-databases {number}"
    return TEXT.format(
        run=plan.run,
        sentence=cost.sentence,
        source=cost.source,
        missing=f"\n{missing_note(missing)}\n" if missing != [] else "",
        bill="" if cost.bill is None else "\n".join(_rows(cost.bill)),
        python=PYTHON,
        databases=databases,
        needs=needs,
        overrides=overrides,
        stack=worker_function(plan),
    )


def missing_note(missing: Sequence[str] | None) -> str:
    """Return sentences on packages that the functions imported from this machine and `code/` lacks."""
    if missing is None:
        return IMPORTS_UNKNOWN
    return (
        f"`code/` lacks {listed(missing)}, which the functions imported from the machine of the run. On AWS the import "
        "fails. Name what is missing in your package's dependencies, then run and export again. If your code is a "
        "single file, make it a package first (docs/own.md)."
    )


def _rows(bill: Mapping[str, Any]) -> Iterator[str]:
    """Yield the bill as a Markdown table, with an empty line before and after it."""
    yield from ("", f"| item | quantity | unit | {bill['currency']} |", "|---|---:|---|---:|")
    for line in bill["lines"]:
        item = f"{line['item']} (assumed)" if line.get("assumed") else line["item"]
        yield f"| {item} | {quantity(line['quantity'])} | {line['unit']} | {Decimal(line['amount']):.8f} |"
    yield from (f"| total | | | {Decimal(bill['total']):.8f} |", "")
