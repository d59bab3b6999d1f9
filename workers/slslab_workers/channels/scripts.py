"""The in-database arithmetic as TorchScript: one text for stock RedisAI 1.2 (libtorch 1.11) and for tensordb.

RedisAI's implementation imposes rules: inputs are views of the stored tensors, so a function neither changes nor
returns them; `args` are strings. A running sum is preferred to a stack, which is slower and takes n times the memory.
Sums run in the order of the inputs (clone, `add_`, `div_`), so that the bits are those of the same sum in a worker.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

ENTRY_POINTS = ("average", "weighted_average", "sgd", "sgd_momentum", "median", "trimmed_mean")

SOURCE = """
def average(tensors: List[Tensor], keys: List[str], args: List[str]):
    total = tensors[0].clone()
    for i in range(1, len(tensors)):
        total.add_(tensors[i])
    return total.div_(float(len(tensors)))

def weighted_average(tensors: List[Tensor], keys: List[str], args: List[str]):
    total = tensors[0].mul(float(args[0]))
    weights = float(args[0])
    for i in range(1, len(tensors)):
        total.add_(tensors[i], alpha=float(args[i]))
        weights += float(args[i])
    return total.div_(weights)

def sgd(tensors: List[Tensor], keys: List[str], args: List[str]):
    return torch.sub(tensors[0], tensors[1], alpha=float(args[0]))

def sgd_momentum(tensors: List[Tensor], keys: List[str], args: List[str]):
    decayed = tensors[1].add(tensors[0], alpha=float(args[2]))
    velocity = tensors[2].mul(float(args[1])).add_(decayed)
    return [torch.sub(tensors[0], velocity, alpha=float(args[0])), velocity]

def median(tensors: List[Tensor], keys: List[str], args: List[str]):
    ordered = torch.sort(torch.stack(tensors), 0)[0]
    middle = ordered[(len(tensors) - 1) // 2].add(ordered[len(tensors) // 2])
    return middle.div_(2.0)

def trimmed_mean(tensors: List[Tensor], keys: List[str], args: List[str]):
    trimmed = int(args[0])
    ordered = torch.sort(torch.stack(tensors), 0)[0]
    return ordered.narrow(0, trimmed, len(tensors) - 2 * trimmed).mean(0)
"""
"""The functions and their arguments.

average(v_1 … v_n): mean (P,). weighted_average(v_1 … v_n; w_1 … w_n): Σ w v / Σ w. sgd(parameters, gradient; lr):
new parameters. sgd_momentum(parameters, gradient, velocity; lr, momentum, weight decay): new parameters and velocity,
as torch.optim.SGD computes them. median(v_1 … v_n): coordinate-wise, the mean of the two middle ones for an even n.
trimmed_mean(v_1 … v_n; q): per coordinate without the q largest and the q smallest.
"""

# The beginning of the scripts' key, which ends with a hash of their text.
PREFIX = "slslab-scripts-"
KEY = f"{PREFIX}{hashlib.sha256(SOURCE.encode()).hexdigest()[:16]}"

LUA_AVERAGE = """
local found = redis.call('LRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1)
local total = cjson.decode(found[1])
for i = 2, #found do
  local gradient = cjson.decode(found[i])
  for j = 1, #gradient do
    total[j] = total[j] + gradient[j]
  end
end
for j = 1, #total do
  total[j] = total[j] / #found
end
return cjson.encode(total)
"""
"""SPIRT's average as released: the mean, as JSON, of the first ARGV[1] gradients of a list of JSON texts.

Redis adds in float64 and writes 14 significant digits.
"""


def average_texts(vectors: Iterable[ArrayLike]) -> list[str]:
    """Return the numbers of the mean of these vectors (P,) as LUA_AVERAGE writes them, with Lua's cjson."""
    rest = iter(vectors)
    total, count = np.array(next(rest), np.float64), 1
    for vector in rest:
        total += np.asarray(vector, np.float64)
        count += 1
    total /= count
    return [f"{number:.14g}" for number in total]


@cache
def eager_functions() -> dict[str, Any]:
    """Return the functions of SOURCE as Python functions; TorchScript is a part of the language."""
    import torch

    names: dict[str, Any] = {"torch": torch, "List": list, "Tensor": torch.Tensor}
    exec(SOURCE, names)
    return {name: names[name] for name in ENTRY_POINTS}
