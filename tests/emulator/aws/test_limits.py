"""The table of limits: complete, sourced, and what an account may change."""

import json
import subprocess
import sys
from dataclasses import fields

import pytest

from slslab.aws.limits import Limits, Range, bases, init_share, lambda_limits


def test_every_limit_has_a_source_and_a_basis() -> None:
    sources = bases()
    assert sources.keys() == {field.name for field in fields(Limits)} - {"version"}
    for name, basis in sources.items():
        assert basis["basis"] in ("documented", "measured", "assumed"), name
        of_aws = ("https://docs.aws.amazon.com/lambda/", "https://docs.aws.amazon.com/step-functions/")
        assert basis["source"].startswith("https://" if basis["basis"] == "measured" else of_aws), name
        assert basis["note"] or basis["basis"] == "documented", (
            f"{name}: what is assumed says why, what is measured how"
        )
    timeouts = "https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html"
    assert sources["timeout_s"] == {"basis": "documented", "source": timeouts, "note": ""}
    assert sources["retry_after_s"]["note"] == "the header Retry-After is documented, its value is not"


def test_the_limits_are_those_that_aws_documents() -> None:
    limits: Limits = lambda_limits.__wrapped__()  # read afresh: what everybody else reads was read once and kept
    assert limits.version == "2026-11-28.1"
    assert limits.memory_mb == Range(128, 10_240, 128)
    assert limits.timeout_s == Range(1, 900, 3)
    assert limits.ephemeral_mb == Range(512, 10_240, 512)
    assert limits.event_retries == Range(0, 2, 2)
    assert limits.event_age_s == Range(60, 21_600, 21_600)
    assert limits.processors == ((3008, 2), (5307, 3), (7076, 4), (8845, 5), (10_240, 6))
    documented = {
        "vcpu_mb": 1769,
        "init_s": 10,
        "request_bytes": 6 * 2**20,
        "response_bytes": 6 * 2**20 + 100,
        "event_bytes": 2**20,
        "zipped_bytes": 50 * 2**20,
        "unzipped_bytes": 250 * 2**20,
        "descriptors": 1024,
        "processes": 1024,
        "locked_bytes": 64 * 2**10,
        "core_bytes": 10 * 2**30,
        "environment_bytes": 4096,
        "log_tail_bytes": 4096,
        "account_concurrency": 1000,
        "unreserved_concurrency": 100,
        "requests_per_concurrency": 10,
        "scaling_environments": 1000,
        "scaling_period_s": 10,
        "event_retry_base_s": 60,
        "event_throttle_s": 1,
        "state_payload_bytes": 2**18,
        "history_events": 25_000,
        "definition_bytes": 2**20,
        "map_concurrency": 40,
    }
    assert {name: getattr(limits, name) for name in documented} == documented


def test_init_has_a_whole_processor_whatever_the_memory_size() -> None:
    limits = lambda_limits()
    assert (limits.quota_period_ms, limits.init_vcpus) == (20, 1)
    assert [init_share(size) for size in (128, 1769, 3538)] == [1.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("memory_mb", "cores"), [(128, 2), (3008, 2), (3009, 3), (5307, 3), (5308, 4), (7077, 5), (8845, 5), (10_240, 6)]
)
def test_visible_cores_grow_with_the_memory_size(memory_mb: int, cores: int) -> None:
    assert lambda_limits().visible_processors(memory_mb) == cores


def test_an_account_may_have_other_limits_but_no_others() -> None:
    limits = lambda_limits().changed(account_concurrency=10)
    assert limits.account_concurrency == 10
    assert lambda_limits().account_concurrency == 1000
    with pytest.raises(ValueError, match=r"^There is no limit cores, speed\.$"):
        lambda_limits().changed(speed=1, account_concurrency=1, cores=2)


def test_the_command_prints_them() -> None:
    command = [sys.executable, "-m", "slslab", "limits"]
    document = json.loads(subprocess.check_output([*command, "--json"], text=True))
    assert document["version"] == "2026-11-28.1"
    assert document["limits"]["account_concurrency"]["value"] == 1000
    assert document["limits"]["memory_mb"]["value"] == {"minimum": 128, "maximum": 10_240, "default": 128}
    table = subprocess.check_output(command, text=True)
    assert "128 to 10,240, by default 128" in table
    assert "2 up to 3,008 MB" in table


def test_limits_tell_how_they_differ_from_others() -> None:
    limits = lambda_limits()
    changed = limits.changed(init_s=3, memory_mb=Range(128, 3008, 128))
    assert changed.differences(limits) == {"init_s": 3, "memory_mb": {"minimum": 128, "maximum": 3008, "default": 128}}
    assert limits.differences(changed)["init_s"] == limits.init_s
    assert limits.differences(limits) == {}
