"""Read the anchors of GPUs: seconds of a training step, by kind of GPU and network (`gpus.toml`)."""

from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path

from slslab.errors import RequestError
from slslab.predict.profiles.profile import Figure
from slslab.toml_files import DataFiles, TomlTable

FILE = Path(__file__).with_name("gpus.toml")
SCHEMA = 1
# Minibatches of more or fewer images than this multiple of the anchor's take another time per image.
MOST_TIMES = 2


class Gpu(TomlTable):
    """A kind of GPU: how torch's names of it end, its memory (MiB), the EC2 instances that have one, and the seconds of
    a step by network."""

    names: tuple[str, ...]
    memory_mb: Figure
    instances: tuple[str, ...] = ()
    steps: Mapping[str, Figure] = {}


class Gpus(TomlTable):
    """All kinds; `missing` is the measurement that an anchor would need. Steps have minibatches of `images` images."""

    date: date
    images: int
    missing: str
    gpus: Mapping[str, Gpu]

    def step(self, gpu: str, model: str, images: int) -> Figure:
        """Return the seconds of a network's step with minibatches of this size.

        RequestError without an anchor: one for another GPU, network or minibatch isn't used.
        """
        figure = self.gpus[gpu].steps.get(model) if gpu in self.gpus else None
        share = images / self.images
        if figure is None or not 1 / MOST_TIMES <= share <= MOST_TIMES:
            hint = f"record a run with minibatches of {self.images // MOST_TIMES} to {self.images * MOST_TIMES}."
            if figure is None:
                needed = self.missing.format(model=model, gpu=gpu, images=images)
                hint = f"measure {needed}, and add it to slslab/predict/gpus.toml."
            raise RequestError(
                f"How long {model} takes for minibatches of {images} on {gpu} GPUs can't be said from public figures.",
                hint,
            )
        ends = {name: getattr(figure, name) * share for name in ("value", "low", "high")}
        return figure.model_copy(update=ends)

    def memory_mb(self, gpu: str) -> int | None:
        """Return the memory of a kind of GPU, MiB; None for an unknown kind."""
        return int(self.gpus[gpu].memory_mb.value) if gpu in self.gpus else None

    def kind_of(self, device: str) -> str:
        """Return the kind of a device, such as T4 for `cuda:0 Tesla T4`; without an anchored kind, torch's name."""
        name = device.rpartition(" ")[2]
        return next((kind for kind, gpu in self.gpus.items() if name in gpu.names), device.partition(" ")[2] or device)


@cache
def load_gpus() -> Gpus:
    """Return the anchors; RequestError names an invalid entry."""
    return DataFiles(Gpus, "file of GPUs", schema=SCHEMA).load(FILE)
