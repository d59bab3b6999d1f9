"""The content of a run's page, from its document, its trace and its metered invocations."""

from collections.abc import Iterator

from slslab.errors import counted
from slslab.report import cards, formats, summaries
from slslab.report.figures import failure, figures, warnings
from slslab.report.page import Card, Document, Note, Page, Played
from slslab.run.metrics import Records, Rows
from slslab_lab.pages import measures
from slslab_lab.pages.traces import communication_card, timeline_card
from slslab_workers.architecture import chosen_options, title

# Names as in papers.
MODELS = {
    "lenet": "LeNet-5", "mobilenet": "MobileNet", "resnet18": "ResNet-18", "resnet34": "ResNet-34",
    "resnet50": "ResNet-50",
}  # fmt: skip


def describe_run(document: Document, events: Rows | None, invocations: Records, modelled: Played | None = None) -> Page:
    """Return the page of a run, without missing parts of the document; `modelled` is its trace on Lambda."""
    shown = (
        measures.present_card(document),
        cards.faults_card(document),
        measures.sizes_card(document),
        timeline_card(document, events, invocations, modelled),
        cards.modelled_card(document),
        measures.bill_card(document),
        measures.phases_card(document),
        measures.shares_card(document),
        measures.learning_card(document),
        measures.memory_card(document, events, invocations),
        communication_card(document, events),
        cards.traffic_card(document),
        cards.functions_card(document),
        cards.invocations_card(document),
        cards.host_card(document),
        _versions(document),
    )
    return Page(
        title=title_of(document),
        answers=tuple(
            filter(None, [document.get("progress"), summaries.headline(document), summaries.advice(document)])
        ),
        answers_note=" ".join(
            filter(
                None,
                (
                    summaries.range_note(summaries.replayed(document)),
                    summaries.instances_note(document),
                    *summaries.predicted_notes(document),
                ),
            )
        ),
        subtitle=f"since {document['started_at']}" if "functions" in document else f"run {document['run']}",
        cards=tuple(card for card in shown if card is not None),
        status=str(document["status"]),
        chips=tuple(_chips(document)),
        warnings=tuple(_warnings(document, events)),
        figures=tuple(figures(document)),
    )


def title_of(document: Document) -> str:
    """Return the title of a training, as in papers."""
    if "functions" in document:
        return "Functions on slslab up"
    model = str(document.get("model", "?"))
    trained = f"{MODELS.get(model, model)} on {document.get('dataset', '?')}"
    return f"{title(str(document.get('architecture', '?')))}, {trained}"


def _chips(document: Document) -> Iterator[str]:
    plan = {**document.get("plan", {}), **document}
    if "workers" in plan:
        yield counted(plan["workers"], "worker")
    if "batches" in plan:
        yield counted(plan["batches"], "minibatch an epoch", "minibatches an epoch")
    if "epochs" in plan:
        yield summaries.epochs_text(plan)
    if "batch_size" in plan:
        yield f"{plan['batch_size']:,} images a minibatch"
    if launched := document.get("instances"):
        yield f"{launched[0]['type']}, on {document['device']}"
    elif "memory_mb" in plan:
        yield f"{plan['memory_mb']:,} MB"
    if platform := summaries.platform_of(document):
        yield f"{platform}, on {document.get('device', 'not known')}"
    if "seed" in plan:
        yield f"seed {plan['seed']}"
    if plan.get("as_released"):
        yield "as released"
    options = chosen_options(plan.get("architecture", ""), plan.get("options", {}))
    yield from (f"{name}: {value}" for name, value in options.items())


def _warnings(document: Document, events: Rows | None) -> Iterator[Note]:
    if error := document.get("error"):
        yield failure(error)
    yield from warnings(document)
    if waits := [event for event in events or () if event["op"] == "host.wait"]:
        waited_s = sum(event["end_ns"] - event["start_ns"] for event in waits) / 1e9
        times = counted(len(waits), "time")
        yield Note(
            f"Invocations waited for this host's memory ({times}, {formats.seconds(waited_s)} in all). Their durations "
            "don't include that, but functions that waited for their answers include it."
        )
    if events is None and document["status"] != "running":
        yield Note("The trace could not be read, so this page lacks the timeline and the communication matrix.")


def _versions(document: Document) -> Card | None:
    facts = [(name, str(text)) for name, text in document.get("stack", {}).items()]
    facts += [("torch", str(document["torch"]))] if "torch" in document else []
    if document.get("parameters"):
        facts.append(
            ("parameters", f"{document['parameters']:,} ({formats.size(document['gradient_bytes'])} a gradient)")
        )
    if document.get("parameters_sha256"):
        facts.append(("SHA-256 of the parameters", document["parameters_sha256"]))
    return Card("card-versions", "Parts and result", facts=tuple(facts)) if facts else None
