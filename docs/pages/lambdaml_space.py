"""docs/lambdaml-space.md: the combinations of LambdaML's axes that ran here, and those refused, with the reason."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from docs.pages.markdown import paragraph, table

from slslab.run.metrics import grouped

DATA = Path("results/lambdaml-space.json")
TITLE = "# LambdaML's design space"
SIGNS = {"done": "ran", "refused": "refused", "foretold": "predicted"}

Cell = dict[str, Any]


def build(data: Path = DATA) -> str:
    """Return the whole page."""
    document = json.loads(data.read_text(encoding="utf-8"))
    cells: list[Cell] = document["cells"]
    done = [cell for cell in cells if cell["status"] == "done"]
    run = document["run"]
    counts = Counter(cell["status"] for cell in cells)
    exact = sum(cell["as_predicted"] for cell in done)
    channels = list(dict.fromkeys(cell["channel"] for cell in cells))
    parts = [
        TITLE,
        paragraph(
            f"Of {len(cells)} combinations of pattern, model, algorithm, synchronisation and channel {counts['done']} "
            f"ran, {counts['refused']} are refused before anything starts, and {counts['foretold']} are only "
            f"predicted, because their server was missing. In {exact} of the {len(done)} runs all requests and bytes "
            f"equal the closed form; {_equal(done)}"
        ),
        paragraph(
            f"`{document['command']}` made the runs on {document['date']}: {run['workers']} workers, "
            f"{run['epochs']} epochs of {run['batches']} minibatches of {run['batch_size']}, on "
            f"{', '.join(dict.fromkeys(document['models'].values()))}. Servers: "
            f"{'; '.join(dict.fromkeys(cell['server'] for cell in done))}."
        ),
        "## What ran",
        table(
            ["pattern", "model", "algorithm", "synchronisation", *channels],
            [
                [*axes, *({cell["channel"]: SIGNS[cell["status"]] for cell in of_axes}[name] for name in channels)]
                for axes, of_axes in grouped((_axes(cell), cell) for cell in cells).items()
                if any(cell["status"] != "refused" for cell in of_axes)
            ],
        ),
        "## What is refused, and why",
        table(
            ["reason", "combinations", "example"],
            [
                [
                    reason,
                    str(len(refused)),
                    "; ".join(" ".join((*_axes(cell), cell["channel"])) for cell in refused[:1]),
                ]
                for reason, refused in grouped(
                    (cell["reason"], cell) for cell in cells if cell["status"] == "refused"
                ).items()
            ],
            numbers=(1,),
        ),
    ]
    return "\n\n".join(parts) + "\n"


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
