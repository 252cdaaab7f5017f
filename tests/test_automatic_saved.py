"""Saved plans: what each entry of the file may be, what follows from an edit, and what a plan still claims after it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import AUTO, AbstractMesh, PartitionSpec as P
from sharding.mesh import AbstractDevice

MESH = AbstractMesh((4, 2), ("x", "y"), abstract_device=AbstractDevice("NVIDIA H100", None, "gpu"))
F32 = np.float32
ARGUMENTS = {"a": mj.ShapeDtypeStruct((512, 2048), F32), "b": mj.ShapeDtypeStruct((2048, 512), F32)}, mj.ShapeDtypeStruct((256, 512), F32)


def step(params: Any, x: Any) -> Any:
    gradients = mj.grad(lambda p: mnp.mean((mnp.tanh(x @ p["a"]) @ p["b"]) ** 2))(params)
    return mj.tree.map(lambda a, b: a - b, params, gradients)


def planned(**options: Any) -> Any:
    return mj.auto(step, mesh=MESH, **options).trace(*ARGUMENTS).plan().plan


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("saved") / "plan.json"
    planned().save(path)
    return json.loads(path.read_text())


def again(path: Path, entries: Any, **options: Any) -> Any:
    path.write_text(json.dumps(entries))
    return planned(plan=path, **options)


WRONG: dict[str, list[Any]] = {
    "function": [3, None],
    "mesh": ["x", {"x": "8"}, {"x": 0}, {"x": True}],
    "machine": [[1], None],
    "equations": [None, [["tanh"]], [[1, {}]]],
    "arguments": [[1], {"x": "[x]"}, {"x": ["f32", None]}],
    "values": [None, [3]],
    "outputs": [{}, "[x]"],
    "collected": [[1], {"3": 1}],
    "refined": ["zzz", None, [[1]], {}],
    "way": [-1, True, "0"],
    "memory": ["x", -1, 0, True],
    "written": ["apart", ["zzz"], [[1]]],
    "before": [None, {}, {"work_seconds": 1}],
    "asked": [1],
    "seconds": ["x", -1],
    "bound": [None, -5],
    "optimum": [1],
    "fastest": ["zzz", {}, [1]],
    "digest": [None],
}


@pytest.mark.parametrize(("entry", "value"), [(entry, value) for entry, values in WRONG.items() for value in values], ids=str)
def test_an_entry_of_another_kind_is_named(tmp_path: Path, saved: dict[str, Any], entry: str, value: Any) -> None:
    """Most of them were called a bug of meshjit. The message says what may stand there."""
    path = tmp_path / "plan.json"
    problem = f"{path} is no saved plan: {entry!r} is {str(value)!r}, not "
    with pytest.raises(mj.errors.ShardingError, match=re.escape(problem) + r"\w.*\n  fix: save one with plan.save\(path\)$"):
        again(path, saved | {"written": [], entry: value})


@pytest.mark.parametrize("entry", ["mesh", "machine", "equations", "values", "outputs", "refined"])
def test_an_entry_that_is_needed(tmp_path: Path, saved: dict[str, Any], entry: str) -> None:
    with pytest.raises(mj.errors.ShardingError, match=f"is no whole plan: '{entry}' is missing\n  fix: save one with plan.save"):
        again(tmp_path / "plan.json", {name: value for name, value in saved.items() if name != entry})


def test_other_entries_may_be_left_out(tmp_path: Path, saved: dict[str, Any]) -> None:
    """Nothing is known of how good the plan is then."""
    for entry in ("function", "arguments", "collected", "way", "asked", "seconds", "bound", "optimum", "fastest", "digest"):
        plan = again(tmp_path / "plan.json", {name: value for name, value in saved.items() if name != entry})
        assert plan.optimum.seconds == saved["seconds"]
        assert plan.optimum.is_optimal is (entry not in ("asked", "seconds", "bound"))


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda e: e.update(vaules=[]), "it has 'vaules', which no plan has\n  fix: 'values'"),
        (lambda e: e.update(before={"work_seconds": 1, "move_seconds": 1, "wire_bytes": 1, "peak_bytes": 1}), "'written' is missing\n"),
        (
            lambda e: e.update(bound=1e9),
            "'bound' is 1e+09 s, and a plan takes 1.50281e-05 s, so no bound is higher\n  fix: leave out 'bound', or save one",
        ),
        (
            lambda e: e["equations"][1].__setitem__(1, {"a": ["x"]}),
            "equation 1, tanh f32[256,2048] -> f32[256,2048], is spread by {'a': ['x']}, and planning makes {'b': ['x', 'y']} of it"
            "\n  fix: write {'b': ['x', 'y']}, or plan anew without plan=",
        ),
        (
            lambda e: (e["equations"][1].__setitem__(1, {"a": ["x"]}), e["values"].__setitem__(4, "[x, -]")),
            "equation 1, tanh f32[256,2048] -> f32[256,2048], is spread by {'a': ['x']}",
        ),
        (
            lambda e: e["values"].__setitem__(4, "[x, -]"),
            'value 4 is [x, -], and its equation makes it [-, x*y]\n  fix: write "[-, x*y]", or spread its equation otherwise, or plan',
        ),
        (lambda e: e["values"].__setitem__(10, "[x, -]"), "value 10 is [x, -], and its equation makes it [-, -]\n"),
        (
            lambda e: e["arguments"]["x"].__setitem__(1, "[x, -]"),
            "'arguments' say that x is f32[256,512] [x, -], and it is f32[256,512] [-, -]\n"
            "  fix: write where it is into 'values', as value 2, or plan anew without plan=",
        ),
        (lambda e: e["arguments"].update(y=["f32[3]", "[x]"]), "'arguments' name 'y', which is no argument\n  fix: leave it out"),
        (lambda e: e.update(way=7), "'way' is 7, and a plan that is refined by '' has 1\n  fix: 'way': 0, or plan anew"),
        (
            lambda e: e["collected"].update({"3": True}),
            "'collected' has value 3, which no loop carries\n  fix: leave '3' out, or plan anew",
        ),
        (lambda e: e["collected"].update({"x": False}), "'collected' has value x, which no loop carries"),
    ],
)
def test_an_edit_that_nothing_follows_from_is_an_error(
    tmp_path: Path, saved: dict[str, Any], edit: Callable[[Any], Any], problem: str
) -> None:
    """They were passed over, and the plan was said to be optimal."""
    entries = json.loads(json.dumps(saved))
    edit(entries)
    with pytest.raises(mj.errors.ShardingError, match=re.escape(problem)):
        again(tmp_path / "plan.json", entries)


def test_an_edited_plan_claims_nothing(tmp_path: Path, saved: dict[str, Any]) -> None:
    """Rows over both axes take more than three times as long; the text was that no further choice can be cheaper."""
    entries = json.loads(json.dumps(saved))
    entries["equations"][0][1] = {"a": ["x", "y"]}
    plan = again(tmp_path / "plan.json", entries)
    assert plan.equations[0].assignment["a"] == ("x", "y") and plan.cost.seconds > 3 * saved["seconds"]
    assert str(plan.optimum).endswith(", no bound is known")
    reasons = plan.decisions[0].because
    assert reasons[0] == "1 plan was priced in full; that no further choice is cheaper is not proved"
    assert reasons[1].startswith("no bound is known, of plans over whole axes")


def test_a_plan_that_holds_more_than_the_memory_is_refused(tmp_path: Path, saved: dict[str, Any]) -> None:
    """It was planned by, whatever `memory` said."""
    with pytest.raises(ValueError) as raised:
        again(tmp_path / "plan.json", saved, memory=1e6)
    lines = str(raised.value).splitlines()
    assert lines[0] == "step: the saved plan holds 3,145,728 bytes a device, more than the memory of 1,000,000"
    assert lines[1] == "  at the peak 524,288 bytes: argument params['a'] float32[512, 2048@x*y]"
    assert lines[-1] == "  fix: plan anew without plan=, or memory=3145728"
    assert again(tmp_path / "plan.json", saved, memory=3145728).optimum.is_optimal


def test_what_was_proved_for_less_memory_is_not_said_of_more(tmp_path: Path, saved: dict[str, Any]) -> None:
    entries = saved | {"memory": 4e6}
    assert str(again(tmp_path / "plan.json", entries, memory=5e6).optimum).endswith("no bound is known")


def test_what_was_proved_under_annotations_is_not_said_without_them(tmp_path: Path) -> None:
    """The best plan with rows over x was said to be the best of all."""
    path, said = tmp_path / "plan.json", {"in_shardings": (AUTO, P("x"))}
    first = planned(**said)
    first.save(path)
    assert first.optimum.is_optimal and first.cost.seconds > planned().cost.seconds
    assert planned(plan=path, **said).optimum.is_optimal
    free = planned(plan=path)
    assert free.cost == first.cost and str(free.optimum).endswith(", no bound is known")
