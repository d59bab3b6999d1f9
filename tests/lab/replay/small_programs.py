"""Small programs to play."""

from typing import get_args

from hypothesis import strategies as st

from slslab_lab.replay.kernel.program import Gathering, Polling, Program, Step, Track

MS = 1_000_000


def handing_over(workers: int = 2) -> Program:
    """Worker 0 computes 100 ms and puts 1 MB; the others compute 30 ms and get it, polling."""
    put = Step("object.put", "synchronise", requests=1, bytes=1_000_000, opens=(0,))
    get = Step("object.get", "synchronise", requests=1, bytes=1_000_000, awaits=(0,), polling="get")
    first = Track("train", "invocation", 0, (Step("compute", "compute", 100 * MS), put), 1769, init_cpu_ns=50 * MS)
    others = [
        Track("train", "invocation", worker, (Step("compute", "compute", 30 * MS), get), 1769, init_cpu_ns=50 * MS)
        for worker in range(1, workers)
    ]
    return Program("allreduce", workers, (first, *others), (1,))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Workers that compute, exchange objects of each step with all others, and gather messages."""
    workers, rounds = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    cost = st.integers(0, 50 * MS)
    polling: Polling = draw(st.sampled_from(get_args(Polling)))
    gates: list[int] = []
    tracks: list[list[Step | Gathering]] = [[] for _ in range(workers)]
    for _ in range(rounds):
        first = len(gates)
        gates += [1] * workers
        for worker, steps in enumerate(tracks):
            gate = first + worker
            steps.append(Step("compute", "compute", draw(cost), parallel=draw(st.booleans())))
            steps.append(Step("object.put", "synchronise", requests=1, bytes=draw(st.integers(0, 9)), opens=(gate,)))
            others = [first + other for other in range(workers) if other != worker]
            if draw(st.booleans()):
                steps.append(Step("object.get", "synchronise", requests=len(others) or 1, awaits=tuple(others)))
            elif others:
                steps.append(
                    Gathering(
                        tuple(
                            (Step("object.get", "fetch", draw(cost), requests=1, awaits=(other,), polling=polling),)
                            for other in others
                        )
                    )
                )
    memory_mb = draw(st.sampled_from([512, 1769, 3538]))
    made = tuple(Track("train", "invocation", worker, tuple(steps), memory_mb) for worker, steps in enumerate(tracks))
    return Program("any", workers, made, tuple(gates))
