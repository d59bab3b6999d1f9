"""Run a function's handler on the function's Python, which may differ from the emulator's.

It is compiled once, when /var/runtime is made, and finds awslambdaric next to itself.
"""

import json
import os
import sys
import time
from contextlib import suppress

RUNTIME = "/var/runtime"
# The runtime's boto3 and urllib3 use these if they are installed; on Lambda they aren't.
OPTIONAL = {"awscrt", "brotli", "brotlicffi", "certifi", "zstandard"}


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


def host_packages(own: list[str]) -> list[str]:
    """Return the packages that were imported from the host's installation: on Lambda they would be missing."""
    places = [path for path in sys.path if path not in own and path.endswith(("site-packages", "dist-packages"))]
    hosts = tuple(path + os.sep for path in places)
    found = set()
    for name, module in list(sys.modules.items()):
        # A module may be any object, so read its attributes without calling its code.
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and file.startswith(hosts) and not name.startswith("_"):
            found.add(name.partition(".")[0])
    # Next to /var/runtime is /var/lang, with links to what counts as a layer.
    lang = os.path.join(os.path.dirname(os.environ["LAMBDA_RUNTIME_DIR"]), "lang", "lib")
    layer = os.listdir(os.path.join(lang, f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages"))
    return sorted(found - OPTIONAL - {name.partition(".")[0] for name in layer})


def trace_import(name: str) -> None:
    """Write the event of an import from the host to the trace: four bytes of length, and JSON (docs/trace.md)."""
    nowhere = {"invocation": "", "worker": -1, "epoch": -1, "step": -1, "cpu_ns": 0, "bytes": 0, "requests": 0}
    now = time.monotonic_ns()
    kind = {"op": "import", "phase": "init", "resource": name, "etag": None, "overhead": True, "failed": False}
    frame = json.dumps({**nowhere, **kind, "start_ns": now, "end_ns": now}).encode()
    with suppress(OSError):  # the function may have closed it
        os.write(int(os.environ["SLSLAB_TRACE_FD"]), len(frame).to_bytes(4, "big") + frame)


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
    if not any(os.path.isdir(os.path.join(place, "awscrt")) for place in own):
        # boto3 would take a tenth of a second to import the host's; on Lambda it isn't installed.
        sys.modules["awscrt"] = None  # type: ignore[assignment]
    # The same pipe, so that records and what is printed stay in order.
    os.environ["_LAMBDA_TELEMETRY_LOG_FD"] = str(os.dup(sys.stdout.fileno()))

    class Client(LambdaRuntimeClient):  # type: ignore[misc]
        """Asks for invocations; reports before each which packages of the host were imported since the last."""

        reported: tuple[str, ...] = ()
        modules = 0

        def wait_next_invocation(self) -> object:
            # Modules are only looked at after an import, because torch has thousands of them.
            unchanged, self.modules = len(sys.modules) == self.modules, len(sys.modules)
            found = [] if unchanged else [name for name in host_packages(own) if name not in self.reported]
            if found:
                self.reported += tuple(found)
                print(f"slslab: imported from the host, not from the package: {', '.join(found)}")
                for name in found:
                    trace_import(name)
            return super().wait_next_invocation()

    config = LambdaConfigProvider([__file__, os.environ["_HANDLER"]])
    bootstrap.run(config.handler, Client(config.api_address, config.use_thread_polling))
