"""Run long-running instances as containers of the engine, metered as in `slslab.stack.instances.processes`.

They run in the emulator's network, on the worker's image or SLSLAB_INSTANCE_IMAGE, with their code in /var/task;
Lambda's limits don't apply to them. They use GPUs if the engine provides some, else the CPU.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from docker.errors import APIError

from slslab.errors import HostError
from slslab.host.containers import GATE, LAMBDA_GID, SHARED, Container, Containers
from slslab.host.docker_engine import FUNCTION_LABEL, reason, remove
from slslab.host.namespaces import LAMBDA_UID, TASK_ROOT
from slslab.host.output import TraceLines
from slslab.host.spawner import TRACE_DESCRIPTOR
from slslab.run.records import launch_record
from slslab.stack.instances.fleet import instance_id
from slslab.stack.instances.processes import SAMPLE_S, Meter, failure
from slslab_workers.architecture import Fleet

EVENT, CPU = "event", "cpu"
GPUS = {"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}
NO_GPU = "could not select device driver"
# Prints the GPUs that torch sees in the image, one per line.
LIST_GPUS = "import torch\nfor n in range(torch.cuda.device_count()): print(torch.cuda.get_device_name(n))"


@dataclass(eq=False)
class ContainerFleet:
    """The instances of one launch.

    `home` is a directory that they share with the emulator, and `logs` holds their logs. `code` appears in /var/task.
    `variables` are the stack's. `on_event` receives trace records, with the module as their function, metered records,
    and a record `failed` (a RunFailed) for each instance that fails.
    """

    containers: Containers
    fleet: Fleet
    home: Path
    logs: Path
    code: Path
    variables: Mapping[str, str]
    on_event: Callable[[dict[str, Any]], None]

    def __post_init__(self) -> None:
        self._image = os.environ.get("SLSLAB_INSTANCE_IMAGE", self.containers.image)
        self._running: dict[str, Container] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False
        self._over = False
        self._launching = asyncio.Lock()

    async def launch(self, module: str, events: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Launch one instance per event, and return the devices that they use in turn.

        Raises HostError if the fleet needs CUDA and no container gets a GPU, if the engine doesn't start all instances,
        or if `end` was called meanwhile; then none remains.
        """
        async with self._launching:
            try:
                if await self.containers.call(self.containers.engine.image, self._image) is None:
                    raise HostError(
                        f"The engine has no image {self._image}.",
                        "build it, or name another in SLSLAB_INSTANCE_IMAGE; see docs/compose.md.",
                    )
                devices = await self._devices()
                for rank, event in enumerate(events):
                    await self._launch(module, rank, event, devices[rank % len(devices)])
            except BaseException as error:
                await self._end_launched()
                if isinstance(error, OSError):
                    raise HostError(
                        f"The engine does not launch instances: {reason(error)}.",
                        "`docker info` shows whether it answers.",
                    ) from error
                raise
        return devices

    async def end(self) -> None:
        """End the running instances, and return when all are metered; cancel a launch in progress."""
        self._over = True
        async with self._launching:
            await self._end_launched()

    async def _end_launched(self) -> None:
        self._ending = True
        await asyncio.gather(*(container.end() for container in list(self._running.values())))
        await asyncio.gather(*self._tasks)

    async def _launch(self, module: str, rank: int, event: Mapping[str, Any], device: str) -> None:
        if self._over:
            raise HostError("The instances were ended before all of them had started.", "launch them again.")
        id_ = instance_id()
        home = self.home / id_
        home.mkdir(parents=True)
        document = home / EVENT
        document.write_text(json.dumps(event))
        self.logs.mkdir(parents=True, exist_ok=True)
        log = (self.logs / f"{id_}.log").open("wb", buffering=0)
        lines = TraceLines(id_, self.on_event, {"function": module, "environment": id_, "invocation": id_})
        configure = partial(self._configuration, module, device)
        container = Container(self.containers, home, {EVENT: document}, configure, log.write, lines.feed)
        try:
            await container.start()
        except BaseException as error:
            log.close()
            if isinstance(error, OSError):
                raise HostError(
                    f"An instance could not start: {error}.", "run `docker info` to see what the engine supports."
                ) from error
            raise
        self._running[id_] = container
        meter = Meter(id=id_, rank=rank, device=device)
        self.on_event(launch_record("instance", id_, self.fleet.instance_type, meter.start_ns, rank, device))
        task = asyncio.ensure_future(self._attend(module, meter, container))
        task.add_done_callback(lambda _: log.close())
        self._tasks.append(task)
        if self._ending:  # an earlier one has failed
            await container.end()

    async def _attend(self, module: str, meter: Meter, container: Container) -> None:
        while not container.exited.done():
            meter.measure(container.pids(), container.accounts)
            await asyncio.wait([container.exited], timeout=SAMPLE_S)
        end_ns, ended = container.ended_ns or time.monotonic_ns(), self._ending
        used_ns = container.accounts.cpu_ns() if container.accounts is not None else None
        with suppress(OSError):  # it has ended; the emulator removes its container when it ends, at the latest
            await container.end()
        await container.close()
        del self._running[meter.id]
        code, kind = container.exited.result(), self.fleet.instance_type
        record = meter.record(module, kind, end_ns, code, (used_ns or 0) / 1e9, ended=ended)
        if record.status == "error":
            self._ending = True
            log = self.logs / f"{meter.id}.log"
            self.on_event({"record": "failed", **vars(failure(meter.id, meter.rank, code, log))})
            for other in list(self._running.values()):
                with suppress(OSError):  # `end` ends them, too
                    await other.end()
        self.on_event(record.as_record())

    async def _devices(self) -> tuple[str, ...]:
        if self.fleet.device == "cpu":
            return (CPU,)
        names = await self.containers.call(self._gpus)
        if not names and self.fleet.device == "cuda":
            raise HostError(
                "No container of this engine sees a CUDA device.",
                "use --device auto or cpu to compute on the CPU; docs/compose.md shows how containers get GPUs.",
            )
        return tuple(f"cuda:{number} {name}" for number, name in enumerate(names)) or (CPU,)

    def _gpus(self) -> list[str]:
        api = self.containers.engine.api
        created = api.create_container(
            self._image,
            ["-c", LIST_GPUS],
            entrypoint=["python3"],
            host_config={**api.create_host_config(network_mode="none"), **GPUS},
            labels=self.containers.labels,
        )
        try:
            api.start(created["Id"])
            api.wait(created["Id"])
            return str(api.logs(created["Id"], stdout=True, stderr=False).decode()).splitlines()
        except APIError as error:
            if NO_GPU not in reason(error):
                raise HostError(
                    f"The engine does not give a container the GPUs: {reason(error)}.", "use --device cpu."
                ) from error
            return []
        finally:
            remove(api, created["Id"])

    def _configuration(self, module: str, device: str, shared: Path) -> Mapping[str, Any]:
        engine = self.containers.engine
        host = engine.api.create_host_config(
            binds=[f"{engine.host_path(shared)}:{SHARED}:ro", f"{engine.host_path(self.code)}:{TASK_ROOT}:ro"],
            tmpfs={"/tmp": "mode=1777,nosuid,nodev,exec"},
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            init=True,
            network_mode=engine.network(),
            log_config={"Type": "none", "Config": {}},
        )
        number = "" if device == CPU else device.partition(" ")[0].removeprefix("cuda:")
        return dict(
            engine.api.create_container_config(
                self._image,
                ["python3", "-m", module],
                entrypoint=[*GATE, f"{SHARED}/{EVENT}"],
                environment={
                    "HOME": "/tmp",
                    **self.variables,
                    "SLSLAB_TRACE_FD": str(TRACE_DESCRIPTOR),
                    "CUDA_VISIBLE_DEVICES": number,
                },
                user=f"{LAMBDA_UID}:{LAMBDA_GID}",
                working_dir=TASK_ROOT,
                host_config=host if device == CPU else {**host, **GPUS},
                labels={**self.containers.labels, FUNCTION_LABEL: module},
            )
        )
