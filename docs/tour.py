"""One function through every arrow of meshjit, from Python to numbers on eight devices.

    python docs/tour.py

It is a program to read from top to bottom: each step prints what it made, and asserts what it says. Where to go on
reading stands beside each step; docs/architecture.md has the map.
"""

from __future__ import annotations

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")  # eight virtual devices on any machine; before meshjit is imported

import numpy as np  # noqa: E402

import meshjit as mj  # noqa: E402
import meshjit.numpy as mnp  # noqa: E402
from meshjit import tree  # noqa: E402
from meshjit.core.parser import parse_program  # noqa: E402
from meshjit.core.printer import print_program  # noqa: E402
from meshjit.core.verify import verify  # noqa: E402
from meshjit.emit.module import emit  # noqa: E402
from meshjit.inspect.collectives import collective_rows  # noqa: E402
from meshjit.partition.partition import partition  # noqa: E402
from meshjit.plan.make import Annotations, make_plan  # noqa: E402
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402
from meshjit.simulate.devices import gather, scatter, simulate  # noqa: E402
from meshjit.simulate.evaluate import evaluate  # noqa: E402
from meshjit.trace import argument_of, trace_to_program  # noqa: E402
from meshjit.transform.pipeline import simplify  # noqa: E402
from meshjit.transform.transpose import gradient  # noqa: E402


def say(text: str) -> None:
    print(f"\n{text}")


def show(text: str, lines: int | None = None) -> None:
    """The text, indented; only its first lines if so many are asked for."""
    every = text.splitlines()
    shown = every if lines is None else every[:lines]
    print("\n".join(f"    {line}" for line in ["", *shown, *(["…"] if len(shown) < len(every) else [])]))


# --- 0. a function -----------------------------------------------------------------------------------------------------
# Two matmuls with a tanh between them, and how far that is from y. Nothing here knows of devices.


def loss(params, x, y):
    hidden = mnp.tanh(mnp.dot(x, params["up"]))
    return mnp.mean((mnp.dot(hidden, params["down"]) - y) ** 2)


generator = np.random.default_rng(0)
shapes = {"down": (32, 4), "up": (8, 32)}
params = {name: generator.normal(size=shape, scale=0.3).astype(np.float32) for name, shape in shapes.items()}
x = generator.normal(size=(16, 8)).astype(np.float32)
y = generator.normal(size=(16, 4)).astype(np.float32)

# --- 1. trace ----------------------------------------------------------------------------------------------------------
# meshjit/trace. The function runs once, on Tracers: values with a type and no elements. What it does to them is noted
# down, one equation after another, with the line of your code that did it.

leaves, in_tree = tree.flatten(((params, x, y), {}))
names = ["params['down']", "params['up']", "x", "y"]
traced = trace_to_program(loss, [argument_of(leaf, name) for leaf, name in zip(leaves, names, strict=True)], in_tree)
program = verify(simplify(traced.program))

say("1. trace. The function as a Program. It has no loops, no branches and no Python left in it:")
show(print_program(program))

assert print_program(parse_program(print_program(program))) == print_program(program)
say(
    "That text is the whole truth: parsed, it is the same Program. And it means something without any compiler,\n"
    "because every op says in NumPy what it computes (`evaluate`):"
)
(value,) = evaluate(program, leaves)
hidden = np.tanh(x @ params["up"])
np.testing.assert_allclose(value, np.mean((hidden @ params["down"] - y) ** 2), rtol=1e-5)
show(f"loss = {value:.6f}")

# --- 2. transform ------------------------------------------------------------------------------------------------------
# meshjit/transform. Differentiation takes a Program and gives one: first forward mode, equation by equation; then the
# equations that are linear in the tangents are walked backwards, each by its op's transpose rule.

backward = verify(simplify(gradient(program, [True, True, False, False])))

say(
    "2. transform. The gradient with respect to both weights is one more Program. Its last input is the cotangent\n"
    "of the loss (1 when you call mj.grad). Equations of the second half are marked `(backward)`:"
)
show(print_program(backward))

inputs = [*leaves, np.ones((), np.float32)]
expected = evaluate(backward, inputs)
moved = [np.array(leaf) for leaf in leaves]
moved[1][2, 3] += 1e-2
up = evaluate(program, moved)[0]
moved[1][2, 3] -= 2e-2
slope = (up - evaluate(program, moved)[0]) / 2e-2
np.testing.assert_allclose(expected[2][2, 3], slope, rtol=1e-2)
say(f"A difference quotient agrees: d loss / d up[2, 3] = {expected[2][2, 3]:.5f}, measured {slope:.5f}.")

# --- 3. plan -----------------------------------------------------------------------------------------------------------
# meshjit/plan, sharding/propagation.py. Now the devices: eight of them as data=4, model=2. We say where the four
# arguments live: the batch over `data`, `up` by columns and `down` by rows over `model`. For every op there is a rule
# such as `m k, k n -> m n | sum k`; placements spread over these rules until every value has one.

mesh = Mesh(np.array(mj.devices()[:8]).reshape(4, 2), ("data", "model"))
weights = {"down": P("model", None), "up": P(None, "model")}
given = [weights["down"], weights["up"], P("data", None), P("data", None), P()]
plan = make_plan(backward, mesh, Annotations(given, [P(), weights["down"], weights["up"]]))

say(
    "3. plan. The same Program, every type annotated: f32[16@data, 32@model] has its rows cut in 4 and its columns in 2;\n"
    "`| sum(model)` is a value of which each device holds an addend, left so until somebody needs the sum:"
)
show(print_program(plan.program, plan.placements, sources=False))

# --- 4. partition ------------------------------------------------------------------------------------------------------
# meshjit/partition. One program that all devices run, with the shapes of one device's shards. Where a value is not as
# the next equation wants it, the shortest walk of collectives brings it there; nothing else communicates.

local = verify(simplify(partition(plan)))

say("4. partition. What every device runs. 16 rows over 4 are 4 rows, 32 columns over 2 are 16:")
show(print_program(local, sources=False))

rows = collective_rows(local, mesh)
say("All of its communication, with the line of your code that asked for it, and bytes that each device sends:")
show("\n".join(f"{r.count} {r.kind:<11} over {r.axes:<12} {r.bytes:>6} bytes   {r.source}" for r in rows))
assert {row.kind for row in rows} == {"all_reduce"}

# --- 5. simulate -------------------------------------------------------------------------------------------------------
# meshjit/simulate. The law of the house: on any mesh, for any plan, the local programs together compute what the whole
# program computes. It is checked without XLA, by running eight imaginary devices in NumPy.

shards = [scatter(np.asarray(a), p, mesh) for a, p in zip(inputs, plan.inputs, strict=True)]
results = [
    gather(result, placement, want.shape, mesh)
    for result, placement, want in zip(simulate(local, mesh, shards), plan.outputs, expected, strict=True)
]
for got, want in zip(results, expected, strict=True):
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
say(f"5. simulate. Eight imaginary devices in NumPy, and the whole program on one: the same {len(results)} results.")

# --- 6. emit -----------------------------------------------------------------------------------------------------------
# meshjit/emit. Each op writes itself as StableHLO. The shapes are local ones and the collectives are explicit, so XLA
# has nothing left to decide about placement.

text = emit(local, mesh)
assert "stablehlo.all_reduce" in text
say("6. emit. The local Program as StableHLO, the language of XLA:")
show("\n".join(line[:116] for line in text.splitlines()), lines=6)

# --- 7. compile and run ------------------------------------------------------------------------------------------------
# meshjit/api, meshjit/runtime. All of the above is what mj.jit does when a function is called with arrays it has not
# seen the like of. Arrays that were put on the mesh say where they live; the rest is found as in step 3.


def put(value, spec):
    return mj.device_put(value, NamedSharding(mesh, spec))


step = mj.jit(mj.value_and_grad(loss))
placed = {name: put(value, weights[name]) for name, value in params.items()}
loss_value, grads = step(placed, put(x, P("data", None)), put(y, P("data", None)))

np.testing.assert_allclose(np.asarray(loss_value), expected[0], rtol=1e-4)
np.testing.assert_allclose(np.asarray(grads["down"]), expected[1], rtol=1e-3, atol=1e-6)
np.testing.assert_allclose(np.asarray(grads["up"]), expected[2], rtol=1e-3, atol=1e-6)

say("7. compile and run. mj.jit(mj.value_and_grad(loss)) goes the same way, then through XLA, on eight devices:")
show(f"loss = {float(loss_value):.6f}, up's gradient is {grads['up'].shape}, {grads['up'].sharding.spec}")
say("The same three results a third time: NumPy on one machine, NumPy on eight imaginary devices, XLA on eight.")
