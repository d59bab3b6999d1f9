"""Plans for a platform of functions with GPUs: what they get from it, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest

from slslab.aws.limits import lambda_limits
from slslab.cli.terminal import Bar
from slslab.errors import RequestError
from slslab.predict.profiles.profile import load_platform, save_profile
from slslab.run.directory import RunDirectory
from slslab_lab.runs.execution import run_plan
from slslab_lab.runs.planning import architectures, make_plan, read_plan_file
from slslab_lab.runs.platforms import check_limits, gpu_variables, limits_of
from slslab_workers.kubeml import driver
from slslab_workers.plan import GPU_MEMORY, Plan, PlanError


def plan(platform: str | None, **values: Any) -> Plan:
    return make_plan(architectures()["allreduce"], {"dataset": "digits", "platform": platform, **values}, {})


def test_a_plan_has_the_platforms_size_time_out_and_prices_unless_it_is_given_others(tmp_path: Path) -> None:
    made = plan("modal-t4")
    assert (made.memory_mb, made.timeout, made.prices) == (8192, 5400, "modal")
    book = tmp_path / "mine.toml"
    book.write_text('base = "modal"\nname = "mine"\n')
    other = plan("cloud-run-l4", memory_mb=2048, timeout=60, prices=str(book))
    assert (other.memory_mb, other.timeout, other.prices) == (2048, 60, str(book))
    assert plan("cloud-run-l4").memory_mb == 16_384, "more than Lambda has"
    usual = plan(None)
    assert (usual.memory_mb, usual.timeout, usual.prices) == (1024, 900, "aws-us-east-1")
    assert "platform" not in usual.to_document(), "plans without a platform stay as they were"


def test_a_plan_of_a_platforms_file_is_run_again_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_profile(load_platform("modal-t4"), tmp_path / "mine.toml")
    monkeypatch.chdir(tmp_path)
    made = plan("mine.toml")
    assert made.platform == str(tmp_path / "mine.toml")
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_plan(made.to_document())
    assert read_plan_file(directory.path) == made


def test_the_platforms_limits_replace_lambdas() -> None:
    limits, usual = limits_of(plan("modal-t4")), lambda_limits()
    assert (limits.memory_mb.maximum, limits.timeout_s.maximum, limits.init_s) == (8192, 5400, 5400)
    assert (limits.account_concurrency, limits.idle_s, limits.visible_processors(8192)) == (10, 60, 2)
    assert limits.differences(usual).keys() == {
        *("memory_mb", "timeout_s", "init_s", "account_concurrency", "idle_s", "processors")
    }
    assert limits_of(plan(None)) == usual
    assert limits_of(plan("cloud-run-l4")).timeout_s.maximum == 3600


@pytest.mark.parametrize(
    ("name", "values", "options", "says", "hint"),
    [
        (
            "allreduce",
            {"memory_mb": 127},
            {},
            "Lambda has functions of 128 to 10,240 MB, and --memory is 127 MB.",
            "choose another --memory.",
        ),
        (
            "gpu",
            {"memory_mb": 10_241},
            {},
            "Lambda has functions of 128 to 10,240 MB, and --memory is 10,241 MB.",
            None,
        ),
        ("allreduce", {"timeout": 901}, {}, "Lambda has time-outs of 1 to 900 s, and --timeout is 901 s.", None),
        (
            "allreduce",
            {"platform": "modal-t4", "memory_mb": 127},
            {},
            "The platform modal-t4 has functions of 128 to 8,192 MB, and --memory is 127 MB.",
            "choose another --memory, or leave out --platform.",
        ),
        (
            "allreduce",
            {"platform": "modal-t4", "timeout": 5401},
            {},
            "The platform modal-t4 has time-outs of 1 to 5,400 s, and --timeout is 5,401 s.",
            "choose another --timeout, or leave out --platform.",
        ),
        (
            "mlless",
            {"account": "new"},
            {"supervisor-memory": 4096},
            "The account new has functions of 128 to 3,008 MB, and --supervisor-memory is 4,096 MB.",
            "choose another --supervisor-memory, or leave out --account.",
        ),
        (
            "gradssharding",
            {"workers": 5},
            {"combine": "median", "gradients": "uploaded", "parameters": 774_030_080},
            "Lambda has functions of 128 to 10,240 MB, and aggregators need 22,658 MB.",
            "give more --shards.",
        ),
        # What the architecture says of these plans comes after.
        (
            "spirt",
            {"timeout": 1000},
            {"light-memory": 4096},
            "Lambda has time-outs of 1 to 900 s, and --timeout is 1,000 s.",
            None,
        ),
        (
            "spirt",
            {"memory_mb": 100},
            {"light-memory": 4096},
            "Lambda has functions of 128 to 10,240 MB, and --memory is 100 MB.",
            None,
        ),
    ],
)
def test_functions_that_do_not_exist_are_refused(
    name: str, values: dict[str, Any], options: dict[str, Any], says: str, hint: str | None
) -> None:
    architecture = architectures()[name]
    with pytest.raises(RequestError) as refused:
        check_limits(make_plan(architecture, {"dataset": "digits", **values}, options), architecture)
    assert refused.value.message == says
    assert refused.value.hint == hint or hint is None


def test_a_size_that_kubeml_chooses_for_its_job_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    architecture, values = architectures()["kubeml"], {"dataset": "digits", "account": "new"}
    check_limits(make_plan(architecture, values, {}), architecture)
    monkeypatch.setattr(driver, "gradient_mb", lambda _: 1000)
    check_limits(make_plan(architecture, values, {"job-memory": 3008}), architecture)
    with pytest.raises(RequestError) as refused:
        check_limits(make_plan(architecture, values, {}), architecture)
    assert refused.value.message == "The account new has functions of 128 to 3,008 MB, and the job needs 3,256 MB."
    assert refused.value.hint == "choose --job-memory, or leave out --account."


@pytest.mark.parametrize(
    ("values", "options"),
    [({"memory_mb": 128}, {"job-memory": 128}), ({"memory_mb": 10_240, "timeout": 900}, {"job-memory": 0})],
)
def test_functions_at_the_limits_are_admitted(values: dict[str, Any], options: dict[str, Any]) -> None:
    architecture = architectures()["kubeml"]
    check_limits(make_plan(architecture, {"dataset": "digits", **values}, options), architecture)


def test_functions_know_the_memory_of_the_platforms_gpu(tmp_path: Path) -> None:
    assert gpu_variables(plan("modal-t4")) == {GPU_MEMORY: "15258"}
    assert gpu_variables(plan(None)) == {}
    profile = load_platform("modal-t4")
    assert profile.containers is not None
    unknown = profile.model_copy(update={"containers": profile.containers.model_copy(update={"gpu": "B300"})})
    save_profile(unknown, tmp_path / "b300.toml")
    assert gpu_variables(plan(str(tmp_path / "b300.toml"))) == {}


@pytest.mark.parametrize(
    ("name", "values", "refused", "says", "hint"),
    [
        (
            "allreduce",
            {"workers": 11},
            RequestError,
            "allreduce needs 11 functions at once, but the platform modal-t4 allows only 10 concurrent functions.",
            "choose --workers 10 or fewer, or another --platform.",
        ),
        (
            "spirt",
            {"workers": 4, "batches": 3},
            RequestError,
            "spirt needs 12 functions at once, but the platform modal-t4 allows only 10",
            "choose --workers 3 or fewer, or another --platform.",
        ),
        (
            "spirt",
            {"workers": 4, "batches": 24},
            RequestError,
            "spirt needs 96 functions at once, but the platform modal-t4 allows only 10",
            "choose fewer --workers and --batches, or another --platform.",
        ),
        (
            "allreduce",
            {"memory_mb": 9000},
            RequestError,
            "The platform modal-t4 has functions of 128 to 8,192 MB, and --memory is 9,000 MB.",
            "choose another --memory, or leave out --platform.",
        ),
        (
            "allreduce",
            {"platform": "cloud-run-l4", "memory_mb": 1024, "timeout": 3601},
            RequestError,
            "The platform cloud-run-l4 has time-outs of 1 to 3,600 s, and --timeout is 3,601 s.",
            "choose another --timeout, or leave out --platform.",
        ),
        ("gpu", {}, RequestError, "gpu runs on instances, not on functions.", "leave out --platform."),
        (
            "allreduce",
            {"account": "new"},
            PlanError,
            "Functions of a --platform are processes of this host, and belong to no AWS account.",
            "leave out --stack, --environment and --account.",
        ),
        (
            "allreduce",
            {"platform": "nowhere"},
            RequestError,
            "'nowhere' isn't a platform.",
            "choose cloud-run-l4, modal-a10, modal-l4, modal-t4, runpod-l4, or a file.",
        ),
        *(
            (
                "allreduce",
                {"platform": name},
                RequestError,
                f"{name!r} isn't a platform.",
                "choose cloud-run-l4, modal-a10, modal-l4, modal-t4, runpod-l4, or a file.",
            )
            for name in ("", "/tmp")
        ),
        (
            "allreduce",
            {"platform": "lambda-managed"},
            RequestError,
            "lambda-managed has no functions with GPUs.",
            "choose cloud-run-l4, modal-a10, modal-l4, modal-t4, runpod-l4, or model a run on lambda-managed: "
            "slslab replay --profile lambda-managed",
        ),
        (
            "allreduce",
            {"prices": "paper-2025"},
            RequestError,
            "The price book paper-2025 has no price for GPU T4, vCPUs of containers and Memory of containers.",
            'leave out --prices, or give a file with base = "modal".',
        ),
    ],
)
def test_what_a_platform_does_not_have_is_refused(
    name: str, values: dict[str, Any], refused: type[Exception], says: str, hint: str, tmp_path: Path
) -> None:
    given = {"dataset": "digits", "workers": 2, "platform": "modal-t4", **values}
    with pytest.raises(refused) as caught:
        run_plan(name, given, {}, out=tmp_path / "run", book=given.pop("prices", None), progress=Bar())
    error: Any = caught.value
    assert error.message.startswith(says)
    assert error.hint == hint
    assert not (tmp_path / "run").exists()
