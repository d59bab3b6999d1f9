"""The atlas's own recordings: small runs that Table 2 of Barrak et al. and Table 1 of LambdaML don't include."""

from collections.abc import Iterator, Mapping, Sequence

from slslab_lab.studies.atlas.systems import SYSTEMS, System
from slslab_lab.studies.experiments import ARCHITECTURES, BATCH_SIZE, RECORDED_MB
from slslab_lab.studies.recording import Recording, small_run
from slslab_workers.plan import Value

# As in Table 1's recordings: a small host has room for two workers.
RECORDED_WORKERS, MEMORY_MB = 2, 3008
# The architecture recorded with other channels; also the one that provides forward and backward for all.
CHANNELS_OF = COMPUTES = "allreduce"
# Minibatches of each worker. MLLess's filter holds back the first updates, so in a few minibatches it would send none.
STEPS, STEPS_OF = 5, {"mlless": 15}
# Functions of this architecture live for an epoch, so a warm one trains in the second.
EPOCHWISE = ("kubeml",)
# Tree topologies to compare with GradsSharding; they don't train, so they aren't points.
AVERAGING, TOPOLOGIES = "gradssharding", ("shards", "lambda-fl", "lifl")


def _job(
    architecture: str,
    model: str,
    dataset: str,
    batch_size: int,
    batches: int,
    epochs: int,
    memory_mb: int,
    variant: str = "",
    options: Mapping[str, Value] | None = None,
) -> Recording:
    """Return a small run; `variant` is the end of its folder's name."""
    # Workers that share the processors of a small host slow each other down.
    values = small_run(model, dataset, RECORDED_WORKERS, batch_size, batches, epochs, memory_mb, record="alone")
    return Recording("-".join(filter(None, (model, architecture, variant))), architecture, values, options or {})


def lenet(architecture: str, variant: str = "", options: Mapping[str, Value] | None = None) -> Recording:
    """Return a recording of LeNet-5 on the 1,433 images of digits; two minibatches make an epoch."""
    steps = STEPS_OF.get(architecture, STEPS)
    return _job(architecture, "lenet", "digits", BATCH_SIZE, 1, steps, 1769, variant, options)


def mobilenet(architecture: str, variant: str = "", options: Mapping[str, Value] | None = None) -> Recording:
    """Return a recording of MobileNet, like Table 1's recordings of the other channels."""
    steps = STEPS_OF.get(architecture, STEPS)
    batches, epochs = (1, steps) if architecture in EPOCHWISE else (steps, 1)
    return _job(architecture, "mobilenet", "synthetic", 128, batches, epochs, MEMORY_MB, variant, options)


def _jobs() -> Iterator[Recording]:
    names = tuple(dict.fromkeys(system.architecture for system in SYSTEMS))
    yield from map(lenet, names)
    # Table 2's recordings have the CPU time of four workers that shared two processors.
    for model, memory_mb in RECORDED_MB.items():
        yield _job(COMPUTES, model, "synthetic", BATCH_SIZE, 1, 3, memory_mb)
    yield from (mobilenet(name) for name in names if name not in ARCHITECTURES)
    for channel in dict.fromkeys(system.own_channel for system in SYSTEMS if system.own_channel):
        yield lenet(CHANNELS_OF, channel, System(CHANNELS_OF, channel, "ga").chosen)
    yield mobilenet(CHANNELS_OF, "redis", System(CHANNELS_OF, "redis", "ga").chosen)
    yield from (lenet(AVERAGING, name, {"topology": name}) for name in TOPOLOGIES)


JOBS: Sequence[Recording] = tuple(_jobs())
