"""Choose the device that instances compute on: a GPU that torch sees, or the CPU."""

from importlib.metadata import version

from slslab.errors import HostError


def cuda_devices() -> tuple[str, ...]:
    """Return the GPUs that torch sees, each by its number and name, such as `cuda:0 Tesla T4`."""
    # A CPU build sees none, and importing it takes seconds.
    if version("torch").endswith("+cpu"):
        return ()
    import torch

    if not torch.cuda.is_available():
        return ()
    return tuple(f"cuda:{n} {torch.cuda.get_device_name(n)}" for n in range(torch.cuda.device_count()))


def choose_devices(device: str) -> tuple[str, ...]:
    """Return the devices for `auto`, `cuda` or `cpu`: the GPUs, or the CPU; HostError if `cuda` finds no GPU."""
    devices = () if device == "cpu" else cuda_devices()
    if device == "cuda" and not devices:
        raise HostError("torch sees no CUDA device on this host.", "use --device auto or cpu for the CPU.")
    return devices or ("cpu",)
