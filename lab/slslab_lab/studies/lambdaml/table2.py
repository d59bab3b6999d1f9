"""Table 2 of LambdaML next to this project's parameter server: seconds to send it 75 MB, and to add them there.

CPU seconds to write, read and add a vector are measured on this host, as raw memory (next to gRPC, which packs it) and
as doubles (next to Thrift, which sends lists of them). A row is modelled from these, the function's share of a
processor, and a profile's network."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from slslab.predict.profiles.profile import Profile
from slslab.report.formats import percent
from slslab_lab.papers.paper import Row
from slslab_lab.replay.kernel.request_cost import RequestCost
from slslab_lab.studies.accuracy_by_time import whole
from slslab_lab.studies.documents import Cell, ReproducedRow, describe_profile, make_document
from slslab_lab.studies.kept import host
from slslab_lab.studies.minibatches import Estimate, mean_of
from slslab_lab.studies.study import Setup
from slslab_workers.channels.serialisation import SERIALISATIONS

TABLE = "table2"
# The paper's libraries, each with the serialisation to compare it with.
LIBRARIES = {"grpc": "raw", "thrift": "doubles"}
TITLES = {"grpc": "raw, next to gRPC", "thrift": "doubles, next to Thrift"}
REPEATS, MANY = 3, 1_000_000


@dataclass(frozen=True)
class Pace:
    """CPU seconds of one vector on this host: for the function that writes it, and for the server that reads and adds
    it; and the bytes sent."""

    write: Estimate
    read: Estimate
    add: Estimate
    size: int


@dataclass(frozen=True)
class Transfer:
    """Seconds of a row: writing in the functions, the network, reading in the server; and adding there."""

    write: float
    network: float
    read: float
    add: float

    @property
    def seconds(self) -> float:
        """Return the seconds of the transfer."""
        return self.write + self.network + self.read

    @property
    def serialisation(self) -> float:
        """Return the share of the transfer spent on writing and reading."""
        return (self.write + self.read) / self.seconds


def measure(setup: Setup) -> dict[str, Pace]:
    """Measure vectors of the table's size."""
    megabytes = int(setup.paper.table(TABLE).inputs["megabytes"])
    return measure_paces(megabytes, partial(setup.watcher.report, "measuring"))


def measure_paces(megabytes: int, report: Callable[[int, int], None]) -> dict[str, Pace]:
    """Measure every dense serialisation of a vector of `megabytes` (10⁶ bytes in float32), several times each; `report`
    gets the progress."""
    vector = np.random.default_rng(0).standard_normal(megabytes * 250_000, np.float32)
    found = {}
    dense = {name: serialisation for name, serialisation in SERIALISATIONS.items() if serialisation.dense}
    for number, (name, serialisation) in enumerate(dense.items()):
        samples: dict[str, list[float]] = {"write": [], "read": [], "add": []}
        total = np.zeros_like(vector)
        size = 0
        for repeat in range(REPEATS + 1):
            marks = [time.thread_time()]
            body = bytearray(serialisation.write(vector))
            marks.append(time.thread_time())
            read = serialisation.read(body)
            marks.append(time.thread_time())
            np.add(total, read, out=total)
            marks.append(time.thread_time())
            size = len(body)
            # The first repetition allocates memory.
            for part, begin, end in zip(samples, marks, marks[1:], strict=False) if repeat else ():
                samples[part].append(end - begin)
            report(number * (REPEATS + 1) + repeat + 1, len(dense) * (REPEATS + 1))
        means = {part: mean_of(each, MANY) for part, each in samples.items()}
        found[name] = Pace(means["write"], means["read"], means["add"], size)
    return found


def transfer(pace: Pace, inputs: Mapping[str, Any], profile: Profile) -> Transfer:
    """Return the times of functions that send to one server at once; its Python reads one vector at a time."""
    functions, cost = int(inputs["functions"]), RequestCost.of(profile, "parameter.push")
    alone_s, shared_s = cost.per_byte * pace.size / 1e9, cost.service_per_byte * pace.size * functions / 1e9
    return Transfer(
        write=pace.write.value / min(1.0, float(inputs["vcpu"])),
        network=max(alone_s, shared_s),
        read=pace.read.value * functions,
        add=pace.add.value * functions,
    )


def build(setup: Setup, paces: Mapping[str, Pace]) -> dict[str, Any]:
    """Return the document of the table."""
    profile, table = setup.profile, setup.paper.table(TABLE)
    rows = [(row, table.inputs_of(row)) for row in table.rows]
    taken = {
        library: [transfer(paces[serialisation], inputs, profile) for _, inputs in rows]
        for library, serialisation in LIBRARIES.items()
    }
    return make_document(
        setup,
        table,
        [
            (f"{what}_{library}", f"{title}, {TITLES[library]}", "s", 2)
            for what, title in (("transfer", "Transfer"), ("update", "Update"))
            for library in LIBRARIES
        ],
        [_row(row, {name: each[number] for name, each in taken.items()}) for number, (row, _) in enumerate(rows)],
        _notes(paces, profile),
        profile=describe_profile(profile),
        host=host(),
        findings=list(_findings(taken)),
        cpu_seconds={
            name: {part: getattr(pace, part).value for part in ("write", "read", "add")} | {"bytes": pace.size}
            for name, pace in paces.items()
        },
        bars=[],
    )


def _row(row: Row, taken: Mapping[str, Transfer]) -> ReproducedRow:
    cells = {}
    for library, each in taken.items():
        for what, ours in (("transfer", each.seconds), ("update", each.add)):
            published = row.published.get(f"{what}_{library}")
            reason = f"published {published} s by {library}, modelled {ours:.2f} s"
            cells[f"{what}_{library}"] = Cell(published, modelled=whole(ours), reason=reason)
    return ReproducedRow(row.name, "", "", cells)


def _findings(taken: Mapping[str, Sequence[Transfer]]) -> Iterator[str]:
    doubles, raw = taken["thrift"], taken["grpc"]
    bound = sum(each.serialisation > 0.5 for each in doubles)
    of_doubles = [each.serialisation for each in doubles]
    yield (
        f"Writing and reading numbers is {percent(min(of_doubles))} to {percent(max(of_doubles))} of the transfer of "
        f"doubles, and more than half of it in {bound} of {len(doubles)} rows; for raw vectors it is at most "
        f"{percent(max(each.serialisation for each in raw))}."
    )
    slower = sum(one.seconds > other.seconds for one, other in zip(doubles, raw, strict=True))
    yield f"Doubles take longer than raw vectors in {slower} of {len(raw)} rows; Thrift takes longer than gRPC in all."


def _notes(paces: Mapping[str, Pace], profile: Profile) -> Iterator[str]:
    yield (
        "CPU seconds of a vector, measured on this host: "
        + "; ".join(
            f"{name}, {pace.size / 1e6:,.0f} MB: written in {pace.write.value:.3f}, read in {pace.read.value:.3f}, "
            f"added in {pace.add.value:.3f}"
            for name, pace in paces.items()
        )
        + "."
    )
    yield (
        f"Modelled on {profile.name} of {profile.date}: a function writes with the printed share of a processor, at "
        "most one. The server's Python reads and adds one vector at a time on any instance, since the profile doesn't "
        "describe their processors."
    )
    yield "gRPC's and Thrift's own libraries aren't used here: seconds differ by their time for each number."
