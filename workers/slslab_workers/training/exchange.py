"""Exchange vectors as objects: put one, wait for one, collect those of many workers."""

from collections.abc import Iterable, Iterator

import torch

from slslab_workers.channels.objects import Object
from slslab_workers.channels.polling import poll_policy
from slslab_workers.training import gradients
from slslab_workers.training.worker import Worker


class ObjectWorker(Worker):
    """A worker that exchanges float32 vectors as objects; the metadata carry its votes to leave and `leaving` gathers
    those of the others."""

    def put_vector(self, key: str, vector: torch.Tensor) -> None:
        """Put a vector, with what is known of votes to leave."""
        metadata = {"dtype": "float32", "leaving": str(int(self.leaving))}
        self.objects.put(key, gradients.as_bytes(vector), "synchronise", overhead=False, metadata=metadata)

    def wait_for_vector(self, key: str) -> torch.Tensor:
        """Return a vector as soon as it is there."""
        return self._take(self.objects.wait_for(key, poll_policy(self.plan).gets, "synchronise", overhead=False))

    def collect(self, prefix: str, ranks: Iterable[int], *, delete: bool) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield ranks with their vectors, whose keys are `prefix` and the rank, in the order in which they arrive.

        With `delete` each is deleted once it is read.
        """
        missing = set(ranks)
        delays = poll_policy(self.plan).lists.delays()
        while missing:
            arrived = {int(key.removeprefix(prefix)) for key in self.objects.list(prefix, "synchronise")} & missing
            for rank in sorted(arrived):
                vector = self._take(self.objects.get(f"{prefix}{rank}", "synchronise", overhead=False))
                if delete:
                    self.objects.delete(f"{prefix}{rank}", "synchronise", overhead=False)
                yield rank, vector
            missing -= arrived
            if not arrived:
                self.objects.pause(next(delays))

    def _take(self, stored: Object) -> torch.Tensor:
        self.leaving |= stored.metadata["leaving"] == "1"
        return gradients.from_bytes(stored.body)
