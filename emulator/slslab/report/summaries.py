"""Sentences and figures about a run's document that both the terminal and the pages show."""

import re
from collections.abc import Sequence
from decimal import Decimal

from slslab.errors import counted
from slslab.predict.uncertainty import (
    GPU,
    HOST,
    IDLE,
    INSTANCE,
    NONE,
    ON_LAMBDA,
    PROFILE,
    REPLAY,
    SPREAD,
    STARTS,
    STORES,
    ratio_range,
    read_uncertainty,
)
from slslab.report.formats import listed, percent, significant, span
from slslab.report.page import Document

# The name for the cost of the usage as metered on the host; "bill" always means Lambda's.
HOST_PRICED = "this host's seconds, priced"
# Smaller savings than this share aren't mentioned.
NOTEWORTHY = 0.02
PREDICTED_RANGES = (
    "80 % ranges allow for errors in Lambda's processors, this machine's processor, the profile's requests and the "
    "moment at which the CPU quota sets in (docs/reports.md)."
)
RECORDED_BEFORE = "Recorded before ranges: `slslab replay RUN` gives one."
WITH_STRAGGLERS = "with the stragglers of its fault plan"
IMPORTS_HINT = (
    "On Lambda these imports fail, unless a layer or the function's image has the packages. Otherwise put them into "
    "the function's archive (docs/own.md). With --strict-packages such imports fail here, too."
)
IMPORTS_UNKNOWN = (
    "Not checked: whether the functions import a package that their code lacks. Run the plan here, without containers, "
    "and export that run."
)


def replayed(document: Document) -> Document | None:
    """Return the run as modelled on AWS; None if it isn't modelled."""
    found: Document = document.get("lambda") or {}
    return found if found.get("status") == "modelled" else None


def platform_of(document: Document) -> str:
    """Return the platform with GPUs that a run was planned for; empty for AWS."""
    return str(document.get("plan", {}).get("platform") or "")


def epochs_of(document: Document) -> int:
    """Return the number of epochs that a run trained, or planned if it has no result."""
    return int(document.get("epochs_trained") or document["epochs"])


def epochs_text(document: Document) -> str:
    """Return the epochs that a run trained, such as 8 of 80 epochs (until 80 % accuracy)."""
    trained, planned = epochs_of(document), int(document["epochs"])
    if trained >= planned:
        return counted(trained, "epoch")
    aim, accuracy = document.get("plan", {}).get("until_accuracy"), document.get("accuracy")
    reached = f" (until {100 * aim:g} % accuracy)" if aim and accuracy and accuracy[-1] >= aim else ""
    return f"{trained:,} of {planned:,} epochs{reached}"


def headline(document: Document) -> str:
    """Return the main sentence: the run's time and cost on AWS, or why they aren't modelled.

    Empty if `slslab up` hasn't recorded an invocation.
    """
    if "lambda" not in document:
        return _predicted_headline(document) if document.get("invocations") and "predicted" in document else ""
    found = replayed(document)
    platform = platform_of(document)
    where = f"On {platform}" if platform else "On AWS" if document.get("instances") else "On AWS Lambda"
    if found is None:
        sentence = f"{where}: not modelled. {document['lambda']['reason']}"
    else:
        basis = f"{document['gpu']['kind']}, modelled" if platform else f"{region(found)}, modelled"
        sentence = f"{where} ({basis}): {', '.join(modelled_figures(found))}"
        if has_stragglers(document):
            sentence += f", {WITH_STRAGGLERS}"
    return f"{sentence} [oversubscribed]" if document.get("host", {}).get("oversubscribed") else sentence


def has_stragglers(document: Document) -> bool:
    """Return whether a run is modelled with the slow workers of its fault plan."""
    slow = any(fault["kind"] == "straggler" and fault["times"] for fault in document.get("faults") or ())
    return slow and replayed(document) is not None


def _predicted_headline(document: Document) -> str:
    found = document["predicted"]
    return (
        f"On AWS Lambda ({region(found)}, modelled): {figure_text(found, 'billed_seconds')} s billed, "
        f"{cost_text(found)}. "
        f"This host: {significant(document['billed_seconds'], 3)} s, {amount(document['cost'])}."
    )


def predicted_notes(document: Document) -> list[str]:
    """Return what the ranges of a prediction cover, and other caveats, in sentences."""
    if "predicted" not in document or not document.get("invocations"):
        return []
    return [PREDICTED_RANGES, *document["predicted"]["notes"]]


def advice(document: Document) -> str:
    """Return how much of the billed time is waiting, and which memory size would be cheaper; empty if not modelled."""
    found = replayed(document)
    if found is None:
        return ""
    sentence = f"{percent(found['waiting_share'])} of the billed time is waiting"
    own, sizes = own_size(document), found.get("memory_sizes", ())
    if own is None:
        return f"{sentence}."
    # Assume that every size is as uncertain as the run's own.
    uncertain = {name: read_uncertainty(each).of_one_recording() for name, each in found.get("uncertainty", {}).items()}

    def changes(size: Document, figure: str) -> tuple[float, float]:
        values = float(size[figure]), float(own[figure])
        errors = uncertain.get(figure, NONE)
        low, high = ratio_range(values, (errors, errors))
        return low - 1, high - 1

    best = min(sizes, key=lambda size: float(size["cost"]))
    cheaper = changes(best, "cost")
    if float(best["cost"]) > (1 - NOTEWORTHY) * float(own["cost"]):
        return f"{sentence}; no other memory size would be {percent(NOTEWORTHY)} cheaper."
    if cheaper[1] > 0:
        return f"{sentence}; {best['memory_mb']:,} MB may be cheaper, but the two can't be told apart."
    return (
        f"{sentence}; {best['memory_mb']:,} MB would be {_changed(cheaper, 'cheaper', 'more expensive')} and "
        f"{_changed(changes(best, 'seconds'), 'faster', 'slower')}."
    )


def _changed(ends: tuple[float, float], less: str, more: str) -> str:
    """Return a range of changes (as shares) in words, such as 12 to 20 % cheaper."""
    low, high = ends
    if low < 0 < high:
        return f"{percent(-low)} {less} to {percent(high)} {more}"
    shares = sorted(abs(end) for end in ends)
    first, last = map(percent, shares)
    return f"{last if first == last else f'{100 * shares[0]:.0f} to {last}'} {less if high <= 0 else more}"


def own_size(document: Document) -> Document | None:
    """Return the replayed memory size that is the run's own; None if there isn't one, as for instances."""
    sizes = (replayed(document) or {}).get("memory_sizes", ())
    return next((size for size in sizes if size["memory_mb"] == document["memory_mb"]), None)


def build_note(torch: str | None) -> str:
    """Return which build of PyTorch a peak memory was measured with, as the end of a clause; empty if unknown."""
    if torch is None:
        return ""
    other = "a CUDA build takes about twice as much" if torch.endswith("+cpu") else "a CPU build takes about half"
    return f" with torch {torch} ({other})"


def region(found: Document) -> str:
    """Return the region that a run was modelled in, or the profile's name if it doesn't contain a region."""
    name = str(found["profile"]["name"])
    region = re.match(r"aws-([a-z]+-[a-z]+-\d+)", name)
    return region[1] if region else name


def modelled_figures(found: Document) -> tuple[str, str]:
    """Return the seconds and the cost of a modelled run, each as its 80 % range, or its value without a range."""
    return f"{figure_text(found, 'seconds', 3)} s", cost_text(found)


def cost_text(found: Document) -> str:
    """Return a modelled cost with its currency: the 80 % range, or the value without one."""
    if has_range(found):
        return f"{figure_text(found, 'cost')} {found['cost']['currency']}"
    return amount(found["cost"])


def figure_text(found: Document, figure: str, digits: int = 4) -> str:
    """Return a modelled figure, such as `cost`: its 80 % range, or its value without a range."""
    if not has_range(found):
        return significant(float(found["cost"]["total"] if figure == "cost" else found[figure]), digits)
    of_functions = {**found, "cost": found["cost"].get("range")}
    ends = found.get("ranges", of_functions)[figure]
    return span(ends["low"], ends["high"])


def has_range(found: Document) -> bool:
    """Return whether a modelled run, or functions, have 80 % ranges."""
    return "ranges" in found or "range" in found["cost"]


def range_note(*found: Document | None) -> str:
    """Return a sentence on the sources of these modelled runs' ranges; empty if no run is modelled."""
    known = [one for one in found if one is not None]
    notes = [ranges_made_of([one["uncertainty"]["seconds"] for one in known if "uncertainty" in one])]
    notes += [RECORDED_BEFORE] if any("ranges" not in one for one in known) else []
    return " ".join(filter(None, notes))


def ranges_made_of(deviations: Sequence[Document]) -> str:
    """Return what 80 % ranges with these standard deviations cover, and what they don't; empty without any."""
    if not deviations:
        return ""
    uncertainties = [read_uncertainty(each) for each in deviations]
    named = {name for each in uncertainties for name in each.half_widths()}
    sources = ["Lambda's processors"] if any(name.endswith(ON_LAMBDA) for name in named) else []
    sources += [
        source for source in (GPU, INSTANCE, HOST, PROFILE, STARTS, STORES, IDLE, REPLAY, SPREAD) if source in named
    ]
    sentence = f"80 % ranges allow for errors in {listed(sources)} (docs/replay.md)."
    untested = any(PROFILE not in each.shared for each in uncertainties)
    return f"{sentence} The profile's requests were never tested, so their error isn't included." * untested or sentence


def half_widths(found: Document, figure: str = "seconds") -> list[tuple[str, float]]:
    """Return the sources of a modelled figure's range with each one's half-width, largest first."""
    if "uncertainty" not in found:
        return []
    widths = read_uncertainty(found["uncertainty"][figure]).half_widths()
    return sorted(widths.items(), key=lambda width: -width[1])


def processor_note(document: Document) -> str:
    """Return the anchors that compare this machine's processor with Lambda's, or how to measure them.

    Empty for a run without a range, and if the range doesn't depend on the processor.
    """
    found = replayed(document) or {}
    if HOST not in dict(half_widths(found)):
        return ""
    processor = document.get("processor")
    if processor is None or not processor["anchors"]:
        return not_anchored()
    anchors = listed([f"{name} ({year})" for name, year in processor["anchors"].items()])
    forms = {"whole": "at full length", "short": "in short form, which widens the range"}
    measured = f"Anchors of the processor, measured on {processor['name']} {forms[processor['form']]}: {anchors}."
    return f"{measured} {processor['missing']}".rstrip()


def not_anchored(which: str = "this run") -> str:
    """Return a note that the machine of these runs wasn't compared with Lambda's processors, and what to type."""
    return (
        f"The machine of {which} wasn't compared with Lambda's processors, so the range is wide. Before the next run, "
        "type: slslab calibrate --processor"
    )


def unanchored_note(documents: Sequence[Document], names: Sequence[str]) -> str:
    """Return which runs' machines weren't compared with Lambda's processors, and what to type; may be empty."""
    named = [
        name for name, document in zip(names, documents, strict=True) if processor_note(document) == not_anchored()
    ]
    return not_anchored(listed(named)) if named else ""


def instances_note(document: Document) -> str:
    """Return a note that the speed of a run's instances is assumed, and whether the range allows for it.

    Empty for a run of functions or without a range.
    """
    kinds = sorted({instance["type"] for instance in document.get("instances") or ()})
    found = replayed(document) or {}
    if not kinds or "ranges" not in found:
        return ""
    assumed = f"The speed of {listed(kinds)} is assumed"
    if INSTANCE in dict(half_widths(found)):
        return f"{assumed}, and the range allows for it."
    return f"{assumed}, so its error isn't in the range."


def limit_notes(document: Document) -> list[str]:
    """Return a sentence for each limit kept here that a run may exceed on Lambda, or the reverse."""
    notes, platform = [], platform_of(document) or "Lambda"
    found = (replayed(document) or {}).get("limits", ())
    for limit, kept in sorted({(one["limit"], one["kept_here"]) for one in found}):
        alike = [one for one in found if (one["limit"], one["kept_here"]) == (limit, kept)]
        worst = max(alike, key=lambda one: float(one["high"]))
        what = "init" if limit == "init" else "the longest invocation"
        bound = f"the {'limit' if limit == 'init' else 'timeout'} of {worst['limit_seconds']:g} s"
        certain = worst["low"] > worst["limit_seconds"] if kept else worst["high"] <= worst["limit_seconds"]
        does = ("exceeds" if certain else "may exceed") if kept else ("keeps" if certain else "may keep")
        takes = f"takes {span(worst['low'], worst['high'])} s and {does} {bound}, unlike here"
        others = f", and so for {counted(len(alike) - 1, 'other function')}" if len(alike) > 1 else ""
        notes.append(f"On {platform} {what} of {worst['function']} {takes}{others}.")
    return notes


def amount(cost: Document) -> str:
    """Return the total of a bill with its currency and three significant digits."""
    number = significant(float(cost["total"]), 3)
    return f"${number}" if cost["currency"] == "USD" else f"{number} {cost['currency']}"


def peak_limit_mb(document: Document) -> int | None:
    """Return the memory size of the function with the highest peak, MB; None for instances and if unknown."""
    if document.get("instances"):
        return None
    limit: int | None = document.get("peak_memory_limit_mb", document.get("memory_mb"))
    return limit


def cpu_share_enforced(document: Document) -> bool | None:
    """Return whether functions were limited to Lambda's CPU share; None if none ran, and if unknown."""
    enforced: bool | None = document["host"]["cpu_share_enforced"] if document.get("invocations") else None
    return enforced


def alone_note(alone: Document) -> str:
    """Return caveats on CPU seconds that were measured alone."""
    if alone["status"] != "measured":
        return f"CPU seconds weren't measured alone, so replay uses the run's own. {alone['reason']}"
    steps = counted(sum(kind["count"] for kind in alone["kinds"]), "step")
    note = f"Replay uses CPU seconds of {steps} measured alone before the run, within {alone['seconds']:,.1f} s."
    if alone.get("priority") == "normal":
        note += " They were measured at normal priority: this host doesn't allow a higher one, so the range is wider."
    if not alone["quiet"]:
        note += f" NOT QUIET: other programs slowed the host {alone['probe_ratio']:,.2f} times, so the range is wider."
    return note


def quantity(text: str) -> str:
    """Return a bill's quantity, with six decimals unless it is a whole number."""
    number = Decimal(text)
    return f"{number:,}" if number == number.to_integral_value() else f"{number:,.6f}"
