"""What GradsSharding's clients and aggregators exchange, in any topology (docs/protocols.md, "GradsSharding")."""

from collections.abc import Iterator, Sequence

from slslab_workers.gradssharding.settings import UPLOADED, gradient_key, output_key, shards_of, tree_of
from slslab_workers.gradssharding.topology import Aggregator, slices
from slslab_workers.models import exchanged_buffers
from slslab_workers.patterns.messages import DRIVER, Message, Name, Protocol, Recorded, Wait, Where, steps_taken


def protocol(run: Recorded) -> Protocol:
    """Return the protocol: each level reads everything from the level before; the driver deletes a round's objects in
    the next round."""
    rounds = _Rounds(run)
    messages = list(rounds.uploaded_gradients())
    waits: list[Wait] = []
    for position, place in enumerate(rounds.places):
        below = [] if rounds.uploaded else list(rounds.gradients(position))
        messages += below
        for depth in range(len(rounds.tree)):
            made = list(rounds.outputs(position, depth))
            messages += made
            waits.append(_wait(place, below, [number for message in made for number in rounds.puts(message)]))
            below = made
        used = [number for rank in rounds.clients for number in run.updated.get((rank, *place, "update"), ())]
        waits.append(_wait(place, below, used))
    training = () if rounds.uploaded else rounds.clients
    minibatches = frozenset((rank, *place) for rank in training for place in rounds.places)
    return Protocol(tuple(messages), tuple(waits), minibatches)


class _Rounds:
    def __init__(self, run: Recorded) -> None:
        self.run = run
        self.plan = run.plan
        self.tree = tree_of(run.plan)
        self.clients = range(run.plan.workers)
        self.uploaded = run.plan.options["gradients"] == UPLOADED
        steps = run.plan.epochs * run.plan.batches if self.uploaded else steps_taken(run)
        self.places = [divmod(position, run.plan.batches) for position in range(steps)]
        parameters = int(run.plan.options["parameters"]) or run.parameters
        shards = shards_of(run.plan)
        self._bytes: list[int | None] = [None] * shards
        if parameters is not None:
            self._bytes = [
                4 * (part.stop - part.start) for part in slices(parameters + exchanged_buffers(run.plan), shards)
            ]

    def uploaded_gradients(self) -> Iterator[Message]:
        """Yield the gradients that the driver uploads once for all rounds."""
        for client, shard, size in self._slices() if self.uploaded else ():
            often = dict.fromkeys(self._first_level(client, shard), len(self.places))
            name = Name(gradient_key(self.plan, 0, client, shard), DRIVER, -1, -1)
            yield Message("gradient", name, often, size, overhead=True)

    def gradients(self, position: int) -> Iterator[Message]:
        """Yield the slices of all clients' gradients of a round."""
        place = self.places[position]
        for client, shard, size in self._slices():
            name = Name(gradient_key(self.plan, position, client, shard), client, *place)
            takers = dict.fromkeys(self._first_level(client, shard), 1)
            yield Message("gradient", name, takers, size, place, self._deleted_by(position))

    def outputs(self, position: int, depth: int) -> Iterator[Message]:
        """Yield the outputs of a level's aggregators in a round."""
        place = self.places[position]
        last = depth + 1 == len(self.tree)
        for one in self.tree[depth]:
            if last:
                takers = {} if self.uploaded else dict.fromkeys(self.clients, 1)
            else:
                takers = {self._worker(above): 1 for above in self.tree[depth + 1] if one.number in above.inputs}
            name = Name(output_key(self.plan, position, one.level, one.number), self._worker(one), *place)
            size = self._bytes[one.shard or 0]
            yield Message("mean" if last else "sum", name, takers, size, place, self._deleted_by(position))

    def puts(self, message: Message) -> Sequence[int]:
        """Return the events in which an aggregator put its output."""
        name = message.name
        return self.run.puts.get((name.maker, name.epoch, name.step), ())

    def _slices(self) -> Iterator[tuple[int, int, int | None]]:
        for client in self.clients:
            for shard, size in enumerate(self._bytes):
                yield client, shard, size

    def _first_level(self, client: int, shard: int) -> list[int]:
        level = self.tree[0]
        return [self._worker(one) for one in level if client in one.inputs and one.shard in (None, shard)]

    def _worker(self, one: Aggregator) -> int:
        return self.plan.workers + sum(map(len, self.tree[: one.level - 1])) + one.number

    def _deleted_by(self, position: int) -> int | None:
        return DRIVER if position + 1 < len(self.places) else None


def _wait(place: Where, until: Sequence[Message], then: Sequence[int]) -> Wait:
    return Wait(place, tuple(message.name for message in until), tuple(then))
