"""Values that take no memory: compilers compute what goes element by element in the equations that read it, where it is made of
much less than it would hold.

    %b f32[N, N] = broadcast(%s f32[N])      takes none
    %m bool[N, N] = greater(%i, %j)          of two counts: none
    %y f32[N, N] = multiply(%x, %b)          is held, if %x is

All their readers go element by element, too, or sum over dims. What products and loops read, and what is handed over, lies in
memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from meshjit.core.effects import is_pure
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.repeats import Repeat, kinds_of, repeats
from meshjit.core.rules import goes_by_element, rule_of, work_passes
from meshjit.core.splat import is_known_splat

MUCH_LESS: Final = 8  # times fewer bytes


def fused_values(program: Program) -> set[Var]:
    """Those of a Program, nested ones aside."""
    kinds = kinds_of(program)
    is_fused, reads_fused = dict[int, bool](), dict[int, bool]()
    for eqn, kind in zip(program.eqns, kinds, strict=True):
        if kind not in is_fused:
            is_fused[kind] = _is_fused(eqn)
            reads_fused[kind] = is_fused[kind] or _sums(eqn)
    lies = {*program.outputs}
    for eqn, kind in zip(program.eqns, kinds, strict=True):
        if not reads_fused[kind]:
            lies.update(eqn.inputs)
    made_of: dict[Var, int] = {}  # bytes in memory that each of them is made of
    for eqn, kind in zip(program.eqns, kinds, strict=True):
        if is_fused[kind] and eqn.outputs[0] not in lies:
            result = eqn.outputs[0]
            nbytes = sum([made_of.get(v, v.type.nbytes) for v in dict.fromkeys(eqn.inputs)])
            if MUCH_LESS * nbytes <= result.type.nbytes:
                made_of[result] = nbytes
    return {*made_of} - _unlike(program, made_of)


def _unlike(program: Program, fused: Mapping[Var, int]) -> set[Var]:
    """Values at places of repeats at which other repeats of the kind hold one. What repeats of one kind hold is alike."""
    by_kind: dict[int, list[Repeat]] = defaultdict(list)
    for repeat in repeats(program):
        by_kind[repeat.kind].append(repeat)
    unlike = set[Var]()
    for every in by_kind.values():
        for values in zip(*[repeat.inner for repeat in every], strict=True):
            if not all([v in fused for v in values]):
                unlike.update(values)
    return unlike


def _is_fused(eqn: Eqn) -> bool:
    """Whether compilers compute the result where it is read. A barrier hands on what lies in memory."""
    op = eqn.op
    if len(eqn.outputs) != 1 or op.regions is not None or op.pinned is not None or op.prune is not None or not is_pure(eqn):
        return False
    value = eqn.params.get("value")
    return goes_by_element(eqn) if eqn.inputs else value is None or is_known_splat(value)


def _sums(eqn: Eqn) -> bool:
    """Whether it reads its one operand once, and adds it up."""
    return eqn.op.regions is None and len(eqn.inputs) == 1 and bool(rule_of(eqn).reductions) and not work_passes(eqn)
