"""The order requests are sent in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ecoagent.llm import take_turns


def test_groups_take_turns_each_to_its_end() -> None:
    assert "".join(take_turns(["aaaa", "bb", "c", "dd"], lanes=2)) == "ababacadd"
    assert "".join(take_turns(["aaa", "bbb", "ccc", "ddd", "eee"], lanes=4)) == "abcdabcdabcdeee"
    assert take_turns([]) == []


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(1, 5))
def test_nothing_is_lost_and_a_group_keeps_its_order(sizes: list[int], lanes: int) -> None:
    groups = [[(g, n) for n in range(size)] for g, size in enumerate(sizes)]
    order = take_turns(groups, lanes)
    assert sorted(order) == sorted(item for group in groups for item in group)
    for group in groups:
        assert [item for item in order if item in group] == group
