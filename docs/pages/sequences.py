"""Sequence diagrams of an architecture's messages, made from its declared pattern (`docs/protocols.md`).

The pattern's program is played with made-up times; only the order of the steps is drawn.
"""

from collections.abc import Iterator
from html import escape
from itertools import groupby

from slslab.predict.profiles.profile import load_profile
from slslab.report.formats import size
from slslab_lab.replay.kernel.kernel import play
from slslab_lab.replay.kernel.program import Step, Track
from slslab_lab.replay.programs.scaling import generate
from slslab_lab.replay.programs.step_costs import Cost, StepCosts, unit_of
from slslab_lab.runs.planning import architectures
from slslab_workers.channels.polling import Poll
from slslab_workers.patterns import Workload
from slslab_workers.trace.operations import ALL_REDUCE

WORKERS, BATCHES, EPOCHS = 2, 1, 1
# LeNet-5.
PARAMETERS = 61_706
MS = 1_000_000
INSTANCE = "g4dn.xlarge"
# Phases to draw: the training protocol. The databases' and queue's book-keeping is left out, too.
PHASES = {"compute", "synchronise", "update"}
BESIDE = {"command", "compile", "declare", "bind", "delete", "list", "join", "connect"}
STORES = {"object": "S3", "tensor": "tensor database", "queue": "queue"}
# Operations that move data from a store to a worker; all other requests go to the store.
TAKES = {"get", "deliver"}
COLUMN, ROW, TOP, LEFT = 190, 24, 46, 100


class RoundCosts(StepCosts):
    """Costs without a recording: a computation takes 100 ms, everything else 1 ms."""

    def of(self, function: str, op: str, phase: str, first: bool) -> Cost:  # noqa: ARG002
        """Return the made-up cost of any operation."""
        return Cost(100 * MS if op == "compute" else MS, 0.0, 0.0, 0.0, 0.0, False, 0.0)


# A row of the picture: who acts, on whom (itself, if alone), and what, with the bytes that it moves.
Message = tuple[str, str, str]


def draw_sequence(name: str) -> str:
    """Return the picture of an architecture with two workers and one minibatch, as SVG."""
    rows = list(_messages(name))
    participants = list(dict.fromkeys(each for source, target, _ in rows for each in (source, target)))
    participants.sort(key=lambda each: (each.startswith(tuple(STORES.values())), not each.startswith("worker"), each))
    return _svg(f"{name}: {WORKERS} workers, {BATCHES} minibatch", participants, rows)


def _messages(name: str) -> Iterator[Message]:
    """Yield the messages in order of their ends; repeated actions of a participant are one message."""
    architecture = architectures()[name]
    workload = Workload(WORKERS, BATCHES, EPOCHS, PARAMETERS, architecture.complete({}))
    pattern = architecture.pattern(workload)
    assert pattern is not None, f"{name} declares no pattern"
    functions = {
        unit_of(role): Track(INSTANCE if role.kind == "instance" else role.function or name, role.kind, -1, (), 1769)
        for role in pattern.roles
    }
    costs = RoundCosts(architecture, workload, {}, functions, frozenset(), Poll(0.01, 1.5, 0.1), {"get": 0, "list": 0})
    timeline = play(generate(costs, WORKERS, BATCHES, EPOCHS), load_profile("aws-us-east-1"))
    order = sorted(range(len(timeline.steps)), key=lambda entry: timeline.end[entry])
    played = ((timeline.program.tracks[timeline.track[entry]], timeline.steps[entry]) for entry in order)
    messages = (
        _message(track, step)
        for track, step in played
        if step.phase in PHASES and step.op.rpartition(".")[2] not in BESIDE and track.kind != "execution"
    )
    for message, group in groupby(messages):
        times = len(list(group))
        source, target, text = message
        yield source, target, text if times == 1 else f"{text}, {times} times"


def _message(track: Track, step: Step) -> Message:
    who = f"worker {track.worker}" if track.worker < WORKERS else track.name
    if step.op == ALL_REDUCE:
        # Around the ring, to the next lower rank.
        return who, f"worker {(track.worker - 1) % WORKERS}", f"{step.requests} chunks, {size(step.bytes)}"
    store, _, verb = step.op.partition(".")
    if store not in STORES:
        return who, who, step.op
    where = STORES[store]
    times = f" × {step.requests}" if step.requests > 1 else ""
    text = f"{verb}{times}{f', {size(step.bytes)}' if step.bytes else ''}"
    return (where, who, text) if verb in TAKES else (who, where, text)


def _svg(title: str, participants: list[str], rows: list[Message]) -> str:
    place = {name: LEFT + COLUMN * number for number, name in enumerate(participants)}
    width, height = 2 * LEFT + COLUMN * (len(participants) - 1), TOP + ROW * len(rows) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for name, x in place.items():
        parts.append(f'<text x="{x}" y="24" font-weight="bold">{escape(name)}</text>')
        parts.append(f'<line x1="{x}" y1="34" x2="{x}" y2="{height - 8}" stroke="#bbb"/>')
    for number, (source, target, text) in enumerate(rows):
        y = TOP + ROW * (number + 1)
        begin, end = place[source], place[target]
        if begin == end:
            parts.append(f'<rect x="{begin - 45}" y="{y - 16}" width="90" height="19" rx="4" fill="#dbe9f6"/>')
            parts.append(f'<text x="{begin}" y="{y - 2}">{escape(text)}</text>')
        else:
            parts.append(f'<line x1="{begin}" y1="{y}" x2="{end}" y2="{y}" stroke="#000" marker-end="url(#head)"/>')
            # Near the worker, where lines don't cross the text.
            near = end if source.startswith(tuple(STORES.values())) else begin
            x = near + (COLUMN // 2 if max(begin, end) > near else -COLUMN // 2)
            parts.append(f'<text x="{x}" y="{y - 5}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>", ""])
