"""Concurrency of the account and of functions, the scaling rate, and the host's memory, without an emulator."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest
from tests.emulator.lambda_.registry import make_functions

from slslab.aws.errors import ServiceError
from slslab.aws.limits import lambda_limits
from slslab.lambda_ import pool
from slslab.lambda_.configuration import Function
from slslab.lambda_.hosts import ExecutionEnvironment, Host
from slslab.lambda_.pool import Admission, Concurrency

RESERVED = "ReservedFunctionConcurrentInvocationLimitExceeded"
ACCOUNT = "ConcurrentInvocationLimitExceeded"
LIMITS = lambda_limits().changed(account_concurrency=4, unreserved_concurrency=1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock of the module under test that stands at `now` seconds."""
    fake = SimpleNamespace(now=100.0)
    monkeypatch.setattr(pool, "time", SimpleNamespace(monotonic=lambda: fake.now))
    return fake


def throttle_reason(error: pytest.ExceptionInfo[ServiceError]) -> str:
    assert (error.value.status, error.value.error_type) == (429, "TooManyRequestsException")
    assert error.value.headers["Retry-After"] == "1"
    return str(error.value.fields["Reason"])


@contextmanager
def lease(leases: Concurrency, name: str) -> Iterator[None]:
    """One execution, during the block."""
    leases.take(name)
    try:
        yield
    finally:
        leases.give_back(name)


def test_functions_share_what_the_account_has() -> None:
    leases = Concurrency(make_functions("one", "two", limits=LIMITS))
    with ExitStack() as stack:
        for name in ("one", "two", "one", "two"):
            stack.enter_context(lease(leases, name))
        with pytest.raises(ServiceError) as error, lease(leases, "one"):
            pytest.fail("it has a lease")
        assert throttle_reason(error) == ACCOUNT
    with lease(leases, "one"):
        pass  # what has ended is free again


def test_a_reservation_is_a_limit_of_its_function_and_not_for_others() -> None:
    functions = make_functions("one", "two", limits=LIMITS)
    functions.entry("one").reserved = 2
    leases = Concurrency(functions)
    with ExitStack() as stack:
        for name in ("two", "two"):
            stack.enter_context(lease(leases, name))
        with pytest.raises(ServiceError) as error, lease(leases, "two"):
            pytest.fail("it has what is reserved for another")
        assert throttle_reason(error) == ACCOUNT
        for name in ("one", "one"):
            stack.enter_context(lease(leases, name))
        with pytest.raises(ServiceError) as error, lease(leases, "one"):
            pytest.fail("it has more than is reserved for it")
        assert throttle_reason(error) == RESERVED


def test_a_reservation_of_none_admits_none() -> None:
    functions = make_functions("one", limits=LIMITS)
    functions.entry("one").reserved = 0
    with pytest.raises(ServiceError) as error, lease(Concurrency(functions), "one"):
        pytest.fail("it has a lease")
    assert throttle_reason(error) == RESERVED


def test_executions_of_a_deleted_function_do_not_count() -> None:
    functions = make_functions("one", "two", limits=LIMITS)
    leases = Concurrency(functions)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(lease(leases, "one"))
        functions.delete("one", None)
        with lease(leases, "two"), pytest.raises(ServiceError), lease(leases, "two"):
            pytest.fail("executions of a deleted function do not count")


def test_environments_start_at_once_up_to_the_limit_and_then_at_the_rate(clock: SimpleNamespace) -> None:
    limits = lambda_limits().changed(scaling_environments=10, scaling_period_s=5)
    leases = Concurrency(make_functions("one", "two", limits=limits))
    for _ in range(10):
        leases.take_start("one")
    with pytest.raises(ServiceError) as error:
        leases.take_start("one")
    assert throttle_reason(error) == ACCOUNT
    leases.take_start("two")  # each function has a rate of its own
    clock.now += 1.0  # two more
    leases.take_start("one")
    leases.take_start("one")
    with pytest.raises(ServiceError):
        leases.take_start("one")
    clock.now += 3600.0  # no more than the limit is saved up
    for _ in range(10):
        leases.take_start("one")
    with pytest.raises(ServiceError):
        leases.take_start("one")


class Somewhere(Host):
    """A host with memory, and nothing else."""

    def make(self, function: Function, number: int) -> ExecutionEnvironment:
        raise AssertionError(function.name, number)

    async def runtime(self, function: Function) -> str:
        raise AssertionError(function.name)


def test_memory_is_reserved_while_it_fits() -> None:
    host = Somewhere(1000)
    admission = Admission(lambda: [host])
    assert [admission.take(400), admission.take(600), admission.take(1)] == [host, host, None]
    admission.give_back(400, host)
    assert (host.left_mb, admission.take(401), admission.take(400)) == (400, None, host)


def test_environments_spread_over_hosts_or_fill_one_before_the_next() -> None:
    for pack, order in ((False, "bab"), (True, "aab")):
        hosts = {"a": Somewhere(1000), "b": Somewhere(1500)}
        admission = Admission(hosts.values, pack=pack)
        taken = [admission.take(500) for _ in range(3)]
        assert taken == [hosts[name] for name in order], pack
        assert admission.budgets_mb() == [1000, 1500]
        assert admission.take(1000, hosts["a"]) is None


def test_memory_that_can_never_fit_is_an_error_with_a_hint() -> None:
    with pytest.raises(
        ServiceError, match=r"at most 1000 MB here, and the function needs 1001 MB.*Hint: lower"
    ) as error:
        Admission(lambda: [Somewhere(1000)]).take(1001)
    assert (error.value.status, error.value.error_type) == (500, "ServiceException")


def test_all_that_wait_for_memory_wake_up_when_some_is_released() -> None:
    async def wait_for_memory() -> tuple[list[bool], list[bool]]:
        host = Somewhere(1000)
        admission = Admission(lambda: [host])
        admission.take(1000)
        waiting = [asyncio.ensure_future(admission.changed()) for _ in range(2)]
        await asyncio.sleep(0)
        before = [task.done() for task in waiting]
        admission.give_back(100, host)
        await asyncio.wait(waiting, timeout=5)
        later = asyncio.ensure_future(admission.changed())
        await asyncio.sleep(0)
        after = [task.done() for task in (*waiting, later)]
        later.cancel()
        return before, after

    assert asyncio.run(wait_for_memory()) == ([False, False], [True, True, False])


def test_ten_requests_a_second_for_each_unit_of_concurrency(clock: SimpleNamespace) -> None:
    functions = make_functions("one", "two", limits=LIMITS)
    functions.entry("one").reserved = 1
    leases = Concurrency(functions)
    for name, most, reason in (
        ("one", 10, "ReservedFunctionInvocationRateLimitExceeded"),
        ("two", 30, "FunctionInvocationRateLimitExceeded"),
    ):
        for _ in range(most):
            with lease(leases, name):
                pass
        with pytest.raises(ServiceError) as error, lease(leases, name):
            pytest.fail("it is one too many in this second")
        assert throttle_reason(error) == reason
    clock.now += 0.125
    with lease(leases, "one"), lease(leases, "two"):
        pass
    with pytest.raises(ServiceError), lease(leases, "one"):
        pytest.fail("a tenth of a second is one request of one unit")
