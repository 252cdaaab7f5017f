"""Loops that write what they carry to two buffers alternately.

XLA keeps each carry of a loop in one buffer. A new value that is read off other places of the old one cannot be written over
it: it is written elsewhere, and copied back in every iteration. So is a carry that takes the place of another one:

    u = u + c * (shift(u, 1) + shift(u, -1) - 2 * u)          one copy an iteration
    before, u = u, 2 * u - before + c * shift(u, 1)           two

Two iterations in one step of the loop need none: the first writes the other buffer, the second one this one again. A barrier
between them keeps the first from being computed again at every place that the second one reads.

Where an iteration makes large products, copies take no time beside these. XLA:CPU fuses a product with what is computed from
it, but for constants that both iterations read: it writes these to memory, each as large as the carry (3.7 times the temporary
memory of a lattice Boltzmann loop, in the same time).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from meshjit.core.access import Moved, Same
from meshjit.core.op import Params
from meshjit.core.program import Eqn, Var
from meshjit.core.rules import access_of, rule_of
from meshjit.core.types import TensorType
from meshjit.ops.base.annotations import materialize, optimization_barrier

LEAST: Final = 1 << 14  # bytes of a carry: below, a copy takes no time beside what else an iteration costs
MOST: Final = 256  # equations of a body, which is compiled twice
Makers = Mapping[Var, tuple[Eqn, int]]


def has_two_buffers(params: Params) -> bool:
    """Whether a scan with these params has large carries that would be copied, and enough iterations. What its body runs, such
    as another loop or a large product, takes longer than copies do."""
    body, consts, count = params["body"], params["num_consts"], params["num_carry"]
    if params["unroll"] != 1 or params["length"] < 4 or len(body.eqns) > MOST or any(map(_takes_long, body.eqns)):
        return False
    large = [i for i in range(count) if body.outputs[i].type.nbytes >= LEAST]
    carries, outputs = {body.inputs[consts + i]: i for i in large}, {body.outputs[i]: i for i in large}
    makers = {v: (eqn, n) for eqn in body.eqns for n, v in enumerate(eqn.outputs)} if large else {}
    return any(body.outputs[i] in carries.keys() - {body.inputs[consts + i]} for i in large) or _clash(carries, outputs, makers)


def _takes_long(eqn: Eqn) -> bool:
    """Whether an equation runs Programs, or is a contraction with a large result."""
    if eqn.op.regions is not None:
        return True
    rule = rule_of(eqn)
    return len(rule.operands) > 1 and bool(rule.reductions) and eqn.outputs[0].type.nbytes >= LEAST


def apart(e: Any, carries: Sequence[str]) -> list[str]:
    """The carries, the large ones in memory before the second iteration reads them."""
    return [_apart(e, name, e.types[name]) if e.types[name].nbytes >= LEAST else name for name in carries]


def _apart(e: Any, name: str, type: TensorType) -> str:
    op = materialize if e.target.drops_barriers else optimization_barrier
    (result,) = op.emit(e, [name], (type,), (type,), {})
    return result


def _clash(carries: Mapping[Var, int], outputs: Mapping[Var, int], makers: Makers) -> bool:
    """Whether no order lets every new value be written over its old one. A value has to be written while the carries that it
    reads are there, and after the new values that it reads."""
    after = {i: set[int]() for i in carries.values()}
    for output, i in outputs.items():
        for var, is_moved in _reads(output, outputs, makers):
            if var in carries and carries[var] == i and is_moved:
                return True
            if var in carries and carries[var] != i:
                after[carries[var]].add(i)
            elif var in outputs and outputs[var] != i:
                after[i].add(outputs[var])
    try:
        TopologicalSorter(after).prepare()
    except CycleError:
        return True
    return False


def _reads(output: Var, outputs: Mapping[Var, int], makers: Makers) -> Iterator[tuple[Var, bool]]:
    """What is read while an output of the body is written, and whether at other places: all that may be fused with it. Other
    outputs are in memory."""
    left, seen = [(output, False)], set[tuple[Var, bool]]()
    while left:
        read = left.pop()
        var, is_moved = read
        if read in seen:
            continue
        seen.add(read)
        yield read
        if var in makers and (var is output or var not in outputs):
            left += [(operand, is_moved or moves) for operand, moves in _fused(*makers[var])]


def _fused(eqn: Eqn, result: int) -> list[tuple[Var, bool]]:
    """The operands that are read while this result is written, and whether at other places. What is written into a part of an
    operand is in memory before."""
    if eqn.op.simulate is not None:
        return []
    in_place = tuple(map(Same, range(eqn.outputs[result].rank)))
    sides = list(zip(eqn.inputs, access_of(eqn)[result].operands, strict=True))
    is_update = any(places == in_place for _, places in sides)
    kinds = Same if is_update else Same | Moved
    return [(v, places != in_place) for v, places in sides if all(isinstance(each, kinds) for each in places)]
