"""Whether hosts on AWS have memory for what a protocol keeps in them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.replay.recordings import make_plan

from slslab_lab.replay.memory import Shortage, shortages
from slslab_workers.architecture import architectures
from slslab_workers.patterns import Kept
from slslab_workers.plan import Plan

MOBILENET, RESNET18 = 3_217_226, 11_173_962


def plan(name: str, workers: int, **options: Any) -> Plan:
    complete = architectures()[name].complete({key.replace("_", "-"): value for key, value in options.items()})
    return replace(make_plan(), architecture=name, workers=workers, options=complete)


def found(asked: Plan, parameters: int | None = MOBILENET) -> list[Shortage]:
    return list(shortages(architectures()[asked.architecture], asked, parameters))


def test_a_cache_that_may_be_too_small_is_named_with_one_that_is_not() -> None:
    (short,) = found(plan("allreduce", 512, channel="memcached"))
    assert not short.is_certain
    assert short.message == (
        "allreduce with 512 workers keeps up to 6.61 GB in one cache.t3.medium, which has 3.09 GiB."
    )
    assert short.hint == "run it with --channel-host cache.m5.large, which has 6.38 GiB."
    assert found(plan("allreduce", 512, channel="memcached", channel_host="cache.m5.large")) == []
    assert found(plan("allreduce", 250, channel="memcached")) == []


def test_a_database_that_is_too_small_whatever_the_timing() -> None:
    asked = replace(plan("spirt", 4, tensor_host="t3.medium"), batches=100)
    (short,) = found(asked, RESNET18)
    assert short.is_certain
    assert short.message == "spirt with 4 workers keeps 4.56 to 4.6 GB in one t3.medium, which has 4 GiB."
    assert short.hint == "run it with --tensor-host m5.large, which has 8 GiB."
    (huge,) = found(replace(asked, batches=20_000), RESNET18)
    assert huge.hint == "choose a smaller model or fewer workers: no host in the price book has as much memory."


def test_a_certain_shortage_with_ends_that_print_alike_has_one_amount() -> None:
    (short,) = found(replace(plan("spirt", 4, tensor_host="t3.medium"), batches=100), RESNET18)
    assert replace(short, kept=Kept(4_560_000_000, 4_560_100_000)).message == (
        "spirt with 4 workers keeps 4.56 GB in one t3.medium, which has 4 GiB."
    )


def test_hosts_are_those_of_the_plan_s_price_book(tmp_path: Path) -> None:
    book = tmp_path / "mine.toml"
    given = 'unit = "second", source = "x", status = "assumed"'
    memory = 'memory_gib = { value = "7", source = "x", status = "assumed" }'
    book.write_text(f'base = "aws-us-east-1"\nprices."host.cache.own" = {{ price = "0", {given}, {memory} }}\n')
    asked = replace(plan("allreduce", 512, channel="memcached"), prices=str(book))
    (short,) = found(asked)
    assert short.hint == "run it with --channel-host cache.own, which has 7 GiB."
    assert found(replace(asked, options={**asked.options, "channel-host": "cache.own"})) == []
    book.unlink()
    assert found(asked) == []


def test_what_is_not_known_is_not_a_shortage() -> None:
    asked = plan("allreduce", 512, channel="memcached")
    assert found(asked, None) == []
    assert found(replace(asked, options={**asked.options, "channel-host": "cache.own"})) == []
    # SPIRT's pattern doesn't cover peers that join.
    joined = replace(plan("spirt", 4, tensor_host="t3.medium", join="1:1"), batches=100, epochs=3)
    assert found(joined, RESNET18) == []


@pytest.mark.parametrize("name", sorted(architectures()))
def test_no_usual_plan_is_short(name: str) -> None:
    assert found(plan(name, 4)) == []
