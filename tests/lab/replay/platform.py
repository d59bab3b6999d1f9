"""A platform with round figures, on which timelines can be calculated by hand."""

from typing import Any

from slslab.predict.profiles.profile import Network, Profile


def figure(value: float) -> dict[str, Any]:
    return {"value": value, "status": "assumed", "source": "made up for a test"}


def operation(latency_ms: float, bandwidth_mb_s: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"latency_ms": figure(latency_ms)}
    return found if bandwidth_mb_s is None else found | {"bandwidth_mb_s": figure(bandwidth_mb_s)}


def platform(concurrency: float = 10_000, warm_ms: float = 0) -> Profile:
    """Processors as fast as the host; cold starts of 100 ms before init, warm ones of none; objects put in 10 ms, got
    in 5 ms, listed in 20 ms, each with 100 MB/s; messages published in 1 ms; transitions of 30 ms."""
    objects = {
        "put": operation(10, 100), "get": operation(5, 100), "list": operation(20), "delete": operation(5),
    }  # fmt: skip
    return Profile.model_validate(
        {
            "schema": 1,
            "name": "round",
            "date": "2026-11-21",
            "description": "round figures",
            "compute": {"speed": figure(1), "parallel": figure(1), "period_ms": figure(100), "vcpu_mb": figure(1769)},
            "functions": {
                "cold_zip_ms": figure(100),
                "cold_image_ms": figure(500),
                "warm_ms": figure(warm_ms),
                "concurrency": figure(concurrency),
                "burst": figure(10_000),
                "ramp_per_s": figure(100),
            },
            "transition_ms": figure(30),
            "channels": {
                "object": {"description": "S3", "operations": objects},
                "queue": {"description": "RabbitMQ", "operations": {"publish": operation(1), "deliver": operation(1)}},
            },
            "instances": {"g4dn.xlarge": {"boot_s": figure(30), "compute_speed": figure(10), "host_speed": figure(1)}},
        }
    )


def with_network(profile: Profile, rate_mb_s: float, burst_mb: float) -> Profile:
    """The platform with a bound on what a function moves."""
    network = Network.model_validate({"rate_mb_s": figure(rate_mb_s), "burst_mb": figure(burst_mb)})
    return profile.model_copy(update={"functions": profile.functions.model_copy(update={"network": network})})
