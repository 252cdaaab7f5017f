"""Where propagation begins: the states of values that seeds speak about, and when each of these takes part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from sharding.axes import is_prefix
from sharding.graph import Axes, Conflict, Graph, Seed
from sharding.origins import History
from sharding.propagation_state import State, Value
from sharding.spec import ShardingError
from sharding.structure import Beginning, Structure

Order: TypeAlias = tuple[int, int]  # priority, rank


class Planting:
    """`states`: the numbers of the states that values are in once all seeds are planted. `waiting`: values that take no part yet,
    by when they do. `conflicts`: of seeds of tied values."""

    def __init__(self, graph: Graph, structure: Structure, sizes: Mapping[str, int], history: History) -> None:
        self.graph, self.structure, self.sizes, self.history = graph, structure, sizes, history
        self.cache = structure.cache
        self.states = [*structure.untouched]
        self.waiting: dict[Order, list[int]] = {}
        self.conflicts: list[Conflict] = []
        self._plant_seeds()

    def _plant_seeds(self) -> None:
        if self.graph.ties:
            return self._plant_tied_seeds()
        shapes, states, planted = self.graph.shapes, self.states, self.history.planted
        begun: dict[tuple[int, int], tuple[Beginning, list[int]]] = {}
        for index, seed in self.graph.seeds.items():
            key = id(seed), id(shapes[index])
            known = begun.get(key)
            if known is None:
                beginning = self._beginning_of(seed, index)
                known = begun[key] = beginning, self.waiting.setdefault(beginning.order, [])
            beginning, waiting = known
            states[index] = beginning.number
            waiting.append(index)
            if beginning.marks:
                planted.append((index, beginning.marks, index, seed))
        return None

    def _plant_tied_seeds(self) -> None:
        """Several seeds may speak about one value; the first, by priority, is right."""
        firsts, planted = self.structure.firsts, dict[int, Value]()
        for index, seed in sorted(self.graph.seeds.items(), key=lambda item: (item[1].priority, item[0])):
            first, beginning = firsts[index], self._beginning_of(seed, index)
            if first in planted:
                for dim, axes in enumerate(seed.placement.dims):
                    self._plant(planted[first], dim, axes, index, seed)
                continue
            planted[first] = Value(first, self.cache.states[beginning.number])
            self.waiting.setdefault(beginning.order, []).append(first)
            if beginning.marks:
                self.history.planted.append((first, beginning.marks, index, seed))
        for first, value in planted.items():
            self.states[first] = self.cache.number_of(value.state)

    def _beginning_of(self, seed: Seed, index: int) -> Beginning:
        """Where the value begins, if this seed is the first to speak about it. Once for all that are alike."""
        shape, alike = self.graph.shapes[index], self.structure.alike
        if seed.placement.rank != len(shape):
            raise ShardingError(
                f"the seed of value {index} is {seed.placement} of {seed.placement.rank} dims, its shape "
                f"{shape} has {len(shape)}"
            )
        beginning = alike.get((seed, shape))
        if beginning is None:
            beginning = alike[seed, shape] = self._beginning(seed, shape)
        return beginning

    def _beginning(self, seed: Seed, shape: tuple[int, ...]) -> Beginning:
        priority = min(seed.priorities, default=seed.priority)
        quiet = tuple([p > priority for p in seed.priorities]) or (False,) * len(shape)
        is_open = tuple([seed.is_open(dim) for dim in range(len(shape))])
        state = State(shape, seed.placement.dims, is_open, seed.placement.partial, False, quiet)
        marks = tuple([(dim, axes) for dim, axes in enumerate(seed.placement.dims) if axes])
        return Beginning((priority, seed.rank), self.cache.number_of(state), marks)

    def _plant(self, value: Value, dim: int, axes: Axes, index: int, seed: Seed) -> None:
        """Give a dim another seed."""
        have = value.dims[dim]
        if (
            value.is_open[dim]
            and is_prefix(have, axes, self.sizes)
            and not any(value.blockers(dim, axis) for axis in axes)
        ):
            if axes:
                value.put(dim, axes)
                self.history.planted.append((value.first, ((dim, axes),), index, seed))
            value.is_open = (*value.is_open[:dim], seed.is_open(dim), *value.is_open[dim + 1 :])
        elif axes != have and not (seed.is_open(dim) and is_prefix(axes, have, self.sizes)):
            self.conflicts.append(Conflict(-1, "", index, dim, have, axes, index))
