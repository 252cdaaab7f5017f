"""custom_partitioning: a Program that the user says how to cut up.

    %y = custom_partitioning(%x) {name='my_fft', rule='b n -> b n | replicate n', sizes=(('b', 8), ('n', 16)),
                                  closed=0, results=(c64[8, 16],), call=rule('my_fft')}

Params: name, of the function; rule and sizes, its factor rule; closed, how many of the operands, the first ones, it closes over;
results, their types; call, what makes its Programs:

    call("whole") -> Program                    on whole operands: what the op means
    call("part", mesh, manual, operands, results) -> (Program, operands, results)
                                                on shards, where the operands that are no closed ones, and the results, lie
                                                like this. The user may have them elsewhere: the Program is for the placements
                                                in the answer. It may hold collectives over all axes but those in `manual`

Its permuted factors are those that the user reduces or permutes: the Program on shards does what it takes, so these may be
sharded like all others. The user is told of no shards that are uneven along them, nor of parts of an axis. On one device, and
where nothing is spread, the op runs whole.

Source: JAX's `custom_partitioning`, and Shardy's sharding rules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from meshjit.core.evaluate import evaluate
from meshjit.core.local import LocalEquation
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var, current_builder
from meshjit.core.region import Rule
from meshjit.core.types import TensorType
from meshjit.ops.base.arithmetic import multiply
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.base.shape import broadcast_in_dim
from meshjit.ops.collective.collectives import all_reduce
from meshjit.ops.control.manual import written
from sharding.axes import AxisRef
from sharding.rule import FactorRule
from sharding.spec import Placement

Placements = tuple[Placement, ...]


@functools.lru_cache(maxsize=1024)
def _rule(text: str, sizes: tuple[tuple[str, int], ...]) -> FactorRule:
    return FactorRule.parse(text, dict(sizes))


def _factor_rule(in_types: Types, out_types: Types, params: Params) -> FactorRule:
    return _rule(params["rule"], params["sizes"])


def _evaluate(*arrays: Any, **params: Any) -> tuple[Any, ...]:
    return tuple(evaluate(params["call"]("whole"), arrays))


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    return e.program(params["call"]("whole"), operands)


def _partition(local: LocalEquation) -> list[Var]:
    closed, rule = local.params["closed"], _factor_rule((), (), local.params)
    unspoken = _unspoken(local, rule)
    told = [
        tuple([_without(p, dims, unspoken) for p, dims in zip(placements, values, strict=True)])
        for placements, values in ((local.operand_placements, rule.operands), (local.result_placements, rule.results))
    ]
    body, asked, given = local.params["call"]("part", local.mesh, local.manual, told[0][closed:], told[1])
    pairs = enumerate(zip(local.operand_placements[closed:], asked, strict=True), closed)
    operands = [local.operands[i] if here == there else local.bring(i, there) for i, (here, there) in pairs]
    results = current_builder().inline(written(body, local), operands)
    ends = zip(results, local.eqn.output_types, given, local.result_placements, strict=True)
    return [x if here == there else local.moved(x, type, here, there) for x, type, here, there in ends]


def _unspoken(local: LocalEquation, rule: FactorRule) -> set[str]:
    """The factors whose spread the user is not told: shards of another size in what he reduces or permutes, parts of an axis."""
    values = zip((*rule.operands, *rule.results), (*local.operand_placements, *local.result_placements), strict=True)
    types = (*local.eqn.input_types, *local.eqn.output_types)
    return {
        factor
        for (dims, placement), type in zip(values, types, strict=True)
        for factors, axes, extent in zip(dims, placement.dims, type.shape, strict=True)
        for factor in factors
        if not all(isinstance(axis, str) for axis in axes)
        or (extent % local.mesh.axes_size(axes) and any(rule.kinds.get(f) == "permute" for f in factors))
    }


def _without(placement: Placement, dims: Sequence[Iterable[str]], unspoken: set[str]) -> Placement:
    sides = zip(dims, placement.dims, strict=True)
    return Placement(tuple(() if unspoken.intersection(factors) else axes for factors, axes in sides))


# -- samples


def _scores(type: TensorType, axes: tuple[AxisRef, ...]) -> Program:
    """Every row times the sum of its elements; where rows are cut along `axes`, each device has a part of the sum."""
    with Builder("scores") as builder:
        x = builder.input(type)
        total = reduce_sum(x, axes=(1,))
        total = all_reduce(total, axes=axes, kind="sum") if axes else total
        return builder.build([multiply(x, broadcast_in_dim(total, shape=type.shape, dimensions=(0,)))])


def _sample(shape: tuple[int, int], rule: str) -> Sample:
    type = TensorType(shape, np.dtype(np.float32))

    def make(what: str, mesh: Any = None, manual: Any = None, operands: Placements = (), results: Placements = ()) -> Any:
        if what == "whole":
            return _scores(type, ())
        (placement,) = operands
        return _scores(type.with_shape(placement.local_shape(shape, mesh)), placement.dims[1]), operands, operands

    sizes = tuple(zip("bn", shape, strict=True))
    settings = {"name": "scores", "rule": rule, "sizes": sizes, "closed": 0, "results": (type,)}
    return Sample((type,), {**settings, "call": Rule("scores", make)})


def _samples() -> list[Sample]:
    return [_sample((8, 12), "b n -> b n | permute n"), _sample((6, 5), "b n -> b n | replicate n")]


_NONE = "nothing is known of the function but how it is cut up; custom_jvp, custom_vjp or custom_vmap around it say the rest"

custom_partitioning = Op(
    name="custom_partitioning",
    type_rule=lambda in_types, params: params["results"],
    factor_rule=_factor_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_samples,
    jvp=Absent(_NONE),
    transpose=Absent(_NONE),
    batch=Absent(_NONE),
    partition=_partition,
    asks_user=True,
    whole="the user says that a factor needs to be whole",
)
