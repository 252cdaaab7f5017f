"""Every pass on small programs: tests/goldens/passes/PASS.txt holds each program before and after it, as text.

A case is `== what it shows`, a program, `=>` and what the pass makes of it. To add one, write the first two and run
`pytest --update-goldens tests/test_transform_goldens.py`; then read the rest. A new pass needs a line in PASSES and a file.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit.transform
from meshjit.core.memories import memories_of
from meshjit.core.parser import parse_program
from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.core.types import is_inexact
from meshjit.core.verify import verify
from meshjit.plan.cost import Machine
from meshjit.simulate.devices import simulate
from meshjit.simulate.evaluate import evaluate
from meshjit.targets import target_of, tpu
from meshjit.transform.align import align
from meshjit.transform.batch import batch
from meshjit.transform.batch_gathers import batch_gathers
from meshjit.transform.collect_apart import collect_apart
from meshjit.transform.commute import commute
from meshjit.transform.compose_permutes import compose_permutes
from meshjit.transform.compute_again import Section, compute_again
from meshjit.transform.compute_again_in_loops import LoopAgain, compute_again_in_loop, loop_pairs
from meshjit.transform.copy_parts import copy_parts
from meshjit.transform.cse import cse
from meshjit.transform.dce import dce
from meshjit.transform.fold import fold
from meshjit.transform.fold_slices import fold_slices
from meshjit.transform.fuse import fuse
from meshjit.transform.hide_constants import hide_constants
from meshjit.transform.inline_calls import inline_calls
from meshjit.transform.join_parts import join_parts
from meshjit.transform.jvp import jvp
from meshjit.transform.keep_dims_apart import keep_dims_apart
from meshjit.transform.materialize_updates import materialize_updates
from meshjit.transform.merge_permutes import merge_permutes
from meshjit.transform.move_before_loops import move_before_loops
from meshjit.transform.numbers import numbers_of, without_numbers
from meshjit.transform.pair_permutes import pair_permutes
from meshjit.transform.place_in_memories import place_in_memories
from meshjit.transform.separate_uses import separate_uses
from meshjit.transform.share_halos import share_halos
from meshjit.transform.share_shifts import share_shifts
from meshjit.transform.slice_early import slice_early
from meshjit.transform.slice_late import slice_late
from meshjit.transform.slice_operands import slice_operands
from meshjit.transform.split import split
from meshjit.transform.taylor import taylor
from meshjit.transform.transpose import backward, gradient
from meshjit.transform.turn_one_by_one import turn_one_by_one
from meshjit.transform.update_early import update_early
from sharding.mesh import AbstractMesh
from sharding.topology import Topology

Arrays = list[np.ndarray[Any, Any]]
FOLDER = Path(__file__).parent / "goldens" / "passes"
MESH = AbstractMesh((4,), ("x",))
MEMBERS = 2  # of a batch


# -- what must hold of the values


def arrays_for(program: Program, seed: int = 0) -> Arrays:
    """Small numbers of few bits, so that sums of products are exact."""
    generator = np.random.default_rng(seed)
    return [(generator.integers(-4, 5, t.shape) / 8 if is_inexact(t.dtype) else generator.integers(0, 3, t.shape)).astype(t.dtype)
            for t in program.input_types]  # fmt: skip


def assert_equal(one: Sequence[Any], other: Sequence[Any]) -> None:
    for mine, its in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, its)
        assert np.asarray(mine).tobytes() == np.asarray(its).tobytes(), "signs of zeros"


def values_stay(before: Program, after: Program) -> None:
    assert_equal(evaluate(before, arrays_for(before)), evaluate(after, arrays_for(before)))


def values_stay_but_for_rounding(before: Program, after: Program) -> None:
    for mine, its in zip(evaluate(before, arrays_for(before)), evaluate(after, arrays_for(before)), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-6)


def values_on_devices_stay(before: Program, after: Program) -> None:
    shards = [list(of_input) for of_input in zip(*(arrays_for(before, seed=d) for d in range(MESH.size)), strict=True)]
    for mine, its in zip(simulate(before, MESH, shards), simulate(after, MESH, shards), strict=True):
        assert_equal(mine, its)


def numbers_are_operands(before: Program, after: Program) -> None:
    arrays = arrays_for(before)
    assert_equal(evaluate(before, arrays), evaluate(after, [*arrays, *(n.eqn.params["value"] for n in numbers_of(before))]))


def members_are_as_alone(before: Program, after: Program) -> None:
    """The first input is the same for all members."""
    same, members = arrays_for(before)[0], [arrays_for(before, seed)[1:] for seed in range(MEMBERS)]
    alone = [evaluate(before, [same, *member]) for member in members]
    batched = [np.stack(arrays) for arrays in zip(*members, strict=True)]
    assert_equal([np.stack(results) for results in zip(*alone, strict=True)], evaluate(after, [same, *batched]))


def difference(program: Program, arrays: Arrays, direction: Sequence[Any]) -> list[Any]:
    """Of the inexact results, along a direction of the inexact inputs: what their derivatives must be, to some eight digits."""
    ways = iter(direction)
    steps = [1e-5 * next(ways) if is_inexact(a.dtype) else 0 * a for a in arrays]
    ends = [evaluate(program, [a + sign * s for a, s in zip(arrays, steps, strict=True)]) for sign in (1, -1)]
    return [(high - low) / 2e-5 for high, low in zip(*ends, strict=True) if is_inexact(high.dtype)]


def tangents_are_differences(before: Program, after: Program) -> None:
    arrays, direction = arrays_for(before), arrays_for(after, seed=1)[len(before.inputs) :]
    results = evaluate(after, [*arrays, *direction])
    assert_equal(evaluate(before, arrays), results[: len(before.outputs)])
    for mine, its in zip(results[len(before.outputs) :], difference(before, arrays, direction), strict=True):
        np.testing.assert_allclose(mine, its, atol=1e-8)


def terms_are_differences(before: Program, after: Program) -> None:
    """The inputs' terms stand one input after the other, those of orders 1 and 2."""
    arrays, terms = arrays_for(before), arrays_for(after, seed=1)[len(before.inputs) :]
    moving = [is_inexact(v.dtype) for v in before.inputs]
    first, second = iter(terms[::2]), iter(terms[1::2])
    pairs = [(next(first), next(second)) if flag else None for flag in moving]
    step = 1e-4
    curves = [lambda t, x=x, ab=ab: x if ab is None else x + t * ab[0] + t * t * ab[1] for x, ab in zip(arrays, pairs, strict=True)]
    ends = [evaluate(before, [curve(t) for curve in curves]) for t in (step, -step)]
    values, rest = evaluate(before, arrays), evaluate(after, [*arrays, *terms])
    assert_equal(values, rest[: len(values)])
    mine = iter(rest[len(values) :])
    for high, low, middle in zip(*ends, values, strict=True):
        if is_inexact(high.dtype):
            np.testing.assert_allclose(next(mine), (high - low) / (2 * step), atol=1e-5)
            np.testing.assert_allclose(next(mine), (high + low - 2 * middle) / (2 * step**2), atol=1e-5)


def cotangents_are_transposed_differences(before: Program, after: Program) -> None:
    arrays, cotangents = arrays_for(before), arrays_for(after, seed=1)[len(before.inputs) :]
    results, direction = evaluate(after, [*arrays, *cotangents]), arrays_for(before, seed=2)
    assert_equal(evaluate(before, arrays), results[: len(before.outputs)])
    np.testing.assert_allclose(
        inner(cotangents, difference(before, arrays, direction)), inner(results[len(before.outputs) :], direction), atol=1e-8
    )


def last_input_is_transposed(before: Program, after: Program) -> None:
    arrays, cotangents = arrays_for(before), arrays_for(after, seed=1)[len(before.inputs) - 1 :]
    transposed = evaluate(after, [*arrays[:-1], *cotangents])
    assert inner(cotangents, evaluate(before, arrays)) == inner(transposed, arrays[-1:])


def inner(one: Sequence[Any], other: Sequence[Any]) -> float:
    return sum(float(np.vdot(mine, its)) for mine, its in zip(one, other, strict=True))


def both_halves_are_the_whole(before: Program, first: Program, second: Program) -> None:
    *early, later = arrays_for(before)
    result, *residuals = evaluate(first, early)
    assert_equal(evaluate(before, [*early, later]), [result, *evaluate(second, [*residuals, later])])


def all_again(program: Program) -> LoopAgain:
    """All that the first of two loops computes, again in the second."""
    pair = next(loop_pairs(program))
    return LoopAgain(pair, pair.body.eqns)


# -- the table of passes


@dataclass(frozen=True)
class Pass:
    """A pass, ready to run, and what must hold of its Programs' values: check(before, *after)."""

    function: Callable[..., Any]
    run: Callable[[Program], Program | tuple[Program, ...]]
    check: Callable[..., None] = values_stay


def plain(function: Callable[[Program], Program], check: Callable[..., None] = values_stay) -> Pass:
    return Pass(function, function, check)


def all_inputs(program: Program) -> list[bool]:
    return [is_inexact(v.dtype) for v in program.inputs]


PASSES = {
    "inline_calls": Pass(inline_calls, lambda p: inline_calls(p, final=True)),
    "dce": plain(dce),
    "slice_early": plain(slice_early),
    "slice_late": Pass(slice_late, lambda p: slice_late(p, tpu.LATE)),
    "fold": plain(fold),
    "fold_slices": plain(fold_slices),
    "join_parts": plain(join_parts),
    "batch_gathers": plain(batch_gathers),
    "cse": plain(cse),
    "align": Pass(align, lambda p: align(p, lambda var, dim: MESH.size, Machine(MESH, target_of(MESH)).border_prices)),
    "copy_parts": Pass(copy_parts, lambda p: copy_parts(p, lambda var, dim: MESH.size)),
    "turn_one_by_one": Pass(turn_one_by_one, lambda p: turn_one_by_one(p, lambda var, dim: MESH.size)),
    "commute": Pass(commute, lambda p: commute(p, lambda var, dim: dim == 0), values_stay_but_for_rounding),
    "keep_dims_apart": Pass(keep_dims_apart, lambda p: keep_dims_apart(p, lambda eqn: True)),
    "move_before_loops": Pass(move_before_loops, lambda p: move_before_loops(p, lambda var, parts: True)),
    "collect_apart": Pass(collect_apart, lambda p: collect_apart(p, lambda var, dim: True)),
    "separate_uses": Pass(separate_uses, lambda p: separate_uses(p, {p.eqns[-1]: (p.inputs[:1], p.eqns[-1].inputs[-1])})),
    "compute_again": Pass(
        compute_again, lambda p: compute_again(p, [Section(p.eqns[:1], len(p.eqns) - 1, p.eqns[-1].inputs[-1])])[0]),
    "compute_again_in_loops": Pass(compute_again_in_loop, lambda p: compute_again_in_loop(p, all_again(p))[0]),
    "update_early": plain(update_early),
    "slice_operands": plain(slice_operands, values_on_devices_stay),
    "share_halos": plain(share_halos, values_on_devices_stay),
    "compose_permutes": plain(compose_permutes, values_on_devices_stay),
    "merge_permutes": Pass(merge_permutes, lambda p: merge_permutes(p, MESH, Topology.cpu(MESH)), values_on_devices_stay),
    "pair_permutes": Pass(pair_permutes, lambda p: pair_permutes(p, MESH), values_on_devices_stay),
    "fuse": plain(fuse, values_stay_but_for_rounding),
    "share_shifts": plain(share_shifts),
    "hide_constants": plain(hide_constants, values_on_devices_stay),
    "materialize_updates": plain(materialize_updates),
    "place_in_memories": Pass(
        place_in_memories, lambda p: place_in_memories(p, *memories_of(p)), values_on_devices_stay),
    "without_numbers": plain(without_numbers, numbers_are_operands),
    "batch": Pass(
        batch, lambda p: batch(p, [None] + [0] * (len(p.inputs) - 1), MEMBERS, [0] * len(p.outputs)), members_are_as_alone),
    "jvp": Pass(jvp, lambda p: jvp(p, all_inputs(p))[0], tangents_are_differences),
    "taylor": Pass(taylor, lambda p: taylor(p, tuple(all_inputs(p)), 2)[0], terms_are_differences),
    "split": Pass(split, lambda p: split(p, p.inputs[-1:], 1), both_halves_are_the_whole),
    "backward": Pass(backward, lambda p: backward(p, [v is p.inputs[-1] for v in p.inputs]), last_input_is_transposed),
    "gradient": Pass(gradient, lambda p: gradient(p, all_inputs(p)), cotangents_are_transposed_differences),
}  # fmt: skip

# What `align` asks, the order of passes, what they share; checkify needs lines of the user's: test_autodiff_checkify.
NO_PASSES = {"choose_frames", "pipeline", "reaching", "rewriting", "checkify", "checks", "derivable"}


# -- goldens


@dataclass(frozen=True)
class Case:
    title: str
    before: Program

    def after(self, name: str) -> tuple[Program, ...]:
        made = PASSES[name].run(self.before)
        return tuple(verify(p, name) for p in (made if isinstance(made, tuple) else (made,)))

    def described(self, name: str) -> str:
        return f"== {self.title}\n{printed(self.before)}=>\n{''.join(map(printed, self.after(name)))}"


def printed(program: Program) -> str:
    return print_program(program, sources=False).rstrip() + "\n"


def cases(name: str) -> list[Case]:
    """The programs of a pass's golden file; what comes after `=>` is not looked at."""
    parts = [part.partition("\n") for part in f"\n{(FOLDER / f'{name}.txt').read_text()}".split("\n== ")[1:]]
    return [Case(title, parse_program(rest.split("\n=>\n")[0])) for title, _, rest in parts]


CASES = [(name, case) for name in PASSES for case in cases(name)]
each_case = pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}: {case.title}" for name, case in CASES])


@pytest.mark.parametrize("name", PASSES)
def test_programs_before_and_after(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"passes/{name}", "\n".join(case.described(name) for case in cases(name)))


@each_case
def test_what_is_printed_parses_back(name: str, case: Case) -> None:
    for program in (case.before, *case.after(name)):
        assert printed(parse_program(printed(program))) == printed(program)


@each_case
def test_values(name: str, case: Case) -> None:
    PASSES[name].check(verify(case.before), *case.after(name))


def test_every_pass_has_programs() -> None:
    modules = {m.name for m in pkgutil.iter_modules(meshjit.transform.__path__)}
    covered = {p.function.__module__.rpartition(".")[2] for p in PASSES.values()}
    assert modules - covered == NO_PASSES
    assert {path.stem for path in FOLDER.iterdir()} == set(PASSES)
