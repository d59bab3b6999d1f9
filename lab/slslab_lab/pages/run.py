"""The content of a run's page, from its document, its trace and its metered invocations."""

from collections.abc import Iterator

from slslab.errors import counted
from slslab.report import formats
from slslab.report.cards import faults_card, functions_card, invocations_card
from slslab.report.formats import percent
from slslab.report.page import Card, Document, Figure, Note, Page, Played
from slslab.report.summaries import (
    HOST_PRICED,
    advice,
    buffers_note,
    cpu_share_enforced,
    epochs_text,
    figure_text,
    gpu_memory,
    headline,
    imports_notes,
    instances_note,
    limit_notes,
    peak_limit_mb,
    platform_of,
    predicted,
    predicted_notes,
    range_note,
    replayed,
    uncertain_note,
)
from slslab.run.metrics import OVERSUBSCRIBED, Records, Rows
from slslab_lab.pages.measures import (
    bill_card,
    learning_card,
    memory_card,
    modelled_card,
    phases_card,
    present_card,
    shares_card,
    sizes_card,
)
from slslab_lab.pages.published import published_card
from slslab_lab.pages.traces import communication_card, timeline_card, traffic_card
from slslab_workers.architecture import chosen_options, title

# Names as in papers.
MODELS = {
    "lenet": "LeNet-5", "mobilenet": "MobileNet", "resnet18": "ResNet-18", "resnet34": "ResNet-34",
    "resnet50": "ResNet-50",
}  # fmt: skip


def describe_run(document: Document, events: Rows | None, invocations: Records, modelled: Played | None = None) -> Page:
    """Return the page of a run, without missing parts of the document; `modelled` is its trace on Lambda."""
    cards = (
        present_card(document),
        faults_card(document),
        sizes_card(document),
        timeline_card(document, events, invocations, modelled),
        modelled_card(document),
        bill_card(document),
        phases_card(document),
        shares_card(document),
        learning_card(document),
        memory_card(document, events, invocations),
        communication_card(document, events),
        traffic_card(document),
        functions_card(document),
        invocations_card(document),
        published_card(document),
        _host(document),
        _versions(document),
    )
    return Page(
        title=title_of(document),
        answers=tuple(filter(None, [document.get("progress"), headline(document), advice(document)])),
        answers_note=" ".join(
            filter(None, (range_note(replayed(document)), instances_note(document), *predicted_notes(document)))
        ),
        subtitle=f"since {document['started_at']}" if "functions" in document else f"run {document['run']}",
        cards=tuple(card for card in cards if card is not None),
        status=str(document["status"]),
        chips=tuple(_chips(document)),
        warnings=tuple(_warnings(document, events)),
        figures=tuple(_figures(document)),
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
    yield from (
        f"{plan[name]:,} {singular if plan[name] == 1 else plural}"
        for name, singular, plural in (
            ("workers", "worker", "workers"),
            ("batches", "minibatch an epoch", "minibatches an epoch"),
        )
        if name in plan
    )
    if "epochs" in plan:
        yield epochs_text(plan)
    if "batch_size" in plan:
        yield f"{plan['batch_size']:,} images a minibatch"
    if launched := document.get("instances"):
        yield f"{launched[0]['type']}, on {document['device']}"
    elif "memory_mb" in plan:
        yield f"{plan['memory_mb']:,} MB"
    if platform := platform_of(document):
        yield f"{platform}, on {document.get('device', 'not known')}"
    if "seed" in plan:
        yield f"seed {plan['seed']}"
    if plan.get("as_released"):
        yield "as released"
    options = chosen_options(plan.get("architecture", ""), plan.get("options", {}))
    yield from (f"{name}: {value}" for name, value in options.items())


def _warnings(document: Document, events: Rows | None) -> Iterator[Note]:
    if error := document.get("error"):
        did = f" {error['last_activity']}" if error.get("last_activity") else ""
        hint = f" Hint: {error['hint']}" if error.get("hint") else ""
        yield Note(f"{error['type']}: {error['message']}{did}{hint}", "bad")
    yield from map(Note, filter(None, [buffers_note(document), uncertain_note(document)]))
    if waits := [event for event in events or () if event["op"] == "host.wait"]:
        waited_s = sum(event["end_ns"] - event["start_ns"] for event in waits) / 1e9
        times = counted(len(waits), "time")
        yield Note(
            f"Invocations waited for this host's memory ({times}, {formats.seconds(waited_s)} in all). Their durations "
            "don't include that, but functions that waited for their answers include it."
        )
    yield from map(Note, (*limit_notes(document), *imports_notes(document)))
    if cpu_share_enforced(document) is False:
        yield Note("This host could not enforce Lambda's CPU share.")
    if document.get("trace_torn"):
        yield Note("The trace breaks off in the middle of its last line; later events are missing here.")
    if events is None and document["status"] != "running":
        yield Note("The trace could not be read, so this page lacks the timeline and the communication matrix.")
    yield from (Note(f"{note[:1].upper()}{note[1:]}.") for note in document.get("cost", {}).get("notes", ()))


def _figures(document: Document) -> Iterator[Figure]:
    found, own = replayed(document), predicted(document)

    def both(title: str, there: str | None, here: str, named: str = "") -> Figure:
        if there is None:
            return Figure(named or title, here, "measured")
        note = "80 % range" if own or (found and "ranges" in found) else ""
        return Figure(title, there, "modelled", note, (f"{here} {named}".strip(), "measured"))

    def measured(title: str, value: str, note: str = "") -> Figure:
        return Figure(title, value, "measured", note)

    if spent := document.get("seconds"):
        name = "first to last" if "span" in spent else "wall time"
        theirs = f"{figure_text(found, 'seconds')} s" if found else None
        yield both(name, theirs, formats.seconds(spent.get("span", spent["measured"])))
    if cost := document.get("cost"):
        theirs = figure_text(found, "cost") if found else None
        theirs = formats.span(**own["cost"]["range"]) if own else theirs
        named = f"{HOST_PRICED}, {cost['currency']}" if {"lambda", "predicted"} & document.keys() else ""
        yield both(f"bill, {cost['currency']}", theirs, formats.money(cost["total"]), named)
    if "billed_seconds" in document:
        theirs = f"{figure_text(found, 'billed_seconds')} s" if found else None
        if own:
            theirs = f"{formats.span(own['billed_seconds']['low'], own['billed_seconds']['high'])} s"
        yield both("billed time", theirs, formats.seconds(document["billed_seconds"]))
    if document.get("peak_memory_mb"):
        limit_mb = peak_limit_mb(document)
        limit = "" if limit_mb is None else f"of {formats.megabytes(limit_mb)}"
        yield measured("peak memory", formats.megabytes(document["peak_memory_mb"]), limit)
    if peak := gpu_memory(document):
        yield measured("peak GPU memory", f"{peak} MB")
    if accuracy := [value for value in document.get("accuracy", ()) if value is not None]:
        note = f"after {counted(len(document['accuracy']), 'epoch')}"
        yield measured("test accuracy", formats.share(accuracy[-1]), note)
    if loss := document.get("loss"):
        yield measured("training loss", formats.significant(loss[-1]))
    if moved := document.get("bytes"):
        yield Figure("bytes sent", formats.size(moved["in"]), "exact", f"{formats.size(moved['out'])} received")
    if document.get("invocations"):
        note = f"{document['cold_starts']:,} cold"
        yield Figure("invocations", formats.integer(document["invocations"]), "exact", note)
    elif launched := document.get("instances"):
        yield Figure("instances", str(len(launched)), "exact", f"on {document['device']}")


def _node(node: Document) -> str:
    lost = "; it was lost" if node["lost"] else ""
    place = f"{counted(node['cores'], 'core')}, {node['memory_mb']:,} MB"
    return f"{place}, its clock within {node['clock_error_ms']:g} ms{lost}"


def _host(document: Document) -> Card | None:
    host = document.get("host")
    if not host:
        return None
    launched = document.get("instances")
    if host["cores"] is None:
        share = "not recorded"
    elif launched:
        share = f"not enforced: instances have this host's vCPUs and memory, unlike {launched[0]['type']}"
    else:
        shares = {True: "enforced", False: "not enforced on this host", None: "no function ran"}
        share = shares[cpu_share_enforced(document)]
    facts = [
        *([("host", f"{host['name']}, {host['processors']}")] if "name" in host else []),
        ("cores", formats.integer(host["cores"])),
        ("Lambda's CPU share", share),
        ("host delay", _delay(document)),
        ("confinement", document.get("confinement") or "not recorded"),
        ("environments", str(document.get("environment", ""))),
        *((f"node {node['name']}", _node(node)) for node in host.get("nodes", ())),
    ]
    if document.get("threads"):
        facts.append(("threads a worker", str(document["threads"])))
    package = document.get("package")
    if package and package["needs_container_image"] and not launched and not platform_of(document):
        size = package["unzipped_bytes"] + package["layer_bytes"]
        facts.append(
            (
                "package",
                f"needs a container image on AWS: {formats.size(size)} with the layer {package['layer']} are more than "
                f"a zip package's {formats.size(package['limit_bytes'])}",
            )
        )
    spent = [
        f"{name.replace('_', ' ')} {formats.seconds(value)}" for name, value in (host["own_cpu_seconds"] or {}).items()
    ]
    if spent:
        facts.append(("slslab's own CPU time", ", ".join(spent)))
    return Card("card-host", "Host and what it enforced", facts=tuple(facts))


def _delay(document: Document) -> str:
    host, of = document["host"], "instances" if document.get("instances") else "functions"
    delay = formats.seconds(host["delay_seconds"])
    if not host["oversubscribed"]:
        return delay
    share = percent(OVERSUBSCRIBED)
    return f"{delay}: this machine was overloaded. The {of} waited for it for more than {share} of their time"


def _versions(document: Document) -> Card | None:
    facts = [(name, str(text)) for name, text in document.get("stack", {}).items()]
    facts += [("torch", str(document["torch"]))] if "torch" in document else []
    if document.get("parameters"):
        facts.append(
            ("parameters", f"{document['parameters']:,} ({formats.size(document['gradient_bytes'])} a gradient)")
        )
    if document.get("replicas_equal") is not None:
        facts.append(("replicas", "equal to the last bit" if document["replicas_equal"] else "not equal"))
    if document.get("parameters_sha256"):
        facts.append(("SHA-256 of the parameters", document["parameters_sha256"]))
    return Card("card-versions", "Parts and result", facts=tuple(facts)) if facts else None
