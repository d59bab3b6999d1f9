"""The process group of a run's instances: how they connect, add up vectors, and report a lost peer."""

import json
import re
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed

from slslab_workers.channels.objects import Objects
from slslab_workers.channels.polling import poll_policy
from slslab_workers.plan import Plan
from slslab_workers.training.keys import rendezvous_key

# How long a peer that lost another one waits for signs of life, s. By then the launcher has noticed that the lost peer
# ended, and has ended the others.
SIGN_S = 5.0
# torch's classes of process groups; its annotations don't cover them fully.
distributed: Any = torch.distributed


class PeerLost(RuntimeError):
    """A peer has ended, or hasn't joined an all-reduce within the plan's time-out."""


class Peers:
    """A peer's process group: gloo's for vectors in the host's memory, NCCL's for vectors on a GPU.

    Creating one waits for all peers. Use it as a context manager, because a process that ends with a group aborts. The
    default group of torch.distributed would listen on every address of the machine's name.
    """

    def __init__(self, plan: Plan, rank: int, objects: Objects, device: torch.device) -> None:
        self._plan = plan
        self._rank = rank
        self._timeout = timedelta(seconds=plan.timeout)
        self._store = self._meet(objects)
        try:
            # Replay makes its own waits.
            with objects.tracer.span("wait", "wait", "peers"):
                self._group = self._join(objects.local_address(), device)
        except RuntimeError as error:
            raise PeerLost(self._who("did not come together", error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._group = self._store = None

    def all_reduce(self, vector: torch.Tensor, name: str) -> None:
        """Replace the vector (P,) by the sum over all peers; PeerLost, with the all-reduce's name, if one is lost."""
        try:
            self._group.allreduce([vector]).wait()
            if vector.device.type == "cuda":
                torch.cuda.synchronize(vector.device)
        except RuntimeError as error:
            raise PeerLost(self._who(f"lost a peer in {name}", error)) from error

    def _meet(self, objects: Objects) -> Any:
        """Return the store through which the peers connect: rank 0 runs it and announces its address."""
        key, address = rendezvous_key(self._plan), objects.local_address()
        if self._rank == 0:
            # torch's own server would listen on all addresses of the machine.
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = socket.create_server((address, 0), family=family, backlog=self._plan.workers)
            port = listener.getsockname()[1]
            store = self._connect(address, port, listener.detach())
            objects.put(key, json.dumps([address, port]).encode(), "other")
            return store
        found = objects.wait_for(key, poll_policy(self._plan).gets, "other")
        return self._connect(*json.loads(found.body))

    def _connect(self, address: str, port: int, listener: int | None = None) -> Any:
        return distributed.TCPStore(
            address,
            port,
            is_master=listener is not None,
            timeout=self._timeout,
            wait_for_workers=False,
            master_listen_fd=listener,
        )

    def _join(self, address: str, device: torch.device) -> Any:
        ranks = self._rank, self._plan.workers
        if device.type == "cuda":
            self._store.set(f"gpu/{self._rank}", str(torch.cuda.get_device_properties(device).uuid))
            check_gpus([self._store.get(f"gpu/{rank}").decode() for rank in range(self._plan.workers)])
            options = distributed.ProcessGroupNCCL.Options()
            options._timeout = self._timeout
            return distributed.ProcessGroupNCCL(self._store, *ranks, options)
        options = distributed.ProcessGroupGloo._Options()
        options._devices = [distributed.ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = self._timeout
        return distributed.ProcessGroupGloo(self._store, *ranks, options)

    def _who(self, what: str, error: RuntimeError) -> str:
        """Return what happened to this peer, which others show no sign of life, and torch's own words."""
        silent = ", ".join(map(str, self._silent()))
        unheard = f"worker {silent} gave no sign of life within {SIGN_S:.0f} s" if silent else "all others are alive"
        # The first line, without the position in gloo's code.
        said = re.sub(r"^\[[^]]*\]\s*", "", str(error).splitlines()[0].strip()).rstrip(".")
        return f"Worker {self._rank} {what}: {unheard} ({said})."

    def _silent(self) -> Sequence[int]:
        """Return the ranks of peers that don't report in time that they lost another one, too."""
        ranks = [rank for rank in range(self._plan.workers) if rank != self._rank]
        over = threading.Event()

        def ask() -> None:
            nonlocal ranks
            with suppress(RuntimeError):  # it has ended
                self._store.set(f"alive/{self._rank}", "")
                while not over.wait(0.1):
                    ranks = [rank for rank in ranks if not self._store.check([f"alive/{rank}"])]

        # Rank 0 runs the store: if rank 0 ended, the store fails, and if it hangs, the store never answers.
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        # Wait for all of this time even if all peers answered: others still ask rank 0, and the launcher needs time to
        # notice which peer ended.
        time.sleep(SIGN_S)
        answered = asking.is_alive()
        over.set()
        asking.join(1.0)
        return ranks if answered and not asking.is_alive() else [0]


def check_gpus(gpus: Sequence[str]) -> None:
    """Raise ValueError if two of the peers have the same GPU; `gpus` are by rank."""
    for rank, gpu in enumerate(gpus):
        if gpu in gpus[:rank]:
            raise ValueError(
                f"Workers {gpus.index(gpu)} and {rank} share a GPU, and NCCL needs one for each: train with "
                f"--workers {len(set(gpus))}, or with --device cpu."
            )
