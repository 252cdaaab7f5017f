"""Choices that are alike in a table: what messages say of the table is what they say of a shorter one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshjit.plan.automatic import alike_choices
from meshjit.plan.automatic.alike_choices import Groups, apart, common, kept, shortened
from meshjit.plan.automatic.messages import Messages

SIZES = (24, 30, 18, 21)


@pytest.fixture(autouse=True)
def short_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike_choices, "SHORTENED", 1)


def tables(seed: int) -> tuple[list[Any], dict[tuple[int, ...], Any], dict[tuple[int, ...], Groups]]:
    """Of variables of SIZES, over one, two and three of them; those over several have few different rows in any direction."""
    draw = np.random.default_rng(seed)
    own, pairs, groups = [draw.random(n) for n in SIZES], dict[tuple[int, ...], Any](), dict[tuple[int, ...], Groups]()
    for scope in [(0, 1), (1, 2, 3), (0, 2, 3), (2, 3)]:
        every = [np.append(np.arange(7), draw.integers(0, 7, SIZES[v] - 7)) for v in scope]
        groups[scope] = tuple([draw.permutation(each) for each in every])
        pairs[scope] = draw.random([7] * len(scope))[np.ix_(*groups[scope])]
    return own, pairs, groups


@pytest.mark.parametrize("seed", range(6))
def test_messages_are_those_of_whole_tables(seed: int) -> None:
    own, pairs, groups = tables(seed)
    whole, short = Messages(own, {**pairs}, [2, 0, 3, 1]), Messages(own, {**pairs}, [2, 0, 3, 1], groups)
    assert all(short.short.values()) and not any(whole.short.values())
    draw = np.random.default_rng(seed)
    for _ in range(4):
        for messages in (whole, short):
            messages.sweep()
        for scope in pairs:
            for mine, its in zip(whole.moved[scope], short.moved[scope], strict=True):
                np.testing.assert_array_equal(mine, its)
        assert whole.bound()[0] == short.bound()[0]
        left = [np.sort(draw.permutation(len(table))[: -(-3 * len(table) // 4)]) for table in whole.own]
        for messages in (whole, short):
            messages.keep(left)


@pytest.mark.parametrize("scope", [(0, 1), (1, 2, 3)], ids=str)
def test_an_entry_of_its_own_is_apart(scope: tuple[int, ...]) -> None:
    _, pairs, groups = tables(0)
    table, entry = pairs[scope].copy(), (5,) * len(scope)
    table[entry] = 9.0
    short = shortened(table, apart(groups[scope], entry))
    assert short is not None and short.table.shape == (8,) * len(scope)
    np.testing.assert_array_equal(short.table[np.ix_(*short.groups)], table)
    assert shortened(table, groups[scope]).table.max() != 9.0  # type: ignore[union-attr]


def test_choices_are_alike_in_a_sum_if_they_are_in_both() -> None:
    a, b = (np.array([0, 1, 0, 1]), np.array([0, 0])), (np.array([0, 0, 1, 0]), np.array([1, 0]))
    assert [each.tolist() for each in common(a, b)] == [[0, 2, 1, 2], [1, 0]]
    assert [each.tolist() for each in kept(a, ([1, 3], [1]))] == [[0, 0], [0]]


def test_a_table_that_would_hardly_be_shorter_stays_as_it_is() -> None:
    table = np.zeros((4, 4))
    assert shortened(table, (np.arange(4), np.array([0, 1, 2, 0]))) is None
    assert shortened(table, None) is None
    assert shortened(table, (np.array([0, 0, 1, 1]), np.arange(4))) is not None
