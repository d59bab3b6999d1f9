"""Reference workloads that run on their own in any interpreter: `python workloads.py NAME... [--form FORM]`.

It needs nothing but the standard library, NumPy for arrays, PyTorch for `step` and `resnet50`, and awslambdaric and
boto3 for `start` and `boto3`. It runs under Python 3.7 to 3.13 and torch 1.0.1 to 2.13. For each workload it prints one
line of JSON: the CPU and wall seconds of each repetition, and the versions it ran with. It keeps to one processor and
one thread, and raises its priority where it may.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import sysconfig
import time
from array import array
from contextlib import suppress
from functools import partial
from random import Random

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Work = tuple[Callable[[], object], float]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# How much of its work a workload does, by form. `probe` takes a tenth of a second and is compared with itself alone.
SIZES = {
    "hash": {"whole": 1000000, "short": 200000, "probe": 100000},
    "sort": {"whole": 13107200, "short": 1310720, "probe": 131072},
    "loop": {"whole": 200, "short": 100, "probe": 80},
    "floats": {"whole": 2621440, "short": 262144, "probe": 262144},
    "add": {"whole": 20, "short": 5, "probe": 5},
    "add-new": {"whole": 10, "short": 5, "probe": 5},
    "matmul": {"whole": 20, "short": 20, "probe": 20},
    "fft": {"whole": 4, "short": 1, "probe": 1},
    "step": {"whole": 5, "short": 2, "probe": 1},
    "resnet50": {"whole": 3, "short": 1, "probe": 1},
    "pbkdf2": {"whole": 200, "short": 20, "probe": 2},
    "imports": {"whole": 3, "short": 1, "probe": 1},
    "start": {"whole": 3, "short": 1, "probe": 1},
    "boto3": {"whole": 1, "short": 1, "probe": 1},
}
# The float32 numbers of an array of `add` and `add-new`, 33.6 MB. Its seconds are those of 10⁶ bytes.
ELEMENTS = 8388608
# Modules of the standard library that Python 3.7 to 3.13 have.
IMPORTS = """
import argparse, asyncio, concurrent.futures, dataclasses, datetime, decimal, email.message, hashlib, http.client
import inspect, json, logging, multiprocessing, ssl, tempfile, typing, unittest, urllib.request
import xml.etree.ElementTree, zipfile
"""
# What Lambda's runtime imports, and a handler that creates a client. No request is made.
RUNTIME = "import awslambdaric.bootstrap\n"
BOTO3 = f"""{RUNTIME}
import boto3
boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none")
"""


def make_hash(size: int) -> Work:
    """Chain SHA-256 digests, from a string of 56 bytes: the interpreter's loop, and OpenSSL for 64 bytes at a time."""

    def work() -> None:
        data, sha256 = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", hashlib.sha256
        for _ in range(size):
            data = sha256(data).digest()

    return work, 1.0


def make_sort(size: int) -> Work:
    """Make random integers, and sort them: an array to a list of objects and back."""

    def work() -> None:
        draw = Random(1).getrandbits
        numbers = array("q", (draw(30) for _ in range(size)))
        array("q", sorted(numbers))

    return work, 1.0


def make_loop(size: int) -> Work:
    """Multiply two square matrices that are lists of lists, element by element, in Python."""
    draw = Random(1).random
    left, right = ([[draw() for _ in range(size)] for _ in range(size)] for _ in range(2))

    def work() -> None:
        product = [[0.0] * size for _ in range(size)]
        for i in range(size):
            for j in range(size):
                for k in range(size):
                    product[i][j] += left[i][k] * right[k][j]

    return work, 1.0


def make_floats(size: int) -> Work:
    """Make a list of random floats, sum it, read a tenth of it in random order, and copy and compare it."""
    generator = Random(1)

    def work() -> None:
        draw, choose = generator.random, generator.randint
        numbers = [draw() for _ in range(size)]
        sum(numbers)
        sum(numbers[choose(0, size - 1)] for _ in range(size // 10))
        assert numbers == numbers.copy()

    return work, 1.0


def make_add(size: int, in_place: bool = True) -> Work:
    """Add a float32 array to a sum, both larger than the caches: in place, or into a new array each time."""
    import numpy

    total, values = numpy.zeros(ELEMENTS, numpy.float32), numpy.ones(ELEMENTS, numpy.float32)

    def work() -> None:
        nonlocal total
        for _ in range(size):
            total = numpy.add(total, values, out=total if in_place else None)

    work()
    return work, 1e6 / (size * values.nbytes)


def make_matmul(size: int) -> Work:
    """Multiply two float32 matrices that fit into the caches."""
    import numpy

    generator = numpy.random.RandomState(1)
    left, right = (generator.rand(512, 512).astype(numpy.float32) for _ in range(2))

    def work() -> None:
        for _ in range(size):
            left.dot(right)

    work()
    return work, 1.0 / size


def make_fft(size: int) -> Work:
    """Transform the columns of integer matrices of 4098 × 600 by the fast Fourier transform."""
    import numpy

    generator = numpy.random.RandomState(1)
    signals = [generator.randint(0, 1000, (4098, 600)) for _ in range(size)]

    def work() -> None:
        for signal in signals:
            numpy.fft.fft(signal, axis=0)

    work()
    return work, 1.0


def make_step(size: int) -> Work:
    """Compute a gradient of a small convolutional network with batch normalisation, 32 images of 3 × 32 × 32."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers: list[Any] = []
    channels = 3
    for width, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
        layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        # Depthwise and pointwise, as in MobileNet.
        layers += [nn.Conv2d(width, width, 3, 1, 1, groups=width, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))
    head, images = nn.Linear(channels, 10), torch.rand(32, 3, 32, 32)
    targets = torch.arange(32) % 10

    def work() -> None:
        for _ in range(size):
            model.zero_grad()
            scores = head(model(images).view(32, -1))
            loss: Any = nn.functional.cross_entropy(scores, targets)
            loss.backward()

    work()
    return work, 1.0 / size


def make_resnet50(size: int) -> Work:
    """Classify one image by ResNet-50, with batch normalisation in evaluation mode and gradients enabled."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width),
            )  # fmt: skip
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != 4 * width:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
                )

        def forward(self, images: Any) -> Any:
            return nn.functional.relu(self.body(images) + self.shortcut(images), inplace=True)

    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
    layers: list[Any] = list(stem)
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(blocks):
            layers.append(Block(inputs, width, stride if number == 0 else 1))
            inputs = 4 * width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)).eval()
    head, image = nn.Linear(inputs, 1000), torch.rand(1, 3, 224, 224)

    def work() -> None:
        for _ in range(size):
            head(model(image).view(1, -1))

    work()
    return work, 1.0 / size


def make_start(size: int, code: str) -> Work:
    """Start interpreters that run this code and end: cold code, most of it read from files.

    They find installed packages, but don't run the start-up files that packages install.
    """
    path = f"import sys; sys.path.append({sysconfig.get_paths()['purelib']!r})\n"

    def work() -> None:
        for _ in range(size):
            subprocess.run((sys.executable, "-I", "-S", "-c", path + code), stdin=subprocess.DEVNULL, check=True)

    work()
    return work, 1.0 / size


def derive_key() -> None:
    """Compute PBKDF2 once, as a process of `pbkdf2` does."""
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 100000)


def make_pbkdf2(size: int, processes: int = 1) -> Work:
    """Compute PBKDF2 in `size` processes, `processes` of them at once: all end before the next ones start."""
    from multiprocessing import Process

    def work() -> None:
        for first in range(0, size, processes):
            children = [Process(target=derive_key) for _ in range(min(processes, size - first))]
            for child in children:
                child.start()
            for child in children:
                child.join()

    return work, 1.0


WORKLOADS: dict[str, Callable[..., Work]] = {
    "hash": make_hash,
    "sort": make_sort,
    "loop": make_loop,
    "floats": make_floats,
    "add": make_add,
    "add-new": partial(make_add, in_place=False),
    "matmul": make_matmul,
    "fft": make_fft,
    "step": make_step,
    "resnet50": make_resnet50,
    "pbkdf2": make_pbkdf2,
    "imports": partial(make_start, code=IMPORTS),
    "start": partial(make_start, code=RUNTIME),
    "boto3": partial(make_start, code=BOTO3),
}


def measure(work: Callable[[], object], scale: float, repeat: int, seconds: float) -> dict[str, list[float]]:
    """Return CPU and wall seconds of each repetition, its children's included.

    After the first one, none begins that would end later than `seconds` from now.
    """
    cpu_s: list[float] = []
    wall_s: list[float] = []
    until = time.monotonic() + seconds
    while len(cpu_s) < repeat and (not cpu_s or time.monotonic() + wall_s[-1] / scale < until):
        wall, before = time.monotonic(), read_cpu_s()
        work()
        cpu_s.append((read_cpu_s() - before) * scale)
        wall_s.append((time.monotonic() - wall) * scale)
    return {"cpu_s": cpu_s, "wall_s": wall_s}


def read_cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def versions() -> dict[str, str]:
    """Return what CPU times depend on in this interpreter, without importing NumPy or PyTorch."""
    import ssl

    return {
        "python": platform.python_version(),
        "build": " ".join((platform.python_implementation(), *platform.python_build(), platform.python_compiler())),
        "openssl": ssl.OPENSSL_VERSION,
        "torch": version_of("torch"),
        "numpy": version_of("numpy"),
    }


def version_of(package: str) -> str:
    """Return an installed package's version; empty if it isn't installed."""
    try:
        from importlib import metadata
    except ImportError:  # Python 3.7
        installed: Any = __import__("pkg_resources").working_set
        return next((str(found.version) for found in installed if found.key == package), "")
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def settle(processors: int) -> None:
    """Use only this many processors, with one thread each, at the highest priority this user may have."""
    for name in THREADS:
        os.environ[name] = "1"
    with suppress(AttributeError, OSError):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-processors:])
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)


def main() -> None:
    """Measure workloads one after the other and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=(*WORKLOADS, "versions"))
    parser.add_argument("--form", choices=("whole", "short", "probe"), default="whole")
    parser.add_argument("--repeat", type=int, default=1, help="how often at most")
    parser.add_argument("--seconds", type=float, default=600.0, help="for how long each workload is repeated at most")
    parser.add_argument("--processes", type=int, default=1, help="how many of pbkdf2's processes run at once")
    given = parser.parse_args()
    settle(given.processes)
    for name in given.names:
        line: dict[str, object] = {"name": name, "form": given.form, "versions": versions()}
        if name != "versions":
            make = WORKLOADS[name]
            if name == "pbkdf2":
                make = partial(make, processes=given.processes)
            work, scale = make(SIZES[name][given.form])
            line.update(measure(work, scale, given.repeat, given.seconds))
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
