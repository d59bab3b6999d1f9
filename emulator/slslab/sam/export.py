"""What `slslab export sam` writes: templates, code, image, driver, and a README that begins with the cost."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import yaml

from slslab.billing.bill import load_book
from slslab.errors import RequestError
from slslab.replay.modelled import model
from slslab.replay.programs.recording import read_recording
from slslab.reports.document import read_document
from slslab.reports.summaries import headline, quantity, replayed
from slslab.runs.planning import architectures, read_plan_file, refused_plans
from slslab.sam.template import CODE, PYTHON, deployment_of, make_template
from slslab.trace.directory import DOCUMENT, PLAN, resolve
from slslab_workers.architecture import read_plan
from slslab_workers.driver.deployment import Deployment, package, worker_function
from slslab_workers.plan import Plan
from slslab_workers.training.datasets import DIGITS

# What functions import beside their own code; the runtime brings awslambdaric.
PACKAGES = ("boto3", "cryptography", "numpy", "pika", "redis", "torch")
DOCKERFILE = f"""\
FROM public.ecr.aws/lambda/python:{PYTHON}
COPY requirements.txt .
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -r requirements.txt
COPY {CODE} ${{LAMBDA_TASK_ROOT}}/
RUN chmod -R a+rX ${{LAMBDA_TASK_ROOT}}
"""
DRIVER = '''\
"""Run plan.json on the functions that template.yaml or emulator.yaml has made; README.md says how."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "code"))

from slslab_workers.driver.deployed import main  # noqa: E402

main(HERE / "plan.json")
'''


@dataclass(frozen=True)
class Cost:
    """What a run will cost on AWS: a sentence, how it is known, and the replayed bill (None if nothing is known)."""

    sentence: str
    source: str
    bill: Mapping[str, Any] | None


def read_source(source: str) -> tuple[Plan, Cost]:
    """Return the plan of a run or of a plan's file, and what it costs.

    RequestError if there is neither, or the plan cannot be read.
    """
    path = Path(source)
    if path.is_file() or path.suffix == ".toml":
        with refused_plans():
            plan = read_plan_file(path)
        if path.name != PLAN or not (path.parent / DOCUMENT).exists():
            hint = f"slslab run {source} measures it; then export that run."
            return plan, Cost("On AWS: not known, because the plan has not run here.", hint, None)
        source = str(path.parent)
    directory = resolve(source)
    if directory.service() is not None:
        raise RequestError(f"{directory.id} is what `slslab up` recorded, which has no plan.", "export a run.")
    with refused_plans():
        plan = read_plan(directory.plan())
    return plan, cost_of(directory.path, plan)


def cost_of(directory: Path, plan: Plan) -> Cost:
    """Return what a recorded run costs on AWS, by its replay."""
    document: Mapping[str, Any] = read_document(str(directory))
    if replayed(document) is None and document["status"] == "done":
        # Earlier versions kept no model.
        document = {**document, "lambda": model(read_recording(directory), load_book(plan.prices))}
    found = replayed(document)
    if found is None:
        return Cost(headline(document), "Run the plan again, and export that run.", None)
    profile, book = found["profile"], found["cost"]["book"]
    source = (
        f"Modelled: the trace of {plan.run}, which was measured here, replayed on the profile {profile['name']} of "
        f"{profile['date']}, and priced by the book {book['name']} of {book['date']}."
    )
    return Cost(headline(document), source, found["cost"])


def write_export(plan: Plan, cost: Cost, out: Path) -> list[str]:
    """Write everything into a folder that is new or empty, and return the files' names; equal plans, costs and
    installations give equal bytes.

    RequestError if the folder holds anything, or the architecture cannot be exported.
    """
    architecture = architectures()[plan.architecture]
    with refused_plans():
        deployment, requirements = deployment_of(plan, architecture), architecture.requirements(plan)
    if deployment is None:
        raise RequestError(
            f"{plan.architecture} has no functions, of which a SAM template could be made.",
            "export a run of another architecture.",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RequestError(f"{out} is there already.", "choose another --out, or remove it.")
    files = _code(deployment) | {
        name: yaml.safe_dump(make_template(deployment, requirements, image=image), sort_keys=False, width=120).encode()
        for name, image in (("template.yaml", True), ("emulator.yaml", False))
    }
    packages = [*PACKAGES, *(["torchvision"] if plan.model.startswith("torchvision:") else [])]
    (registered,) = entry_points(group="slslab.architectures", name=plan.architecture)
    exported = {
        "architecture": registered.value,
        "function": deployment.functions()[0].name,
        "plan": plan.to_document(),
    }
    texts = {
        "Dockerfile": DOCKERFILE,
        "requirements.txt": "".join(f"{name}=={version(name).partition('+')[0]}\n" for name in packages),
        "plan.json": json.dumps(exported, indent=2) + "\n",
        "driver.py": DRIVER,
        "README.md": readme(plan, cost, requirements.tensor_databases, queue=bool(requirements.queue)),
    }
    files |= {name: text.encode() for name, text in texts.items()}
    for name, content in files.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return [CODE, *(name for name in files if not name.startswith(CODE))]


def _code(deployment: Deployment) -> dict[str, bytes]:
    """Return the files of the functions' package, with the digits, which the driver reads."""
    files: dict[str, bytes] = {}
    for handler in sorted({spec.handler.partition(".")[0]: spec.handler for spec in deployment.functions()}.values()):
        with zipfile.ZipFile(io.BytesIO(package(handler))) as archive:
            files |= {f"{CODE}{name}": archive.read(name) for name in archive.namelist()}
    return files | {f"{CODE}slslab_workers/training/{DIGITS.name}": DIGITS.read_bytes()}


def readme(plan: Plan, cost: Cost, databases: int, *, queue: bool) -> str:
    """Return what the folder says of itself."""
    stack = worker_function(plan)
    overrides = ["ImageUri=$IMAGE"]
    needs = []
    if queue:
        overrides.append('QueueUrl="$QUEUE"')
        needs.append("a RabbitMQ broker (Amazon MQ), whose address is `amqps://USER:PASSWORD@HOST:5671/%2F`")
    if databases:
        overrides.append('TensorUrls="$TENSORS"')
        needs.append(f"{databases} RedisAI (an EC2 instance each), `redis://:PASSWORD@HOST:6379`")
    up = f" --tensor-databases {databases}" if databases else ""
    lines = [f"# {plan.run}", "", cost.sentence, cost.source, ""]
    if cost.bill is not None:
        currency = cost.bill["currency"]
        lines += [f"| item | quantity | unit | {currency} |", "|---|---:|---|---:|"]
        lines += [
            f"| {line['item']} | {quantity(line['quantity'])} | {line['unit']} | {Decimal(line['amount']):.8f} |"
            for line in cost.bill["lines"]
        ]
        lines += [f"| total | | | {Decimal(cost.bill['total']):.8f} |", ""]
    lines += [
        "Not in it: logs (CloudWatch), the image's storage (ECR), tax, and hosts of databases and brokers before and "
        "after the run.",
        "",
        "`template.yaml` is for AWS, where functions are of one container image: PyTorch is larger than an archive may "
        "be. `emulator.yaml` has the same functions as archives of `code/`, which is all that slslab needs.",
        "",
        "On the emulator:",
        "",
        "```",
        f'slslab up --detach{up} && eval "$(slslab env)"',
        "slslab deploy emulator.yaml",
        "python driver.py",
        "```",
        "",
        "On AWS, with your own credentials" + (f", and {' and '.join(needs)}" if needs else "") + ":",
        "",
        "```",
        "IMAGE=ACCOUNT.dkr.ecr.REGION.amazonaws.com/slslab:latest",
        "docker build --provenance=false -t $IMAGE . && docker push $IMAGE",
        f"aws cloudformation deploy --stack-name {stack} --template-file template.yaml \\",
        f"    --capabilities CAPABILITY_IAM --parameter-overrides {' '.join(overrides)}",
        "python driver.py",
        f"aws cloudformation delete-stack --stack-name {stack}",
        "```",
        "",
        f"`driver.py` needs a Python {PYTHON} with the packages of requirements.txt. It prints the outcome as JSON, "
        "and empties the bucket at its end.",
    ]
    return "\n".join(lines) + "\n"
