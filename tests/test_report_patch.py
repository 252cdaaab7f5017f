"""Suggestions as patches: each, once applied, gives the plan that was priced; and what cannot be patched says which edit to make."""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import textwrap
from pathlib import Path

import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.report.patch import apply, patch_of
from meshjit.report.suggest import Suggestion
from sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from sharding.spec import Placement

MESH = AbstractMesh((4, 2), ("data", "model"))
HEAD = """\
from functools import partial
import meshjit as mj, meshjit.numpy as mnp
from sharding import AbstractMesh, NamedSharding, PartitionSpec as P
mesh = AbstractMesh((4, 2), ("data", "model"))
"""
ADDED = ["from meshjit.lax import with_sharding_constraint", "from meshjit.sharding import PartitionSpec"]


def planned(path):
    spec = importlib.util.spec_from_file_location("patched", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wrapped = module.f if hasattr(module.f, "trace") else mj.jit(module.f)
    return wrapped.trace(*module.arguments()).plan()


def suggestion(report, value, spec):
    """What suggest makes of an option; of a line's last value where `value` is a line's code."""
    subject = report.subject
    var = next(v for v in reversed(subject.makers) if value in line_of(subject, v)) if value not in subject.inputs else None
    var = subject.plan.program.inputs[subject.inputs.index(value)] if var is None else var
    name = subject.groups[var][0]
    is_argument = var in subject.plan.program.inputs
    cost = report.why_not(name.partition(" × ")[0] if is_argument else subject.names[var], spec).data.costs[1]
    placement = "P(" + ", ".join(map(repr, spec)).replace("'", '"') + ")"
    return Suggestion(name, placement, is_argument, "", report.cost, cost, var, spec, subject.source(var))


def line_of(subject, var):
    source = subject.source(var)
    return Path(source.file).read_text().splitlines()[source.line - 1] if source is not None else ""


ARGUMENTS = """
def arguments():
    struct = lambda *shape: mj.ShapeDtypeStruct(shape, "float32")
    return {}
"""
X = 'mj.ShapeDtypeStruct((64, 32), "float32", sharding=NamedSharding(mesh, P("data", None)))'
LIST = f'{{"w": [struct(32, 32), struct(32, 32)]}}, {X}'

CASES = {
    "assignment over several lines": (
        "def f(x, w):\n    h = mnp.tanh(\n        x @ w\n    )\n    return h.sum()\n", f"{X}, struct(32, 16)", "x @ w", P("data", "model"),
        ['    h = with_sharding_constraint(h, PartitionSpec("data", "model"))'],
    ),
    "what is returned": (
        "def f(x, w):\n    return mnp.sin(x @ w)\n", f"{X}, struct(32, 16)", "mnp.sin", P("data", "model"),
        ['    return with_sharding_constraint(mnp.sin(x @ w), PartitionSpec("data", "model"))'],
    ),
    "a lambda": (
        "f = mj.jit(lambda x, w: mnp.sin(x @ w))\n", f"{X}, struct(32, 16)", "mnp.sin", P("data", "model"),
        ['f = mj.jit(lambda x, w: with_sharding_constraint(mnp.sin(x @ w), PartitionSpec("data", "model")))'],
    ),
    "an augmented assignment": (
        "def f(x, w):\n    x += 1.0\n    return x @ w\n", f"{X}, struct(32, 16)", "x += 1.0", P("data", "model"),
        ['    x = with_sharding_constraint(x, PartitionSpec("data", "model"))'],
    ),
    "an argument": (
        'def f(x, w):\n    """Doc."""\n    return x @ w\n', f"{X}, struct(32, 16)", "w", P(None, "model"),
        ['    w = with_sharding_constraint(w, PartitionSpec(None, "model"))'],
    ),
    "members of a list": (
        'def f(p, x):\n    for w in p["w"]:\n        x = x @ w\n    return x\n', LIST, "p['w'][0]", P(None, "model"),
        ['    p[\'w\'] = [with_sharding_constraint(each, PartitionSpec(None, "model")) for each in p[\'w\']]'],
    ),
    "in_shardings, specs": (
        '@partial(mj.jit, in_shardings=(P("data", None), {"w": P()}))\ndef f(x, p):\n    return x @ p["w"]\n',
        'struct(64, 32), {"w": struct(32, 16)}', "p['w']", P(None, "model"),
        ['@partial(mj.jit, in_shardings=(P("data", None), {"w": P(None, "model")}))'],
    ),
    "in_shardings, shardings": (
        'def f(x, w):\n    return x @ w\nplain = f\nf = mj.jit(f, in_shardings=(NamedSharding(mesh, P("data")), NamedSharding(mesh, P())))\n',
        "struct(64, 32), struct(32, 16)", "w", P(None, "model"),
        ['f = mj.jit(f, in_shardings=(NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "model"))))'],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_patch_gives_the_plan_that_was_priced(name, tmp_path):
    code, arguments, value, spec, lines = CASES[name]
    path = tmp_path / "model.py"
    path.write_text(HEAD + code + ARGUMENTS.format(arguments))
    with mj.set_mesh(MESH):
        report = planned(path).report()
        better = suggestion(report, value, spec)
        patch = patch_of(report.subject, better)
        assert not patch.advice, patch.advice
        apply(patch)
        added = [line[2:] for line in difflib.ndiff(patch.before, patch.after) if line.startswith("+ ")]
        assert [line.rstrip("\n") for line in added if line.strip() not in ADDED] == lines
        again = planned(path)
    if better.is_argument:  # a constraint at the beginning is an equation more than an annotation
        assert again.plan.cost.wire_bytes == better.then.wire_bytes and again.plan.cost.move_seconds == better.then.move_seconds
    else:
        assert again.report().cost == better.then
    numbers = (d.dims for v, d in again.plan.placements.items() if v.shape == better.var.shape)
    assert Placement(tuple((axis,) if axis else () for axis in spec)).dims in list(numbers)


BY_HAND = {
    "a tuple": "def f(x, w):\n    a, b = x @ w, mnp.sin(x @ w)\n    return a + b\n",
    "a comprehension": "def f(x, w):\n    return sum([mnp.sin(x @ w) for _ in range(2)])\n",
    "two lambdas": "g, f = (lambda x, w: x), mj.jit(lambda x, w: mnp.sin(x @ w) + (lambda y: y * 2)(x @ w))\n",
}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_cannot_be_patched_says_which_edit_to_make(name, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(HEAD + BY_HAND[name] + ARGUMENTS.format(f"{X}, struct(32, 16)"))
    with mj.set_mesh(MESH):
        report = planned(path).report()
        better = suggestion(report, "mnp.sin", P("data", "model"))
        text = apply(patch_of(report.subject, better))
    line = next(line.strip() for line in BY_HAND[name].splitlines() if "mnp.sin" in line)
    assert text == textwrap.dedent(f"""\
        no patch: write it yourself at {path}:{better.place.line}
          the line is: {line}
          in it, put with_sharding_constraint(…, PartitionSpec("data", "model")) around {better.value}
          with from meshjit.lax import with_sharding_constraint
               from meshjit.sharding import PartitionSpec""")
    assert path.read_text() == HEAD + BY_HAND[name] + ARGUMENTS.format(f"{X}, struct(32, 16)")


def test_derivatives_have_no_place_in_a_script(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(HEAD + BY_HAND["a tuple"] + ARGUMENTS.format(f"{X}, struct(32, 16)"))
    with mj.set_mesh(MESH):
        report = planned(path).report()
        better = suggestion(report, "mnp.sin", P("data", "model"))
    derived = dataclasses.replace(better, place=better.place.noted("backward"))
    assert patch_of(report.subject, derived).text == textwrap.dedent(f"""\
        no patch: {better.value} comes of differentiating {path}:{better.place.line}, where nothing stands for it
          the line is: a, b = x @ w, mnp.sin(x @ w)
          what is constrained there is constrained in its derivative, too, so the gain differs: try it by --why-not""")


def test_attributes_are_written_by_hand(tmp_path):
    class Layer:
        w: object

    report = mj.jit(lambda x: mnp.sin(x)).trace(mj.ShapeDtypeStruct((8, 8), "float32", sharding=NamedSharding(MESH, P()))).plan().report()
    var = report.subject.plan.program.inputs[0]
    better = Suggestion("layer.w", 'P("data")', True, "", report.cost, report.cost, var, P("data"))
    assert patch_of(report.subject, better).advice.splitlines()[1] == '  write with_sharding_constraint(layer.w, PartitionSpec("data"))'
