"""SPIRT's in-database operations reproduced (Section 4.2 of Barrak et al.): averaging and update, without and with."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from slslab.predict.profiles.profile import Profile
from slslab_lab.papers.recomputation import Recomputed, percent, recompute_row
from slslab_lab.studies import MODELS, NAMES
from slslab_lab.studies.accuracy_by_time import whole
from slslab_lab.studies.documents import Cell, ReproducedRow, make_document
from slslab_lab.studies.in_database.arms import AVERAGE, OPERATIONS, UPDATE
from slslab_lab.studies.in_database.comparisons import FLOAT_BYTES, RATIO, RELEASED, WITH, WITHOUT, Comparison, compare
from slslab_lab.studies.in_database.measurements import IN_DATABASE, Measurements
from slslab_lab.studies.study import Setup

TABLE = "optimizations"
ROWS = {
    AVERAGE: "SPIRT, averaging of gradients: in the database",
    UPDATE: "SPIRT, update of the model: in the database",
}
TITLES = {AVERAGE: "averaging of gradients", UPDATE: "update of the model"}
CHANGE = "change"
COLUMNS = (
    (WITHOUT, "Without: fetched, computed in the function, put back", "s", 2),
    (WITH, "With: computed in the database", "s", 3),
    (RATIO, "Without ÷ with", "ratio", 2),
)


def build(setup: Setup, measurements: Measurements) -> dict[str, Any]:
    """Return the document of the chosen and measured models."""
    paper, profile, models = setup.paper, setup.profile, setup.options["models"] or MODELS
    table = paper.table(TABLE)
    rows = []
    for operation in OPERATIONS:
        printed = paper.row(TABLE, ROWS[operation])
        for model in models:
            if model not in measurements.models:
                continue
            memory_mb = int(paper.row("table2", "SPIRT", NAMES[model]).published["memory_mb"])
            mine = NAMES[model] == table.inputs_of(printed).get("model")
            published, cells = (printed.published, recompute_row(paper, TABLE, printed)) if mine else ({}, ())
            for comparison in compare(measurements, model, operation, memory_mb, profile):
                rows.append(_row(comparison, NAMES[model], published, cells))
    return make_document(
        setup,
        table,
        COLUMNS,
        rows,
        _notes(measurements, models, profile),
        profile=profile,
        measurements=measurements.about("models"),
    )


def _row(
    compared: Comparison, model: str, published: Mapping[str, Decimal], again: Sequence[Recomputed]
) -> ReproducedRow:
    reasons = compared.reasons(published)
    cells = {
        name: Cell(
            published.get(name),
            tuple(way for way in again if way.column == name),
            compared.measured.get(name),
            whole(compared.modelled[name]),
            reason=reasons.get(name, ""),
            follows=next((way.value for way in again if way.column == name == RATIO and way.value), None),
        )
        for name, *_ in COLUMNS
    }
    change = next((way.value for way in again if way.column == CHANGE), None)
    note = "" if change is None else f"with ÷ without, the published seconds are {percent(change / 100)}"
    more = {"parts": dict(compared.parts), "memory_mb": compared.exchange.memory_mb}
    return ReproducedRow(TITLES[compared.exchange.operation], model, compared.variant, cells, note, more)


def _notes(measurements: Measurements, models: Sequence[str], profile: Profile) -> list[str]:
    turns = len(next(iter(measurements.models.values())).operations[AVERAGE][IN_DATABASE].seconds)
    notes = [
        f"Measured: {measurements.gradients} gradients in the embedded tensor database, a separate process with one "
        f"thread, over loopback. Figures are medians of {turns} turns with the least and the greatest; a ratio is one "
        f"turn's. {measurements.measured}, {measurements.host['cores']} processors, load "
        f"{measurements.load['before'][0]:.1f} before and {measurements.load['after'][0]:.1f} after, Python "
        f"{measurements.host['python']}, {measurements.versions_in_words}.",
        "redis-py is the client of the released code, here with numpy's mean of a list. The own client is the one of "
        "slslab's workers, which receives directly into arrays and adds each as it arrives. Both are compared with "
        "TorchScript in the database, all on float32 tensors, as the paper implies.",
        f"Modelled: requests and bytes on {profile.name} of {profile.date}, with the measured medians of CPU seconds, "
        "both for functions of the memory size that Table 2 prints for SPIRT and for the database's host. No speed "
        "is fitted, and workers don't wait for each other.",
        "The paper doesn't say for how many gradients and workers its seconds are. The ratio is valid if both have "
        "the same number.",
    ]
    if measurements.released is not None:
        released = measurements.released
        notes.append(
            f"{RELEASED[0].upper()}{RELEASED[1:]}: gradients are JSON texts, Lua adds them up in Redis, and the mean "
            "goes out as JSON and back as a tensor; without, a client decodes all texts. Bytes and CPU seconds per "
            f"number come from {len(released.json_bytes)} gradients of {released.numbers:,} numbers in Redis "
            f"{released.redis}: {released.text_bytes:.1f} bytes of JSON instead of {FLOAT_BYTES}, "
            f"{1e9 * released.lua_s:.0f} ns of Lua, {1e9 * released.decode_s:.0f} ns of Python. The released update "
            "calls a function that RedisAI doesn't have."
        )
    if missing := [NAMES[model] for model in models if model not in measurements.models]:
        notes.append(f"Measurements of {' and '.join(missing)} are missing.")
    return notes
