"""Profiles of platforms: what is built in, what is refused and by which words."""

import math
import re
import tomllib
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from pydantic import ValidationError

from slslab.errors import RequestError
from slslab.predict.profiles import DEFAULT_PROFILE
from slslab.predict.profiles.profile import (
    PROFILES,
    Figure,
    figures,
    load_profile,
    profile_names,
    save_profile,
)

# What workers ask for, as docs/trace.md lists it (under the names that programs use).
OPERATIONS = """
object.put object.get object.list object.delete tensor.set tensor.get tensor.delete tensor.script tensor.compile
tensor.command queue.publish queue.deliver queue.declare queue.bind queue.delete
memcached.put memcached.get memcached.delete redis.put redis.get redis.delete dynamodb.put dynamodb.get dynamodb.delete
parameter.push parameter.pull parameter.put parameter.get parameter.delete states.execute lambda.invoke
""".split()


@pytest.fixture
def document() -> dict[str, Any]:
    """The built-in profile of AWS, to be spoilt."""
    return tomllib.loads((PROFILES / "aws-us-east-1.toml").read_text())


def write(document: dict[str, Any], directory: Path) -> Path:
    path = directory / "profile.toml"
    path.write_text(tomli_w.dumps(document))
    return path


def test_the_built_in_profiles_are_these() -> None:
    aws = ("aws-us-east-1", "aws-us-east-1-2026", "aws-us-east-1-2026-11", "lambda-managed", "lambdaml-2021")
    assert set(profile_names()) == {*aws, "cloud-run-l4", "modal-a10", "modal-l4", "modal-t4", "runpod-l4"}
    assert DEFAULT_PROFILE in profile_names()


@pytest.mark.parametrize("name", profile_names())
def test_a_built_in_profile_is_complete_and_every_figure_says_where_it_is_from(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    for op in OPERATIONS:
        assert profile.operation(op).latency_ms.value > 0, op
    assert "g4dn.xlarge" in profile.instances
    for entry, figure in figures(profile):
        assert len(figure.source) > 10, entry
        assert not re.search(r"https?:|pypi|registry", figure.source), entry


def test_what_is_not_assumed_names_who_says_so() -> None:
    known = re.compile(
        "AWS|Redis|Cachee|Confluent|stopachka|Jiang|Lienart|pwrdrvr|slslab calibrate|this project|SeBS-Flow"
        "|maxday|PeterUlb|meet101|Modal|RunPod|Google",
        re.IGNORECASE,
    )
    for name in profile_names():
        for entry, figure in figures(load_profile(name)):
            assert figure.status == "assumed" or known.search(figure.source), entry


def test_the_profile_of_lambdaml_differs_from_its_base_in_s3_and_memcached_alone() -> None:
    base, own = (dict(figures(load_profile(name))) for name in ("aws-us-east-1", "lambdaml-2021"))
    assert base.keys() == own.keys()
    assert {entry for entry in base if base[entry] != own[entry]} == {
        "channels.object.operations.put.latency_ms",
        "channels.object.operations.put.bandwidth_mb_s",
        "channels.object.operations.get.latency_ms",
        "channels.object.operations.get.bandwidth_mb_s",
        "channels.object.operations.list.latency_ms",
        "channels.object.operations.delete.latency_ms",
        "channels.memcached.operations.put.latency_ms",
        "channels.memcached.operations.put.bandwidth_mb_s",
        "channels.memcached.operations.get.latency_ms",
        "channels.memcached.operations.get.bandwidth_mb_s",
        "channels.memcached.operations.delete.latency_ms",
    }
    put = load_profile("lambdaml-2021").operation("object.put")
    assert put.bandwidth_mb_s is not None
    assert (put.latency_ms.value, put.bandwidth_mb_s.value) == (80, 65)


def test_the_default_profile_differs_from_its_base_in_the_missing_terms_alone() -> None:
    base, own = (dict(figures(load_profile(name))) for name in ("aws-us-east-1-2026", DEFAULT_PROFILE))
    assert base.keys() < own.keys()
    assert {entry for entry in own if base.get(entry) != own[entry]} == {
        "compute.init_vcpus",
        "compute.further_thread",
        "functions.cold_zip_ms",
        "functions.init_wait_ms",
        "functions.init_wait_image_ms",
        "task_ms",
        "task_ms_per_kb",
        "channels.object.operations.get.cpu_ms_per_mb",
        "channels.dynamodb.operations.put.cpu_ms_per_mb",
        "channels.dynamodb.operations.get.cpu_ms_per_mb",
    }
    for name in ("aws-us-east-1", "aws-us-east-1-2026", "lambdaml-2021"):
        earlier = load_profile(name)
        assert (earlier.task_ms, earlier.task_ms_per_kb, earlier.compute.further_thread) == (None, None, None)
        assert earlier.functions.init_wait_image_ms is None


def test_the_profiles_of_published_predictions_stay_byte_for_byte() -> None:
    names = ("aws-us-east-1", "aws-us-east-1-2026", "lambdaml-2021")
    digests = {name: sha256((PROFILES / f"{name}.toml").read_bytes()).hexdigest()[:16] for name in names}
    assert digests == {
        "aws-us-east-1": "5561b6ab1dfd2025",
        "aws-us-east-1-2026": "ad3b09ce873e1af5",
        "lambdaml-2021": "a5684504c5140e72",
    }


def test_a_file_may_hold_what_differs_from_a_built_in_profile_and_a_figure_is_replaced_as_a_whole(
    tmp_path: Path,
) -> None:
    speed = {"value": 1.5, "status": "measured", "source": "a stopwatch"}
    path = write(
        {
            "schema": 1,
            "base": "lambdaml-2021",
            "name": "mine",
            "date": load_profile("aws-us-east-1").date,
            "description": "",
            "compute": {"speed": speed},
        },
        tmp_path,
    )
    profile = load_profile(path)
    assert profile.compute.speed == Figure(value=1.5, status="measured", source="a stopwatch")
    assert profile.compute.vcpu_mb.value == 1769
    assert profile.operation("object.get").latency_ms.value == 80


def test_a_rough_figure_has_a_range_around_its_value() -> None:
    plain: dict[str, Any] = {"value": 3.0, "status": "assumed", "source": "a guess"}
    assert Figure(**plain).half_range == 0
    assert Figure(**plain).model_dump() == plain
    rough = Figure(**plain, low=1.0, high=9.0)
    assert math.exp(2 * rough.half_range) == pytest.approx(9)
    with pytest.raises(ValidationError, match="two ends"):
        Figure(**plain, low=1.0)
    with pytest.raises(ValidationError, match="outside its range of 4 to 9"):
        Figure(**plain, low=4.0, high=9.0)


def test_functions_in_containers_have_the_platforms_size() -> None:
    assert load_profile(DEFAULT_PROFILE).size(1769) == (1769, 1.0)
    assert load_profile("cloud-run-l4").size(1769) == (16_384, 4.0)


@pytest.mark.parametrize("name", profile_names())
def test_what_is_saved_is_what_is_loaded(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    save_profile(profile, tmp_path / "below" / "saved.toml")
    assert load_profile(tmp_path / "below" / "saved.toml") == profile


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot be written"):
        save_profile(load_profile("aws-us-east-1"), tmp_path / "file" / "saved.toml")


def _without(document: dict[str, Any], *entry: str) -> dict[str, Any]:
    spoilt = deepcopy(document)
    inner = spoilt
    for part in entry[:-1]:
        inner = inner[part]
    del inner[entry[-1]]
    return spoilt


def _with(document: dict[str, Any], value: Any, *entry: str) -> dict[str, Any]:
    spoilt = deepcopy(document)
    inner = spoilt
    for part in entry[:-1]:
        inner = inner[part]
    inner[entry[-1]] = value
    return spoilt


@pytest.mark.parametrize(
    "entry",
    [
        "date",
        "transition_ms",
        "compute.speed",
        "compute.speed.source",
        "compute.speed.status",
        "functions.cold_image_ms",
        "channels.object.operations.put.latency_ms",
        "channels.queue.server.servers",
        "instances.g4dn§xlarge.boot_s",
    ],
)
def test_an_incomplete_profile_is_refused_by_the_entry_that_is_missing(
    entry: str, document: dict[str, Any], tmp_path: Path
) -> None:
    parts = [part.replace("§", ".") for part in entry.split(".")]
    with pytest.raises(RequestError, match=re.escape(f"is wrong at {'.'.join(parts)}: Field required.")):
        load_profile(write(_without(document, *parts), tmp_path))


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("compute.speed.value", 0, "at compute.speed: it is 0, and must be at least 1e-06."),
        ("compute.speed.value", -1, "at compute.speed.value: Input should be greater than or equal to 0."),
        ("compute.speed.value", float("inf"), "at compute.speed.value: Input should be a finite number."),
        ("compute.parallel.value", 1.2, "at compute.parallel: it is 1.2, and is a share of 1."),
        ("compute.speed.status", "guessed", "at compute.speed.status: Input should be"),
        ("compute.speed.source", "", "at compute.speed.source: String should have at least 1 character."),
        ("functions.concurrency.value", 0.5, "at functions.concurrency: it is 0.5, and must be a whole number from 1"),
        ("functions.ramp_per_s.value", 0, "at functions.ramp_per_s: it is 0, and must be at least 1e-06."),
        ("channels.tensor.server.servers.value", 0, "at channels.tensor.server.servers: it is 0, and must be a whole"),
        (
            "channels.object.operations.put.bandwidth_mb_s.value",
            0,
            "put.bandwidth_mb_s: it is 0, and must be at least 1e-06.",
        ),
        ("compute.sped", {}, "at compute.sped: Extra inputs are not permitted."),
        ("schema", 2, "has schema 2, and this version reads 1."),
        ("base", "azure", "is wrong at base: 'azure' isn't a built-in profile."),
    ],
)
def test_an_inconsistent_profile_is_refused_in_one_sentence_that_names_the_entry(
    entry: str, value: Any, message: str, document: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=re.escape(message)) as refused:
        load_profile(write(_with(document, value, *entry.split(".")), tmp_path))
    assert refused.value.message.endswith(".")
    assert "\n" not in refused.value.message


def test_a_profile_of_no_schema_of_no_toml_or_of_no_file_is_refused(document: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="does not say its schema, and this version reads 1"):
        load_profile(write(_without(document, "schema"), tmp_path))
    (tmp_path / "broken.toml").write_text("name =")
    with pytest.raises(RequestError, match="is not TOML"):
        load_profile(tmp_path / "broken.toml")
    with pytest.raises(RequestError, match="There is no profile 'mars'") as refused:
        load_profile("mars")
    names = ", ".join(profile_names())
    assert refused.value.hint == f"use one of {names}, or give the path of a TOML file."


def test_an_operation_that_a_profile_does_not_know_is_named() -> None:
    with pytest.raises(RequestError, match=r"has no entry for object\.copy") as refused:
        load_profile("aws-us-east-1").operation("object.copy")
    assert refused.value.hint == "add [channels.object.operations.copy] to it."
