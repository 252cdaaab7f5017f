"""Ops that cut and move dims, with drawn shapes, params, meshes and placements, against their NumPy meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meshjit.core.op import REGISTRY, Sample
from meshjit.core.types import DTYPES, TensorType
from sharding.mesh import AbstractMesh
from tests.tools.laws import MESHES, check_law, random_spec
from tests.tools.op_harness import build, called

DRAWS = 60
ALL_MESHES = [*MESHES, AbstractMesh((5,), ("x",)), AbstractMesh((8,), ("x",)), AbstractMesh((2, 3, 2), ("x", "y", "z"))]
I32 = DTYPES["i32"]

Call = tuple[tuple[TensorType, ...], dict[str, Any]]
DRAWERS: dict[str, Callable[[np.random.Generator, TensorType], Call]] = {}


def draws(*names: str) -> Any:
    """Registers how a call of these ops is drawn for a main operand of this type; TypeErrors are drawn again."""

    def register(drawer: Any) -> Any:
        DRAWERS.update(dict.fromkeys(names, drawer))
        return drawer

    return register


def integers(g: np.random.Generator, count: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(int(n) for n in g.integers(low, high, count))


def up_to(g: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(g.integers(0, n + 1)) for n in shape)


def some_dims(g: np.random.Generator, rank: int) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if g.random() < 0.5)


@draws("slice")
def _slice(g: np.random.Generator, type: TensorType) -> Call:
    start = up_to(g, type.shape)
    limit = tuple(int(g.integers(s, n + 1)) for s, n in zip(start, type.shape, strict=True))
    return (type,), {"start": start, "limit": limit, "strides": integers(g, type.rank, 1, 4)}


@draws("pad")
def _pad(g: np.random.Generator, type: TensorType) -> Call:
    low, high = integers(g, type.rank, -3, 6), integers(g, type.rank, -3, 6)
    return (type, type.with_shape(())), {"low": low, "high": high, "interior": integers(g, type.rank, 0, 3)}


@draws("reverse")
def _reverse(g: np.random.Generator, type: TensorType) -> Call:
    return (type,), {"dimensions": some_dims(g, type.rank)}


@draws("concatenate")
def _concatenate(g: np.random.Generator, type: TensorType) -> Call:
    dim = int(g.integers(type.rank))
    extents = integers(g, int(g.integers(1, 4)), 0, 9)
    types = (type.with_shape((*type.shape[:dim], n, *type.shape[dim + 1 :])) for n in extents)
    return tuple(types), {"dimension": dim}


@draws("dynamic_slice")
def _dynamic_slice(g: np.random.Generator, type: TensorType) -> Call:
    return (type, *starts(g, type)), {"slice_sizes": up_to(g, type.shape)}


@draws("dynamic_update_slice")
def _dynamic_update_slice(g: np.random.Generator, type: TensorType) -> Call:
    return (type, type.with_shape(up_to(g, type.shape)), *starts(g, type)), {}


def starts(g: np.random.Generator, type: TensorType) -> tuple[TensorType, ...]:
    return (TensorType((), DTYPES[str(g.choice(["i32", "u8", "i64"]))]),) * type.rank


@draws("cumsum", "cummax")
def _cumulative(g: np.random.Generator, type: TensorType) -> Call:
    return (type,), {"axis": int(g.integers(type.rank)), "reverse": bool(g.integers(2))}


@draws("argmax")
def _argmax(g: np.random.Generator, type: TensorType) -> Call:
    return (type,), {"axis": int(g.integers(type.rank)), "index_dtype": I32}


@draws("reduce_sum", "reduce_max")
def _reduce(g: np.random.Generator, type: TensorType) -> Call:
    return (type,), {"axes": some_dims(g, type.rank)}


@draws("iota")
def _iota(g: np.random.Generator, type: TensorType) -> Call:
    return (), {"dtype": type.dtype, "shape": type.shape, "dimension": int(g.integers(type.rank))}


@draws("constant")
def _constant(g: np.random.Generator, type: TensorType) -> Call:
    return (), {"value": g.integers(0, 5, type.shape).astype(type.dtype)}


@draws("reshape")
def _reshape(g: np.random.Generator, type: TensorType) -> Call:
    factors = [int(n) for n in g.choice([1, 2, 2, 2, 3, 4, 5], int(g.integers(1, 6)))]
    other = [int(n) for n in g.permutation(factors)] if g.random() < 0.3 else factors
    return (TensorType(grouped(g, factors), type.dtype),), {"shape": grouped(g, other)}


def grouped(g: np.random.Generator, factors: list[int]) -> tuple[int, ...]:
    """A shape of dims that are products of consecutive factors."""
    shape = [1]
    for factor in factors:
        if g.random() < 0.5:
            shape.append(factor)
        else:
            shape[-1] *= factor
    return tuple(shape)


@draws("broadcast_in_dim")
def _broadcast(g: np.random.Generator, type: TensorType) -> Call:
    shape = integers(g, type.rank + 1, 0, 9)
    dims = tuple(sorted(int(d) for d in g.choice(type.rank + 1, type.rank, replace=False)))
    kept = tuple(1 if g.random() < 0.3 else shape[d] for d in dims)
    return (type.with_shape(kept),), {"shape": shape, "dimensions": dims}


def fill(g: np.random.Generator, index: int, type: TensorType) -> np.ndarray[Any, Any]:
    if type.dtype == np.bool_:
        return g.integers(0, 2, type.shape)
    return g.integers(-4 if type.dtype.kind in "if" else 0, 14, type.shape)


def draw(name: str, g: np.random.Generator) -> Sample:
    """A legal call of the op."""
    while True:
        shape = integers(g, int(g.integers(1, 4)), 0, 14)
        types, params = DRAWERS[name](g, TensorType(shape, DTYPES[str(g.choice(["f32", "i32", "bool"]))]))
        try:
            REGISTRY[name].type_rule(types, params)
        except TypeError:
            continue
        return Sample(types, params, fill)


@pytest.mark.parametrize("name", DRAWERS)
def test_drawn_calls_are_partitioned_right(name: str) -> None:
    g = np.random.default_rng(8)
    for _ in range(DRAWS):
        sample = draw(name, g)
        program = build(sample.types, lambda inputs, s=sample: called(REGISTRY[name], inputs, s.params))
        mesh = ALL_MESHES[int(g.integers(len(ALL_MESHES)))]
        given = [random_spec(g, t.rank, mesh) for t in sample.types]
        wanted = [random_spec(g, v.rank, mesh) for v in program.outputs]
        check_law(program, mesh, given, wanted, sample.arrays(g))
