"""Which sizes a tuning invokes, with a function that takes what its memory size makes of it."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from tests.emulator.tune.test_estimates import estimator
from tests.metered import record

from slslab.aws.limits import lambda_limits
from slslab.errors import HostError, RequestError
from slslab.report.tuning import answers, tuning, tuning_page
from slslab.tune.document import describe, find_fault, tune_and_describe
from slslab.tune.tuning import Payload, Sizes, TunedFunction, choose_sizes, tune

# Returns CPU time and duration (ms) at a memory size, or the error type with which the function fails.
Behaviour = Callable[[int], tuple[float, float] | str]
SIZES = (128, 256, 512, 1024, 1769, 3008, 10240)
LIMIT = lambda_limits().memory_mb


class FakeLambda:
    """boto3's client for one function, which remembers the sizes at which it was invoked."""

    def __init__(self, behaviour: Behaviour, memory_mb: int = 512, peak_mb: int = 60, interrupt_at: int = 0) -> None:
        self.behaviour, self.memory_mb, self.peak_mb, self.interrupt_at = behaviour, memory_mb, peak_mb, interrupt_at
        self.uncertain_ms = 0.0
        self.records: list[dict[str, Any]] = []
        self.events: list[Any] = []
        self.fresh = True

    @property
    def invoked(self) -> list[int]:
        return list(dict.fromkeys(one["memory_mb"] for one in self.records))

    def get_function_configuration(self, FunctionName: str) -> dict[str, Any]:
        if FunctionName != "f":
            raise ClientError({"Error": {"Message": f"Function not found: {FunctionName}"}}, "GetFunctionConfiguration")
        return {"FunctionName": "f", "Version": "$LATEST", "MemorySize": self.memory_mb, "Timeout": 3}

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_functions"
        return SimpleNamespace(paginate=lambda: [{"Functions": [{"FunctionName": name}]} for name in "ef"])

    def update_function_configuration(self, FunctionName: str, MemorySize: int) -> None:
        assert FunctionName == "f"
        self.memory_mb, self.fresh = MemorySize, True

    def invoke(self, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        assert FunctionName == "f"
        if self.interrupt_at and len(self.records) >= self.interrupt_at:
            raise KeyboardInterrupt
        self.events.append(json.loads(Payload))
        found = self.behaviour(self.memory_mb)
        cold, self.fresh = self.fresh, False
        init = {"init_ms": 100.0, "init_cpu_ms": 100.0} if cold else {}
        cpu_ms, took_ms = (50.0, 50.0) if isinstance(found, str) else found
        cpu_ms += 100 * cold
        name = f"r{len(self.records)}"
        error = {"error_type": found if isinstance(found, str) else None, "uncertain_ms": self.uncertain_ms}
        self.records.append(
            record(cpu_ms, took_ms, self.memory_mb, request_id=name, cold_start=cold, max_memory_mb=self.peak_mb)
            | init
            | error
        )
        answer: dict[str, Any] = {"ResponseMetadata": {"RequestId": name}, "Payload": io.BytesIO(b"{}")}
        if isinstance(found, str):
            answer |= {"FunctionError": "Unhandled"}
            answer["Payload"] = io.BytesIO(json.dumps({"errorType": found, "errorMessage": "no"}).encode())
        return answer


def run(
    client: FakeLambda, sizes: tuple[int, ...] = SIZES, *events: Any, cores: int = 2, **more: Any
) -> dict[str, Any]:
    """Tune; return the document. All its texts are made, too."""
    function = TunedFunction(client, "f", lambda: (client.records, {}))
    own_mb = client.memory_mb
    payloads = [Payload(1 / max(1, len(events)), event) for event in events or ({},)]
    weights = [payload.weight for payload in payloads]
    known = Sizes(estimator(*weights, cores=cores), own_mb, 3.0, choose_sizes(None, sizes, own_mb, LIMIT))
    known.measured |= more.pop("measured", {})
    done: list[int] = []
    tune(function, known, payloads, lambda *_: None, lambda measured: done.append(measured.memory_mb))
    assert client.memory_mb == own_mb
    deadline_s, goal = more.pop("deadline_s", None), more.pop("goal", "cheapest")
    document = describe("f", known, payloads, deadline_s, goal, function.samples(function.made), 1.0)
    assert json.loads(json.dumps(document)) == document
    assert list(tuning(document))
    assert tuning_page(document).answers[0] == next(answers(document))
    return document


def basis(document: dict[str, Any]) -> dict[int, str]:
    return {row["memory_mb"]: row["basis"] for row in document["sizes"]}


def computes(memory_mb: int) -> tuple[float, float]:
    """A single thread with 200 ms of CPU time."""
    return 200, 200 * max(1.0, 1769 / memory_mb)


def waits(memory_mb: int) -> tuple[float, float]:
    """It waits for a second."""
    return 2, 1000 + 2 * max(1.0, 1769 / memory_mb)


def two_processes(memory_mb: int) -> tuple[float, float]:
    return 400, 400 / min(memory_mb / 1769, 2)


def test_a_function_that_waits_needs_the_smallest_size_and_few_invocations() -> None:
    client = FakeLambda(waits)
    document = run(client)
    assert document["memory"] == 128
    assert client.invoked == [512, 128]
    # Five cold starts, one warm invocation that is dropped, and five more, of two sizes.
    assert (document["invocations"], document["cold_starts"]) == (22, 10)
    assert document["answers"]["cheapest"] == {"memory_mb": 128, "alike": []}


def test_a_function_that_computes_costs_the_same_up_to_one_processor() -> None:
    client = FakeLambda(computes)
    document = run(client)
    cheapest, fastest = document["answers"]["cheapest"], document["answers"]["fastest"]
    assert {cheapest["memory_mb"], *cheapest["alike"]} >= {256, 512, 1024, 1769}
    assert fastest == {"memory_mb": 1769, "alike": [3008, 10240]}
    assert client.invoked[:2] == [512, 128]
    assert 3008 in client.invoked, "it might have had several threads"
    assert 10240 not in client.invoked, "this machine has two processors"
    assert basis(document)[10240] == "modelled"
    rows = {row["memory_mb"]: row for row in document["sizes"]}
    assert rows[10240]["more_processors"]


def test_two_processes_win_with_two_processors() -> None:
    document = run(FakeLambda(two_processes))
    assert document["answers"]["fastest"]["memory_mb"] in (3008, 10240)
    assert {3008, 10240} <= {document["answers"]["fastest"]["memory_mb"], *document["answers"]["fastest"]["alike"]}


def test_own_size_first_then_the_smallest_that_fits() -> None:
    client = FakeLambda(waits, memory_mb=1024, peak_mb=300)
    document = run(client)
    assert client.invoked == [1024, 512]
    assert basis(document)[128] == basis(document)[256] == "left out"
    assert document["sizes"][0]["reason"] == "the function used 300 MB"


def test_out_of_memory_means_that_it_does_not_fit() -> None:
    client = FakeLambda(lambda mb: "Runtime.OutOfMemory" if mb < 512 else waits(mb), memory_mb=1024)
    document = run(client)
    assert document["memory"] == 512
    assert [row["reason"] for row in document["sizes"][:2]] == ["it ran out of memory"] * 2
    assert len([one for one in client.records if one["memory_mb"] == 128]) == 1


def test_a_size_at_which_it_times_out_is_left_out_with_all_smaller_ones() -> None:
    client = FakeLambda(lambda mb: "Sandbox.Timedout" if mb < 1024 else (1000, 1000), memory_mb=512)
    document = run(client)
    reasons = {row["memory_mb"]: row["reason"] for row in document["sizes"]}
    assert reasons[512] == "it timed out after 3 s"
    assert reasons[256] == reasons[128] == "it timed out after 3 s at 512 MB already"
    assert 128 not in client.invoked
    assert document["memory"] is not None


def test_a_size_that_would_time_out_is_not_invoked() -> None:
    client = FakeLambda(lambda mb: (1000, 1000 * max(1.0, 1769 / mb)), memory_mb=1769)
    document = run(client)
    assert client.invoked[0] == 1769
    assert 128 not in client.invoked
    assert document["sizes"][0]["reason"] == "it would take 13.8 s and time out"


def test_a_function_that_fails_at_every_size_is_one_sentence() -> None:
    client = FakeLambda(lambda _: "KeyError")
    with pytest.raises(RequestError, match="it failed: KeyError: no") as error:
        run(client)
    assert error.value.message.startswith("f fails at every memory size. At its own, ")
    assert "--payload" in error.value.hint
    assert client.memory_mb == 512
    assert len(client.records) == len(SIZES)


def test_ctrl_c_leaves_the_memory_size_as_it_was() -> None:
    client = FakeLambda(waits, interrupt_at=15)
    with pytest.raises(KeyboardInterrupt):
        run(client)
    assert client.records[-1]["memory_mb"] == 128
    assert client.memory_mb == 512


def test_noise_needs_more_invocations_but_at_most_twenty() -> None:
    durations = iter([1000, 1400, 800] * 100)
    document = run(FakeLambda(lambda _: (1, next(durations)), memory_mb=128), (128,))
    assert document["sizes"][0]["here"]["rounds"] == 20


def test_each_round_has_every_payload() -> None:
    client = FakeLambda(waits)
    run(client, (128, 512), "a", "b")
    assert client.events.count("a") >= 2 * 6
    assert abs(client.events.count("a") - client.events.count("b")) <= 2


def test_what_is_known_is_not_invoked_again() -> None:
    first = FakeLambda(waits)
    function = TunedFunction(first, "f", lambda: (first.records, {}))
    known = Sizes(estimator(), 512, 3.0, SIZES)
    tune(function, known, [Payload(1.0, {})], lambda *_: None, lambda _: None)
    again = FakeLambda(waits)
    document = run(again, measured=known.measured)
    assert again.records == []
    assert (document["memory"], document["invocations"], document["used_before"]) == (128, 0, 20)
    assert any("20 earlier invocations were used, too." in str(part) for part in tuning(document))


def test_a_deadline() -> None:
    assert run(FakeLambda(computes), deadline_s=0.3)["memory"] == 1769
    document = run(FakeLambda(computes), deadline_s=0.1)
    assert document["memory"] is None
    assert next(answers(document)) == "No memory size is surely done in 0.1 s on Lambda."


def test_a_deadline_and_a_goal() -> None:
    document = run(FakeLambda(computes), deadline_s=3, goal="fastest")
    assert document["answers"]["deadline"] == document["answers"]["fastest"]
    assert document["memory"] == 1769
    sentence = next(answers(document))
    assert sentence.startswith("Fastest of those done in 3 s on Lambda: 1,769 MB")
    assert sentence.endswith("3,008 and 10,240 MB can't be told apart from it by time.")


def test_a_goal_that_is_not_there_is_refused_before_anything_is_invoked() -> None:
    client = FakeLambda(waits)
    function = TunedFunction(client, "f", lambda: (client.records, {}))
    with pytest.raises(RequestError, match="'best' isn't a goal") as error:
        tune_and_describe(function, Sizes(estimator(), 512, 3.0, SIZES), [Payload(1.0, {})], goal="best")
    assert error.value.hint == "choose from cheapest, fastest and balanced."
    assert client.records == []


def test_a_machine_that_meters_no_cpu_time() -> None:
    with pytest.raises(HostError, match="This machine can't meter CPU time"):
        run(FakeLambda(lambda _: (0, 100)), (512, 1024))


def test_no_size_within_the_timeout() -> None:
    document = run(FakeLambda(lambda _: (2900, 3500), memory_mb=1769), (1769, 3008))
    assert document["memory"] is None
    assert list(answers(document)) == ["No memory size works. At 3,008 MB, it would take 3.5 s and time out."]


def test_goals() -> None:
    assert run(FakeLambda(computes), goal="fastest")["memory"] == 1769


def test_the_sentences_name_what_cannot_be_told_apart() -> None:
    document = run(FakeLambda(computes))
    texts = list(answers(document))
    assert "can't be told apart from it by cost." in texts[0]
    assert texts[0].startswith("Cheapest on Lambda: ")
    assert texts[-1].startswith("Of sizes that can't be told apart the smaller cost (or cost × time) wins")
    assert any(text.startswith("f has 512 MB, which costs ") for text in answers(run(FakeLambda(waits))))


def test_a_memory_size_is_wrong_if_another_is_surely_cheaper() -> None:
    document = run(FakeLambda(waits, memory_mb=3008), (256,))
    fault = find_fault(document, at_most=0.05)
    assert fault is not None
    assert fault.startswith("Cheapest on Lambda: 256 MB")
    assert "f has 3,008 MB, which costs" in fault
    assert find_fault(document, at_most=20) is None
    assert find_fault(run(FakeLambda(waits, memory_mb=256), (3008,)), at_most=0.05) is None
    quiet, busy = FakeLambda(waits, memory_mb=1769), FakeLambda(waits, memory_mb=1769)
    busy.uncertain_ms = 1000
    assert find_fault(run(quiet, (128,)), at_most=0.05) is not None
    assert find_fault(run(busy, (128,)), at_most=0.05) is None, "this host may have caused its waits"


def test_a_function_that_is_not_there_and_one_that_is_invoked_by_others() -> None:
    with pytest.raises(RequestError, match="Function not found: g") as error:
        TunedFunction(FakeLambda(waits), "g", lambda: ([], {}))
    assert error.value.hint == "deployed are e and f."
    with pytest.raises(RequestError, match="The function has no name"):
        TunedFunction(FakeLambda(waits), "", lambda: ([], {}))
    always_cold = type("AlwaysCold", (FakeLambda,), {"fresh": property(lambda _: True, lambda *_: None)})
    with pytest.raises(RequestError, match="f was cold 20 of 20 times at 512 MB"):
        run(always_cold(waits))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "--memory 'x' is not a list of whole numbers."),
        ("64", "--memory 64 MB is out of range."),
        ("99999", "99,999 MB is out of range."),
    ],
)
def test_wrong_sizes(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        choose_sizes(text, SIZES, 512, LIMIT)


def test_sizes_beyond_the_accounts_are_left_out_unless_named() -> None:
    assert choose_sizes(None, SIZES, 600, replace(LIMIT, maximum=3008)) == (128, 256, 512, 600, 1024, 1769, 3008)
    assert choose_sizes("1769,256", SIZES, 512, LIMIT) == (256, 512, 1769)


@pytest.mark.parametrize("method", ["get_function_configuration", "get_paginator"])
def test_a_service_that_has_just_ended(method: str) -> None:
    client, gone = FakeLambda(waits), EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    setattr(client, method, Mock(side_effect=gone))
    with pytest.raises(HostError, match="The service doesn't answer: Could not connect"):
        TunedFunction(client, "g", lambda: ([], {}))


def test_a_service_that_ends_meanwhile() -> None:
    def gone(_: int) -> str:
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")

    with pytest.raises(HostError, match="The service doesn't answer: Could not connect"):
        run(FakeLambda(gone))
