"""`meshjit diff`: two plans side by side."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from meshjit.api.call import Automatic
from meshjit.api.stages import Planned
from meshjit.cli.inspect import Notes, add_setting, add_target, setting_of
from meshjit.inspect.functions import AutomaticSetting, listen
from meshjit.inspect.unusable import Unusable, mesh_on, parsed_mesh
from meshjit.plan.automatic.limits import Limits
from meshjit.plan.automatic.saved_file import read
from meshjit.report import Report
from sharding.mesh import AbstractMesh

LONGEST = 16  # characters of the name of one side of a comparison


def add_diff(commands: Any) -> None:
    command = commands.add_parser(
        "diff", help="two plans side by side: two scripts, two versions of one, or two meshes",
        description="With one target, two of --mesh or --example: meshjit diff --mesh data=8 --mesh data=4,model=2 train.py:step",
    )  # fmt: skip
    add_setting(command)
    add_target(command)
    command.add_argument("other", nargs="?", help="the second target")
    command.add_argument(
        "--plan", action="append", default=[], metavar="FILE", help="a plan that meshjit plan --save wrote; '-': the usual plan"
    )


def diff(parsed: argparse.Namespace) -> int:
    """Functions are compared by name; those of one target alone are named."""
    targets = [parsed.target] if parsed.other is None else [parsed.target, parsed.other]
    examples, plans = parsed.example or [None], parsed.plan or ["-"]
    for plan in plans:
        if plan != "-" and not os.path.isfile(plan):
            raise Unusable(f"there is no file {plan}\n  write one: meshjit plan --save {plan} …")
    meshes = [parsed_mesh(text) for text in parsed.mesh] or [_mesh_of_saved(plans)]
    if max(len(meshes), len(targets), len(examples), len(plans)) < 2:
        raise Unusable("there is one plan\n  fix: a second target, --mesh, --example or --plan")
    sides = [_reports(parsed, *[_side(each, i) for each in (targets, meshes, examples, plans)]) for i in range(2)]
    names = tuple(_side_names(parsed, meshes))
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        if name not in sides[0] or name not in sides[1]:
            print(f"{name} is in {names[0] if name in sides[0] else names[1]} alone")
            continue
        comparison = sides[0][name].compare(sides[1][name], (names[0], names[1]))
        print(comparison.to_json() if parsed.json else f"{name}\n{comparison}")
    return 0


def _side_names(parsed: argparse.Namespace, meshes: Sequence[Any]) -> list[str]:
    if parsed.other is not None and parsed.other != parsed.target:
        return ["first", "second"] if max(len(parsed.target), len(parsed.other)) > LONGEST else [parsed.target, parsed.other]
    if len(parsed.plan) > 1:
        return [os.path.basename(name)[:LONGEST] if name != "-" else "usual" for name in parsed.plan]
    if len(meshes) < 2:
        return [name[:LONGEST] for name in parsed.example]
    return [",".join(f"{name}={size}" for name, size in mesh.shape.items())[:LONGEST] for mesh in meshes]


def _side(choices: Sequence[Any], i: int) -> Any:
    return choices[min(i, len(choices) - 1)]


def _reports(
    parsed: argparse.Namespace, target: str, mesh: AbstractMesh | None, example: str | None, plan: str
) -> dict[str, Report]:
    reports: dict[str, Report] = {}
    changes = {"target": target, "abstract": True, "example": [] if example is None else [example]}
    setting = setting_of(argparse.Namespace(**{**vars(parsed), **changes}), mesh)
    if plan != "-" and mesh is not None:
        automatic = Automatic(Limits(plan=plan), (mesh_on(mesh, parsed.topology),))
        setting = AutomaticSetting(None, None, None, True, setting.arguments, setting.example, lambda: automatic)
    noted = Notes(mesh)

    def take(planned: Planned, _: Any) -> None:
        noted.note(planned)
        reports[planned.call.title] = planned.report()

    listen(target, [], setting, take)
    return reports


def _mesh_of_saved(plans: Sequence[str]) -> AbstractMesh | None:
    """The one that the first saved plan is for."""
    axes = next((read(plan)["mesh"] for plan in plans if plan != "-"), None)
    return None if axes is None else AbstractMesh([*axes.values()], [*axes])
