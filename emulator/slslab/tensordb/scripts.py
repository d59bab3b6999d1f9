"""Scripts: TorchScript, compiled by torch, which is imported with the first one.

Strict mode enforces what RedisAI leaves to the script's author: inputs are the stored tensors themselves, so a script
may neither write to them nor return them or views of them (with RedisAI they would point to freed memory).
"""

import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slslab.tensordb.replies import CommandError
from slslab.tensordb.tensors import NAMES, Tensor

SIGNATURE = ["List[Tensor]", "List[str]", "List[str]"]
# They write to a list, not to the tensors in it.
LIST_OPERATIONS = frozenset(
    f"aten::{name}" for name in ("append", "extend", "insert", "pop", "clear", "reverse", "_set_item", "Delete")
)
NUMPY_NAMES = frozenset(dtype.name for dtype in NAMES)
NO_SCHEMA = "(no schema)"


@dataclass(frozen=True)
class Settings:
    """How scripts run: strict or not, and torch's threads for one operation."""

    strict: bool = True
    threads: int = 1


@dataclass(frozen=True)
class Usage:
    """What one execution took: CLOCK_MONOTONIC and CPU time in nanoseconds, bytes of its inputs."""

    start_ns: int
    end_ns: int
    cpu_ns: int
    bytes: int


@dataclass(frozen=True, eq=False)
class Script:
    """A compiled script as it is stored; `direct` are the entry points that may run on the stored tensors."""

    tag: bytes
    entry_points: tuple[bytes, ...]
    source: bytes
    functions: Mapping[bytes, Any]
    direct: frozenset[bytes]


def compile_script(source: bytes, entry_points: Sequence[bytes], tag: bytes, settings: Settings) -> Script:
    """Compile; CommandError with the compiler's words, or for an entry point that is none."""
    torch = _torch(settings)
    try:
        unit = torch._C.CompilationUnit()
        # Of outside names only torch means anything; torch.jit.CompilationUnit would show scripts those around here.
        unit.define(source.decode(), {"torch": torch}.get)
    except (RuntimeError, UnicodeDecodeError) as error:
        raise CommandError(f"ERR {error}") from None
    functions = {}
    for name in entry_points:
        function = unit.find_function(name.decode(errors="replace"))
        if function is None:
            raise CommandError(f"ERR Function {name.decode(errors='replace')} does not exist in the given script.")
        if [str(argument.type) for argument in function.schema.arguments] != SIGNATURE:
            raise CommandError(
                f"ERR Wrong inputs in function {name.decode()}: the signature of an entry point is "
                "`def f(tensors: List[Tensor], keys: List[str], args: List[str])`"
            )
        functions[name] = function
    direct = frozenset(
        name
        for name, function in functions.items()
        if not settings.strict or writes_only_fresh_tensors(function.inlined_graph)
    )
    return Script(tag, tuple(entry_points), source, functions, direct)


def run(
    script: Script,
    function: bytes,
    inputs: Sequence[Tensor],
    keys: Sequence[bytes],
    arguments: Sequence[bytes],
    settings: Settings,
) -> tuple[list[Tensor], Usage]:
    """Run an entry point; CommandError with torch's words if it fails, or if strict mode refuses it."""
    torch = _torch(settings)
    given = [_to_torch(tensor) for tensor in inputs]
    if function not in script.direct:
        # It may write to what it is given. That is refused, but only when it has happened: not to a stored tensor.
        given = [tensor.clone() for tensor in given]
    versions = [tensor._version for tensor in given]
    clock = Clock(settings)
    try:
        with torch.no_grad():
            result = script.functions[function](
                # The script gets a list of its own, which it may change.
                list(given),
                [key.decode(errors="surrogateescape") for key in keys],
                [argument.decode(errors="surrogateescape") for argument in arguments],
            )
    # torch raises nearly anything, by the exception that the operation or the script itself meant.
    except Exception as error:
        raise CommandError(f"ERR {_last_words(error)}") from None
    usage = clock.stop(sum(tensor.bytes for tensor in inputs))
    outputs = list(_outputs(result, torch))
    if settings.strict:
        _check_strict(given, versions, outputs)
    return [_from_torch(tensor) for tensor in outputs], usage


def version() -> str:
    """torch's version, without importing it."""
    from importlib.metadata import version

    return version("torch")


class Clock:
    """Wall and CPU time of an execution.

    With one thread for an operation everything happens on the calling thread, and its CPU time is exact. With more,
    torch's pool works too, which only the process's CPU time holds; it also holds what other connections did
    meanwhile, and so is an upper bound.
    """

    def __init__(self, settings: Settings) -> None:
        self._cpu = time.thread_time_ns if settings.threads == 1 else time.process_time_ns
        self._cpu_start = self._cpu()
        self._start = time.monotonic_ns()

    def stop(self, size: int) -> Usage:
        """The times until now."""
        end = time.monotonic_ns()
        return Usage(self._start, end, self._cpu() - self._cpu_start, size)


_importing = threading.Lock()


def _torch(settings: Settings) -> Any:
    with _importing:
        # Huge pages for results: a 45 MB average takes a quarter less.
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
        with warnings.catch_warnings():
            # CompilationUnit works in every version that we accept, and is RedisAI's own language.
            warnings.simplefilter("ignore")
            import torch
        if torch.get_num_threads() != settings.threads:
            torch.set_num_threads(settings.threads)
    return torch


def _to_torch(tensor: Tensor) -> Any:
    import torch

    if tensor.array.dtype == np.uint16:
        raise CommandError("ERR a tensor of type UINT16 cannot be given to a script")
    return torch.from_numpy(tensor.array)


def _from_torch(tensor: Any) -> Tensor:
    tensor = tensor.detach().contiguous()
    if tensor.untyped_storage().nbytes() > tensor.nbytes:
        tensor = tensor.clone()  # a part would keep the whole
    return Tensor(tensor.numpy())


def _outputs(result: Any, torch: Any) -> Iterator[Any]:
    if isinstance(result, torch.Tensor):
        if result.layout != torch.strided or str(result.dtype).removeprefix("torch.") not in NUMPY_NAMES:
            raise CommandError(f"ERR a script returned a tensor of type {result.dtype}, which RedisAI does not know")
        yield result
        return
    if not isinstance(result, (list, tuple)):
        raise CommandError("ERR a script must return tensors: a Tensor, a List[Tensor] or a tuple of these")
    for element in result:
        yield from _outputs(element, torch)


def _check_strict(given: Sequence[Any], versions: Sequence[int], outputs: Sequence[Any]) -> None:
    for number, (tensor, before) in enumerate(zip(given, versions, strict=True)):
        if tensor._version != before:
            raise CommandError(
                f"ERR strict mode: the script changed its input tensors[{number}] in place, which with RedisAI changes "
                "the stored tensor; work on a clone()"
            )
    held = {tensor.untyped_storage().data_ptr(): number for number, tensor in enumerate(given)}
    for number, output in enumerate(outputs):
        place = output.untyped_storage().data_ptr()
        if place and place in held:
            raise CommandError(
                f"ERR strict mode: the script's output {number} is its input tensors[{held[place]}] or a view of it, "
                "which with RedisAI is used after it is freed; return a clone()"
            )


def _last_words(error: Exception) -> str:
    """The message of an error in a script: torch puts a traceback before it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def writes_only_fresh_tensors(graph: Any) -> bool:
    """Whether every in-place operation of a graph writes to a tensor that the function has made itself.

    Errs on the side of no, on which such a function runs on copies. Values are followed through loops and branches.
    """
    import torch

    flows = dict(_flows(graph))

    def fresh(value: Any, assumed: frozenset[str]) -> bool:
        name = value.debugName()
        if name in assumed:
            return True  # round a loop: what comes in from outside decides
        if name in flows:
            return all(fresh(source, assumed | {name}) for source in flows[name])
        node = value.node()
        if node.schema() == NO_SCHEMA or str(value.type()) != "Tensor":
            return False
        schema = torch._C.parse_schema(node.schema())
        position = [output.debugName() for output in node.outputs()].index(name)
        if schema.returns[position].alias_info is None:
            return True
        if node.kind() == "prim::data":
            return False  # its writes are counted nowhere
        aliased = [
            given
            for given, argument in zip(node.inputs(), schema.arguments, strict=False)
            if argument.alias_info is not None
        ]
        return bool(aliased) and all(fresh(given, assumed | {name}) for given in aliased)

    for node in _nodes(graph):
        if node.schema() == NO_SCHEMA:
            if node.kind() in ("prim::CallFunction", "prim::CallMethod", "prim::fork", "prim::SetAttr"):
                return False
            continue
        # Not strict: some operations take any number of arguments more.
        for given, argument in zip(node.inputs(), torch._C.parse_schema(node.schema()).arguments, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and node.kind() not in LIST_OPERATIONS and not fresh(given, frozenset()):
                return False
    return True


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _flows(graph: Any) -> Iterator[tuple[str, list[Any]]]:
    """The values that a value of a loop or branch may be: (its name, those)."""
    for node in _nodes(graph):
        blocks = list(node.blocks())
        outputs = list(node.outputs())
        if node.kind() == "prim::If":
            for number, output in enumerate(outputs):
                yield output.debugName(), [list(block.outputs())[number] for block in blocks]
        elif node.kind() == "prim::Loop":
            # Inputs: trip count, condition, then what is carried; the body's begin with the counter, its outputs with
            # the condition.
            carried, body = list(node.inputs())[2:], blocks[0]
            for number, output in enumerate(outputs):
                sources = [carried[number], list(body.outputs())[number + 1]]
                yield output.debugName(), sources
                yield list(body.inputs())[number + 1].debugName(), sources
