"""What `slslab export sam` writes: templates that the linter passes, rights, cost; and what it refuses."""

import hashlib
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import yaml
from tests.commands import slslab
from tests.lab.replay.recordings import TRACES

from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.run.log import load
from slslab_lab.runs.planning import architectures, make_plan
from slslab_workers.architecture import Requirements
from slslab_workers.mlless.driver import MLLess

EXPORTED = ("allreduce", "gradssharding", "kubeml", "mlless", "scatterreduce", "spirt")
ACTIONS = {
    "object.get": "s3:GetObject",
    "object.put": "s3:PutObject",
    "object.delete": "s3:DeleteObject",
    "object.list": "s3:ListBucket",
    "invoke": "lambda:InvokeFunction",
    "execute": "states:StartExecution",
}


def plan_file(architecture: str, folder: Path) -> Path:
    """A plan that has not run."""
    plan = make_plan(architectures()[architecture], {"dataset": "digits", "workers": 2}, {})
    path = folder / f"{architecture}.toml"
    path.write_text(tomli_w.dumps(replace(plan, run=f"20261124-100000-{architecture}-lenet-abcd").to_document()))
    return path


def export(source: object, out: Path) -> Any:
    return slslab("export", "sam", source, "--out", out, "--json").document


def templates(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    cloud, emulator = (yaml.safe_load((folder / name).read_text()) for name in ("template.yaml", "emulator.yaml"))
    return cloud, emulator


def allowed(template: dict[str, Any]) -> dict[str, set[str]]:
    """The actions that each function's role allows, by the function's name."""
    resources = template["Resources"]
    found = {}
    for resource in resources.values():
        if resource["Type"] == "AWS::Serverless::Function":
            role = resources[resource["Properties"]["Role"]["Fn::GetAtt"][0]]["Properties"]
            statements = role["Policies"][0]["PolicyDocument"]["Statement"]
            found[resource["Properties"]["FunctionName"]] = {
                action for statement in statements for action in statement["Action"]
            }
    return found


def asked(run: Path, functions: set[str]) -> dict[str, set[str]]:
    """The actions that each function asked for in a recorded run, by the function's name."""
    found: dict[str, set[str]] = {name: set() for name in functions}
    for event in load(run).events:
        if event["op"] in ACTIONS and event["function"] in functions and event["requests"]:
            found[event["function"]].add(ACTIONS[event["op"]])
    return found


def lint_file(path: Path) -> list[Any]:
    """What cfn-lint finds."""
    # Imported here: it takes a second, which every process of a test session would spend.
    from cfnlint.api import lint_file as lint

    found: list[Any] = lint(path)
    return found


@pytest.mark.parametrize("architecture", EXPORTED)
def test_the_linter_passes_both_templates(architecture: str, tmp_path: Path) -> None:
    export(plan_file(architecture, tmp_path), tmp_path / "cloud")
    for name in ("template.yaml", "emulator.yaml"):
        assert lint_file(tmp_path / "cloud" / name) == []


def test_the_linter_finds_a_property_that_does_not_exist(tmp_path: Path) -> None:
    export(plan_file("allreduce", tmp_path), tmp_path / "cloud")
    for name in ("template.yaml", "emulator.yaml"):
        path = tmp_path / "cloud" / name
        path.write_text(path.read_text().replace("MemorySize", "MemoryMB", 1))
        assert [match.rule.id for match in lint_file(path)] == ["E3002"]


def test_templates_differ_in_packaging_alone(tmp_path: Path) -> None:
    export(plan_file("spirt", tmp_path), tmp_path / "cloud")
    cloud, emulator = templates(tmp_path / "cloud")
    assert list(cloud.pop("Parameters")) == ["ImageUri", "QueueUrl", "TensorUrls"]
    variables = cloud["Globals"]["Function"]["Environment"]["Variables"]
    assert variables.pop("SLSLAB_QUEUE_URL") == {"Ref": "QueueUrl"}
    assert variables.pop("SLSLAB_TENSOR_URLS") == {"Ref": "TensorUrls"}
    for logical, resource in cloud["Resources"].items():
        if resource["Type"] == "AWS::Serverless::Function":
            own, other = resource["Properties"], emulator["Resources"][logical]["Properties"]
            assert [own.pop("PackageType"), own.pop("ImageUri")] == ["Image", {"Ref": "ImageUri"}]
            assert own.pop("ImageConfig") == {"Command": [other.pop("Handler")]}
            assert own.pop("RecursiveLoop", "Allow") == "Allow"
            assert other.pop("CodeUri") == "code/"
            assert other.pop("Runtime").startswith("python3.")
    assert cloud == emulator


@pytest.mark.parametrize("recording", ["allreduce", "mlless", "scatterreduce", "spirt"])
def test_roles_allow_what_functions_did_and_little_more(recording: str, tmp_path: Path) -> None:
    export(TRACES / recording, tmp_path / "cloud")
    rights = allowed(templates(tmp_path / "cloud")[0])
    did = asked(TRACES / recording, set(rights))
    assert any(did.values())
    for function, actions in did.items():
        own = {action for action in rights[function] if not action.startswith("logs:")}
        assert actions <= own
        if recording == "spirt":
            assert actions == own


def test_equal_runs_give_equal_exports(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        document = export(TRACES / "allreduce", tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        digest = hashlib.sha256()
        for path in files:
            digest.update(f"{path.relative_to(tmp_path / name)}\n".encode() + path.read_bytes())
        digests.append(digest.hexdigest())
    assert digests[0] == digests[1]
    assert {path.relative_to(tmp_path / "two").parts[0] for path in files} == {
        file.rstrip("/") for file in document["files"]
    }


def test_the_cost_comes_first(tmp_path: Path) -> None:
    done = slslab("export", "sam", TRACES / "spirt", "--out", tmp_path / "cloud")
    document = export(TRACES / "spirt" / "plan.toml", tmp_path / "again")
    cost, readme = document["cost"], (tmp_path / "cloud" / "README.md").read_text()
    assert cost["sentence"].startswith("On AWS Lambda (us-east-1, modelled): ")
    assert f"replayed on the profile {DEFAULT_PROFILE} of " in cost["source"]
    assert "80 % ranges allow for errors in " in cost["source"]
    assert done.out.startswith(cost["sentence"])
    assert readme.split("\n")[2:4] == [cost["sentence"], cost["source"]]
    assert f"| total | | | {float(cost['bill']['total']):.8f} |" in readme
    assert "| Host m5.large (assumed) | 120 | second |" in readme
    assert "slslab up --detach --tensor-databases 2" in readme
    on_aws = readme.partition("On AWS, in this folder")[2]
    assert (
        on_aws.index("aws ecr create-repository")
        < on_aws.index("--password-stdin ${IMAGE%%/*}\n")
        < on_aws.index("push")
    )


def test_a_plan_that_has_not_run_has_no_cost(tmp_path: Path) -> None:
    path = plan_file("allreduce", tmp_path)
    cost = export(path, tmp_path / "cloud")["cost"]
    assert cost["sentence"] == "On AWS: not known, because the plan has not run here."
    assert f"`slslab run {path}`" in cost["source"]
    assert cost["bill"] is None
    exported = json.loads((tmp_path / "cloud" / "plan.json").read_text())
    assert exported["plan"]["run"] == "20261124-100000-allreduce-lenet-abcd"


@pytest.mark.parametrize(
    ("environment", "imports", "missing"),
    [
        ("process", {"f": ["yaml", "slslab_workers"], "g": []}, ["yaml"]),
        ("process", {}, []),
        ("process", None, None),
        ("docker", {}, None),
    ],
)
def test_what_the_code_lacks_is_only_known_if_imports_were_seen(
    environment: str, imports: dict[str, list[str]] | None, missing: list[str] | None, tmp_path: Path
) -> None:
    run = shutil.copytree(TRACES / "allreduce", tmp_path / "run")
    document = json.loads((run / "run.json").read_text())
    document |= {} if imports is None else {"host_imports": imports}
    document["plan"]["environment"] = environment
    (run / "run.json").write_text(json.dumps(document))
    plan = (run / "plan.toml").read_text()
    (run / "plan.toml").write_text(plan.replace('environment = "process"', f'environment = "{environment}"'))
    assert export(run, tmp_path / "cloud")["missing"] == missing
    readme = (tmp_path / "cloud" / "README.md").read_text()
    assert ("Not checked" in readme, "`code/` lacks yaml" in readme) == (missing is None, missing == ["yaml"])
    done = slslab("export", "sam", run, "--out", tmp_path / "again")
    assert ("Not checked" in done.out, "code/ lacks yaml" in done.out) == (missing is None, missing == ["yaml"])


def test_a_changed_plan_has_no_cost_of_its_run(tmp_path: Path) -> None:
    run = shutil.copytree(TRACES / "allreduce", tmp_path / "run")
    text = (run / "plan.toml").read_text()
    (run / "plan.toml").write_text(text.replace("epochs = 6", "epochs = 60"))
    assert export(run, tmp_path / "cloud")["cost"]["sentence"].startswith("On AWS: not known, ")


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ((TRACES / "gpu",), "No SAM template can be made of gpu: its `deployment` names no functions."),
        ((TRACES / "allreduce", TRACES / "spirt"), "--to sam takes one run, not 2."),
        (("nothing",), "There is no run 'nothing' in "),
        (("nothing.toml",), "There is no plan 'nothing.toml': "),
    ],
)
def test_what_cannot_be_exported_is_refused(sources: tuple[object, ...], message: str, tmp_path: Path) -> None:
    done = slslab("export", "sam", *sources, "--out", tmp_path / "cloud")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: {message}")
    assert not (tmp_path / "cloud").exists()


def test_a_channel_s_server_is_in_no_template(tmp_path: Path) -> None:
    path = plan_file("allreduce", tmp_path)
    path.write_text(path.read_text().replace('channel = "s3"', 'channel = "memcached"'))
    done = slslab("export", "sam", path, "--out", tmp_path / "cloud")
    assert done.code == 2
    assert done.err.startswith("Error: No template can be made for the channel memcached")
    assert "--channel s3" in done.err


def test_an_architecture_that_always_requires_a_channel_has_no_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MLLess, "requirements", lambda *_: Requirements(channel="redis"))
    done = slslab("export", "sam", plan_file("mlless", tmp_path), "--out", tmp_path / "cloud")
    assert done.code == 2
    assert done.err.startswith("Error: No template can be made for the channel redis")
    assert "an architecture that requires no channel" in done.err


def test_a_folder_with_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    done = slslab("export", "sam", TRACES / "allreduce", "--out", tmp_path)
    assert (done.code, done.err.split("\n")[0]) == (2, f"Error: {tmp_path} already exists.")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_plan_with_faults_is_not_exported(tmp_path: Path) -> None:
    path = plan_file("allreduce", tmp_path)
    path.write_text(path.read_text() + '\n[faults]\nseed = 1\n\n[[faults.fault]]\nkind = "slow-down"\n')
    refused = slslab("export", "sam", path, "--out", tmp_path / "out")
    assert refused.code == 2
    assert "The plan has faults, which can only be injected here." in refused.err
    assert not (tmp_path / "out").exists()


def test_a_plan_for_a_platform_with_gpus_is_not_exported(tmp_path: Path) -> None:
    path = plan_file("allreduce", tmp_path)
    path.write_text('platform = "modal-t4"\n' + path.read_text())
    refused = slslab("export", "sam", path, "--out", tmp_path / "out")
    assert refused.code == 2
    assert "The plan is for modal-t4, and SAM templates are for Lambda." in refused.err
    assert not (tmp_path / "out").exists()


NET = """
from torch import nn

def net(shape, outputs):
    return nn.Linear(shape[0], outputs)
"""


def test_a_model_and_a_data_set_of_ones_own_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions find the model next to their code, and the driver finds the data next to itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "exported_net.py").write_text(NET)
    (tmp_path / "rows.csv").write_text("a,kind\n" + "".join(f"{n},{'xyz'[n % 3]}\n" for n in range(60)))
    values = {"dataset": "rows.csv:kind", "model": "exported_net:net", "workers": 2}
    plan = make_plan(architectures()["allreduce"], values, {})
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(plan.to_document()))
    files = export("plan.toml", tmp_path / "out")["files"]
    assert "data/rows.csv" in files
    assert (tmp_path / "out" / "code" / "exported_net.py").read_text() == NET
    exported = json.loads((tmp_path / "out" / "plan.json").read_text())["plan"]
    assert exported["dataset"] == "data/rows.csv:kind"
    assert exported["model_spec"]["builder"] == "exported_net:net"
    assert not list((tmp_path / "out" / "code").rglob("*.npz")), "no shipped data, which this plan doesn't read"


def test_the_image_can_load_pytorch(tmp_path: Path) -> None:
    """PyTorch's wheels need glibc 2.28, which AWS's images have from Python 3.12 on."""
    export(plan_file("allreduce", tmp_path), tmp_path / "out")
    (image,) = re.findall(r"^FROM .*:3\.(\d+)$", (tmp_path / "out" / "Dockerfile").read_text(), re.MULTILINE)
    assert int(image) == max(12, sys.version_info[1])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="The image has this Python.")
def test_code_that_the_image_cannot_load_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "compiled_net"
    package.mkdir()
    (package / "__init__.py").write_text(NET)
    (package / f"fast.cpython-3{sys.version_info[1]}-x86_64-linux-gnu.so").touch()
    plan = make_plan(
        architectures()["allreduce"], {"dataset": "breast-cancer", "model": "compiled_net:net", "workers": 2}, {}
    )
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(plan.to_document()))
    refused = slslab("export", "sam", "plan.toml", "--out", "out")
    assert refused.code == 2
    assert "is compiled for Python 3.11; the image has Python 3.12" in " ".join(refused.err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("dataset", "file"), [("digits", "digits"), ("breast-cancer", "breast_cancer")])
def test_shipped_data_is_beside_the_drivers_code(dataset: str, file: str, tmp_path: Path) -> None:
    plan = make_plan(architectures()["allreduce"], {"dataset": dataset, "workers": 2}, {})
    (tmp_path / "plan.toml").write_text(tomli_w.dumps(plan.to_document()))
    export(tmp_path / "plan.toml", tmp_path / "out")
    data = [path.name for path in (tmp_path / "out" / "code").rglob("*.npz")]
    assert data == [f"{file}.npz"]
