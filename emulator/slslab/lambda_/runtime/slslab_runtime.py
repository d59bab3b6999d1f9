"""Run a function's handler on the function's Python, which may differ from the emulator's.

It is compiled once, when /var/runtime is made, and finds awslambdaric next to itself.
"""

import json
import os
import sys
import time
from contextlib import suppress

RUNTIME = "/var/runtime"


def arrange_path(runtime: str) -> list[str]:
    """Order the module search path as Lambda does: the function's code, its layers, the runtime, then Python's own.

    Returns the folders before Python's own. documented: python-layers.html, "Layer paths for Python runtimes"; without
    its own file system, a function has its layers in PYTHONPATH.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    layers = [f"/opt/python/lib/{version}/site-packages", "/opt/python"] if runtime == RUNTIME else []
    variable = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", runtime)]
    own = [os.environ["LAMBDA_TASK_ROOT"], *layers, *variable, runtime]
    sys.path[:] = list(dict.fromkeys([*own, *sys.path]))
    return own


class Importers:
    """Notes which packages the function's own code imports first, as a finder that finds nothing.

    What other packages import isn't noted: it comes with them, or they do without it where it isn't installed. Nor is
    what a template had imported before.
    """

    def __init__(self, own: list[str]) -> None:
        self._own = tuple(path + os.sep for path in own if path != os.environ["LAMBDA_RUNTIME_DIR"])
        self.packages: set[str] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        """Note a top-level package if a file of the function or its layers imports it."""
        if path is None:
            frame = sys._getframe(1)
            while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
            if frame.f_code.co_filename.startswith(self._own):
                self.packages.add(name)


def host_packages(own: list[str], imported: set[str]) -> set[str]:
    """Return the packages among the `imported` that are the host's: on Lambda they would be missing."""
    folders = [path for path in sys.path if path not in own and path.endswith(("site-packages", "dist-packages"))]
    hosts = tuple(path + os.sep for path in folders)
    found = set()
    for name, module in list(sys.modules.items()):
        # A module may be any object, so read its attributes without calling its code.
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and file.startswith(hosts) and not name.startswith("_"):
            found.add(name.partition(".")[0])
    # Next to /var/runtime is /var/lang, with links to what counts as a layer.
    lang = os.path.join(os.path.dirname(os.environ["LAMBDA_RUNTIME_DIR"]), "lang", "lib")
    layer = os.listdir(os.path.join(lang, f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages"))
    return (found & imported) - {name.partition(".")[0] for name in layer}


def trace(op: str, resource: str, size: int = 0) -> None:
    """Write an event to the trace: a line of JSON (docs/trace.md)."""
    nowhere = {"invocation": "", "worker": -1, "epoch": -1, "step": -1, "cpu_ns": 0, "bytes": size, "requests": 0}
    now = time.monotonic_ns()
    kind = {"op": op, "phase": "init", "resource": resource, "etag": None, "overhead": True, "failed": False}
    line = json.dumps({**nowhere, **kind, "start_ns": now, "end_ns": now}).encode() + b"\n"
    with suppress(OSError):  # the function may have closed it
        os.write(int(os.environ["SLSLAB_TRACE_FD"]), line)


def trace_gpu() -> None:
    """Tell the emulator, if torch uses a GPU, the most memory of it that was allocated since the last time."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    # A test's mock in torch's place answers with another mock.
    if cuda is not None and cuda.is_initialized() is True:
        device = cuda.current_device()
        trace("gpu.memory", f"cuda:{device} {cuda.get_device_name(device)}", cuda.max_memory_allocated(device))
        cuda.reset_peak_memory_stats(device)


def main() -> None:
    """Initialise the function and run its invocations."""
    sys.dont_write_bytecode = True
    if os.environ.get("LC_CTYPE") == "C.UTF-8":  # Python itself sets it where a host lacks Lambda's locale
        del os.environ["LC_CTYPE"]
    # Import these before the function's folders are searched, too: they contain none of these many modules.
    from awslambdaric import bootstrap
    from awslambdaric.lambda_config import LambdaConfigProvider
    from awslambdaric.lambda_runtime_client import LambdaRuntimeClient

    own = arrange_path(os.environ["LAMBDA_RUNTIME_DIR"])
    if not any(os.path.isdir(os.path.join(path, "awscrt")) for path in own):
        # boto3 would take a tenth of a second to import the host's; on Lambda it isn't installed.
        sys.modules["awscrt"] = None  # type: ignore[assignment]
    # The same pipe, so that records and what is printed stay in order.
    os.environ["_LAMBDA_TELEMETRY_LOG_FD"] = str(os.dup(sys.stdout.fileno()))

    class Client(LambdaRuntimeClient):  # type: ignore[misc]
        """Asks for invocations; reports before each which packages of the host were imported since the last, and after
        each the memory of the GPU."""

        importers = Importers(own)
        reported: frozenset[str] = frozenset()
        modules = 0

        def wait_next_invocation(self) -> object:
            # Modules are only looked at after an import, because torch has thousands of them.
            changed, self.modules = len(sys.modules) != self.modules, len(sys.modules)
            if changed and (found := sorted(host_packages(own, self.importers.packages) - self.reported)):
                self.reported |= {*found}
                print(f"slslab: imported from the host, not from the package: {', '.join(found)}")
                for name in found:
                    trace("import", name)
            return super().wait_next_invocation()

        def post_invocation_result(self, *arguments: object) -> None:
            trace_gpu()
            super().post_invocation_result(*arguments)

        def post_invocation_error(self, *arguments: object) -> None:
            trace_gpu()
            super().post_invocation_error(*arguments)

    sys.meta_path.insert(0, Client.importers)
    config = LambdaConfigProvider([__file__, os.environ["_HANDLER"]])
    bootstrap.run(config.handler, Client(config.api_address, config.use_thread_polling))
