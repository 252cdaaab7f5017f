"""Parts taken before dims are split: the same values, and less to move where an axis has no place in the split dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.core.evaluate import evaluate
from meshjit.core.program import Builder
from meshjit.core.types import TensorType
from meshjit.core.verify import verify
from meshjit.inspect.collectives import collective_rows
from meshjit.ops.base.arithmetic import add
from meshjit.ops.base.constants import zeros
from meshjit.ops.base.shape import reshape, transpose
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.sharding import NamedSharding, PartitionSpec
from meshjit.transform.slice_early import slice_early, splits

P = PartitionSpec


@pytest.mark.parametrize(
    ("short", "long", "found"),
    [
        ((2, 12), (2, 3, 4), [(1, 1, 3, 4)]),
        ((24,), (2, 3, 4), [(0, 0, 3, 12)]),
        ((6, 8), (2, 3, 4, 2), [(0, 0, 2, 3), (1, 2, 4, 2)]),
        ((1, 6), (1, 3, 2), [(1, 1, 3, 2)]),
        ((6,), (3, 1, 2), [(0, 0, 3, 2)]),
        ((6, 1), (3, 2, 1), [(0, 0, 3, 2)]),
        ((4, 6), (6, 4), []),
        ((6,), (6,), []),
        ((0, 4), (0, 2, 2), []),
        ((), (), []),
    ],
)
def test_splits(short: Any, long: Any, found: Any) -> None:
    assert [(s.whole, s.major, s.end, s.inner) for s in splits(short, long)] == found


def sliced(x: Any, index: int, dim: int, count: int = 1) -> Any:
    start = tuple(index if d == dim else 0 for d in range(x.rank))
    limit = tuple(index + count if d == dim else n for d, n in enumerate(x.shape))
    return slice_(x, start=start, limit=limit, strides=(1,) * x.rank)


def check(write: Any, *shapes: tuple[int, ...]) -> list[str]:
    """The op names after the rewriting, which must not change values."""
    with Builder("main") as builder:
        inputs = [builder.input(TensorType(s, np.dtype(np.float32))) for s in shapes]
        program = builder.build([write(*inputs)])
    better = verify(slice_early(verify(program)))
    arrays = [np.arange(np.prod(s), dtype=np.float32).reshape(s) for s in shapes]
    for got, want in zip(evaluate(better, arrays), evaluate(program, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    needed, names = set(better.outputs), []
    for eqn in reversed(better.eqns):
        if needed & set(eqn.outputs):
            needed |= set(eqn.inputs)
            names.append(eqn.op.name)
    return names[::-1]


def test_slices_go_before_splits() -> None:
    assert check(lambda x: sliced(reshape(x, shape=(2, 3, 4)), 1, 1), (2, 12)) == ["slice", "reshape"]
    assert check(lambda x: sliced(reshape(x, shape=(2, 3, 4)), 1, 1, 2), (2, 12)) == ["slice", "reshape"]
    through = check(
        lambda x: sliced(transpose(reshape(x, shape=(2, 3, 4)), permutation=(1, 0, 2)), 2, 0), (2, 12)
    )
    assert through == ["slice", "reshape", "transpose"]


def test_other_slices_stay() -> None:
    assert check(lambda x: sliced(reshape(x, shape=(2, 3, 4)), 1, 2), (2, 12)) == ["reshape", "slice"]
    assert check(lambda x: sliced(transpose(x, permutation=(1, 0)), 2, 0), (2, 12)) == ["transpose", "slice"]
    assert check(lambda x: sliced(reshape(x, shape=(24,)), 1, 0), (2, 12)) == ["reshape", "slice"]


def padded(x: Any, low: int, high: int, dim: int) -> Any:
    zero = zeros(TensorType((), x.dtype))
    return pad(
        x, zero, low=tuple(low if d == dim else 0 for d in range(x.rank)),
        high=tuple(high if d == dim else 0 for d in range(x.rank)), interior=(0,) * x.rank,
    )  # fmt: skip


def test_merges_go_before_sums_of_pads() -> None:
    def write(a: Any, b: Any) -> Any:
        return reshape(add(padded(a, 0, 2, 1), padded(b, 1, 0, 1)), shape=(2, 12))

    names = check(write, (2, 1, 4), (2, 2, 4))
    assert sorted(names) == ["add", "constant", "constant", "pad", "pad", "reshape", "reshape"]

    def turned(a: Any, b: Any) -> Any:
        both = add(padded(a, 0, 2, 0), padded(b, 1, 0, 0))
        return reshape(transpose(both, permutation=(2, 0, 1)), shape=(2, 12))

    names = check(turned, (1, 4, 2), (2, 4, 2))
    assert [n for n in names if n != "constant"].count("pad") == 2 and names.index("pad") > names.index("reshape")


def test_merges_go_before_concatenations() -> None:
    def write(a: Any, b: Any) -> Any:
        return reshape(concatenate(a, b, dimension=1), shape=(2, 12))

    assert check(write, (2, 1, 4), (2, 2, 4)) == ["reshape", "reshape", "concatenate"]


@pytest.mark.parametrize("shards", [2, 4])
def test_heads_of_a_fused_projection_move_and_nothing_is_gathered(shards: int) -> None:
    mesh = mj.make_mesh((shards,), ("model",))

    def split_heads(t: Any) -> Any:
        q, k, v = mnp.moveaxis(t.reshape(2, 6, 3, 8, 2), 2, 0)
        return mnp.einsum("bthd,bshd->bhts", q, k) @ mnp.moveaxis(v, 2, 1)

    def loss(t: Any) -> Any:
        return (split_heads(t) ** 2).sum()

    t = np.random.default_rng(0).integers(-2, 3, (2, 6, 48)).astype(np.float32)
    for fun, results in ((split_heads, P(None, "model")), (mj.grad(loss), P(None, None, "model"))):
        placed = NamedSharding(mesh, P(None, None, "model")), NamedSharding(mesh, results)
        compiled = mj.jit(fun, in_shardings=placed[0], out_shardings=placed[1])
        rows = collective_rows(compiled.lower(t).lowering.local, mesh)
        assert {row.kind for row in rows} == {"collective_permute"}, rows
        if fun is split_heads:  # blocks, of which a device holds three: one moves, both ways at once; two at most
            assert sum(row.count for row in rows) == {2: 1, 4: 2}[shards]
            assert sum(row.bytes for row in rows) == {2: 1, 4: 2}[shards] * t.nbytes // shards // 3
        np.testing.assert_allclose(np.asarray(compiled(t)), np.asarray(fun(t)), rtol=1e-4)
