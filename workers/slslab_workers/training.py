"""Data-parallel training: the loop and its state, and in Lambda handlers its life beyond one invocation.

A room gives the exchange (how gradients become an aggregate); everything else is the same for all of them:
fetch → compute → synchronise → update, once per step.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import torch

from slslab_workers import datasets, gradients, models
from slslab_workers.events import Tracer
from slslab_workers.keys import minibatch_key, model_key, result_key, state_key
from slslab_workers.lifetime import invoke_again, remaining_s, reserve_s
from slslab_workers.logs import Log
from slslab_workers.objects import Object, Objects, Unchanged, environment_client
from slslab_workers.plan import Assignment, Plan, thread_count

# What optimisers keep of each parameter, in its shape: SGD's momentum, Adam's moments.
MOMENTS = ("momentum_buffer", "exp_avg", "exp_avg_sq")


class Exchange(Protocol):
    """How the gradients of all workers become one aggregate, in a room that updates in every step.

    `log` is the worker's, to which the exchange writes while it synchronises.
    """

    log: Log

    def synchronise(self, gradient: torch.Tensor, epoch: int, step: int, leaving: bool) -> "Aggregate":
        """This worker's gradient (P,) float32 in, the aggregate (P,) out; returns when all workers may go on.

        `leaving` is this worker's vote to go on in another invocation after this step. Votes travel with the gradients
        (`wire_metadata`), so that all workers leave after the same step and none waits for one that has left.
        """


@dataclass(frozen=True)
class Step:
    """What a worker has computed in a step: loss, gradient (P,) float32; and its vote to leave after it."""

    epoch: int
    step: int
    loss: float
    gradient: torch.Tensor
    leaving: bool


@dataclass(frozen=True)
class Aggregate:
    """What the exchange of one step gives: the aggregate (P,) float32, and whether any worker votes to leave."""

    gradient: torch.Tensor
    leaving: bool


def wire_metadata(leaving: bool) -> dict[str, str]:
    """User metadata of a gradient object: its dtype, and the sender's vote."""
    return {"dtype": "float32", "leaving": str(int(leaving))}


def is_leaving(metadata: Mapping[str, str]) -> bool:
    """The vote in a gradient object's metadata."""
    return metadata["leaving"] == "1"


@dataclass
class WorkerState:
    """A worker between two steps.

    Model, optimiser, the position (steps done), the losses and the number of updates so far, and what else the room
    must remember: vectors by name, of any length, float32; and notes, safe for JSON.
    """

    model: torch.nn.Module
    optimiser: torch.optim.Optimizer
    position: int = 0
    losses: list[float] = field(default_factory=list)
    updates: int = 0
    memory: dict[str, torch.Tensor] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def fresh(cls, plan: Plan, rank: int) -> "WorkerState":
        """The state before the first step: equal seeds, so that all replicas start equal."""
        seed = plan.seed if plan.options.get("replicas", "seeded") == "seeded" else plan.seed * 1_000_003 + rank + 1
        model = models.build(plan.model, seed, plan.memory_format)
        model.train()
        return cls(model, make_optimiser(plan, model))

    def update(self, gradient: torch.Tensor) -> None:
        """One step of the optimiser with a gradient (P,), which may be in another memory than the model."""
        device = next(self.model.parameters()).device
        gradients.set_gradient(self.model, gradient.to(device))
        self.optimiser.step()
        self.updates += 1

    def to_bytes(self) -> bytearray:
        """Positions and losses as JSON, then parameters, moments, memory and buffers raw, little-endian.

        The JSON is filled up to a multiple of eight bytes, so that the tensors lie aligned.
        """
        moments = self._moments()
        header = {
            "position": self.position,
            "losses": self.losses,
            "updates": self.updates,
            "moments": list(moments),
            # Adam counts its steps for each parameter, and all have the same.
            "optimiser_steps": next((float(s["step"]) for s in self.optimiser.state.values() if "step" in s), None),
            "memory": {name: vector.numel() for name, vector in self.memory.items()},
            "notes": self.notes,
        }
        parts = [gradients.flatten(self.model.parameters()), *moments.values(), *self.memory.values()]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        body = bytearray(len(text).to_bytes(8, "little") + text)
        for part in parts:
            body += gradients.as_bytes(part.cpu())
        body += buffers_to_bytes(self.model)
        return body

    def restore(self, body: bytearray) -> None:
        """Take over what `to_bytes` wrote, bit for bit."""
        size = int.from_bytes(body[:8], "little")
        header = json.loads(body[8 : 8 + size])
        count = sum(parameter.numel() for parameter in self.model.parameters())
        rest = memoryview(body)[8 + size :]
        gradients.write_parameters(self.model, gradients.from_bytes(rest[: 4 * count]))
        offset = 4 * count
        self.optimiser.state.clear()
        for name in header["moments"]:
            moment = gradients.from_bytes(rest[offset : offset + 4 * count])
            offset += 4 * count
            start = 0
            for parameter in self.model.parameters():
                part = moment[start : start + parameter.numel()].clone().view_as(parameter)
                self.optimiser.state[parameter][name] = part.to(parameter.device)
                start += parameter.numel()
        if header["optimiser_steps"] is not None:
            for parameter in self.model.parameters():
                self.optimiser.state[parameter]["step"] = torch.tensor(header["optimiser_steps"])
        self.memory = {}
        for name, length in header["memory"].items():
            self.memory[name] = gradients.from_bytes(rest[offset : offset + 4 * length]).clone()
            offset += 4 * length
        buffers_from_bytes(self.model, rest[offset:])
        self.position, self.losses, self.updates = header["position"], header["losses"], header["updates"]
        self.notes = header["notes"]

    def _moments(self) -> dict[str, torch.Tensor]:
        """The moments that the optimiser has of every parameter, each as one vector (P,)."""
        parameters = list(self.model.parameters())
        kept = [self.optimiser.state[parameter] for parameter in parameters]
        # SGD without momentum keeps None.
        found = [name for name in MOMENTS if all(state.get(name) is not None for state in kept)]
        return {name: gradients.flatten(state[name] for state in kept) for name in found}


class Trainer:
    """One worker's training, wherever it runs: what all rooms share.

    A room says in `synchronise` what becomes of a gradient. The model lives on `device` (as torch names it), everything
    that is exchanged or stored in the host's memory.
    """

    def __init__(self, plan: Plan, rank: int, objects: Objects, device: str = "cpu") -> None:
        self.plan = plan
        self.rank = rank
        self.objects = objects
        self.tracer = objects.tracer
        self.device = torch.device(device)
        self.threads = thread_count(plan.memory_mb)
        # Why training ends before the plan's last step, if a room ends it.
        self.ended: str | None = None
        self._staging: torch.Tensor | None = None
        torch.set_num_threads(self.threads)

    def synchronise(self, state: WorkerState, step: Step) -> bool:
        """Exchange what this step computed with the others and update the model (`update`), or not.

        Returns whether any worker votes to go on in another invocation; all must return the same.
        """
        raise NotImplementedError

    def update(self, state: WorkerState, gradient: torch.Tensor) -> None:
        """One step of the optimiser with a gradient (P,) in the host's memory."""
        with self.tracer.span("update", "update"):
            state.update(gradient)
            if self.device.type == "cuda":
                # A GPU computes behind the program's back; the event ends when the update has.
                torch.cuda.synchronize(self.device)

    def train_step(self, state: WorkerState) -> bool:
        """Train one step; after the last one of an epoch, or of all, one worker stores the model.

        Returns what `synchronise` returned.
        """
        started = time.monotonic()
        epoch, step = self.place(state)
        self.tracer.epoch, self.tracer.step = epoch, step
        inputs, targets = fetch_minibatch(self.objects, self.plan, *self.minibatch(state))
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        with self.tracer.span("compute", "compute") as span:
            loss, gradient = compute_gradient(state.model, inputs, targets)
            span.loss = loss
            gradient = self._to_host(gradient)
        state.losses.append(loss)
        leaving = self.synchronise(state, Step(epoch, step, loss, gradient, self._short_of_time(started)))
        state.position += 1
        self.tracer.epoch = self.tracer.step = -1
        if self.stores_model(state) and (self.place(state)[1] == 0 or self.ended is not None):
            self._store_model(state, epoch)
        return leaving

    def place(self, state: WorkerState) -> tuple[int, int]:
        """Epoch, and step in it, that the state's position is at."""
        return divmod(state.position, self.plan.batches)

    def minibatch(self, state: WorkerState) -> tuple[int, int, int]:
        """Rank, epoch and step of the stored minibatch that is to be trained next."""
        return self.rank, *self.place(state)

    def stores_model(self, state: WorkerState) -> bool:  # noqa: ARG002 - in a room whose workers leave, it depends
        """Whether this worker stores the model for all."""
        return self.rank == 0

    def _short_of_time(self, started: float) -> bool:  # noqa: ARG002 - functions have a time-out
        """This worker's vote to go on in another invocation after the step that began at `started` (monotonic, s)."""
        return False

    def _to_host(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient in the host's memory: one copy from a GPU, into page-locked memory that every step reuses."""
        if gradient.device.type == "cpu":
            return gradient
        if self._staging is None:
            self._staging = torch.empty(gradient.numel(), pin_memory=True)
        return self._staging.copy_(gradient)

    def _fresh(self) -> WorkerState:
        with self.tracer.span("build", "other"):
            state = WorkerState.fresh(self.plan, self.rank)
            state.model.to(self.device)
            return state

    def publish(self, state: WorkerState) -> dict[str, Any]:
        """Store this worker's result, and return it."""
        result = self._result(state)
        self.objects.put(result_key(self.plan, self.rank), json.dumps(result).encode(), "other")
        return result

    def _store_model(self, state: WorkerState, epoch: int) -> None:
        with self.tracer.span("serialise", "other"):
            body = bytearray(gradients.as_bytes(gradients.flatten(state.model.parameters()).cpu()))
            body += buffers_to_bytes(state.model)
        self.objects.put(model_key(self.plan, epoch), body, "other")

    def _result(self, state: WorkerState) -> dict[str, Any]:
        flat = gradients.flatten(state.model.parameters()).cpu()
        return {
            "status": "finished",
            "rank": self.rank,
            "position": state.position,
            "ended": self.ended,
            "losses": state.losses,
            "updates": state.updates,
            "parameters": flat.numel(),
            "parameters_sha256": gradients.sha256(flat),
            "threads": self.threads,
            "torch": torch.__version__,
        }


# The state that this environment kept from its last invocation, with the key and ETag of the stored copy.
_warm: tuple[str, str, WorkerState] | None = None


class Worker(Trainer):
    """One worker in one invocation of a function."""

    def __init__(self, assignment: Assignment, context: Any, objects: Objects | None = None) -> None:
        plan, rank = assignment.plan, assignment.rank
        if objects is None:
            tracer = Tracer(run=plan.run, worker=rank, invocation=context.aws_request_id)
            with tracer.span("connect", "other"):
                client = environment_client()
            objects = Objects(client, assignment.bucket, tracer)
        super().__init__(plan, rank, objects)
        self.assignment = assignment
        self.context = context
        self.longest_step_s = 0.0

    def run(self) -> dict[str, Any]:
        """Train from `first` to `until`; returns the worker's result, or that it goes on in another invocation."""
        assignment = self.assignment
        state = self._resume() if assignment.resume else self._fresh()
        if state.position != assignment.first:
            # AWS may deliver an asynchronous event twice.
            raise ValueError(
                f"Worker {self.rank} was to go on at step {assignment.first}, and its state is at {state.position}: "
                "another invocation has trained in its place. Run the plan again."
            )
        while state.position < self.until(state) and self.ended is None:
            started = time.monotonic()
            leaving = self.train_step(state)
            self.longest_step_s = max(self.longest_step_s, time.monotonic() - started)
            if leaving and state.position < self.until(state) and self.ended is None:
                return self._go_on_elsewhere(state)
        if assignment.keep:
            self._save(state)
        over = self.place(state)[0] == self.plan.epochs or self.ended is not None
        if self.plan.mode == "long-running" or over:
            return self.publish(state)
        return self._result(state)

    def until(self, state: WorkerState) -> int:  # noqa: ARG002 - in a room whose workers leave, it depends
        """The position up to which this assignment is to train."""
        return self.assignment.until

    def _resume(self) -> WorkerState:
        global _warm
        key = state_key(self.plan, self.rank)
        # Taken out: once it trains, it is the stored state no more, and an invocation may fail on the way.
        kept, _warm = _warm, None
        if kept is not None and kept[0] != key:
            kept = None
        try:
            stored: Object = self.objects.get(key, "fetch", known_etag=kept[1] if kept else None)
        except Unchanged:
            assert kept is not None
            return kept[2]
        with self.tracer.span("restore", "fetch"):
            state = kept[2] if kept else WorkerState.fresh(self.plan, self.rank)
            state.restore(stored.body)
            return state

    def _save(self, state: WorkerState) -> None:
        global _warm
        key = state_key(self.plan, self.rank)
        with self.tracer.span("serialise", "other"):
            body = state.to_bytes()
        _warm = (key, self.objects.put(key, body, "other"), state)

    def _short_of_time(self, started: float) -> bool:
        """LambdaML's watchdog (reference 7.6), asked within a step, because the vote travels with its gradient: whether
        too little time will be left after it for another step and its checkpoint.

        Until a longer step was seen, a step is taken to synchronise for as long as it fetched and computed.
        """
        elapsed_s = time.monotonic() - started
        step_s = max(self.longest_step_s, 2 * elapsed_s)
        return remaining_s(self.context) - (step_s - elapsed_s) < reserve_s(self.plan.timeout, step_s)

    def _go_on_elsewhere(self, state: WorkerState) -> dict[str, Any]:
        self._save(state)
        following = Assignment(
            plan=self.plan,
            bucket=self.assignment.bucket,
            rank=self.rank,
            first=state.position,
            until=self.assignment.until,
            resume=True,
            keep=self.assignment.keep,
            generation=self.assignment.generation + 1,
        )
        invoke_again(following.to_event(), self.context, self.tracer)
        return {"status": "continued", "rank": self.rank, "position": state.position}


class ExchangeWorker(Worker):
    """A worker that updates in every step with the aggregate of its room's exchange, made by `exchange`."""

    exchange: Callable[[Plan, int, Objects], Exchange]

    def __init__(self, assignment: Assignment, context: Any, objects: Objects | None = None) -> None:
        super().__init__(assignment, context, objects)
        self._exchange = type(self).exchange(self.plan, self.rank, self.objects)
        self.log = self._exchange.log

    def synchronise(self, state: WorkerState, step: Step) -> bool:
        """Exchange, then update."""
        aggregate = self._exchange.synchronise(step.gradient, step.epoch, step.step, step.leaving)
        self.update(state, aggregate.gradient)
        return aggregate.leaving


def handle(event: Mapping[str, Any], context: Any, worker: type[Worker]) -> dict[str, Any]:
    """What every room's Lambda handler does."""
    return worker(Assignment.from_event(event), context).run()


def fetch_minibatch(
    objects: Objects, plan: Plan, rank: int, epoch: int, step: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A worker's minibatch out of the object store, augmented: inputs (B, C, H, W) float32, in the plan's memory
    format, and targets (B,) int64."""
    stored = objects.get(minibatch_key(plan, epoch, step, rank), "fetch")
    with objects.tracer.span("prepare", "fetch"):
        images, labels = datasets.decode_minibatch(stored.body, stored.metadata)
        policy = datasets.Policy.from_metadata(stored.metadata)
        inputs, targets = datasets.prepare(images, labels, policy, plan.seed, epoch, rank, step)
        return models.arranged(inputs, plan.memory_format), targets


def compute_gradient(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[float, torch.Tensor]:
    """Mean cross-entropy loss of a minibatch, and its gradient (P,) float32."""
    for parameter in model.parameters():
        parameter.grad = None
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), gradients.flat_gradient(model)


def make_optimiser(plan: Plan, model: torch.nn.Module) -> torch.optim.Optimizer:
    """SGD with the plan's momentum and weight decay; Adam where the room offers it and the plan asks for it."""
    if plan.options.get("optimiser", "sgd") == "adam":
        return torch.optim.Adam(model.parameters(), lr=plan.lr)
    return torch.optim.SGD(model.parameters(), lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay)


def evaluate(
    model: torch.nn.Module, stored: bytearray, images: Any, labels: Any, policy: datasets.Policy
) -> tuple[float, float]:
    """Accuracy (0..1) and mean loss of a stored model (parameters and buffers) on images (N, C, H, W) uint8."""
    count = sum(parameter.numel() for parameter in model.parameters())
    gradients.write_parameters(model, gradients.from_bytes(memoryview(stored)[: 4 * count]))
    buffers_from_bytes(model, memoryview(stored)[4 * count :])
    return judge(model, images, labels, policy)


def validation_loss(model: torch.nn.Module, stored: Object) -> float:
    """Mean loss of a model on stored validation images (as `datasets.encode_minibatch` wrote them)."""
    images, labels = datasets.decode_minibatch(stored.body, stored.metadata)
    return judge(model, images, labels, datasets.Policy.from_metadata(stored.metadata))[1]


def judge(model: torch.nn.Module, images: Any, labels: Any, policy: datasets.Policy) -> tuple[float, float]:
    """Accuracy (0..1) and mean loss of a model on images (N, C, H, W) uint8, in evaluation mode, where the model is."""
    model.eval()
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    correct, losses = 0, []
    with torch.no_grad():
        for start in range(0, len(labels), 500):
            inputs, targets = datasets.prepare_test(images[start : start + 500], labels[start : start + 500], policy)
            inputs, targets = inputs.to(device), targets.to(device)
            scores = model(inputs)
            correct += int((scores.argmax(1) == targets).sum())
            losses.append(float(torch.nn.functional.cross_entropy(scores, targets, reduction="sum")))
    return correct / len(labels), math.fsum(losses) / len(labels)


def mean_losses(results: Sequence[Mapping[str, Any]], starts: Sequence[int]) -> tuple[float, ...]:
    """Mean training loss of each epoch over all workers' minibatches, of an unfinished last one over those it had.

    `starts` are the positions that the epochs begin with; None stands for the loss of a minibatch of a worker that did
    not take part yet.
    """
    return tuple(
        statistics.fmean(loss for result in results for loss in result["losses"][first:until] if loss is not None)
        for first, until in pairwise([*starts, None])
    )


def buffers_to_bytes(model: torch.nn.Module) -> bytes:
    """All buffers (BatchNorm statistics and counters) raw, in `model.buffers()` order, each in its own dtype."""
    return b"".join(buffer.cpu().numpy().tobytes() for buffer in model.buffers())


def buffers_from_bytes(model: torch.nn.Module, data: memoryview) -> None:
    """Take over what `buffers_to_bytes` wrote."""
    offset = 0
    for buffer in model.buffers():
        size = buffer.numel() * buffer.element_size()
        part = torch.frombuffer(bytearray(data[offset : offset + size]), dtype=buffer.dtype)
        buffer.copy_(part.view_as(buffer))
        offset += size
