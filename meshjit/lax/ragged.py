"""`jax.lax.ragged_dot`: products of matrices whose rows are groups, each with a matrix of its own (experts)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from meshjit.api.out_sharding import takes_out_sharding
from meshjit.lax.reducing import cumsum
from meshjit.numpy import ufuncs
from meshjit.numpy.contraction import dot_general
from meshjit.numpy.creation import iota
from meshjit.numpy.promote import asarray, broadcast_to, cast, dtype_of, shape_of
from meshjit.numpy.shaping import expand_dims, transpose
from meshjit.trace import line_of, user_source


@dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """The dims of dot_general; the one dim of lhs whose elements are in groups, one group after another; the dim of rhs, none or
    one, that has a place for each group. A ragged dim that is neither contracted nor a batch needs such a dim of rhs."""

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]


def _refuse(text: str) -> NoReturn:
    raise TypeError(f"{text}\n  at {line_of(user_source())}")


@takes_out_sharding
def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
) -> Any:
    """[m, n]: each row of lhs [m, k] times the matrix of rhs [g, k, n] of its group. group_sizes: integers [g], how many rows
    each group has, the first group's first; rows beyond their sum give zeros. NotImplementedError for group_offset."""
    if len(shape_of(lhs)) != 2 or len(shape_of(rhs)) != 3:
        _refuse(f"ragged_dot takes lhs [m, k] and rhs [g, k, n], got {shape_of(lhs)} and {shape_of(rhs)}")
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return _ragged(lhs, rhs, group_sizes, numbers, precision, preferred_element_type, group_offset)


@takes_out_sharding
def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
) -> Any:
    """dot_general with one ragged dim of lhs. Neither contracted nor a batch: every element meets its own group of rhs.
    Contracted: the result has a dim of groups in front, each the product of its own elements. A batch: dot_general.

    group_sizes: integers [g], or [batch and other dims of lhs before the ragged one, g]."""
    numbers = ragged_dot_dimension_numbers
    return _ragged(lhs, rhs, group_sizes, numbers, precision, preferred_element_type, group_offset)


def _ragged(lhs: Any, rhs: Any, sizes: Any, numbers: Any, precision: Any, preferred: Any, group_offset: Any) -> Any:
    if group_offset is not None:
        raise NotImplementedError("ragged_dot: group_offset must be None\n  fix: a slice of group_sizes and of rhs")
    lhs, rhs, sizes = asarray(lhs), asarray(rhs), asarray(sizes)
    (contract, batch), ragged = _checked(numbers), int(numbers.lhs_ragged_dimensions[0])
    if dtype_of(sizes).kind not in "iu":
        _refuse(f"ragged_dot: group_sizes must be integers, got {dtype_of(sizes)}")
    if ragged in batch[0]:
        return dot_general(lhs, rhs, (contract, batch), precision, preferred)
    if ragged not in contract[0]:
        (group,) = numbers.rhs_group_dimensions
        _check_groups(sizes, shape_of(rhs)[group])
        lhs = _by_group(lhs, sizes, ragged, _before(len(shape_of(lhs)), ragged, batch[0], contract[0]))
        pairs = ((*_behind(contract[0]), 0), (*contract[1], group)), (_behind(batch[0]), batch[1])
    else:
        partner = contract[1][contract[0].index(ragged)]
        lhs, rhs = _by_group(lhs, sizes, ragged, batch[0]), _by_group(rhs, sizes, partner, batch[1])
        pairs = (_behind(contract[0]), _behind(contract[1])), ((0, *_behind(batch[0])), (0, *_behind(batch[1])))
    return dot_general(lhs, rhs, pairs, precision, preferred)


def _checked(numbers: Any) -> tuple[Any, Any]:
    """(contracting dims, batch dims), each of both sides."""
    contract, batch = (tuple(tuple(int(d) for d in side) for side in pair) for pair in numbers.dot_dimension_numbers)
    if len(numbers.lhs_ragged_dimensions) != 1:
        _refuse(f"ragged_dot: lhs needs one ragged dim, got {tuple(numbers.lhs_ragged_dimensions)}")
    is_free = numbers.lhs_ragged_dimensions[0] not in (*contract[0], *batch[0])
    if len(numbers.rhs_group_dimensions) != is_free:
        many = "one dim" if is_free else "no dim"
        _refuse(f"ragged_dot: rhs needs {many} of groups here, got {tuple(numbers.rhs_group_dimensions)}")
    return contract, batch


def _check_groups(sizes: Any, groups: int) -> None:
    if not shape_of(sizes) or shape_of(sizes)[-1] != groups:
        _refuse(f"ragged_dot: group_sizes {shape_of(sizes)} must end in {groups}, the number of groups of rhs")


def _before(rank: int, ragged: int, batch: Sequence[int], contract: Sequence[int]) -> tuple[int, ...]:
    """The dims that group sizes may differ along: the batch, and what of the result stands before the ragged dim."""
    return (*batch, *(d for d in range(ragged) if d not in (*batch, *contract)))


def _behind(dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(d + 1 for d in dims)


def _by_group(x: Any, sizes: Any, dim: int, prefix: Sequence[int]) -> Any:
    """[g, *x.shape]: of every group its own elements along `dim`, zeros elsewhere."""
    shape, groups = shape_of(x), shape_of(sizes)[-1]
    expected = tuple(shape[d] for d in prefix)
    if len(shape_of(sizes)) > 1 and shape_of(sizes)[:-1] != expected:
        _refuse(f"ragged_dot: group_sizes {shape_of(sizes)} must be [{groups}], or have dims {expected} in front")
    sizes = broadcast_to(cast(sizes, np.int32), (*expected, groups))
    ends = cumsum(sizes, len(prefix))
    order = (len(prefix), *np.argsort(prefix).tolist())  # groups first, then the prefix as its dims stand in x
    rest = tuple(1 + d for d in range(len(shape)) if d not in prefix)
    starts, ends = (expand_dims(transpose(y, order), rest) for y in (ends - sizes, ends))
    place = iota(np.int32, shape, dim)
    inside = ufuncs.logical_and(ufuncs.less_equal(starts, place), ufuncs.less(place, ends))
    return ufuncs.where(inside, x, np.zeros((), dtype_of(x)))
