"""Drawn loops whose weights are parts of one array, and whose carries collect parts of one array: what enlarges partial sums.

`sliced_case` draws the forward loop and takes its gradient; `collected_case` draws what such gradients are made of, and
`branched_case` the same in branches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType
from meshjit.ops.base.constants import full, scalar, zeros
from meshjit.sharding import PartitionSpec
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.transpose import gradient
from tests.tools.laws import MESHES, random_spec

F32, I32 = DTYPES["f32"], DTYPES["i32"]
LARGEST = 2**22  # sums below are exact in f32, in any order
Case = tuple[Program, Any, list[Any], list[Any], list[Any]]
Generator = np.random.Generator


def parts_case(seed: int) -> Case:
    """One drawn case: program, mesh, specs of inputs and outputs, arrays."""
    return (collected_case, sliced_case, branched_case)[seed % 3](seed)


def _drawn(seed: int, draw: Callable[[Generator], Program]) -> Case:
    generator = np.random.default_rng(seed)
    while True:
        program = draw(generator)
        arrays = [generator.integers(-2, 3, t.shape).astype(np.float32) for t in program.input_types]
        if all(np.abs(x, dtype=np.float64).max(initial=0) < LARGEST for x in evaluate(program, arrays)):
            break
    mesh = MESHES[int(generator.integers(len(MESHES)))]
    inputs, outputs = ([random_spec(generator, v.rank, mesh, sums=True) for v in vs] for vs in (program.inputs, program.outputs))
    return program, mesh, inputs, outputs, arrays


def _looped(
    body: Program, consts: Sequence[Var], carries: Sequence[Var], slices: Sequence[Var], reverse: bool = False
) -> list[Var]:
    results = REGISTRY["scan"](
        *consts, *carries, *slices, body=body, length=slices[0].shape[0], reverse=reverse, unroll=1,
        num_consts=len(consts), num_carry=len(carries),
    )  # fmt: skip
    return [results] if isinstance(results, Var) else list(results)


def _dot(x: Var, y: Var, dims: tuple[int, int]) -> Var:
    contract = ((dims[0],), (dims[1],))
    return REGISTRY["dot_general"](x, y, contract=contract, batch=((), ()), preferred=None, precision=None)


# -- carries that collect parts


def collected_case(seed: int) -> Case:
    """A loop, or one in another, that adds up products over rows, brought into places of a larger array."""
    return _drawn(seed, _collecting)


def _collecting(g: Generator) -> Program:
    trips, rows, k, m = int(g.integers(1, 4)), *(int(n) for n in g.integers(1, 9, 3))
    target = TensorType(tuple(int(n) for n in g.integers(1, 9, int(g.integers(2, 4)))), F32)
    with Builder("body") as builder:
        total, x, y = builder.input(target), builder.input(TensorType((rows, k), F32)), builder.input(TensorType((rows, m), F32))
        body = builder.build([_more(g, total, _products(g, x, y))])
    depth = int(g.integers(0, 3))
    with Builder("parts") as builder:
        x, y = (builder.input(TensorType((trips, rows, n), F32)) for n in (k, m))
        total = zeros(target) if g.integers(2) else builder.input(target)
        if depth == 0:  # no loop
            x, y = (REGISTRY["reshape"](v, shape=(trips * rows, v.shape[2])) for v in (x, y))
            return builder.build([_more(g, total, _products(g, x, y))])
        if depth == 2:
            body = _again(body)
            x, y = (REGISTRY["reshape"](v, shape=(trips, 1, *v.shape[1:])) for v in (x, y))
        return builder.build(_looped(body, [], [total], [x, y]))


def branched_case(seed: int) -> Case:
    """A loop that adds up what one of several branches makes in each iteration, and perhaps more; mostly of sharded rows."""
    program, mesh, inputs, outputs, arrays = _drawn(seed, _branching)
    if seed % 4:
        rows = PartitionSpec(None, mesh.axis_names[seed % len(mesh.axis_names)])
        inputs[:2], outputs = (rows, rows), [None]
    return program, mesh, inputs, outputs, arrays


def _branching(g: Generator) -> Program:
    trips, rows, k, m = int(g.integers(1, 5)), *(int(n) for n in g.integers(1, 9, 3))
    target = TensorType(tuple(int(n) for n in g.integers(1, 9, int(g.integers(2, 4)))), F32)
    types = TensorType((rows, k), F32), TensorType((rows, m), F32)
    branches = tuple(_branch(g, target, types) for _ in range(int(g.integers(2, 4))))
    with Builder("body") as builder:
        total, x, y, flag = map(builder.input, (target, *types, TensorType((), F32)))
        part = REGISTRY["case"](REGISTRY["convert"](flag, dtype=I32), x, y, branches=branches)
        total = REGISTRY["add"](*((total, part) if g.integers(2) else (part, total)))
        body = builder.build([_more(g, total, _products(g, x, y)) if g.integers(2) else total])
    with Builder("branched") as builder:
        slices = [builder.input(t.with_shape((trips, *t.shape))) for t in (*types, TensorType((), F32))]
        total = zeros(target) if g.integers(2) else builder.input(target)
        return builder.build(_looped(body, [], [total], slices))


def _branch(g: Generator, target: TensorType, types: Sequence[TensorType]) -> Program:
    with Builder("branch") as builder:
        x, y = map(builder.input, types)
        kind = int(g.integers(5))
        part = zeros(target) if kind == 0 else _more(g, zeros(target), _products(g, x, y))
        return builder.build([REGISTRY["sign"](part) if kind == 1 else part])


def _again(body: Program) -> Program:
    """A loop around the Program: to the carry itself, or to one from zero that is added afterwards."""
    total, x, y = body.input_types
    with Builder("outer") as builder:
        carry = builder.input(total)
        slices = [builder.input(t.with_shape((1, *t.shape))) for t in (x, y)]
        if x.shape[0] % 2:
            return builder.build(_looped(body, [], [carry], slices))
        return builder.build([REGISTRY["add"](carry, *_looped(body, [], [zeros(total)], slices))])


def _products(g: Generator, x: Var, y: Var) -> list[Var]:
    products = [_dot(x, y, (0, 0))]
    if g.integers(2):
        products.append(_dot(REGISTRY["sign"](x), y, (0, 0)))
    if g.integers(3) == 0:
        products.append(REGISTRY["reduce_sum"](y, axes=(0,)))
    return products


def _more(g: Generator, total: Var, products: Sequence[Var]) -> Var:
    for _ in range(int(g.integers(1, 4))):
        part = products[int(g.integers(len(products)))]
        for _ in range(int(g.integers(0, 3))):
            part = LINEAR[int(g.integers(len(LINEAR)))](g, part)
        part = _fitted(g, part, total.shape)
        total = REGISTRY["subtract" if g.integers(4) == 0 else "add"](total, part)
    return total


def _fitted(g: Generator, part: Var, shape: tuple[int, ...]) -> Var:
    """Brought into a drawn place of an array of this shape."""
    while part.rank > len(shape):
        part = REGISTRY["reduce_sum"](part, axes=(0,))
    if part.rank < len(shape):
        part = REGISTRY["reshape"](part, shape=(*(1,) * (len(shape) - part.rank), *part.shape))
    gaps = [n - m for n, m in zip(shape, part.shape, strict=True)]
    low = tuple(int(g.integers(0, gap + 1)) if gap > 0 else gap for gap in gaps)
    high = tuple(gap - n for gap, n in zip(gaps, low, strict=True))
    if not any(gaps) or min(*low, *high, 0) < 0 or g.integers(2):
        return REGISTRY["pad"](part, scalar(0, F32), low=low, high=high, interior=(0,) * len(shape))
    return REGISTRY["dynamic_update_slice"](zeros(part.type.with_shape(shape)), part, *(scalar(n, I32) for n in low))


def _padded(g: Generator, x: Var) -> Var:
    low, high, interior = (tuple(int(n) for n in g.integers(0, 3, x.rank)) for _ in range(3))
    return REGISTRY["pad"](x, scalar(0, F32), low=low, high=high, interior=interior)


def _beside_zeros(g: Generator, x: Var) -> Var:
    dim = int(g.integers(x.rank))
    other = zeros(x.type.with_shape(tuple(int(g.integers(1, 4)) if d == dim else n for d, n in enumerate(x.shape))))
    return REGISTRY["concatenate"](*((x, other) if g.integers(2) else (other, x)), dimension=dim)


def _repeated(g: Generator, x: Var) -> Var:
    return REGISTRY["broadcast_in_dim"](x, shape=(int(g.integers(1, 4)), *x.shape), dimensions=tuple(range(1, x.rank + 1)))


def _scattered(g: Generator, x: Var) -> Var:
    """Rows added to drawn rows of zeros; some rows of zeros get several."""
    table = zeros(x.type.with_shape((int(g.integers(1, 9)), *x.shape[1:])))
    indices = REGISTRY["constant"](value=g.integers(0, table.shape[0], (x.shape[0], 1)).astype(np.int32))
    return REGISTRY["scatter"](
        table, indices, x, update_window_dims=tuple(range(1, x.rank)), inserted_window_dims=(0,), input_batching_dims=(),
        scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=(0,), kind="add", mode="clip",
        indices_are_sorted=False, unique_indices=False,
    )  # fmt: skip


def _masked(g: Generator, x: Var) -> Var:
    mask = REGISTRY["constant"](value=g.integers(0, 2, x.shape).astype(np.bool_))
    return REGISTRY["select"](mask, *((x, zeros(x.type)) if g.integers(2) else (zeros(x.type), x)))


def _twice(g: Generator, x: Var) -> Var:
    return REGISTRY["multiply"](x, full(x.type, int(g.integers(-1, 3))))


LINEAR = (_padded, _padded, _beside_zeros, _beside_zeros, _repeated, _scattered, _masked, _twice)


# -- weights that are parts


def sliced_case(seed: int) -> Case:
    """The gradient of a loop whose weights are parts of one array."""

    def draw(g: Generator) -> Program:
        total = _unfolding(g)
        return gradient(total, [True] * len(total.inputs))

    return _drawn(seed, draw)


def _unfolding(g: Generator) -> Program:
    trips, rows, d = int(g.integers(1, 4)), int(g.integers(1, 9)), int(g.integers(1, 5))
    kind, count = int(g.integers(len(PARTS))), int(g.integers(1, 4))
    shape, part = PARTS[kind]
    weights, state = TensorType(shape(count, d), F32), TensorType((rows, d), F32)
    with Builder("cell") as builder:
        w, h, x = builder.input(weights), builder.input(state), builder.input(state)
        value = x
        for i in g.integers(0, count, int(g.integers(1, 5))):
            value = REGISTRY["add"](value, _dot(h if g.integers(2) else x, part(w, int(i), d), (1, 0)))
        bound = full(state, 3)
        body = builder.build([REGISTRY["clamp"](REGISTRY["negate"](bound), value, bound)])
    with Builder("total") as builder:
        w, xs = builder.input(weights), builder.input(state.with_shape((trips, *state.shape)))
        last = _looped(body, [w], [zeros(state)], [xs], bool(g.integers(2)))[0]
        return builder.build([REGISTRY["reduce_sum"](last, axes=(0, 1))])


def _slice(w: Var, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None) -> Var:
    return REGISTRY["slice"](w, start=tuple(start), limit=tuple(limit), strides=tuple(strides or (1,) * w.rank))


def _layer(w: Var, i: int, d: int) -> Var:
    return REGISTRY["reshape"](_slice(w, (i, 0, 0), (i + 1, d, d)), shape=(d, d))


def _taken(w: Var, i: int, d: int) -> Var:
    one = REGISTRY["dynamic_slice"](w, scalar(i, I32), scalar(0, I32), scalar(0, I32), slice_sizes=(1, d, d))
    return REGISTRY["reshape"](one, shape=(d, d))


PARTS: Sequence[tuple[Callable[[int, int], tuple[int, ...]], Callable[[Var, int, int], Var]]] = (
    (lambda n, d: (n, d, d), _layer),
    (lambda n, d: (n, d, d), _taken),
    (lambda n, d: (d, n * d), lambda w, i, d: _slice(w, (0, i * d), (d, i * d + d))),
    (lambda n, d: (n * d, d), lambda w, i, d: _slice(w, (i * d, 0), (i * d + d, d))),
    (lambda n, d: (d, n * d), lambda w, i, d: _slice(w, (0, i), w.shape, (1, w.shape[1] // d))),
)
