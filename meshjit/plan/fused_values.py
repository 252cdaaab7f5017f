"""Values of which less is in memory than they have bytes: whoever reads them computes them again, as compilers do that fuse what
goes element by element. What they are made of is kept for it instead.

    %b f32[N, N] = broadcast(%s f32[N])        1 / N
    %p f32[N, N] = divide(%e, %b)              1 / N, if %e is kept for as long as %p is read anyway
    %c f32[N, N] = convert(%x bf16[N, N])      a half, if %x is read no more by then
    %q f32[N, N] = exponential(%y f32[N, N])   all of it, likewise; then %s = sine(%y) takes none

All their readers go element by element, too, or sum over dims. What products and loops read, and what is handed over or moved,
lies in memory.
"""

from __future__ import annotations

import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.repeats import Repeat, kinds_of, repeats
from meshjit.core.rules import is_fusible, rule_of, work_passes
from meshjit.transform.update_early import leading_to_results

SOURCES: Final = 8  # values in memory that one of these is made of at most
ABOUT: Final = 8  # what a value is made of is there long enough if it lives on into the last eighth of that value's own time
ROUNDS: Final = 2  # in the second one, values that turned out to lie in memory are what others are made of

NOTHING: Final = frozenset[Var]()
Sources: TypeAlias = frozenset[Var]
Maker: TypeAlias = tuple[int, tuple[Var, ...], Var, int]  # when, of what, the result, and its bytes
Outlived: TypeAlias = tuple[int, int, Var, int, Sources]  # up to when, when, the result, its bytes, of what
_FIRST: Final = operator.itemgetter(0)


def fused_values(program: Program) -> Mapping[Var, float]:
    """The part of their bytes that is held of them; none of those that lie in memory. Nested Programs have their own."""
    kinds = kinds_of(program)
    models = dict(zip(kinds, program.eqns, strict=True))
    reading = {kind for kind, eqn in models.items() if _reads_fused(eqn)}
    made = {kind: eqn.outputs[0].type.nbytes for kind, eqn in models.items() if is_fusible(eqn)}  # bytes, of what is fused
    clock = _clock(program, lambda at: kinds[at] in made)
    lies, last = {*program.outputs}, dict[Var, int]()
    for at, eqn, kind in zip(clock, program.eqns, kinds, strict=False):
        for v in eqn.inputs:
            last[v] = at
        if kind not in reading:
            lies.update(eqn.inputs)
    last.update(dict.fromkeys(program.outputs, clock[-1]))
    every = zip(clock, program.eqns, kinds, strict=False)
    fused = [(at, eqn.inputs, eqn.outputs[0], kind) for at, eqn, kind in every if kind in made]
    makers = [(at, inputs, var, made[kind]) for at, inputs, var, kind in fused if var not in lies]
    parts = dict[Var, float]()
    for _ in range(ROUNDS):
        parts = _parts(makers, last)
        if len(parts) == len(makers):
            break
        makers = [maker for maker in makers if maker[2] in parts]
    _make_alike(program, parts)
    return parts


def _clock(program: Program, fuses: Callable[[int], bool]) -> Sequence[int]:
    """By number of the equation, and at the end, the time in which values live: what leads to results alone, as updates do, takes
    none, wherever it stands."""
    leading, _ = leading_to_results(program, fuses)
    return [0, *itertools.accumulate([at not in leading for at in range(len(program.eqns))])]


def _parts(makers: Sequence[Maker], last: Mapping[Var, int]) -> dict[Var, float]:
    """Of values by the equation that makes them, those of which no more would be kept than their bytes. What several of them are
    made of is kept once: it counts with the one that is read last."""
    parts, outlive = _outlived(makers, last)
    kept = dict(last)
    outlive.sort(key=_FIRST, reverse=True)
    for end, at, var, nbytes, made_of in outlive:
        about = _about(at, end)
        gone = [v for v in made_of if kept[v] < about]
        part = sum([v.type.nbytes for v in gone]) / max(1, nbytes) if gone else 0.0
        if part <= 1.0:
            kept.update(dict.fromkeys(gone, end))
            parts[var] = part
    return parts


def _outlived(makers: Sequence[Maker], last: Mapping[Var, int]) -> tuple[dict[Var, float], list[Outlived]]:
    """The values that take no memory, because all that they are made of is read for about as long; and those that outlive a part
    of it. Values made of more than SOURCES are in neither."""
    parts, outlive = dict[Var, float](), list[Outlived]()
    sources, until = dict[Var, Sources](), dict[Sources, int]()  # what a value is made of, up to when all of that is there
    for at, inputs, var, nbytes in makers:
        made_of = NOTHING
        for v in inputs:
            of_operand = sources.get(v)
            if of_operand is None:
                of_operand = sources[v] = frozenset((v,))
            made_of = of_operand if not made_of else made_of if of_operand is made_of else made_of | of_operand
        there = until.get(made_of)
        if there is None:
            if len(made_of) > SOURCES:
                continue
            there = until[made_of] = min([last[v] for v in made_of], default=len(last))
        sources[var], end = made_of, last.get(var, at)
        if there >= end - (end - at) // ABOUT:
            parts[var] = 0.0
        else:
            outlive.append((end, at, var, nbytes, made_of))
    return parts, outlive


def _about(at: int, end: int) -> int:
    """From when on a value is kept for about as long as one that lives from `at` to `end`."""
    return end - (end - at) // ABOUT


def _make_alike(program: Program, parts: dict[Var, float]) -> None:
    """What repeats of one kind hold is alike: of the values at one place the largest part counts for all."""
    by_kind: dict[int, list[Repeat]] = defaultdict(list)
    for repeat in repeats(program):
        by_kind[repeat.kind].append(repeat)
    for alike in by_kind.values():
        for values in zip(*[repeat.inner for repeat in alike], strict=True):
            each = {parts.get(v, 1.0) for v in values}
            if len(each) > 1 and max(each) < 1.0:
                parts.update(dict.fromkeys(values, max(each)))
            elif len(each) > 1:
                for v in values:
                    parts.pop(v, None)


def _reads_fused(eqn: Eqn) -> bool:
    """Whether it computes what it reads: it goes element by element, or reads its one operand once, and adds it up."""
    if eqn.op.regions is not None:
        return False
    return is_fusible(eqn) or (len(eqn.inputs) == 1 and bool(rule_of(eqn).reductions) and not work_passes(eqn))
