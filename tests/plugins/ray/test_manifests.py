"""What docs/cloud.md gives to Kubernetes and Slurm."""

import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[3]
CLUSTER = ROOT / "docs" / "cluster"
KUBERNETES = "1.34"
WORDS = {"type": "object", "additionalProperties": {"type": "string"}}
# KubeRay's own part, of its API reference (docs.ray.io, KubeRay CRD API reference, v1.6); Kubernetes' own part is Pods.
HEAD = {
    "type": "object",
    "required": ["rayStartParams", "template"],
    "properties": {"rayStartParams": WORDS, "template": {"type": "object"}},
    "additionalProperties": False,
}
COUNT = {"type": "integer", "minimum": 0}
GROUP = {
    **HEAD,
    "required": ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
    "properties": {
        **HEAD["properties"],  # type: ignore[dict-item]
        "groupName": {"type": "string"},
        **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), COUNT),
    },
}
RAY_CLUSTER = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayCluster"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "required": ["headGroupSpec"],
            "properties": {
                "rayVersion": {"type": "string"},
                "authOptions": {"type": "object", "properties": {"mode": {"enum": ["disabled", "token"]}}},
                "headGroupSpec": HEAD,
                "workerGroupSpecs": {"type": "array", "items": GROUP},
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}


@pytest.fixture
def manifest() -> Any:
    return yaml.safe_load((CLUSTER / "raycluster.yaml").read_text())


def test_kuberay_and_kubernetes_take_the_manifest(manifest: Any) -> None:
    jsonschema.validate(manifest, RAY_CLUSTER)
    groups = [manifest["spec"]["headGroupSpec"], *manifest["spec"]["workerGroupSpecs"]]
    for group in groups:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "node"}, **group["template"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    pod["spec"]["containers"][0]["imagePull"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_the_manifest_has_the_version_of_ray_that_is_tested(manifest: Any) -> None:
    pinned = re.search(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert manifest["spec"]["rayVersion"] == pinned[1]


def test_the_job_is_a_script_whose_directives_slurm_reads() -> None:
    script = CLUSTER / "ray.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    first, *rest = script.read_text().splitlines()
    assert first == "#!/bin/bash"
    # Slurm stops reading at the first line that is neither blank nor a comment.
    directives = [line for line in rest if line.startswith("#SBATCH")]
    command = next(number for number, line in enumerate(rest) if line and not line.startswith("#"))
    assert directives == [line for line in rest[:command] if line.startswith("#SBATCH")]
    assert len(directives) == 5
