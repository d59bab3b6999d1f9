"""In-database arithmetic as TorchScript: one text for stock RedisAI 1.2 (libtorch 1.11) and for tensordb.

RedisAI has two rules: inputs are views of stored tensors, so a function must neither change nor return them, and `args`
are strings. Functions add to a running sum, as a stack is slower and takes n times the memory. They add inputs in order
(clone, `add_`, `div_`), so that the bits equal a worker's sum, and also a slice's: `mean` adds a tensor's last columns
in another order.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

ROBUST = ("median", "trimmed_mean", "meamed", "krum", "multi_krum", "geometric_median", "centred_clipping")
ENTRY_POINTS = ("average", "weighted_average", "sgd", "sgd_momentum", *ROBUST)

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

def mean_of_rows(rows: Tensor):
    total = rows[0].clone()
    for i in range(1, rows.size(0)):
        total.add_(rows[i])
    return total.div_(float(rows.size(0)))

def trimmed_mean(tensors: List[Tensor], keys: List[str], args: List[str]):
    trimmed = int(args[0])
    ordered = torch.sort(torch.stack(tensors), 0)[0]
    return mean_of_rows(ordered.narrow(0, trimmed, len(tensors) - 2 * trimmed))

def meamed(tensors: List[Tensor], keys: List[str], args: List[str]):
    kept = len(tensors) - int(args[0])
    distances = torch.stack(tensors).sub(median(tensors, keys, args)).abs()
    nearest = torch.sort(distances, 0)[1].narrow(0, 0, kept)
    return mean_of_rows(torch.stack(tensors).gather(0, nearest))

def length(vector: Tensor):
    return float(vector.to(torch.float64).pow(2).sum().sqrt())

def finite(tensors: List[Tensor]):
    kept: List[Tensor] = []
    for vector in tensors:
        if bool(torch.isfinite(vector).all()):
            kept.append(vector)
    return kept

def krum_order(tensors: List[Tensor], byzantine: int):
    count = len(tensors)
    distances = torch.full([count, count], float("inf"), dtype=torch.float64)
    for i in range(count):
        for j in range(i):
            distance = length(tensors[i].sub(tensors[j])) ** 2
            if distance < float("inf"):
                distances[i, j] = distance
                distances[j, i] = distance
    scores = torch.sort(distances, 1)[0].narrow(1, 0, count - byzantine - 2).sum(1)
    return torch.sort(scores, 0)[1]

def krum(tensors: List[Tensor], keys: List[str], args: List[str]):
    return tensors[int(krum_order(tensors, int(args[0]))[0])].clone()

def multi_krum(tensors: List[Tensor], keys: List[str], args: List[str]):
    order = krum_order(tensors, int(args[0]))
    kept = torch.sort(order.narrow(0, 0, int(args[1])), 0)[0]
    return average([tensors[int(kept[i])] for i in range(int(args[1]))], keys, args)

def geometric_median(tensors: List[Tensor], keys: List[str], args: List[str]):
    vectors = finite(tensors)
    if len(vectors) == 0:
        return torch.zeros_like(tensors[0])
    centre = median(vectors, keys, args)
    for turn in range(int(args[1])):
        total, weights = torch.zeros_like(centre), 0.0
        for vector in vectors:
            weight = 1.0 / max(float(args[0]), length(vector.sub(centre)))
            total.add_(vector, alpha=weight)
            weights += weight
        centre = total.div_(weights)
    return centre

def centred_clipping(tensors: List[Tensor], keys: List[str], args: List[str]):
    vectors = finite(tensors)
    if len(vectors) == 0:
        return torch.zeros_like(tensors[0])
    centre = median(vectors, keys, args)
    for turn in range(int(args[1])):
        total = torch.zeros_like(centre)
        for vector in vectors:
            distance = vector.sub(centre)
            total.add_(distance, alpha=min(1.0, float(args[0]) / max(length(distance), 1e-30)))
        centre = centre.add(total.div_(float(len(vectors))))
    return centre
"""
"""The functions and their arguments.

average(v_1 … v_n): mean (P,). weighted_average(v_1 … v_n; w_1 … w_n): Σ w v / Σ w. sgd(parameters, gradient; lr):
new parameters. sgd_momentum(parameters, gradient, velocity; lr, momentum, weight decay): new parameters and velocity,
as torch.optim.SGD computes them.

Rules that withstand f Byzantine peers; NaN sorts behind all numbers, and a vector that is not finite is infinitely far
from all others, and left out by the last two:
median(v_1 … v_n): coordinate-wise, the mean of the two middle ones for an even n; and trimmed_mean(v_1 … v_n; f): per
coordinate without the f largest and the f smallest (Yin et al. 2018, arXiv:1803.01498).
meamed(v_1 … v_n; f): per coordinate, the mean of the n - f nearest to the median (Xie et al. 2018, arXiv:1802.10116).
krum(v_1 … v_n; f): the vector with the least sum of squared distances to its n - f - 2 nearest; multi_krum(v_1 … v_n;
f, m): the mean of the m vectors with the least sums, in the order of the inputs (Blanchard et al. 2017,
arXiv:1703.02757).
geometric_median(v_1 … v_n; ν, passes): the smoothed Weiszfeld algorithm, from the median (from zero, a vector of zeros
would hold it there): weights are 1 / max(ν, distance) (Pillutla et al. 2019, arXiv:1912.13445).
centred_clipping(v_1 … v_n; τ, passes): centre + mean of the distances from it, none longer than τ (Karimireddy et al.
2021, arXiv:2012.10333). There the first centre is the aggregate of the step before; here it is the median, so that no
rule remembers anything.

Lengths are computed in float64: in float32 they would depend on the number of threads.
"""

# The scripts' key begins with this and ends with a hash of their text.
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
"""The average in the authors' code: the mean, as JSON, of the first ARGV[1] gradients of a list of JSON texts.

Redis adds in float64 and writes 14 significant digits.
"""


def average_texts(vectors: Iterable[ArrayLike]) -> list[str]:
    """Return the mean of vectors (P,) as LUA_AVERAGE and Lua's cjson write it."""
    rest = iter(vectors)
    total, count = np.array(next(rest), np.float64), 1
    for vector in rest:
        total += np.asarray(vector, np.float64)
        count += 1
    total /= count
    return [f"{number:.14g}" for number in total]


@cache
def eager_functions() -> dict[str, Any]:
    """Return the functions of SOURCE as Python functions; TorchScript is a subset of Python."""
    import torch

    names: dict[str, Any] = {"torch": torch, "List": list, "Tensor": torch.Tensor}
    exec(SOURCE, names)
    return {name: names[name] for name in ENTRY_POINTS}
