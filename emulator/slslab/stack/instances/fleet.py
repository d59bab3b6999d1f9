"""Check EC2 instance types against a price book, and make ids in EC2's format."""

import secrets
from importlib.metadata import version

from slslab.errors import HostError, RequestError
from slslab.run.bill import HOST, Book
from slslab_workers.architecture import Fleet


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


def check_fleet(fleet: Fleet, book: Book) -> None:
    """Raise RequestError for an instance type that the price book can't bill."""
    if HOST + fleet.instance_type not in book.prices:
        hosts = [meter.removeprefix(HOST) for meter in book.prices if meter.startswith(HOST)]
        raise RequestError(
            f"The price book {book.name} has no instance type {fleet.instance_type!r}.",
            f"it has {', '.join(hosts) or 'none'}.",
        )


def instance_id() -> str:
    """Return a new id that looks like EC2's."""
    return f"i-{secrets.token_hex(9)[:17]}"
