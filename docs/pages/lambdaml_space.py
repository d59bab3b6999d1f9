"""docs/lambdaml-space.md: the combinations of LambdaML's axes that ran here, and those refused, with the reason."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slslab.report.page import WORDS, Part, Table
from slslab.run.metrics import grouped

DATA = Path(__file__).parents[2] / "results" / "lambdaml-space.json"
SIGNS = {"done": "ran", "refused": "refused", "foretold": "predicted"}

Cell = dict[str, Any]


def build(data: Path = DATA) -> Iterator[Part]:
    """Yield the page."""
    document = json.loads(data.read_text(encoding="utf-8"))
    cells: list[Cell] = document["cells"]
    done, refused = ([cell for cell in cells if cell["status"] == status] for status in ("done", "refused"))
    run = document["run"]
    exact = sum(cell["as_predicted"] for cell in done)
    channels = list(dict.fromkeys(cell["channel"] for cell in cells))
    yield "# LambdaML's design space"
    yield (
        f"Of {len(cells)} combinations of pattern, model, algorithm, synchronisation and channel {len(done)} ran, "
        f"{len(refused)} are refused before anything starts, and {len(cells) - len(done) - len(refused)} are only "
        f"predicted, because their server was missing. In {exact} of the {len(done)} runs all requests and bytes "
        f"equal the closed form; {_equal(done)}"
    )
    yield (
        f"`{document['command']}` made the runs on {document['date']}: {run['workers']} workers, "
        f"{run['epochs']} epochs of {run['batches']} minibatches of {run['batch_size']}, on "
        f"{', '.join(dict.fromkeys(document['models'].values()))}. Servers: "
        f"{'; '.join(dict.fromkeys(cell['server'] for cell in done))}."
    )
    yield "## What ran"
    rows = [
        [*axes, *({cell["channel"]: SIGNS[cell["status"]] for cell in of_axes}[name] for name in channels)]
        for axes, of_axes in grouped((_axes(cell), cell) for cell in cells).items()
        if any(cell["status"] != "refused" for cell in of_axes)
    ]
    yield Table(("pattern", "model", "algorithm", "synchronisation", *channels), rows, words=WORDS)
    yield "## What is refused, and why"
    reasons = grouped((cell["reason"], " ".join((*_axes(cell), cell["channel"]))) for cell in refused)
    rows = [[reason, str(len(alike)), alike[0]] for reason, alike in reasons.items()]
    yield Table(("reason", "combinations", "example"), rows, words=(0, 2))


def _axes(cell: Cell) -> tuple[str, ...]:
    return cell["pattern"], cell["model"], cell["algorithm"], cell["synchronisation"]


def _equal(done: list[Cell]) -> str:
    waiting = [cell for cell in done if cell["synchronisation"] == "bsp"]
    bits = grouped(((cell["model"], cell["algorithm"]), cell["parameters_sha256"]) for cell in waiting)
    if all(len(set(each)) == 1 for each in bits.values()):
        return (
            "wherever workers wait for each other, the parameters are the same to the bit with every pattern and "
            "channel."
        )
    differ = ", ".join(" ".join(axes) for axes, each in bits.items() if len(set(each)) > 1)
    return f"the parameters differ between patterns or channels for {differ}."
