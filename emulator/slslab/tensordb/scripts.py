"""Compile and run TorchScript; torch is imported with the first script.

A script's inputs are the stored tensors themselves, so it must neither write to them nor return them or views of them.
RedisAI leaves this rule to the script's author: it would change the stored tensors, or use freed memory. Here a script
that breaks it fails.
"""

import ast
import os
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slslab.tensordb.executions import Clock, limited
from slslab.tensordb.replies import CommandError
from slslab.tensordb.tensors import NAMES, Tensor
from slslab_workers.trace.event import Event

# Torch's compiler is recursive, so a deeper script could overflow a thread's stack and end the process.
MOST_LEVELS = 500
SIGNATURE = ["List[Tensor]", "List[str]", "List[str]"]
# In the schema of an operation that writes to the elements of a list.
LIST_WRITTEN = "!)[]"
NUMPY_NAMES = frozenset(dtype.name for dtype in NAMES)


@dataclass(frozen=True, eq=False)
class Script:
    """A compiled script as stored; the entry points in `direct` may run on the stored tensors."""

    tag: bytes
    entry_points: tuple[bytes, ...]
    source: bytes
    functions: Mapping[bytes, Any]
    direct: frozenset[bytes]


def compile_script(source: bytes, entry_points: Sequence[bytes], tag: bytes) -> Script:
    """Compile a script; CommandError with the compiler's message, or for an invalid entry point."""
    if _too_deep(source):
        raise CommandError(f"ERR slslab takes scripts of at most {MOST_LEVELS} levels")
    torch = _torch()
    try:
        unit = torch._C.CompilationUnit()
        # The only outside name is torch; torch.jit.CompilationUnit would resolve names of this module, too.
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
    direct = frozenset(name for name, function in functions.items() if spares_inputs(function.inlined_graph))
    return Script(tag, tuple(entry_points), source, functions, direct)


def _too_deep(source: bytes) -> bool:
    """Return whether a script has more levels than we compile; the compiler reports any other error."""
    try:
        nodes: list[ast.AST] = [ast.parse(source)]
    except (SyntaxError, ValueError) as error:
        return "too many" in str(error)  # parentheses, or levels of indentation
    except (MemoryError, RecursionError):
        return True
    for _ in range(MOST_LEVELS):
        nodes = [child for node in nodes for child in ast.iter_child_nodes(node)]
    return bool(nodes)


def run(
    script: Script,
    function: bytes,
    inputs: Sequence[Tensor],
    keys: Sequence[bytes],
    arguments: Sequence[bytes],
) -> tuple[list[Tensor], Event]:
    """Run an entry point; CommandError if it fails, changes its inputs or returns one."""
    torch = _torch()
    tensors = [_to_torch(tensor) for tensor in inputs]
    if function not in script.direct:
        # It may write to its inputs. That is detected only afterwards, so it doesn't get the stored tensors.
        tensors = [tensor.clone() for tensor in tensors]
    versions = [tensor._version for tensor in tensors]
    clock = Clock()
    try:
        with limited(), torch.no_grad():
            result = script.functions[function](
                # The script gets a list of its own, which it may change.
                list(tensors),
                [key.decode(errors="surrogateescape") for key in keys],
                [argument.decode(errors="surrogateescape") for argument in arguments],
            )
    # torch raises exceptions of nearly any type: the operation's, or the script's own.
    except Exception as error:
        raise CommandError(f"ERR {_last_words(error)}") from None
    usage = clock.stop(sum(tensor.bytes for tensor in inputs))
    outputs = list(_outputs(result, torch))
    _check_inputs(tensors, versions, outputs)
    return [_from_torch(tensor) for tensor in outputs], usage


_importing = threading.Lock()


def _torch() -> Any:
    with _importing:
        # Huge pages for results make a 45 MB average a quarter faster.
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
        with warnings.catch_warnings():
            # torch calls TorchScript deprecated, but every supported version runs it, and RedisAI uses it.
            warnings.simplefilter("ignore")
            import torch
        # One for each connection's operations, so that sums don't depend on the host.
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
    return torch


def _to_torch(tensor: Tensor) -> Any:
    import torch

    if tensor.array.dtype == np.uint16:
        raise CommandError("ERR a tensor of type UINT16 cannot be given to a script")
    return torch.from_numpy(tensor.array)


def _from_torch(tensor: Any) -> Tensor:
    tensor = tensor.detach().contiguous()
    if tensor.untyped_storage().nbytes() > tensor.nbytes:
        tensor = tensor.clone()  # a view would keep the whole storage in memory
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


def _check_inputs(inputs: Sequence[Any], versions: Sequence[int], outputs: Sequence[Any]) -> None:
    for number, (tensor, before) in enumerate(zip(inputs, versions, strict=True)):
        if tensor._version != before:
            raise CommandError(
                f"ERR the script changed its input tensors[{number}] in place, which with RedisAI changes "
                "the stored tensor; work on a clone()"
            )
    held = {tensor.untyped_storage().data_ptr(): number for number, tensor in enumerate(inputs)}
    for number, output in enumerate(outputs):
        address = output.untyped_storage().data_ptr()
        if address and address in held:
            raise CommandError(
                f"ERR the script's output {number} is its input tensors[{held[address]}] or a view of it, "
                "which with RedisAI is used after it is freed; return a clone()"
            )


def _last_words(error: Exception) -> str:
    """Return a script error's message, without the traceback that torch puts before it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def spares_inputs(graph: Any) -> bool:
    """Return whether a function surely writes to none of its input tensors, by torch's own alias analysis.

    A loop that passes an input from turn to turn counts as writing to it, even if it only reads.
    """
    aliases, given = graph.alias_db(), next(graph.inputs())
    nodes = list(_nodes(graph))
    # The analysis doesn't see writes to the tensors in a list (`_foreach_add_`), nor what a loop's next turn writes to.
    loops = (block for node in nodes if node.kind() == "prim::Loop" for block in node.blocks())
    carried = (value for block in loops for value in block.outputs())
    if any(LIST_WRITTEN in node.schema() for node in nodes):
        return False
    if any(aliases.may_contain_alias(value, given) for value in carried):
        return False
    values = (value for node in nodes for value in node.outputs() if str(value.type()) == "Tensor")
    return not any(aliases.has_writers(value) and aliases.may_contain_alias(value, given) for value in values)


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)
