"""What the page of a run shows, out of its document, its trace and its metered invocations."""

from slslab.metrics import OVERSUBSCRIBED, Records, Rows
from slslab.reports.html import formats
from slslab.reports.html.measures import (
    bill_card,
    invocations_card,
    learning_card,
    memory_card,
    modelled_card,
    phases_card,
)
from slslab.reports.html.parts import Card, Document, Figure, Page, Warning
from slslab.reports.html.published import published_card
from slslab.reports.html.traces import communication_card, timeline_card, traffic_card


def describe_run(document: Document, events: Rows | None, invocations: Records) -> Page:
    """The page of a run; what the document does not have yet is left out."""
    cards = (
        phases_card(document),
        modelled_card(document),
        timeline_card(document, events, invocations),
        bill_card(document),
        learning_card(document),
        memory_card(document, events, invocations),
        communication_card(document, events),
        traffic_card(document),
        invocations_card(document),
        published_card(document),
        _host(document),
        _versions(document),
    )
    model, dataset = document.get("model"), document.get("dataset")
    what = f", {model} on {dataset}" if model else ""
    return Page(
        title=f"{document.get('architecture', 'run')}{what}",
        subtitle=f"run {document['run']}",
        cards=tuple(card for card in cards if card is not None),
        status=str(document["status"]),
        chips=_chips(document),
        warnings=tuple(_warnings(document, events)),
        figures=_figures(document),
    )


def _chips(document: Document) -> tuple[str, ...]:
    plan = {**document.get("plan", {}), **document}
    found = []
    for name, one, several in (
        ("workers", "worker", "workers"),
        ("batches", "minibatch an epoch", "minibatches an epoch"),
        ("epochs", "epoch", "epochs"),
    ):
        if name in plan:
            found.append(f"{plan[name]:,} {one if plan[name] == 1 else several}")
    if "batch_size" in plan:
        found.append(f"{plan['batch_size']:,} images a minibatch")
    if launched := document.get("instances"):
        found.append(f"{launched[0]['type']}, on {document['device']}")
    elif "memory_mb" in plan:
        found.append(f"{plan['memory_mb']:,} MB")
    if "seed" in plan:
        found.append(f"seed {plan['seed']}")
    if plan.get("as_released"):
        found.append("as released")
    found += [f"{name}: {value}" for name, value in plan.get("options", {}).items()]
    return tuple(found)


def _warnings(document: Document, events: Rows | None) -> list[Warning]:
    found = []
    if error := document.get("error"):
        hint = f" Hint: {error['hint']}" if error.get("hint") else ""
        found.append(Warning(f"{error['type']}: {error['message']}{hint}", "bad"))
    host = document.get("host", {})
    if host.get("oversubscribed"):
        of = "instances" if document.get("instances") else "functions"
        follows = (
            "which is wall time and in their bill."
            if document.get("instances")
            else "durations are on the Lambda clock, which takes this out, but waits for delayed peers are not corrected."
        )
        found.append(
            Warning(
                f"Oversubscribed: this host held the {of} up for more than {OVERSUBSCRIBED:.0%} of their time "
                f"({formats.seconds(host['delay_seconds'])} in all); {follows}"
            )
        )
    if host.get("cpu_share_enforced") is False:
        found.append(Warning("This host could not enforce Lambda's CPU share."))
    modelled = document.get("modelled") or {}
    if modelled.get("status", "modelled") != "modelled":
        found.append(Warning(f"Not modelled. {modelled['reason']}"))
    if document.get("trace_torn"):
        found.append(Warning("The trace breaks off in the middle of its last line; what followed is not in here."))
    if events is None and document["status"] != "running":
        found.append(Warning("The trace could not be read: there is no timeline and no communication matrix."))
    found += [Warning(f"{note[:1].upper()}{note[1:]}.") for note in document.get("cost", {}).get("notes", ())]
    return found


def _figures(document: Document) -> tuple[Figure, ...]:
    found = []
    modelled = document.get("modelled") or {}
    if modelled.get("status") != "modelled":
        modelled = {}
    if cost := document.get("cost"):
        note = f"modelled {formats.money(modelled['cost']['total'], '')}".strip() if modelled else ""
        found.append(Figure("cost", formats.money(cost["total"], cost["currency"]), "measured", note))
    if "seconds" in document:
        spent = document["seconds"]
        note = f"modelled {formats.seconds(modelled['seconds'])}" if modelled else ""
        name = "first to last" if "span" in spent else "wall time"
        found.append(Figure(name, formats.seconds(spent.get("span", spent["measured"])), "measured", note))
    if "billed_seconds" in document:
        note = f"modelled {formats.seconds(modelled['billed_seconds'])}" if modelled else ""
        found.append(Figure("billed time", formats.seconds(document["billed_seconds"]), "measured", note))
    if document.get("peak_memory_mb"):
        limit = "" if document.get("instances") else f"of {formats.megabytes(document.get('memory_mb'))}"
        found.append(Figure("peak memory", formats.megabytes(document["peak_memory_mb"]), "measured", limit))
    if accuracy := [value for value in document.get("accuracy", ()) if value is not None]:
        note = f"after {len(document['accuracy'])} epochs"
        found.append(Figure("test accuracy", formats.share(accuracy[-1]), "measured", note))
    if loss := document.get("loss"):
        found.append(Figure("training loss", formats.significant(loss[-1]), "measured"))
    if moved := document.get("bytes"):
        note = f"from them {formats.size(moved['out'])}"
        found.append(Figure("to stores", formats.size(moved["in"]), "exact", note))
    if document.get("invocations"):
        note = f"{document['cold_starts']:,} cold"
        found.append(Figure("invocations", formats.integer(document["invocations"]), "exact", note))
    elif launched := document.get("instances"):
        found.append(Figure("instances", str(len(launched)), "exact", f"on {document['device']}"))
    return tuple(found)


def _host(document: Document) -> Card | None:
    host = document.get("host")
    if not host:
        return None
    launched = document.get("instances")
    if host["cores"] is None:
        share = "not recorded"
    elif launched:
        share = f"not enforced: vCPUs and memory of {launched[0]['type']} are those of this host"
    else:
        share = "enforced" if host["cpu_share_enforced"] else "not enforced on this host"
    facts = [
        ("cores", formats.integer(host["cores"])),
        ("Lambda's CPU share", share),
        ("host delay", formats.seconds(host["delay_seconds"])),
        ("confinement", document.get("confinement") or "not recorded"),
        ("environments", str(document.get("environment", ""))),
    ]
    if document.get("threads"):
        facts.append(("threads a worker", str(document["threads"])))
    package = document.get("package")
    if package and package["needs_container_image"] and not launched:
        size = package["unzipped_bytes"] + package["layer_bytes"]
        facts.append(
            (
                "package",
                f"needs a container image on AWS: {formats.size(size)} with the layer {package['layer']} are more than "
                f"a zip package's {formats.size(package['limit_bytes'])}",
            )
        )
    own = [f"{name.replace('_', ' ')} {formats.seconds(value)}" for name, value in (host["own_cpu_seconds"] or {}).items()]
    if own:
        facts.append(("slslab's own CPU time", ", ".join(own)))
    return Card("card-host", "Host and what it enforced", facts=tuple(facts))


def _versions(document: Document) -> Card | None:
    facts = [(name, str(text)) for name, text in document.get("stack", {}).items()]
    facts += [("torch", str(document["torch"]))] if "torch" in document else []
    if document.get("parameters"):
        facts.append(("parameters", f"{document['parameters']:,} ({formats.size(document['gradient_bytes'])} a gradient)"))
    if document.get("replicas_equal") is not None:
        facts.append(("replicas", "equal to the last bit" if document["replicas_equal"] else "not equal"))
    if document.get("parameters_sha256"):
        facts.append(("SHA-256 of the parameters", document["parameters_sha256"]))
    return Card("card-versions", "Parts and result", facts=tuple(facts)) if facts else None
