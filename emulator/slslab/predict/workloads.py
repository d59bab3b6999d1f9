"""Reference workloads that run on their own in any interpreter: `python workloads.py NAME [--short] [--repeat N]`.

It needs nothing but the standard library, NumPy for `add` and `matmul`, and PyTorch for `step` and `resnet50`, and runs
under Python 3.7 to 3.13 and torch 1.0.1 to 2.13. It prints one line of JSON: for each repetition the CPU and wall
seconds, and the versions it ran with. It keeps to one processor and one thread and raises its priority where it may.
"""

import argparse
import hashlib
import json
import os
import platform
import sys
import time
from array import array
from random import Random

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
# The bytes that `add` adds; its seconds are those of 10⁶ bytes.
ELEMENTS = 8388608


def make_hash(short):
    """Chain SHA-256 digests, from a string of 56 bytes: the interpreter's loop, and OpenSSL for 64 bytes at a time."""
    count = 200000 if short else 1000000

    def work():
        data, sha256 = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", hashlib.sha256
        for _ in range(count):
            data = sha256(data).digest()

    return work, 1.0


def make_sort(short):
    """Make random integers, and sort them: an array to a list of objects and back."""
    count = 1310720 if short else 13107200

    def work():
        draw = Random(1).getrandbits
        numbers = array("q", (draw(30) for _ in range(count)))
        array("q", sorted(numbers))

    return work, 1.0


def make_add(short):
    """Add a float32 array to another one, both larger than the caches."""
    import numpy

    times = 3 if short else 20
    total, values = numpy.zeros(ELEMENTS, numpy.float32), numpy.ones(ELEMENTS, numpy.float32)

    def work():
        for _ in range(times):
            numpy.add(total, values, out=total)

    work()
    return work, 1e6 / (times * values.nbytes)


def make_matmul(short):
    """Multiply two float32 matrices that fit into the caches."""
    import numpy

    times = 3 if short else 20
    left, right = (Random(seed) for seed in (1, 2))
    left, right = (
        numpy.array([[draw.random() for _ in range(512)] for _ in range(512)], numpy.float32) for draw in (left, right)
    )

    def work():
        for _ in range(times):
            left.dot(right)

    work()
    return work, 1.0 / times


def make_step(short):
    """Compute a gradient of a small convolutional network with batch normalisation, 32 images of 3 × 32 × 32."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers, channels = [], 3
    for width, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
        layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        # Depthwise and pointwise, as in MobileNet.
        layers += [nn.Conv2d(width, width, 3, 1, 1, groups=width, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    model = nn.Sequential(*(layers + [nn.AdaptiveAvgPool2d(1)]))
    head, images = nn.Linear(channels, 10), torch.rand(32, 3, 32, 32)
    targets, times = torch.arange(32) % 10, 2 if short else 5

    def work():
        for _ in range(times):
            model.zero_grad()
            scores = head(model(images).view(32, -1))
            nn.functional.cross_entropy(scores, targets).backward()

    work()
    return work, 1.0 / times


def make_resnet50(short):
    """Classify one image by ResNet-50, with batch normalisation in evaluation mode and gradients enabled."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, inputs, width, stride):
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

        def forward(self, images):
            return nn.functional.relu(self.body(images) + self.shortcut(images), inplace=True)

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(blocks):
            layers.append(Block(inputs, width, stride if number == 0 else 1))
            inputs = 4 * width
    model = nn.Sequential(*(layers + [nn.AdaptiveAvgPool2d(1)])).eval()
    head, image = nn.Linear(inputs, 1000), torch.rand(1, 3, 224, 224)
    times = 1 if short else 3

    def work():
        for _ in range(times):
            head(model(image).view(1, -1))

    work()
    return work, 1.0 / times


def derive_key():
    """Compute PBKDF2 once, as a process of `pbkdf2` does."""
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 100000)


def make_pbkdf2(short, processes=1):
    """Start processes that compute PBKDF2, so many at once, and wait for all of them before the next."""
    from multiprocessing import Process

    count = 20 if short else 200

    def work():
        for first in range(0, count, processes):
            children = [Process(target=derive_key) for _ in range(min(processes, count - first))]
            for child in children:
                child.start()
            for child in children:
                child.join()

    return work, 1.0


WORKLOADS = {
    "hash": make_hash,
    "sort": make_sort,
    "add": make_add,
    "matmul": make_matmul,
    "step": make_step,
    "resnet50": make_resnet50,
}


def measure(work, scale, repeat, until):
    """Return CPU and wall seconds of each repetition; none begins after `until` except the first."""
    cpu_s, wall_s = [], []
    while len(cpu_s) < repeat and (not cpu_s or time.monotonic() + wall_s[-1] / scale < until):
        before = os.times()
        wall, cpu = time.monotonic(), time.process_time()
        work()
        cpu, wall, after = time.process_time() - cpu, time.monotonic() - wall, os.times()
        cpu += after.children_user + after.children_system - before.children_user - before.children_system
        cpu_s.append(cpu * scale)
        wall_s.append(wall * scale)
    return {"cpu_s": cpu_s, "wall_s": wall_s}


def versions():
    """Return what CPU times depend on in this interpreter, without importing NumPy or PyTorch."""
    import ssl

    found = {
        "python": platform.python_version(),
        "build": " ".join((platform.python_implementation(), *platform.python_build(), platform.python_compiler())),
        "openssl": ssl.OPENSSL_VERSION,
    }
    for package in ("torch", "numpy"):
        found[package] = version_of(package)
    return found


def version_of(package):
    """Return an installed package's version; empty if it isn't installed."""
    try:
        from importlib import metadata
    except ImportError:  # Python 3.7
        import pkg_resources as metadata

        return next((str(one.version) for one in metadata.working_set if one.key == package), "")
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def settle(processors):
    """Keep to so many processors and one thread each, at the highest priority this user may have."""
    for name in THREADS:
        os.environ[name] = "1"
    for setting in (
        lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-processors:]),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    ):
        try:
            setting()
        except (AttributeError, OSError):
            pass


def main():
    """Measure one or several workloads, one after the other, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=(*WORKLOADS, "pbkdf2", "versions"))
    parser.add_argument("--short", action="store_true", help="about a tenth of the work")
    parser.add_argument("--repeat", type=int, default=1, help="how often at most")
    parser.add_argument("--seconds", type=float, default=1e9, help="wall seconds after which no repetition begins")
    parser.add_argument("--processes", type=int, default=1, help="how many of pbkdf2's processes run at once")
    given = parser.parse_args()
    settle(given.processes)
    line = {"form": "short" if given.short else "whole", "versions": versions()}
    for name in given.names:
        if name != "versions":
            make = (lambda short: make_pbkdf2(short, given.processes)) if name == "pbkdf2" else WORKLOADS[name]
            work, scale = make(given.short)
            line[name] = measure(work, scale, given.repeat, time.monotonic() + given.seconds)
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
