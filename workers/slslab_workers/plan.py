"""A plan: architecture × model × dataset × workers × limits, complete and re-runnable."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self

VCPU_MB = 1769
Value = str | int | float | bool
MODES = ("long-running", "per-batch")
INVOCATIONS = ("sync", "event")
STACKS = ("embedded", "compose")
ENVIRONMENTS = ("process", "docker")
MEMORY_FORMATS = ("default", "channels-last")
KINDS: Mapping[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}


class PlanError(ValueError):
    """A plan that cannot be carried out: one sentence of what is wrong, one of what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Plan:
    """Everything that decides a run; equal plans give equal bits.

    `batch_size` counts samples per minibatch and worker, `batches` minibatches per worker and epoch; `memory_mb` and
    `timeout` (s) are the functions' limits; `memory_format` is how models and minibatches lie in memory while they are
    computed on, which changes nothing but how sums are rounded; without `evaluation` no epoch's accuracy is known;
    `options` are the room's own.
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
    stack: str = "embedded"
    environment: str = "process"
    options: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in fields(self):
            value, kinds = getattr(self, one.name), KINDS.get(one.type)
            # To Python, True is an integer.
            if kinds is not None and type(value) not in kinds:
                raise PlanError(f"{one.name} is {value!r}.", f"it is a value of type {kinds[-1].__name__}.")
        for name in ("workers", "batch_size", "batches", "epochs", "timeout"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} is {getattr(self, name)}.", f"{name} is at least 1.")
        if not 128 <= self.memory_mb <= 10_240:
            raise PlanError(
                f"A memory size of {self.memory_mb} MB does not exist on AWS Lambda.", "choose 128 to 10240 MB."
            )
        if self.timeout > 900:
            raise PlanError(f"A time-out of {self.timeout} s does not exist on AWS Lambda.", "choose 1 to 900 s.")
        if self.seed < 0:
            raise PlanError(f"seed is {self.seed}.", "seed is at least 0.")
        if not (0 < self.lr < math.inf and 0 <= self.momentum < math.inf and 0 <= self.weight_decay < math.inf):
            raise PlanError(
                f"lr {self.lr}, momentum {self.momentum}, weight decay {self.weight_decay} are no SGD.",
                "lr is positive, the others are not negative.",
            )
        if self.mode not in MODES or self.invoke not in INVOCATIONS:
            raise PlanError(
                f"There is no mode {self.mode!r} with invocation {self.invoke!r}.",
                f"modes are {', '.join(MODES)}; invocations {', '.join(INVOCATIONS)}.",
            )
        if self.stack not in STACKS or self.environment not in ENVIRONMENTS:
            raise PlanError(
                f"There is no stack {self.stack!r} with environment {self.environment!r}.",
                f"stacks are {', '.join(STACKS)}; environments {', '.join(ENVIRONMENTS)}.",
            )
        if self.gradual and not self.evaluation:
            raise PlanError("Whether to stop is decided by evaluating epochs.", "leave out --no-evaluation.")
        if self.memory_format not in MEMORY_FORMATS:
            raise PlanError(
                f"There is no memory format {self.memory_format!r}.", f"there are {', '.join(MEMORY_FORMATS)}."
            )
        if self.until_accuracy is not None and not 0 < self.until_accuracy <= 1:
            raise PlanError(f"An accuracy of {self.until_accuracy} cannot be reached.", "it is a share, 0 to 1.")
        if self.mode == "per-batch" and self.invoke == "event":
            raise PlanError(
                "Per-batch invocations follow each other, so the driver must wait for each.", "use --invoke sync."
            )

    @property
    def gradual(self) -> bool:
        """Whether the driver decides after each epoch if there is another."""
        return self.early_stopping or self.until_accuracy is not None

    def to_document(self) -> dict[str, Any]:
        """A mapping safe for JSON and TOML; what is None is left out."""
        document = asdict(self)
        document["options"] = {name: _finite(value) for name, value in self.options.items()}
        return {name: value for name, value in document.items() if value is not None}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The plan that `to_document` described; PlanError for a field that does not exist, or that is missing."""
        known = {one.name for one in fields(cls)}
        needed = {one.name for one in fields(cls) if one.default is MISSING and one.default_factory is MISSING}
        unknown = sorted(set(document) - known)
        if unknown:
            raise PlanError(f"A plan has no field {unknown[0]!r}.", f"its fields are {', '.join(sorted(known))}.")
        missing = sorted(needed - set(document))
        if missing:
            raise PlanError(f"The plan has no {missing[0]}.", f"a plan needs {', '.join(sorted(needed))}.")
        return cls(**document)


@dataclass(frozen=True)
class Assignment:
    """What one invocation is asked to do (the event): the plan, who it is, from where, and how far."""

    plan: Plan
    bucket: str
    rank: int
    first: int
    until: int
    resume: bool
    keep: bool
    generation: int

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Self:
        """Read a Lambda event; positions count steps from the beginning of the run."""
        values = {name: value for name, value in event.items() if name != "plan"}
        return cls(plan=Plan.from_document(event["plan"]), **values)

    def to_event(self) -> dict[str, Any]:
        """The Lambda event."""
        names = ("bucket", "rank", "first", "until", "resume", "keep", "generation")
        return {"plan": self.plan.to_document()} | {name: getattr(self, name) for name in names}


def thread_count(memory_mb: int) -> int:
    """Threads of a worker: its CPU share (memory / 1,769 MB) rounded up."""
    return math.ceil(memory_mb / VCPU_MB)


def _finite(value: Value) -> Value:
    """JSON has no infinite numbers; as text they become numbers again where an option is read."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
