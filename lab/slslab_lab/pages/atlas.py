"""What the atlas says in words, for the terminal and its page: the answers, and which system is best from where on."""

from collections.abc import Iterator, Mapping
from typing import Any

from slslab.report import formats
from slslab.report.summaries import ranges_made_of

Document = Mapping[str, Any]
WORDS = {"seconds": "fastest", "usd": "cheapest"}
GROUPS = {"equal": "Systems that learn the same", "all": "All systems"}
FIGURES = {
    "seconds": "seconds of the job, starts included",
    "epoch_seconds": "seconds of an epoch",
    "epoch_usd": "USD of an epoch",
}
NAMES = {"lenet": "LeNet-5", "mobilenet": "MobileNet", "resnet18": "ResNet-18"}


def answers(document: Document, group: str) -> Iterator[str]:
    """Yield for each recorded model which point of a group is the fastest and which the cheapest."""
    for answer in document["answers"]:
        if answer["group"] == group:
            yield (
                f"For a model of {size(answer['megabytes'])} ({NAMES[answer['model']]}) the fastest is "
                f"{point(answer['fastest'])}; the cheapest is {point(answer['cheapest'])}."
            )


def point(found: Document) -> str:
    """Return a best point with its figures, and the next system."""
    beyond = ", extrapolated" if found["extrapolated"] else ""
    seconds, usd = (figure(found, name) for name in WORDS)
    return f"{place(found)}: {seconds} s and {usd} USD{beyond}{following(found)}"


def figure(found: Document, name: str) -> str:
    """Return seconds or usd of a point as its 80 % range, or as a number in an atlas of before ranges."""
    if found.get(f"{name}_low") is None:
        return formats.significant(found[name], 3)
    return formats.span(found[f"{name}_low"], found[f"{name}_high"])


def following(found: Document) -> str:
    """Return the next system in brackets: by how much it is behind, or that it can't be told apart."""
    if not found["next"]:
        return ""
    ends = found.get("next_range")
    if ends is None:
        return f" ({found['next']}: {found['next_ratio']:.2f} times as much)"
    if ends["low"] <= 1 <= ends["high"]:
        return f" (can't be told apart from {found['next']})"
    return f" ({found['next']}: {formats.span(ends['low'], ends['high'])} times as much)"


def place(found: Document) -> str:
    """Return where a point lies: its system, workers and memory size."""
    memory = "" if found["memory_mb"] is None else f" of {formats.megabytes(found['memory_mb'])}"
    return f"{found['system']} with {found['workers']} workers{memory}"


def size(megabytes: float) -> str:
    """Return the size of a model."""
    return f"{formats.significant(megabytes, 3)} MB"


def job(document: Document) -> str:
    """Return what is trained, by which prices, and how exact that is."""
    work = document["job"]
    before = "Made before ranges: `slslab atlas` gives each point one."
    ranges = ranges_made_of([document["uncertainty"]]) if "uncertainty" in document else before
    return (
        f"{work['epochs']} epochs of {work['images']:,} images, minibatches of {work['batch_size']}, starts included, "
        f"modelled on {document['profile']['name']} by the prices of {document['prices']['name']}. {ranges}"
    )


def strips(document: Document, group: str, objective: str) -> Iterator[tuple[int, str]]:
    """Yield, by number of workers, the best systems by rising size of the model and up to where each is the best."""
    for workers in document["axes"]["workers"]:
        cuts = [
            each
            for each in document["crossings"]
            if (each["group"], each["objective"], each["workers"]) == (group, objective, workers)
        ]
        won = winners(document, group, objective, workers)
        parts = [f"{cut['first']} up to {size(cut['megabytes'])}" for cut in cuts]
        yield workers, ", ".join([*parts, f"{'then ' if parts else ''}{won[-1]['system']}"])


def winners(document: Document, group: str, objective: str, workers: int) -> list[Document]:
    """Return the best points with so many workers, by rising size of the model."""
    mine = [
        each
        for each in document["winners"]
        if (each["group"], each["objective"], each["workers"]) == (group, objective, workers)
    ]
    return sorted(mine, key=lambda each: float(each["megabytes"]))


def crossing(each: Document) -> tuple[str, str, str]:
    """Return a published crossing, the atlas's own, and the verdict, in words."""
    low, high = each["low"], each["high"]
    if low is None:
        told = f"{each['second']} from {size(high)} on"
    elif high is None:
        told = f"{each['first']} up to {size(low)}"
    else:
        told = f"{each['first']} at {size(low)}, {each['second']} at {size(high)}"
    ours = ", ".join(size(megabytes) for megabytes in each["modelled_megabytes"])
    modelled = f"crossing at {ours}" if ours else f"{each['better']} everywhere"
    return told, modelled, each["verdict"]
