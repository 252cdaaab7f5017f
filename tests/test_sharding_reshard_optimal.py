"""Resharding: no walk is dearer than the best one that an independent, exhaustive search finds.

The other search knows no restrictions: every axis is cut into its prime factors, every dim may hold any of them on
the way, permutations may lead anywhere, and all pairs are solved at once by networkx.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator

import networkx as nx
import pytest

from sharding import AbstractMesh, Placement, SubAxis, Topology, plan_reshard
from sharding.axes import canonical_axes
from sharding.cost import collective_seconds
from sharding.floor import least_seconds

State = tuple[tuple[tuple[SubAxis, ...], ...], frozenset[SubAxis]]


def prime_atoms(mesh: AbstractMesh) -> list[SubAxis]:
    found: list[SubAxis] = []
    for name, size in mesh.shape.items():
        pre = 1
        for prime in (2, 3, 5, 7):
            while size % (pre * prime) == 0:
                found.append(SubAxis(name, pre, prime))
                pre *= prime
        assert pre == size
    return found


def count(axes: tuple[SubAxis, ...]) -> int:
    return math.prod(a.size for a in axes)


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def joins(extent: int, major: tuple[SubAxis, ...], minor: tuple[SubAxis, ...]) -> bool:
    """Whether blocks over major+minor are those over major, cut further."""
    if not major:
        return True
    coarse, fine = ceil(extent, count(major)), ceil(extent, count(major + minor))
    return all(i * coarse == i * count(minor) * fine for i in range(count(major) + 1))


def local(shape: tuple[int, ...], state: State) -> tuple[int, ...]:
    return tuple(ceil(n, count(axes)) for n, axes in zip(shape, state[0], strict=True))


def set_dim(state: State, dim: int, axes: tuple[SubAxis, ...]) -> State:
    return (*state[0][:dim], axes, *state[0][dim + 1 :]), state[1]


def all_states(atoms: list[SubAxis], rank: int, partial: bool) -> Iterator[State]:
    for used in range(len(atoms) + 1):
        for order in itertools.permutations(atoms, used):
            for cuts in itertools.combinations_with_replacement(range(used + 1), rank - 1):
                bounds = (0, *cuts, used)
                dims = tuple(order[a:b] for a, b in itertools.pairwise(bounds))
                rest = [a for a in atoms if a not in order]
                for size in range(len(rest) + 1 if partial else 1):
                    for addends in itertools.combinations(rest, size):
                        yield dims, frozenset(addends)


def moves(state: State, atoms: list[SubAxis], shape: tuple[int, ...]) -> Iterator[tuple[str, int, tuple, State]]:
    dims, partial = state
    free = [a for a in atoms if a not in partial and not any(a in axes for axes in dims)]
    for d, axes in enumerate(dims):
        for n in range(1, len(free) + 1):
            for added in itertools.permutations(free, n):
                if joins(shape[d], axes, added):
                    yield "slice", d, added, set_dim(state, d, axes + added)
        for n in range(1, len(axes) + 1):
            if joins(shape[d], axes[:-n], axes[-n:]):
                gathered = set_dim(state, d, axes[:-n])
                yield "all_gather", d, axes[-n:], gathered
                for e, others in enumerate(dims):
                    if e != d and joins(shape[e], others, axes[-n:]):
                        yield "all_to_all", e, axes[-n:], set_dim(gathered, e, others + axes[-n:])
        for n in range(1, len(partial) + 1):
            for chosen in itertools.permutations(sorted(partial), n):
                if joins(shape[d], axes, chosen):
                    left = (dims, partial.difference(chosen))
                    yield "reduce_scatter", d, chosen, set_dim(left, d, axes + chosen)
    for n in range(1, len(partial) + 1):
        for chosen in itertools.combinations(sorted(partial), n):
            yield "all_reduce", 0, chosen, (dims, partial.difference(chosen))


def given(kind: str, dim: int, axes: tuple, before: tuple[int, ...], after: tuple[int, ...]) -> list[int]:
    """What a collective is given: a dim that it scatters is grown to as many blocks as there are devices."""
    scatters = kind in ("all_to_all", "reduce_scatter")
    return [after[d] * count(axes) if scatters and d == dim else n for d, n in enumerate(before)]


def graph(mesh: AbstractMesh, shape: tuple[int, ...], topology: Topology, partial: bool) -> nx.DiGraph:
    atoms = prime_atoms(mesh)
    states = list(all_states(atoms, len(shape), partial))
    edges = nx.DiGraph()
    edges.add_nodes_from(states)

    def add(a: State, b: State, seconds: float) -> None:
        if seconds < edges.get_edge_data(a, b, {"weight": math.inf})["weight"]:
            edges.add_edge(a, b, weight=seconds)

    for state in states:
        extents = local(shape, state)
        for kind, dim, axes, after in moves(state, atoms, shape):
            if kind == "slice":
                add(state, after, topology.step_latency * math.log2(count(axes)))
            else:
                size = math.prod(given(kind, dim, axes, extents, local(shape, after))) * 4
                dim = 0 if math.prod(extents[:dim]) == 1 or kind == "all_to_all" else dim
                add(state, after, collective_seconds(kind, size, axes, mesh, topology, dim))
    for a, b in itertools.permutations(states, 2):
        if a[1] == b[1] and [count(x) for x in a[0]] == [count(x) for x in b[0]]:
            size = math.prod(local(shape, a)) * 4
            moved = {(d, i, x) for d, axes in enumerate(a[0]) for i, x in enumerate(axes)} ^ {
                (d, i, x) for d, axes in enumerate(b[0]) for i, x in enumerate(axes)
            }
            axes = tuple({x for _, _, x in moved})
            add(a, b, collective_seconds("collective_permute", size, axes, mesh, topology))
    return edges


def written(state: State, mesh: AbstractMesh) -> Placement:
    partial = canonical_axes(sorted(state[1]), mesh.shape)
    return Placement(tuple(canonical_axes(axes, mesh.shape) for axes in state[0]), tuple((a, "sum") for a in partial))


def is_whole(placement: Placement) -> bool:
    return all(isinstance(axis, str) for axis in placement.axes())


@functools.cache
def topologies(mesh: AbstractMesh) -> dict[str, Topology]:
    flat = Topology(
        "flat", dict.fromkeys(mesh.axis_names, 1e-6), dict.fromkeys(mesh.axis_names, 1e9), step_latency=1e-9
    )
    return {"cpu": Topology.cpu(mesh), "flat": flat}


CASES = [
    ((2, 2), "xy", (16, 16), True),
    ((2, 2), "xy", (5, 6), True),
    ((4, 2), "xy", (64, 64), False),
    ((4, 2), "xy", (64, 64), True),
    ((4, 2), "xy", (10, 8), False),
    ((4, 2), "xy", (10, 7), False),
    ((2, 3), "xy", (12, 18), True),
    ((2, 2, 2), "xyz", (64, 64), False),
    ((2, 2), "xy", (8, 8, 8), False),
]


@pytest.mark.parametrize("name", ["cpu", "flat"])
@pytest.mark.parametrize("sizes, names, shape, partial", CASES, ids=str)
def test_no_walk_is_better(
    sizes: tuple[int, ...], names: str, shape: tuple[int, ...], partial: bool, name: str
) -> None:
    mesh = AbstractMesh(sizes, tuple(names))
    topology = topologies(mesh)[name]
    edges = graph(mesh, shape, topology, partial)
    size = {state: math.prod(local(shape, state)) * 4 for state in edges}
    whole = [state for state in edges if is_whole(written(state, mesh))]
    targets = [state for state in whole if not state[1]]
    chosen = random.Random(0).sample(whole, min(len(whole), 40))
    within = {bound: edges.subgraph([s for s in edges if size[s] <= bound]) for bound in set(size.values())}
    for source in chosen:
        best = {b: nx.single_source_dijkstra_path_length(g, source) for b, g in within.items() if source in g}
        for target in random.Random(1).sample(targets, min(len(targets), 12)):
            bound = min(b for b in best if b >= size[target] and target in best[b])
            walk = plan_reshard(shape, 4, written(source, mesh), written(target, mesh), mesh, topology)
            assert walk.peak_bytes == max(bound, size[source])
            optimum = best[bound][target]
            assert walk.seconds <= optimum * (1 + 1e-9), f"{walk}\n{walk.seconds} against {optimum}"
            assert least_seconds(shape, 4, written(source, mesh), written(target, mesh), mesh, topology) <= optimum * (1 + 1e-9)


def test_the_floor_is_below_every_walk_among_parts_of_axes() -> None:
    mesh, shape = AbstractMesh((4, 2), ("x", "y")), (10, 8)
    states = [written(state, mesh) for state in all_states(prime_atoms(mesh), 2, True)]
    draw, topology = random.Random(0), Topology.cpu(mesh)
    for source, target in [(draw.choice(states), draw.choice(states).without_partial()) for _ in range(600)]:
        walk = plan_reshard(shape, 4, source, target, mesh, topology)
        assert least_seconds(shape, 4, source, target, mesh, topology) <= walk.seconds * (1 + 1e-9), f"{walk}"
