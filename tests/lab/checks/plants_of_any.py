"""What is planted whatever the architecture: in times, and in the ledger and its bill."""

from tests.lab.checks.planting import PLANTS, Planted, Planting, plant, planted

__all__ = ["PLANTS"]


# --- times, whatever the architecture ---


@plant
def a_span_that_was_lengthened() -> Planted:
    p = Planting("scatterreduce")
    computed = p.find("compute", worker=1, epoch=0, step=2)
    computed["end_ns"] += 5_000_000_000
    return planted(p, "overlap", computed, "span")


@plant
def an_event_after_the_end_of_its_invocation() -> Planted:
    p = Planting("scatterreduce")
    last = [event for event in p.events if event["worker"] == 1][-1]
    last["end_ns"] = max(record["end_ns"] for record in p.records) + 1
    return planted(p, "span", last)


@plant
def a_duration_that_was_cut() -> Planted:
    p = Planting("scatterreduce")
    record = p.records[0]
    worker = next(e["worker"] for e in p.events if e["invocation"] == record["request_id"] and e["worker"] >= 0)
    init_ms = record["init_ms"] or 0.0
    whole_ms = record["host_delay_ms"] + record["duration_ms"] + init_ms
    record.update(duration_ms=1.0, init_ms=None, billed_ms=1, report="", host_delay_ms=whole_ms / 100)
    return planted(p, "span", None, worker=worker, place=(0, 0))


@plant
def a_millisecond_that_was_billed_too_much() -> Planted:
    p = Planting("scatterreduce")
    record = p.records[1]
    record["billed_ms"] += 1
    record["report"] = record["report"].replace(f"{record['billed_ms'] - 1} ms", f"{record['billed_ms']} ms")
    worker = next(e["worker"] for e in p.events if e["invocation"] == record["request_id"] and e["worker"] >= 0)
    return planted(p, "billed", None, worker=worker, place=(0, 0))


@plant
def a_report_line_of_another_duration() -> Planted:
    p = Planting("spirt")
    record = next(r for r in p.records if r["function"].endswith("aggregation"))
    event = next(e for e in p.events if e["invocation"] == record["request_id"] and e["worker"] >= 0)
    record["report"] = record["report"].replace("Memory Size: ", "Memory Size: 1")
    return planted(p, "billed", None, worker=event["worker"], place=(event["epoch"], event["step"]))


@plant
def an_instance_second_that_was_not_billed() -> Planted:
    p = Planting("gpu")
    p.instances[0]["billed_seconds"] -= 1
    return planted(p, "billed", None, worker=p.instances[0]["worker"])


@plant
def events_in_another_order() -> Planted:
    p = Planting("gpu")
    run = p.done()
    later = next(event for event in p.events if event["op"] == "wait")
    later["start_ns"] -= 10_000_000_000
    return Planted(
        run, "order", later["worker"], (later["epoch"], later["step"]), later, frozenset({"overlap", "span"})
    )


@plant
def a_cause_after_its_effect() -> Planted:
    p = Planting("gpu")
    computed = p.find("compute", worker=1, epoch=1, step=0)
    computed["causes"] = [p.events[-1]["event"]]
    return planted(p, "order", computed)


# --- ledger to bill ---


@plant
def an_invocation_that_was_not_metered() -> Planted:
    p = Planting("mlless")
    record = next(r for r in p.records if r["function"].endswith("supervisor"))
    p.records.remove(record)
    accepted = p.find("invoke", invocation=record["request_id"], worker=-1)
    return planted(p, "metered", accepted, worker=2)


@plant
def an_invocation_that_was_metered_twice() -> Planted:
    p = Planting("spirt")
    p.records.append(p.records[3])
    return planted(p, "metered", p.find("invoke", invocation=p.records[3]["request_id"], worker=-1))


@plant
def a_figure_of_the_document() -> Planted:
    p = Planting("allreduce", document=True)
    assert p.run.document is not None
    return planted(p, "totals", None, document={**p.run.document, "billed_seconds": 1.0})


@plant
def a_request_that_the_document_does_not_count() -> Planted:
    p = Planting("s-asp", document=True)
    p.repeat(p.find("object.get", "/data/", worker=1))
    return planted(p, "totals", None, "bill")


@plant
def a_line_of_the_bill() -> Planted:
    p = Planting("allreduce", document=True)
    assert p.run.document is not None
    cost = p.run.document["cost"]
    first, *others = cost["lines"]
    changed = {**cost, "lines": [{**first, "quantity": "1000"}, *others]}
    return planted(p, "bill", None, document={**p.run.document, "cost": changed})


@plant
def a_line_that_the_bill_leaves_out() -> Planted:
    p = Planting("mlless", document=True)
    assert p.run.document is not None
    cost = p.run.document["cost"]
    return planted(p, "bill", None, document={**p.run.document, "cost": {**cost, "lines": cost["lines"][1:]}})


@plant
def a_total_of_the_bill() -> Planted:
    p = Planting("gpu", document=True)
    assert p.run.document is not None
    cost = {**p.run.document["cost"], "total": "0.5"}
    return planted(p, "bill", None, document={**p.run.document, "cost": cost})
