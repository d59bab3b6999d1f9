"""docs/protocols.md: its formulas are what each architecture counts, its figures are what they give."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.workers.mlless.closed_form import counts as mlless_counts

from slslab_workers.allreduce import architecture as allreduce
from slslab_workers.gloo import architecture as gloo
from slslab_workers.gpu import architecture as gpu
from slslab_workers.gradssharding import architecture as gradssharding
from slslab_workers.gradssharding.topology import levels
from slslab_workers.kubeml import architecture as kubeml
from slslab_workers.mlless import architecture as mlless
from slslab_workers.models import SPECS
from slslab_workers.patterns import Counts
from slslab_workers.scatterreduce import architecture as scatterreduce
from slslab_workers.spirt import architecture as spirt
from slslab_workers.training import models

PAGE = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text(encoding="utf-8")
SECTIONS = [
    "What all architectures share", "AllReduce", "ScatterReduce", "Algorithms", "Channels", "MLLess", "SPIRT",
    "GPU baseline", "IaaS peers", "GradsSharding", "KubeML", "Lifetime of a function", "Counts and bytes",
    "As released",
]  # fmt: skip
COUNTS: Mapping[str, Callable[..., Counts]] = {
    one.name: one.counts for one in (allreduce, scatterreduce, mlless, spirt, gpu, gloo, gradssharding, kubeml)
}
IN_CODE = str.maketrans({"·": "*", "−": "-", "²": "**2", "`": ""})


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text: their rows of cells, headings first, without the line below these."""
    rows = [re.split(r"\s*\|\s*", line.strip("| ")) if line.startswith("|") else [] for line in text.splitlines()]
    found: list[list[list[str]]] = [[]]
    for row in rows:
        if row and not set(row[0]) <= {"-", ":"}:
            found[-1].append(row)
        elif not row and found[-1]:
            found.append([])
    return [table for table in found if table]


def formulas() -> Iterator[tuple[str, str, str, int]]:
    """Architecture, what is counted, its formula, and what that gives in one epoch."""
    name = ""
    for row in tables(section("Counts and bytes"))[0][1:]:
        name = row[0].strip("`") if len(row) == 4 else name
        what, formula, example = row[-3:]
        yield name, what, formula, int(example.replace(",", ""))


FORMULAS = list(formulas())


def value(formula: str, workers: int, batches: int, epochs: int, parameters: int, **more: int) -> int:
    size = 4 * parameters
    names = {"n": workers, "b": batches, "E": epochs, "s": batches * epochs, "G": size, "M": 4}
    # KubeML with one merge an epoch, and a model of one tensor.
    names |= {"I": workers, "R": 1, "L": 1, "S": size, **more}
    return int(eval(formula.translate(IN_CODE), {"__builtins__": {}, "max": max}, names))


def amounts(counts: Counts) -> dict[str, int]:
    """Return the counts, without zeros."""
    found = {**counts.operations, "bytes in": counts.bytes_in, "bytes out": counts.bytes_out}
    return {what: amount for what, amount in found.items() if amount}


def stated(name: str, *size: int, updates: int) -> dict[str, int]:
    values = {what: value(formula, *size, U=updates) for of, what, formula, _ in FORMULAS if of == name}
    return {what: amount for what, amount in values.items() if amount}


def test_the_page_has_the_sections_that_code_cites() -> None:
    assert re.findall(r"^## (.+)$", PAGE, re.MULTILINE) == SECTIONS


def test_the_table_has_all_architectures() -> None:
    assert {name for name, *_ in FORMULAS} == COUNTS.keys()


@pytest.mark.parametrize("name", COUNTS)
@given(st.integers(1, 20), st.integers(1, 30), st.integers(1, 4), st.integers(1, 100_000))
@example(4096, 2, 1, 3_217_226)
def test_the_formulas_are_what_is_counted(name: str, workers: int, batches: int, epochs: int, parameters: int) -> None:
    size = (workers, batches, epochs, parameters)
    assert stated(name, *size, updates=workers * batches * epochs) == amounts(COUNTS[name](*size))


@given(st.integers(1, 20), st.lists(st.integers(0, 20), min_size=1, max_size=30), st.sampled_from(["tensordb", "s3"]))
def test_mlless_with_a_filter_has_the_same_formulas(workers: int, sent: Sequence[int], store: str) -> None:
    sent = [min(workers, updates) for updates in sent]
    counted = amounts(mlless_counts(workers, len(sent), 1, 100, mlless.complete({"store": store}), updates=sent))
    names = {"object.put": "tensor.set", "object.get": "tensor.get"} if store == "s3" else {}
    counted = {names.get(what, what): count for what, count in counted.items()}
    assert counted == stated("mlless", workers, len(sent), 1, 100, updates=sum(sent))


def test_the_figures_are_what_the_formulas_give() -> None:
    for name, what, formula, figure in FORMULAS:
        amount = value(formula, 4, 24, 1, 3_217_226, U=4 * 24, L=164, S=4 * (3_217_226 + 21_915))
        assert amount == figure, f"{name} {what}: {formula} gives {amount:,}"


ALGORITHMS = tables(section("Algorithms"))[0][1:]


@pytest.mark.parametrize("row", ALGORITHMS, ids=lambda row: row[0])
@pytest.mark.parametrize("architecture", [allreduce, scatterreduce], ids=lambda one: one.name)
@settings(max_examples=25)
@given(
    workers=st.integers(1, 20),
    batches=st.integers(1, 9),
    rounds=st.integers(1, 3),
    parameters=st.integers(10, 9999),
    clusters=st.integers(1, 9),
)
def test_the_algorithms_have_the_messages_and_rounds_that_the_page_says(
    row: list[str], architecture: Any, workers: int, batches: int, rounds: int, parameters: int, clusters: int
) -> None:
    algorithm, variant = re.fullmatch(r"`(\w+)`(?:, (\w+))?", row[0]).groups()  # type: ignore[union-attr]
    passes = 2 if algorithm in ("ma", "admm") else 1
    options = {"algorithm": algorithm, "local-passes": passes, "clusters": clusters, "centroids": variant or "weighted"}
    epochs = rounds * passes
    names = {"P": parameters, "K": clusters, "E": epochs, "L": passes, "s": batches * epochs}
    length, exchanges = (
        int(eval(cell.translate(IN_CODE).replace("÷", "//"), {"__builtins__": {}}, names)) for cell in row[3:]
    )
    found = architecture.counts(workers, batches, epochs, parameters, options)
    alike = amounts(architecture.counts(workers, 1, exchanges, length))
    if algorithm == "em":
        first = {
            "object.put": 1, "object.get": workers - 1,
            "bytes in": 4 * parameters, "bytes out": 4 * parameters * (workers - 1),
        }  # fmt: skip
        alike = {what: alike.get(what, 0) + first.get(what, 0) for what in {**alike, **first}}
    assert amounts(found) == {what: amount for what, amount in alike.items() if amount}


SPIRTS_WAYS = tables(section("Counts and bytes"))[1]


@pytest.mark.parametrize("row", SPIRTS_WAYS[1:], ids=lambda row: row[0].strip("`"))
@settings(max_examples=30)
@given(st.integers(1, 20), st.integers(1, 30), st.integers(1, 4), st.integers(1, 100_000))
def test_spirts_ways_have_the_formulas_that_the_page_says(
    row: list[str], workers: int, batches: int, epochs: int, parameters: int
) -> None:
    options: dict[str, Any] = dict(re.findall(r"--([\w-]+) ([\w-]+)", row[0]))
    assert options
    size = (workers, batches, epochs, parameters)
    counted = amounts(spirt.counts(*size, options))
    stated_of = dict(zip(SPIRTS_WAYS[0][1:], row[1:], strict=True))
    assert {what: value(formula, *size) for what, formula in stated_of.items()} == {
        what: counted[what] for what in stated_of
    }


@pytest.mark.parametrize("update", [row[0] for row in SPIRTS_WAYS[1:] if "--update" in row[0]])
@pytest.mark.parametrize("kept", [row[0] for row in SPIRTS_WAYS[1:] if "--update" not in row[0]])
@settings(max_examples=25)
@given(st.integers(1, 16), st.integers(1, 25), st.integers(1, 3))
def test_what_spirts_ways_change_adds_up(kept: str, update: str, workers: int, batches: int, epochs: int) -> None:
    size = (workers, batches, epochs, 61_706)
    usual = amounts(spirt.counts(*size))
    ways = {row[0]: dict(zip(SPIRTS_WAYS[0][1:], row[1:], strict=True)) for row in SPIRTS_WAYS[1:]}
    expected = {what: sum(value(ways[way][what], *size) for way in (kept, update)) - usual[what] for what in ways[kept]}
    options: dict[str, Any] = dict(re.findall(r"--([\w-]+) ([\w-]+)", f"{kept} {update}"))
    assert amounts(spirt.counts(*size, options)) == {
        what: amount for what, amount in {**usual, **expected}.items() if amount
    }


TREES = tables(section("Counts and bytes"))[2]


@pytest.mark.parametrize("row", TREES[1:], ids=lambda row: row[0].strip("`"))
@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 4), st.integers(1, 100_000))
def test_gradsshardings_ways_have_the_formulas_that_the_page_says(
    row: list[str], workers: int, batches: int, epochs: int, parameters: int
) -> None:
    options: dict[str, Any] = dict(re.findall(r"--([\w-]+) ([\w-]+)", row[0]))
    tree = [one for level in levels(options["topology"], workers, 4) for one in level]
    read = {"A": len(tree), "R": sum(len(one.inputs) for one in tree)}
    size = (workers, batches, epochs, parameters)
    stated_of = dict(zip(TREES[0][1:], row[1:], strict=True))
    assert amounts(gradssharding.counts(*size, options)) == {
        what: value(formula, *size, **read) for what, formula in stated_of.items()
    }


@given(st.integers(1, 16), st.integers(1, 25), st.integers(1, 3))
def test_momentum_in_the_database_changes_nothing(workers: int, batches: int, epochs: int) -> None:
    size = (workers, batches, epochs, 61_706)
    assert spirt.counts(*size, {"update-rule": "sgd-momentum"}) == spirt.counts(*size)


def test_the_page_has_the_models_and_their_sizes() -> None:
    rows = tables(section("What all architectures share"))[0][1:]
    assert {row[0].strip("`") for row in rows} == SPECS.keys()
    for name, *figures in rows:
        parameters, tensors, buffers, size = (int(figure.replace(",", "")) for figure in figures)
        assert (parameters, size) == (SPECS[name.strip("`")].parameters, 4 * parameters)
        with torch.device("meta"):  # shapes without values
            network = models.build(name.strip("`"), 0)
        assert tensors == len(list(network.parameters()))
        assert buffers == sum(buffer.numel() for buffer in network.buffers())
