"""`meshjit plan`: the best plan where nobody says where anything lives, for devices that need not be here."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
from collections.abc import Sequence
from typing import Any

from meshjit.api.auto import meshes_of
from meshjit.api.call import Automatic
from meshjit.api.stages import Planned
from meshjit.cli.inspect import (
    Session,
    add_setting,
    add_target,
    check_folder,
    check_views,
    check_words,
    read_behind,
)
from meshjit.core.plan import Plan
from meshjit.inspect.ahead import absent_accelerators, compiled_text
from meshjit.inspect.calibrate import calibrated
from meshjit.inspect.functions import AutomaticSetting, listen
from meshjit.inspect.unusable import Unusable, mesh_on, parsed_mesh
from meshjit.plan.automatic.limits import Limits
from meshjit.report.units import seconds_text
from meshjit.runtime import client
from meshjit.targets.files import SUFFIX, written
from sharding.mesh import BaseMesh

BEHIND = frozenset("--mesh --devices --topology --memory --compile --save --load".split())  # options also read behind the script
_SIZES = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def add_plan(commands: Any) -> None:
    command = commands.add_parser(
        "plan", help="the best plan where nobody says where anything lives",
        description="What the script annotates at its jits is left aside; constraints inside of functions count. "
        "--mesh, --devices, --topology, --memory, --compile, --save and --load may stand right behind the script, too; the"
        " script's own options begin with the first other word, or behind --. Behind a function all of meshjit's may stand.",
    )  # fmt: skip
    add_setting(command)
    command.add_argument("--calibrate", action="store_true", help="measure this machine, for --topology; --save FILE keeps it")
    command.add_argument("--devices", type=int, help="how many; the shape of their mesh is chosen")
    command.add_argument("--memory", help="what a device may hold: 16GB; the device's own")
    command.add_argument("--time-limit", type=float, help="seconds after which the search ends in any case; none by default")
    command.add_argument("--effort", type=float, help="how much is gone through for a proof: 1 takes up to 70 s, 0 seeks none")
    saved = "write the last plan, for --load and meshjit.auto(…, plan=FILE); or what was measured"
    command.add_argument("--save", metavar="FILE", help=saved)
    command.add_argument("--load", metavar="FILE", help="plan by a saved plan instead of searching")
    command.add_argument("--compile", action="store_true", help="compile it with the machine's own compiler, too")
    command.add_argument("--view", default="program,collectives,memory", help="as of inspect")
    command.add_argument("--function", metavar="NAME", help="only functions of this name")
    add_target(command, optional=True)
    command.add_argument("rest", nargs=argparse.REMAINDER, help="the script's arguments; after --, whatever they are")
    command.set_defaults(options=command)


def plan(parsed: argparse.Namespace) -> int:
    """0; 2 where something typed cannot be used, or nothing fits the memory."""
    parsed = read_behind(parsed, BEHIND)
    if parsed.target is not None:
        check_words(parsed.target, parsed.behind)
    parsed.rest += parsed.behind
    if parsed.calibrate:
        return calibrate(parsed)
    if parsed.target is None:
        raise Unusable("there is no target\n  fix: a script, or a function of one: meshjit plan --devices 8 train.py:step")
    if parsed.mesh and parsed.devices is not None:
        raise Unusable("--mesh says how many devices there are\n  fix: leave --devices out")
    if len(parsed.mesh) > 1:
        raise Unusable("--mesh is given twice\n  fix: meshjit diff compares two meshes")
    check_views(parsed.view)
    check_folder("--save", parsed.save)
    with absent_accelerators() if parsed.topology else contextlib.nullcontext():
        return _plan(parsed)


def calibrate(parsed: argparse.Namespace) -> int:
    """Measure the devices at hand; the first process of a job prints what came out, or writes it."""
    if parsed.target is not None:
        problem = "--calibrate measures the machine, and plans nothing"
        raise Unusable(f"{problem}\n  fix: leave {parsed.target} out, and plan it afterwards")
    if parsed.save is not None and not parsed.save.endswith(SUFFIX):
        raise Unusable(f"--save {parsed.save!r} is no file of a machine\n  fix: --save {parsed.save}{SUFFIX}")
    check_folder("--save", parsed.save)
    figures, shape = calibrated()
    if client.process_index() != 0:
        return 0
    text = written(figures, shape)
    if parsed.save is None:
        print(text, end="")
        return 0
    try:
        with open(parsed.save, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Unusable(f"--save {parsed.save} cannot be written: {error.strerror}\n  fix: a file in a folder of yours") from None
    print(f"{parsed.save}: {figures.source}\n  use it: --topology {parsed.save}, or MESHJIT_DEVICE_MODEL={parsed.save}")
    return 0


def _plan(parsed: argparse.Namespace) -> int:
    if parsed.load is not None and not os.path.isfile(parsed.load):
        raise Unusable(f"there is no file {parsed.load}\n  fix: --save {parsed.load} writes one, without --load")
    try:
        limits = Limits(parsed_size(parsed.memory), parsed.time_limit, parsed.load, parsed.effort).checked("auto")
    except ValueError as error:
        raise Unusable(str(error).removeprefix("auto: ")) from None
    automatic = functools.cache(lambda: Automatic(limits, tuple(_meshes(parsed))))
    is_wrong = parsed.devices is not None and parsed.devices < 1
    if parsed.mesh or parsed.topology or is_wrong:  # nothing that the script says matters
        automatic()
    example = next(iter(parsed.example), None)
    setting = AutomaticSetting(None, None, None, True, tuple(parsed.arg), example, automatic)
    session = Session(parsed)

    def take(planned: Planned, _: Any) -> None:
        if parsed.save and parsed.function in (None, planned.fun_name):
            planned.plan.save(parsed.save)
        session.take(planned, None)
        overlapped = overlap_text(planned.plan).rstrip()
        if overlapped and not parsed.json and parsed.function in (None, planned.fun_name):
            session.show(overlapped)
        if parsed.compile and parsed.function in (None, planned.fun_name):
            session.show(compiled_text(planned, parsed.topology))

    try:
        listen(parsed.target, parsed.rest, setting, take)
    finally:
        session.page()
    return session.end()


def _meshes(parsed: argparse.Namespace) -> Sequence[BaseMesh]:
    """The one that was asked for, or all to choose from. Of the devices that are here where no machine is named."""
    if parsed.mesh:
        return [mesh_on(parsed_mesh(parsed.mesh[0]), parsed.topology)]
    try:
        return meshes_of(parsed.devices, parsed.topology)
    except ValueError as error:
        raise Unusable(str(error).removeprefix("auto: ")) from None


def overlap_text(plan: Plan) -> str:
    """`overlapped: 87.3 ms a step if sending runs beside work`, where the machine can do both at once; else nothing."""
    least = plan.overlapped_seconds
    if plan.cost is None or least >= plan.cost.seconds:
        return ""
    return f"overlapped: {seconds_text(least)} a step if sending runs beside work\n"


def parsed_size(text: str | None) -> float | None:
    """`16GB`, `16e9`, `512 MB` in bytes."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if match is None:
        raise Unusable(f"--memory {text!r} is no size\n  write 16GB")
    return float(match[1]) * _SIZES[match[2]]
