"""Over which mesh axes the values of a Program of single devices vary: along which devices may hold different ones.

    %n: i32[] = axis_index() {axes=('x',)}      varies over x
    %s: f32[] = psum_invariant(%a) {axes=('x',)}    varies over all axes that %a varies over, but x

An op's own rule is `Op.varying`; a result of any other op varies over all axes over which an operand does.

Beside names of axes there are two marks of them. `unreduced x`: devices along x hold addends of one value, and so do their
cotangents not: they are `reduced x`, one value whose own cotangent is unreduced. A value is one of the three over an axis, or
the same along it. In equations devices' addends come before what varies, and this before what is reduced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import through_regions
from sharding.axes import name_of
from sharding.spec import PartitionSpec, entry_axes

Axes: TypeAlias = frozenset[str]
NOWHERE: Axes = frozenset()
UNREDUCED: Final = "unreduced "
REDUCED: Final = "reduced "


def marked(axes: Iterable[str], mark: str) -> Axes:
    """The marks `unreduced x` or `reduced x` of axes."""
    return frozenset(mark + axis for axis in axes)


def with_mark(axes: Axes, mark: str) -> Axes:
    """The axes that have the mark; those without any where it is ""."""
    if not mark:
        return frozenset(axis for axis in axes if not axis.startswith((UNREDUCED, REDUCED)))
    return frozenset(axis.removeprefix(mark) for axis in axes if axis.startswith(mark))


def differing(axes: Axes) -> Axes:
    """The axes along which devices hold different elements: those of addends, too."""
    return with_mark(axes, "") | with_mark(axes, UNREDUCED)


def named_in(spec: PartitionSpec) -> Axes:
    """How shards of this spec vary."""
    dims = frozenset(name_of(axis) for entry in spec for axis in entry_axes(entry))
    return dims | marked(spec.unreduced, UNREDUCED) | marked(spec.reduced, REDUCED)


def sums_in(axes: Axes) -> PartitionSpec:
    """The marks as a spec without entries."""
    return PartitionSpec(unreduced=with_mark(axes, UNREDUCED), reduced=with_mark(axes, REDUCED))


def united(operands: Iterable[Axes]) -> Axes:
    """How what is computed element by element varies."""
    axes = NOWHERE.union(*operands)
    if not any(axis.startswith(REDUCED) for axis in axes):
        return axes
    return axes - marked(differing(axes), REDUCED)


def varying_values(program: Program, inputs: Sequence[Axes]) -> Mapping[Var, Axes]:
    """The axes of every value of the Program, whose inputs vary over `inputs`."""
    env: dict[Var, Axes] = dict(zip(program.inputs, inputs, strict=True))
    for eqn in program.eqns:
        env.update(zip(eqn.outputs, varying_results(eqn, [env[v] for v in eqn.inputs]), strict=True))
    return env


def varying_outputs(program: Program, inputs: Sequence[Axes]) -> list[Axes]:
    """The axes of the Program's outputs."""
    values = varying_values(program, inputs)
    return [values[v] for v in program.outputs]


def varying_results(eqn: Eqn, operands: Sequence[Axes]) -> Sequence[Axes]:
    """The axes of an equation's results."""
    if eqn.op.varying is not None:
        return eqn.op.varying(operands, eqn.params)
    regions = () if eqn.op.regions is None else eqn.op.regions(eqn.params)
    if not regions:
        return [united(operands)] * len(eqn.outputs)
    return through_regions(eqn, [r for r in regions if r.role == "run"], operands, NOWHERE, varying_outputs)
