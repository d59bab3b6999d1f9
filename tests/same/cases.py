"""Commands with output that must not change unnoticed, and the parts of it that differ between machines."""

import re
from collections.abc import Iterator, Mapping, Sequence

ATLAS = ("atlas", "--json")
RECORDED = ("allreduce", "scatterreduce", "mlless", "spirt", "gpu", "gloo", "kubeml", "gradssharding-shards")
QUESTIONS: Mapping[str, Sequence[str]] = {
    **{
        "cheapest": ("--deadline", "60"),
        "memory": (),
        "patterns": (),
        "gpu": (),
        "model": (),
        "waiting": (),
        "path": (),
    },
}
STUDIES: Mapping[str, Sequence[str]] = {
    **{"table2": ("--fidelity", "replayed"), "table3": (), "fig2": ()},
    **{"mlless-filter": (), "lambdaml-table1": (), "lambdaml-table3": (), "gradssharding": (), "kubeml-times": ()},
    "serverless-gpu": (),
}
ARCHITECTURES = ("allreduce", "scatterreduce", "mlless", "spirt", "gpu", "gloo", "kubeml", "gradssharding")
TRAINING = ("--model", "lenet", "--dataset", "digits", "--workers", "2", "--epochs", "1", "--batches", "2")
# In the document of a run all but these are times.
BITS = ("parameters_sha256", "loss", "losses", "accuracy", "updates", "requests", "bytes", "counts", "messages")
MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:[\d.]+(Z|\+00:00)?"), "TIME"),
    (re.compile(r"(-?\d+\.\d{7})\d+"), r"\1"),
)
Words = Sequence[str]


def quick() -> Iterator[tuple[str, Words]]:
    """Yield name and words of commands that take a second each. OUT is an empty folder; what is left there counts."""
    yield "limits", ("limits", "--json")
    for system in RECORDED:
        run = f"results/atlas/lenet-{system}"
        for command in ("show", "bill", "check", "replay"):
            yield f"{command} {system}", (command, run, "--json")
        yield f"report {system}", ("report", run, "--out", "OUT/page.html")
    runs = [f"results/atlas/lenet-{system}" for system in RECORDED]
    yield "compare", ("compare", *runs[:4], "--html", "OUT/page.html", "--json")
    yield "export csv", ("export", *runs[:4], "--to", "csv", "--out", "OUT")
    yield "export sam", ("export", "sam", runs[0], "--out", "OUT/sam", "--json")
    for question, options in QUESTIONS.items():
        yield f"ask {question}", ("ask", question, runs[0], *options, "--json")
    yield "no such run", ("show", "nothing")
    yield "no such memory size", ("replay", runs[0], "--memory", "1")


def slow() -> Iterator[tuple[str, Words]]:
    """Yield name and words of commands that play many runs."""
    for study, options in STUDIES.items():
        yield f"reproduce {study}", ("reproduce", study, *options, "--json", "--out", "OUT/study")


def bits() -> Iterator[tuple[str, Words]]:
    """Yield name and words of runs with digests, losses and counts that depend only on the processor."""
    for architecture in ARCHITECTURES:
        words = ("run", architecture, *TRAINING, "--record", "together", "--json")
        yield f"run {architecture}", words
        yield f"run {architecture} as released", (*words, "--as-released")


def masked(text: str) -> str:
    """Return an output without its times, and with seven digits of each fraction."""
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text)
    return text
