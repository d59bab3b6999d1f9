"""A worker's state between two steps, and its stored form."""

import json
from dataclasses import dataclass, field
from typing import Any

import torch

from slslab_workers.models import spec_of
from slslab_workers.plan import Plan
from slslab_workers.training import gradients, models
from slslab_workers.training.optimisers import Optimiser, make_optimiser
from slslab_workers.training.options import REPLICAS

# What optimisers keep for each parameter, in its shape: SGD's momentum, Adam's moments.
MOMENTS = ("momentum_buffer", "exp_avg", "exp_avg_sq")


@dataclass
class WorkerState:
    """A worker between two steps.

    Model, optimiser, the position (steps done), the losses and the number of updates so far. `memory` and `notes` are
    for the architecture: float32 vectors of any length, by name, and values safe for JSON.
    """

    model: torch.nn.Module
    optimiser: Optimiser
    position: int = 0
    losses: list[float] = field(default_factory=list)
    updates: int = 0
    memory: dict[str, torch.Tensor] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def fresh(cls, plan: Plan, rank: int, device: torch.device | str = "cpu") -> "WorkerState":
        """Return the state before the first step, with the model on a device.

        Workers use the same seed, so all replicas start equal. With `--replicas unseeded`, each has its own seed.
        """
        seed = plan.seed if REPLICAS.of(plan.options) == "seeded" else plan.seed * 1_000_003 + rank + 1
        model = models.build(spec_of(plan), seed, plan.memory_format)
        model.train().to(device)
        return cls(model, make_optimiser(plan, model))

    def update(self, gradient: torch.Tensor) -> None:
        """Take one step of the optimiser with a gradient (P,), which may be on another device than the model."""
        gradients.set_gradient(self.model, gradient.to(next(self.model.parameters()).device))
        self.optimiser.step()
        self.updates += 1

    def to_bytes(self) -> bytearray:
        """Return the position and losses as JSON, then the raw parameters, moments, memory and buffers, little-endian.

        The JSON is padded to a multiple of eight bytes to align the tensors.
        """
        moments = self._moments()
        header = {
            "position": self.position,
            "losses": self.losses,
            "updates": self.updates,
            "moments": list(moments),
            # Adam counts steps per parameter; the counts are all equal.
            "optimiser_steps": next((float(s["step"]) for s in self.optimiser.state.values() if "step" in s), None),
            "memory": {name: vector.numel() for name, vector in self.memory.items()},
            "notes": self.notes,
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        body = bytearray(len(text).to_bytes(8, "little") + text)
        for vector in (gradients.flatten(self.model.parameters()), *moments.values(), *self.memory.values()):
            body += gradients.as_bytes(vector.cpu())
        body += buffers_to_bytes(self.model)
        return body

    def restore(self, body: bytearray) -> None:
        """Restore the state that `to_bytes` wrote, bit for bit."""
        size = int.from_bytes(body[:8], "little")
        header = json.loads(body[8 : 8 + size])
        rest = memoryview(body)[8 + size :]

        def take(count: int) -> torch.Tensor:
            nonlocal rest
            vector, rest = gradients.from_bytes(rest[: 4 * count]), rest[4 * count :]
            return vector

        count = sum(parameter.numel() for parameter in self.model.parameters())
        gradients.write_parameters(self.model, take(count))
        self.optimiser.state.clear()
        for name in header["moments"]:
            for parameter, part in gradients.parts(self.model.parameters(), take(count)):
                self.optimiser.state[parameter][name] = part.clone().to(parameter.device)
        if header["optimiser_steps"] is not None:
            for parameter in self.model.parameters():
                self.optimiser.state[parameter]["step"] = torch.tensor(header["optimiser_steps"])
        self.memory = {name: take(length).clone() for name, length in header["memory"].items()}
        buffers_from_bytes(self.model, rest)
        self.position, self.losses, self.updates = header["position"], header["losses"], header["updates"]
        self.notes = header["notes"]

    def _moments(self) -> dict[str, torch.Tensor]:
        """Return the moments that the optimiser keeps for all parameters, each as one vector (P,)."""
        states = [self.optimiser.state[parameter] for parameter in self.model.parameters()]
        # Without momentum, SGD keeps None.
        names = [name for name in MOMENTS if all(state.get(name) is not None for state in states)]
        return {name: gradients.flatten(state[name] for state in states) for name in names}


def buffers_to_bytes(model: torch.nn.Module) -> bytes:
    """Return the raw buffers (BatchNorm statistics and counters) in `model.buffers()` order, each in its own dtype."""
    return b"".join(buffer.cpu().numpy().tobytes() for buffer in model.buffers())


def buffers_from_bytes(model: torch.nn.Module, data: memoryview) -> None:
    """Copy the bytes of `buffers_to_bytes` into the model's buffers."""
    offset = 0
    for buffer in model.buffers():
        size = buffer.numel() * buffer.element_size()
        buffer.copy_(torch.frombuffer(bytearray(data[offset : offset + size]), dtype=buffer.dtype).view_as(buffer))
        offset += size
