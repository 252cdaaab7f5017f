"""Random whole programs under random placements, against the law. Runs in CI, and for as long as you like:

    python -m tests.tools.fuzz --minutes 10 [--seed N]

A failure is shrunk: equations that the wrong output does not need are dropped, then annotations one by one; what is left
is printed as a Program and its annotations, to paste into a test.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import meshjit.ops  # noqa: F401
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Program, Var
from meshjit.core.region import programs_of
from meshjit.core.types import DTYPES, TensorType
from meshjit.simulate.evaluate import evaluate
from meshjit.transform.transpose import gradient
from tests.tools.fuzz_control import control, scanned
from tests.tools.fuzz_indexing import INDEXING
from tests.tools.fuzz_parts import parts_case
from tests.tools.laws import MESHES, check_law, random_spec

EXTENTS = (1, 2, 3, 4, 5, 6, 8)
F32 = DTYPES["f32"]


class Drawer:
    """Draws a program equation by equation. Values stay small integers in f32, so that sums are exact in any order."""

    def __init__(
        self, generator: np.random.Generator, steps: Sequence[Callable[[Drawer], Var | None]] | None = None
    ) -> None:
        self.generator = generator
        self.steps = steps or STEPS
        self.values: list[Var] = []

    def pick(self, test: Callable[[Var], bool] = lambda v: True) -> Var | None:
        fitting = [v for v in self.values if test(v)]
        return fitting[int(self.generator.integers(len(fitting)))] if fitting else None

    def number(self, low: int, high: int) -> int:
        return int(self.generator.integers(low, high))

    def program(self, equations: int) -> Program:
        with Builder("fuzz") as builder:
            for _ in range(self.number(1, 4)):
                shape = tuple(int(n) for n in self.generator.choice(EXTENTS, self.number(1, 4)))
                self.values.append(builder.input(TensorType(shape, F32)))
            while len(builder.eqns) < equations:
                step = self.steps[self.number(0, len(self.steps))]
                result = step(self)
                if result is not None and result.type.size <= 4096:
                    self.values.append(result)
            count = min(self.number(1, 4), len(self.values))
            return builder.build([self.values[-1 - i] for i in range(count)])


def unary(d: Drawer) -> Var | None:
    x = d.pick()
    return x and REGISTRY[("negate", "abs", "sign")[d.number(0, 3)]](x)


def binary(d: Drawer) -> Var | None:
    x = d.pick()
    y = x and d.pick(lambda v: v.type == x.type)
    op = ("add", "subtract", "maximum", "minimum")[d.number(0, 4)]
    return y and REGISTRY[op](x, y)


def scaled(d: Drawer) -> Var | None:
    """A product with one of -1, 0, 1, 2 everywhere: linear, so partial sums flow through."""
    x = d.pick()
    return x and REGISTRY["multiply"](x, REGISTRY["constant"](value=np.full(x.shape, d.number(-1, 3), np.float32)))


def signs(d: Drawer) -> Var | None:
    """A product with signs: values stay small."""
    x = d.pick()
    y = x and d.pick(lambda v: v.type == x.type)
    return y and REGISTRY["multiply"](x, REGISTRY["sign"](y))


def transposed(d: Drawer) -> Var | None:
    x = d.pick()
    return x and REGISTRY["transpose"](x, permutation=tuple(int(i) for i in d.generator.permutation(x.rank)))


def reshaped(d: Drawer) -> Var | None:
    """Merge two neighbouring dims, or split one."""
    x = d.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    i = d.number(0, x.rank)
    if d.number(0, 2) and i + 1 < x.rank:
        shape = (*x.shape[:i], x.shape[i] * x.shape[i + 1], *x.shape[i + 2 :])
    else:
        parts = [n for n in range(1, x.shape[i] + 1) if x.shape[i] % n == 0] or [1]
        first = parts[d.number(0, len(parts))]
        shape = (*x.shape[:i], first, x.shape[i] // first, *x.shape[i + 1 :])
    return REGISTRY["reshape"](x, shape=shape)


def broadcast(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank < 4)
    if x is None:
        return None
    at = d.number(0, x.rank + 1)
    shape = (*x.shape[:at], int(d.generator.choice(EXTENTS)), *x.shape[at:])
    return REGISTRY["broadcast_in_dim"](x, shape=shape, dimensions=tuple(i for i in range(len(shape)) if i != at))


def reduced(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    axes = tuple(i for i in range(x.rank) if d.number(0, 2))
    return REGISTRY[("reduce_sum", "reduce_max", "reduce_min")[d.number(0, 3)]](x, axes=axes)


def dot(d: Drawer) -> Var | None:
    """Contract signs with values over dims of equal extent, some of them batch dims."""
    x = d.pick(lambda v: v.rank > 0)
    y = x and d.pick(lambda v: v.rank > 0 and set(v.shape) & set(x.shape))
    if not y or not x:
        return None
    pairs = [(i, j) for i in range(x.rank) for j in range(y.rank) if x.shape[i] == y.shape[j]]
    i, j = pairs[d.number(0, len(pairs))]
    more = [(a, b) for a, b in pairs if a != i and b != j]
    batch = more[d.number(0, len(more))] if more and d.number(0, 2) else None
    return REGISTRY["dot_general"](
        REGISTRY["sign"](x), y,
        contract=((i,), (j,)), batch=((batch[0],), (batch[1],)) if batch else ((), ()), preferred=None, precision=None,
    )  # fmt: skip


def sliced(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    bounds = [sorted((d.number(0, n + 1), d.number(0, n + 1))) for n in x.shape]
    strides = tuple(d.number(1, 3) for _ in x.shape)
    start, limit = tuple(b[0] for b in bounds), tuple(max(b[1], b[0] + 1) for b in bounds)
    limit = tuple(min(b, n) for b, n in zip(limit, x.shape, strict=True))
    return REGISTRY["slice"](x, start=tuple(min(s, e) for s, e in zip(start, limit, strict=True)), limit=limit, strides=strides)


def padded(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    low, high, interior = (tuple(d.number(0, 3) for _ in x.shape) for _ in range(3))
    zero = REGISTRY["constant"](value=np.zeros((), np.float32))
    return REGISTRY["pad"](x, zero, low=low, high=high, interior=interior)


def joined(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank > 0)
    if x is None:
        return None
    dim = d.number(0, x.rank)
    y = d.pick(lambda v: v.rank == x.rank and all(v.shape[i] == x.shape[i] for i in range(x.rank) if i != dim))
    return y and REGISTRY["concatenate"](x, y, dimension=dim)


def reversed_(d: Drawer) -> Var | None:
    x = d.pick(lambda v: v.rank > 0)
    return x and REGISTRY["reverse"](x, dimensions=(d.number(0, x.rank),))


def chosen(d: Drawer) -> Var | None:
    x = d.pick()
    y = x and d.pick(lambda v: v.type == x.type)
    return y and REGISTRY["select"](REGISTRY["compare"](x, y, direction="LT"), y, x)


STEPS: Sequence[Callable[[Drawer], Var | None]] = (
    unary, binary, binary, scaled, signs, transposed, reshaped, broadcast, reduced, dot, dot, sliced, padded, joined,
    reversed_, chosen, *INDEXING,
)  # fmt: skip
CONTROL: Sequence[Callable[[Drawer], Var | None]] = (*STEPS, *STEPS, *control(STEPS), *control(STEPS), scanned(STEPS))
REVERSIBLE = (*STEPS, *STEPS, *control(STEPS, False), *control(STEPS, False), scanned(STEPS))  # has a gradient


def case(
    seed: int, equations: int = 8, steps: Sequence[Callable[[Drawer], Var | None]] | None = None
) -> tuple[Program, Any, list[Any], list[Any], list[Any]]:
    """One drawn case: program, mesh, specs of inputs and outputs, arrays."""
    generator = np.random.default_rng(seed)
    while True:
        program = Drawer(generator, steps).program(equations)
        arrays = [generator.integers(-3, 4, t.shape).astype(np.float32) for t in program.input_types]
        if all(np.abs(x, dtype=np.float64).max(initial=0) < 2**22 for x in evaluate(program, arrays)):
            break
    mesh = MESHES[int(generator.integers(len(MESHES)))]
    inputs = [random_spec(generator, v.rank, mesh, v.dtype.kind in "fiuc") for v in program.inputs]
    outputs = [random_spec(generator, v.rank, mesh, v.dtype.kind in "fiuc") for v in program.outputs]
    return program, mesh, inputs, outputs, arrays


def gradient_case(
    seed: int, equations: int = 8, steps: Sequence[Callable[[Drawer], Var | None]] | None = None
) -> tuple[Program, Any, list[Any], list[Any], list[Any]]:
    """One drawn case as `case` gives it: the gradient of the sum of a drawn program's first result."""
    program, mesh, inputs, outputs, arrays = case(seed, equations, steps)
    with Builder("total") as builder:
        values = [builder.input(t) for t in program.input_types]
        first = builder.inline(program, values)[0]
        total = builder.build([REGISTRY["reduce_sum"](first, axes=tuple(range(first.rank)))])
    whole = gradient(total, [True] * len(program.inputs))
    seed_spec, wanted = random_spec(np.random.default_rng(seed), 0, mesh), [None if s is None else s for s in inputs]
    return whole, mesh, [*inputs, seed_spec], [None, *wanted], [*arrays, np.ones((), np.float32)]


def fails(program: Program, mesh: Any, inputs: Any, outputs: Any, arrays: Any) -> BaseException | None:
    try:
        check_law(program, mesh, inputs, outputs, arrays, exact=not divides(program))
    except Exception as error:  # noqa: BLE001  whatever it is, it is a failure
        return error
    return None


def divides(program: Program) -> bool:
    """Quotients (of gradients of maxima with ties) are rounded, so their sums depend on the order."""
    return any(e.op is REGISTRY["divide"] or any(map(divides, programs_of(e.params))) for e in program.eqns)


def shrink(program: Program, mesh: Any, inputs: list[Any], outputs: list[Any], arrays: list[Any]) -> tuple[Any, ...]:
    """A smaller case that still fails: one output, no equation without need, no annotation without need."""
    for var in [v for eqn in program.eqns for v in eqn.outputs]:
        smaller = needed(program, var)
        if fails(smaller, mesh, inputs, [None], arrays):
            program, outputs = smaller, [None]
            break
    else:
        for i in range(len(outputs)):
            one = needed(program, program.outputs[i])
            if fails(one, mesh, inputs, [outputs[i]], arrays):
                program, outputs = one, [outputs[i]]
                break
    for specs in (inputs, outputs):
        for i in range(len(specs)):
            kept, specs[i] = specs[i], None
            if not fails(program, mesh, inputs, outputs, arrays):
                specs[i] = kept
    return program, mesh, inputs, outputs, arrays


def needed(program: Program, var: Var) -> Program:
    """The program cut down to what `var` needs; its inputs stay."""
    wanted, eqns = {var}, []
    for eqn in reversed(program.eqns):
        if wanted & set(eqn.outputs):
            wanted |= set(eqn.inputs)
            eqns.append(eqn)
    return Program(program.name, program.inputs, tuple(reversed(eqns)), (var,))


def drawn_by(seed: int) -> tuple[Program, Any, list[Any], list[Any], list[Any]]:
    """Half of the seeds draw straight programs, the others loops and branches, a quarter gradients of such."""
    kind = seed % 4
    if kind == 3:
        return gradient_case(seed, 2 + seed % 5, REVERSIBLE)
    return case(seed, 4 + seed % 12, CONTROL if kind == 1 else None)


def any_case(seed: int) -> tuple[Program, Any, list[Any], list[Any], list[Any]]:
    """One in five is a loop over parts of one array."""
    return parts_case(seed) if seed % 5 == 4 else drawn_by(seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    end = time.time() + 60 * args.minutes
    seed = args.seed
    while time.time() < end:
        drawn = any_case(seed)
        if fails(*drawn):
            small = shrink(*drawn)
            print(f"seed {seed} on {small[1]}: inputs {small[2]}, outputs {small[3]}\n{small[0]}\n{fails(*small)!s:.4000}")
            raise SystemExit(1)
        seed += 1
    print(f"{seed - args.seed} programs passed")


if __name__ == "__main__":
    main()
