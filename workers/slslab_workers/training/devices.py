"""The devices that workers compute on: the CPU, or a GPU through CUDA."""

import os

import torch

from slslab_workers.plan import GPU_MEMORY, Plan


def choose_device(option: str) -> str:
    """Return `cuda` or `cpu` for `auto`, `cuda` or `cpu`; raise RuntimeError for `cuda` if torch sees none."""
    if option == "cpu" or (option == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA device")
    # Compute in float32, as on a T4: later GPUs would round the factors of convolutions to 10 bits (TF32).
    torch.backends.cudnn.allow_tf32 = False
    return "cuda"


def function_device(plan: Plan) -> str:
    """Return `cuda` for a function on a platform with GPUs if torch sees one, else `cpu`.

    torch raises OutOfMemoryError for a function that needs more memory than the platform's GPU has.
    """
    device = "cpu" if plan.platform is None else choose_device("auto")
    if device == "cuda" and GPU_MEMORY in os.environ:
        share = int(os.environ[GPU_MEMORY]) * 2**20 / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))
    return device
