"""The fault table of docs/reliability.md, and the number of faults that each system survives."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from docs.pages.markdown import code

from slslab.errors import counted
from slslab.report.page import WORDS, Part, Table
from slslab.run.metrics import grouped

DATA = Path(__file__).parents[2] / "results" / "faults.json"
# In the name of a system that differs from its architecture only in how it exchanges.
OF = "/"
# What survived has the parameters of a run without faults, or others.
EQUAL = {True: "equal", False: "continues"}

Cell = Mapping[str, Any]


def build(data: Path = DATA) -> Iterator[Part]:
    """Yield a summary, the outcome of each fault, and its cost."""
    document: Mapping[str, Any] = json.loads(data.read_text(encoding="utf-8"))
    cells: list[Cell] = document["cells"]
    ran = [cell for cell in cells if _ran(cell)]
    lived = [cell for cell in ran if cell["status"] == "survived"]
    longest = max(cell["seconds"] for cell in ran)
    run = document["run"]
    systems = list(document["systems"])
    architectures, others = ([name for name in systems if (OF in name) is other] for other in (False, True))
    yield (
        f"{len(lived)} of {len(ran)} runs that met a fault finished, {sum(cell['equal'] for cell in lived)} of them "
        f"with the parameters of a run without faults to the last bit. {len(ran) - len(lived)} ended with a sentence "
        f"that names the fault. None hung: the longest took {longest:.0f} s, of at most {document['bound_seconds']}. "
        "`slslab check` finds no violation in any of them."
    )
    yield (
        f"`{document['command']}` made them on {document['date']}, in {document['seconds'] / 60:.0f} min: "
        f"{run['workers']} workers, {run['epochs']} epochs of {run['batches']} minibatches of {run['batch_size']}, "
        f"{run['dataset']}, functions of at most {counted(run['timeout'], 'second')}. One fault meets worker "
        f"{document['worker']}, once in each phase (fetch, compute, synchronise, update, wait, other) in which it "
        "can happen. **Equal**: the same parameters; **continues**: finished with other parameters; **ends**: with "
        "such a sentence; an empty cell: the fault can't happen. *For good* means every request there."
    )
    yield _outcomes(cells, architectures)
    yield "Systems that differ only in how they exchange met the faults in the phase `synchronise`:"
    yield _outcomes(cells, others)
    yield "### What it costs"
    yield (
        f"Additional billed seconds (+) relative to the median of "
        f"{counted(len(document['without'][0]['billed_seconds']), 'run')} without faults. If the run ended: the "
        "seconds billed until then, which are lost. Both are medians over phases, with the dollars of the whole "
        "bill. The first row has the range of the runs without faults; a smaller difference means nothing. "
        "Instances are billed for at least 60 s. The host did other work, too."
    )
    yield _costs(document, architectures)


def survived(data: Path = DATA) -> Mapping[str, str]:
    """Return, by system, how many kinds of faults it survives in all phases where they can happen, out of how many."""
    cells: list[Cell] = json.loads(data.read_text(encoding="utf-8"))["cells"]
    counts: dict[str, str] = {}
    for system, own in grouped((cell["system"], cell) for cell in cells if _ran(cell)).items():
        faults = grouped((cell["fault"], cell) for cell in own).values()
        lived = sum(all(cell["status"] == "survived" for cell in of_fault) for of_fault in faults)
        counts[system] = f"{lived} of {len(faults)}"
    return counts


def _ran(cell: Cell) -> bool:
    return bool(cell["status"] != "not applicable")


def _outcomes(cells: Iterable[Cell], systems: Sequence[str]) -> Table:
    by_fault = grouped((cell["fault"], cell) for cell in cells)
    rows = [
        [code(fault), *(_outcome([cell for cell in own if cell["system"] == system]) for system in systems)]
        for fault, own in by_fault.items()
    ]
    return Table(("fault", *map(code, systems)), [row for row in rows if any(row[1:])], words=WORDS)


def _outcome(cells: Sequence[Cell]) -> str:
    words = (("ends" if cell["status"] == "failed" else EQUAL[cell["equal"]], cell) for cell in cells if _ran(cell))
    phases = grouped((word, cell["phase"]) for word, cell in words)
    if len(phases) < 2:
        return next(iter(phases), "")
    return "; ".join(f"{word}: {', '.join(own)}" for word, own in phases.items())


def _costs(document: Mapping[str, Any], systems: Sequence[str]) -> Table:
    without = {one["system"]: one for one in document["without"]}
    first = [
        f"{min(one['billed_seconds']):.1f} to {max(one['billed_seconds']):.1f} s"
        for one in (without[system] for system in systems)
    ]
    rows = [["none", *first]]
    for fault, own in grouped((cell["fault"], cell) for cell in document["cells"]).items():
        of_system = grouped((cell["system"], cell) for cell in own if _ran(cell))
        rows.append([code(fault), *(_cost(of_system.get(system, ()), without[system]) for system in systems)])
    return Table(("fault", *map(code, systems)), rows, words=WORDS)


def _cost(cells: Sequence[Cell], without: Cell) -> str:
    found = []
    for status, sign in (("survived", "+"), ("failed", "")):
        own = [cell for cell in cells if cell["status"] == status]
        if own:
            base_s, base_usd = (0, 0) if sign else (median(without["billed_seconds"]), median(without["usd"]))
            seconds = median(cell["billed_seconds"] + base_s for cell in own)
            usd = median(cell["usd"] + base_usd for cell in own)
            found.append(f"{seconds:{sign}.1f} s, ${usd:.1e}" + ("" if sign else " lost"))
    return "; ".join(found)
