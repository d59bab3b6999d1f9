"""A plan: architecture × model × dataset × workers × limits, complete and re-runnable."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self

SCHEMA = 2
VCPU_MB = 1769
# The variable of a function with the memory of its platform's GPU, MiB.
GPU_MEMORY = "SLSLAB_GPU_MEMORY_MB"
Value = str | int | float | bool
MEMORY_FORMATS = ("default", "channels-last")
CHOICES = {
    "mode": ("long-running", "per-batch"),
    "invoke": ("sync", "event"),
    "stack": ("embedded", "compose"),
    "environment": ("process", "docker", "ray"),
    "placement": ("spread", "pack"),
    "memory_format": MEMORY_FORMATS,
    "record": ("together", "alone"),
}
# Seeds of NumPy's and torch's generators have 32 bits. The account or platform has the most memory and time.
# Momentum and weight decay are finite. The other limits are far beyond what any host can do.
LIMITS = {
    "workers": (1, 4096),
    **dict.fromkeys(("batch_size", "batches", "epochs"), (1, 10**6)),
    **dict.fromkeys(("memory_mb", "timeout"), (1, math.inf)),
    "seed": (0, 2**32 - 1),
    **dict.fromkeys(("momentum", "weight_decay"), (0, math.inf)),
}
KINDS: Mapping[Any, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    float | None: (type(None), int, float),
    str: (str,),
    bool: (bool,),
}


def _option(name: str) -> str:
    return f"--{name.removesuffix('_mb').replace('_', '-')}"


class PlanError(ValueError):
    """A plan that can't run. `message` says what is wrong, and `hint` what to do; `exit_code` is the command line's."""

    exit_code = 2

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type["PlanError"], tuple[str, str]]:
        return type(self), (self.message, self.hint)


@dataclass(frozen=True)
class Plan:
    """Everything that decides a run; equal plans give equal bits.

    `batch_size` is the number of samples per minibatch and worker, `batches` the number of minibatches per worker and
    epoch. `memory_mb` and `timeout` (s) are the functions' limits. `memory_format` is the memory layout of models and
    minibatches during computation; it only changes how sums are rounded. Without `evaluation`, the epochs' accuracy is
    unknown. `record` selects the CPU seconds that replay uses: `together` takes them from the run, in which all workers
    run at once, `alone` from one worker measured before it. `account` selects the AWS limits (default, new, or a TOML
    file), `prices` the price book of the bill. `platform` names a platform of functions with GPUs: its limits replace
    Lambda's, and functions compute on CUDA if torch sees it. `faults` is the document of a fault plan
    (`slslab_workers.faults.plan`). `model_spec` describes a model that isn't built in, or has other outputs
    (`slslab_workers.models`). `options` holds all options of the architecture.
    """

    run: str
    architecture: str
    model: str
    dataset: str
    batch_size: int
    batches: int
    memory_mb: int
    workers: int = 4
    epochs: int = 1
    seed: int = 0
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-4
    timeout: int = 900
    mode: str = "long-running"
    invoke: str = "sync"
    as_released: bool = False
    until_accuracy: float | None = None
    early_stopping: bool = False
    memory_format: str = "default"
    evaluation: bool = True
    record: str = "together"
    stack: str = "embedded"
    environment: str = "process"
    placement: str | None = None
    account: str = "default"
    prices: str = "aws-us-east-1"
    platform: str | None = None
    faults: Mapping[str, Any] | None = None
    model_spec: Mapping[str, Any] | None = None
    options: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, kinds = getattr(self, entry.name), KINDS.get(entry.type)
            # In Python, True is an integer.
            if kinds is not None and type(value) not in kinds:
                raise PlanError(f"{entry.name} is {value!r}.", f"it must be a value of type {kinds[-1].__name__}.")
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if not least <= value <= most or value == math.inf:
                given = f"{least:,} or more" if most == math.inf else f"{least:,} to {most:,}"
                raise PlanError(f"{_option(name)} is {value}.", f"give {given}.")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices and not (name == "placement" and self.placement is None):
                raise PlanError(
                    f"There is no {name.replace('_', ' ')} {getattr(self, name)!r}.",
                    f"choose one of {', '.join(choices)}.",
                )
        if self.platform is not None and (self.stack, self.environment, self.account) != (
            "embedded",
            "process",
            "default",
        ):
            raise PlanError(
                "Functions of a --platform are processes of this host, and belong to no AWS account.",
                "leave out --stack, --environment and --account.",
            )
        if not 0 < self.lr < math.inf:
            raise PlanError(f"--lr is {self.lr}.", "give a number above 0.")
        if self.gradual and not self.evaluation:
            raise PlanError("A run can only stop early if its epochs are evaluated.", "leave out --no-evaluation.")
        if self.until_accuracy is not None and not 0 < self.until_accuracy <= 1:
            raise PlanError(f"--until-accuracy is {self.until_accuracy}.", "give a share: 80 % is 0.8.")
        if self.mode == "per-batch" and self.invoke == "event":
            raise PlanError(
                "Per-batch invocations follow each other, so the driver must wait for each.", "use --invoke sync."
            )

        if self.environment == "ray" and self.stack != "embedded":
            raise PlanError("Nodes of a cluster only run environments of the embedded stack.", "leave out --stack.")
        if self.environment != "ray" and self.placement is not None:
            raise PlanError("--placement needs --environment ray.", "give --environment ray, or leave out --placement.")
        if self.environment == "ray" and self.record == "alone":
            raise PlanError(
                "Solo profiles are measured on this host, but a cluster's nodes are other machines.",
                "record it in a run without --environment ray.",
            )

    @property
    def gradual(self) -> bool:
        """Return whether the driver decides after each epoch if training continues."""
        return self.early_stopping or self.until_accuracy is not None

    def to_document(self) -> dict[str, Any]:
        """Return a mapping safe for JSON and TOML, which leaves out None values."""
        document = asdict(self)
        document["options"] = {name: _finite(value) for name, value in self.options.items()}
        return {"schema": SCHEMA} | {name: value for name, value in document.items() if value is not None}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the plan that `to_document` described; raise PlanError for an unknown or missing field.

        A document without `schema` has schema 1, which left out fields and options that had their defaults.
        """
        if document.get("schema", 1) not in (1, SCHEMA):
            raise PlanError(
                f"The plan has schema {document['schema']!r}, and this version reads 1 and {SCHEMA}.",
                "use the version of slslab that wrote it.",
            )
        document = {name: value for name, value in document.items() if name != "schema"}
        known = {entry.name for entry in fields(cls)}
        needed = {entry.name for entry in fields(cls) if entry.default is MISSING and entry.default_factory is MISSING}
        unknown = sorted(set(document) - known)
        if unknown:
            raise PlanError(f"A plan has no field {unknown[0]!r}.", f"its fields are {', '.join(sorted(known))}.")
        missing = sorted(needed - set(document))
        if missing:
            raise PlanError(f"The plan has no {missing[0]}.", f"a plan needs {', '.join(sorted(needed))}.")
        return cls(**document)


@dataclass(frozen=True)
class InvocationInput:
    """The event of one invocation, which has the whole plan."""

    plan: Plan

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Self:
        """Read a Lambda event, which JSON made: sequences become tuples again."""
        return cls(
            **{name: _tuples(value) for name, value in event.items()} | {"plan": Plan.from_document(event["plan"])}
        )

    def to_event(self) -> dict[str, Any]:
        """Return the Lambda event."""
        return {**asdict(self), "plan": self.plan.to_document()}


@dataclass(frozen=True)
class Assignment(InvocationInput):
    """A worker's invocation: its rank, and the steps from `first` to `until`, counted from the beginning of the run."""

    bucket: str
    rank: int
    first: int
    until: int
    keep: bool


def thread_count(memory_mb: int) -> int:
    """Return a worker's number of threads: its CPU share (memory / 1,769 MB), rounded up."""
    return math.ceil(memory_mb / VCPU_MB)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _finite(value: Value) -> Value:
    """Return an infinite number as text, since JSON can't hold it; reading the option turns it back into a number."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
