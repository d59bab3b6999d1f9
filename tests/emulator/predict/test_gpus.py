"""Anchors of GPUs: each holds for its own kind of GPU, its network and about its minibatch."""

import pytest

from slslab.errors import RequestError
from slslab.predict.gpus import load_gpus
from slslab.predict.profiles.profile import load_profile, profile_names
from slslab.run.bill import load_book

GPUS = load_gpus()


def test_a_step_takes_time_in_proportion_to_its_images() -> None:
    step, half = (GPUS.step("T4", "resnet18", images) for images in (512, 256))
    # Pollux's trace: 513 images take 0.3554 s, 257 take 0.1871 s.
    assert step.low is not None
    assert half.low is not None
    assert step.value == pytest.approx(0.3554, rel=0.01)
    assert half.low < 0.1871 < half.value * 1.1
    assert half.low == step.low / 2


@pytest.mark.parametrize(
    ("gpu", "model", "images"),
    [("L4", "resnet18", 512), ("H200", "resnet18", 512), ("T4", "lenet", 512), ("T4", "resnet18", 32)],
)
def test_no_anchor_stands_for_another_gpu_network_or_minibatch(gpu: str, model: str, images: int) -> None:
    with pytest.raises(
        RequestError, match=f"{model} takes for minibatches of {images} on {gpu} GPUs can't be said"
    ) as refused:
        GPUS.step(gpu, model, images)
    # A figure for another minibatch exists, so measuring isn't needed.
    known = (gpu, model) == ("T4", "resnet18")
    asked = (
        "record a run with minibatches of 256 to 1024." if known else f"measure seconds of a step of slslab's {model}"
    )
    assert asked in refused.value.hint


def test_what_torch_calls_a_device_is_of_a_kind() -> None:
    names = ("cuda:0 Tesla T4", "cuda:1 NVIDIA A10G", "cuda:0 NVIDIA H200")
    assert [*map(GPUS.kind_of, names)] == ["T4", "A10", "NVIDIA H200"]


def test_every_platform_names_a_known_gpu_that_its_book_prices() -> None:
    known = [profile.containers for name in profile_names() if (profile := load_profile(name)).containers]
    assert {containers.gpu for containers in known if containers} == {"T4", "L4", "A10"}
    for containers in known:
        assert containers is not None
        assert containers.gpu in GPUS.gpus
        assert {f"gpu.{containers.gpu}", "container.vcpu", "container.memory"} <= load_book(
            containers.prices
        ).prices.keys()
