"""Rounds of messages (`sharding/messages.py`) as the Program of each of the devices: a shard in, another out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import TensorType
from meshjit.ops.base.comparison import compare, select
from meshjit.ops.base.constants import constant, full, scalar, zeros
from meshjit.ops.base.shape import broadcast_in_dim, reshape
from meshjit.ops.collective.collectives import axis_index, collective_permute
from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
from sharding.axes import AxisRef
from sharding.messages import Message, Round


def program_of_rounds(
    name: str, rounds: Sequence[Round], operand: TensorType, result: TensorType, axes: Sequence[AxisRef], devices: int
) -> Program:
    """The local Program of the devices along `axes`, to whose positions the messages refer. What nobody sends is 0."""
    with Builder(name) as builder:
        shard, made = builder.input(operand), zeros(result)
        index = axis_index(axes=tuple(axes))
        for turn in rounds:
            made = _received(made, shard, turn, index, devices)
        return builder.build([made])


def _received(made: Var, shard: Var, turn: Round, index: Var, devices: int) -> Var:
    def entry(of: Callable[[Message], int], at: Callable[[Message], int]) -> Var:
        entries = np.zeros(devices, np.int32)
        for message in turn.messages:
            entries[at(message)] = of(message)
        return _looked_up(entries, index)

    taken = [entry(lambda m, d=d: m.taken[d], lambda m: m.sender) for d in range(shard.rank)]
    block = dynamic_slice(shard, *taken, slice_sizes=turn.shape) if taken else shard
    stays = all(sender == receiver for sender, receiver in turn.pairs)
    came = block if stays else collective_permute(block, pairs=turn.pairs)
    put = [entry(lambda m, d=d: m.put[d], lambda m: m.receiver) for d in range(shard.rank)]
    with_it = dynamic_update_slice(made, came, *put) if put else came
    gets = entry(lambda m: 1, lambda m: m.receiver)
    is_here = compare(gets, scalar(1, np.int32), direction="EQ")
    return select(broadcast_in_dim(is_here, shape=made.shape, dimensions=()), with_it, made)


def _looked_up(entries: np.ndarray[Any, Any], index: Var) -> Var:
    """i32[]: the entry of this device."""
    if (entries == entries[0]).all():
        return full(TensorType((), np.dtype(np.int32)), entries[0])
    return reshape(dynamic_slice(constant(value=entries), index, slice_sizes=(1,)), shape=())
