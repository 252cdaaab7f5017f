"""Choices that are alike in a table: what messages say of a table with one entry for them is what they say of the whole one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from meshjit.plan.automatic import alike_choices
from meshjit.plan.automatic.alike_choices import Groups, alike_of, common, kept, onto, over
from meshjit.plan.automatic.groupings import added
from meshjit.plan.automatic.messages import Messages
from meshjit.plan.automatic.reached import NEVER, READER, SETS, Prefixes, Reached, plus, taken, whole

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
        pairs[scope] = draw.random([7] * len(scope))
    return own, pairs, groups


def shrunk(messages: Messages, seed: int) -> list[Any]:
    """Three quarters of the choices of each variable."""
    draw = np.random.default_rng(seed)
    return [np.sort(draw.permutation(len(own))[: -(-3 * len(own) // 4)]) for own in messages.own]


def assert_equal(messages: Sequence[Messages]) -> None:
    """Both say the same."""
    (first, excess, parts), (second, other, others) = (each.bound() for each in messages)
    assert first == pytest.approx(second)
    for mine, its in zip(excess, other, strict=True):
        np.testing.assert_allclose(mine, its, atol=1e-12)
    for scope in parts:
        for mine, its in zip(parts[scope], others[scope], strict=True):
            np.testing.assert_allclose(mine, its, atol=1e-12)
    assert messages[0].decoded() == messages[1].decoded()
    choices = messages[0].decoded()
    assert messages[0].cost(choices) == pytest.approx(messages[1].cost(choices))


@pytest.mark.parametrize("seed", range(6))
def test_messages_are_those_of_whole_tables(seed: int) -> None:
    own, pairs, groups = tables(seed)
    every, alike = {s: table[np.ix_(*groups[s])] for s, table in pairs.items()}, {s: alike_of(g) for s, g in groups.items()}
    both = Messages(own, every, [2, 0, 3, 1]), Messages(own, pairs, [2, 0, 3, 1], alike)
    assert all(both[1].alike.values()) and both[1].size < both[0].size == both[0].entries(own) == both[1].entries(own)
    for turn in range(4):
        for messages in both:
            messages.sweep()
        for scope in pairs:
            for mine, its in zip(both[0].moved[scope], both[1].moved[scope], strict=True):
                np.testing.assert_array_equal(mine, its)
        assert_equal(both)
        (_, excess, parts), scope = both[1].bound(), (1, 2, 3)
        short, long = (m.excess_of(scope, excess, parts) for m in both[::-1])
        least = np.full(short.shape, np.inf)
        within = both[1].alike[scope]
        at: Any = np.ix_(*(within.groups if within is not None else [np.arange(n) for n in long.shape]))
        np.minimum.at(least, at, long)
        np.testing.assert_allclose(short, least, atol=1e-12)
        left = shrunk(both[0], turn)
        for messages in both:
            messages.keep(left)


def test_a_table_is_told_by_fewer_groups() -> None:
    table, coarse = np.array([[1.0, 2.0], [3.0, 4.0]]), (np.array([0, 1, 0, 1]), np.array([1, 0, 0, 0, 0, 0]))
    alike = alike_of(common(coarse, (np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0, 0, 0]))))
    assert alike is not None and [len(each) for each in onto(alike, coarse)] == [3, 2]
    at: Any = np.ix_(*alike.groups)
    np.testing.assert_array_equal(over(alike, table, coarse)[at], table[np.ix_(*coarse)])
    np.testing.assert_array_equal(over(None, table, coarse), table[np.ix_(*coarse)])


def test_choices_are_alike_in_a_sum_if_they_are_in_both() -> None:
    a, b = (np.array([0, 1, 0, 1]), np.array([0, 0])), (np.array([0, 0, 1, 0]), np.array([1, 0]))
    assert [each.tolist() for each in common(a, b)] == [[0, 2, 1, 2], [1, 0]]
    first, second = np.arange(2.0)[:, None], np.arange(4.0).reshape(2, 2)
    total, groups = added((first, a), (second, b))
    np.testing.assert_array_equal(whole(total)[np.ix_(*groups)], first[np.ix_(*a)] + second[np.ix_(*b)])


def test_a_table_that_would_hardly_be_shorter_stays_as_it_is() -> None:
    assert alike_of((np.arange(4), np.array([0, 1, 2, 0]))) is None
    alike = alike_of((np.array([0, 0, 1, 1]), np.arange(4)))
    assert alike is not None
    fewer, at = kept(alike, (np.array([1, 2]), np.array([0, 3])))
    assert fewer is None and [each.tolist() for each in at] == [[0, 1], [0, 3]]


def reached(seed: int) -> Reached:
    """Of a value with a few homes, whose sets are prefixes; some of its sets and requests are gone, and some requests equal."""
    draw = np.random.default_rng(seed)
    homes, places = (int(n) for n in draw.integers(1, 8, 2))
    needs = np.array([draw.permutation(places) + draw.integers(0, 2) for _ in range(homes)]).T
    needs[draw.random(needs.shape) < 0.2] = NEVER
    prefixes = Prefixes(np.repeat(np.arange(homes), places + 1), np.tile(np.arange(places + 1), homes))
    sets = np.flatnonzero(draw.random(len(prefixes)) < 0.7)
    sets = sets if len(sets) else np.array([0])
    return Reached(needs, prefixes, 50.0).over(draw.integers(0, places, int(draw.integers(1, 9))), sets)


@pytest.mark.parametrize("seed", range(40))
def test_prefixes_say_what_all_entries_say(seed: int) -> None:
    table, draw = reached(seed), np.random.default_rng(seed)
    every = table.whole().astype(float)
    assert every.shape == table.shape and set(np.unique(every)) <= {0.0, 50.0}
    of_readers, of_sets = (9 * draw.random(n) for n in every.shape)
    np.testing.assert_allclose(table.least(of_readers, READER), (every - of_readers[:, None]).min(axis=0))
    np.testing.assert_allclose(table.least(of_sets, SETS), (every - of_sets).min(axis=1))
    np.testing.assert_array_equal(table[0, :], every[0])
    np.testing.assert_array_equal(table[:, 0], every[:, 0])
    some: Any = tuple(np.flatnonzero(draw.random(n) < 0.6) for n in every.shape)
    np.testing.assert_array_equal(whole(taken(table, some)), every[np.ix_(*some)])
    other = table.over(draw.permutation(table.shape[0]), np.arange(table.shape[1]))
    np.testing.assert_array_equal(whole(plus(table, other)) > 0, (every > 0) | (other.whole() > 0))
    np.testing.assert_array_equal(plus(table, every), every + every)


@pytest.mark.parametrize("seed", range(12))
def test_messages_over_prefixes_are_those_over_all_entries(seed: int) -> None:
    table, draw = reached(seed), np.random.default_rng(seed)
    own = [draw.random(n) for n in (*table.shape, table.shape[0])]
    pairs: dict[tuple[int, ...], Any] = {(0, 1): table, (0, 2): draw.random((table.shape[0], table.shape[0]))}
    both = Messages(own, pairs, [0, 2, 1]), Messages(own, pairs | {(0, 1): table.whole()}, [0, 2, 1])
    for turn in range(3):
        for messages in both:
            messages.sweep()
        assert_equal(both)
        left = shrunk(both[0], turn)
        for messages in both:
            messages.keep(left)
