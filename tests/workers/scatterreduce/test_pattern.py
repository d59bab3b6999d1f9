"""ScatterReduce's chunks."""

from hypothesis import example, given
from hypothesis import strategies as st

from slslab_workers.scatterreduce.pattern import chunk


@example(61_706, 33)
@example(61_706, 7)
@example(1, 33)
@given(st.integers(1, 300), st.integers(1, 40))
def test_chunks_cover_the_vector_in_order_and_evenly(parameters: int, workers: int) -> None:
    chunks = [chunk(parameters, workers, index) for index in range(workers)]
    assert [position for chunk in chunks for position in range(parameters)[chunk]] == list(range(parameters))
    sizes = [chunk.stop - chunk.start for chunk in chunks]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_chunks_of_the_papers_models() -> None:
    def sizes(parameters: int) -> list[int]:
        return [c.stop - c.start for c in (chunk(parameters, 4, i) for i in range(4))]

    assert sizes(3_217_226) == [804_307, 804_307, 804_306, 804_306]
    assert sizes(11_173_962) == [2_793_491, 2_793_491, 2_793_490, 2_793_490]
