"""Why a function is traced again (`config.explain_cache_misses`), and what is compiled when (`config.log_compiles`)."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from meshjit.api.axes import Symbols, sizes_of
from meshjit.api.call import Call, Context
from meshjit.api.shardings import spec_of
from meshjit.config import config
from meshjit.monitoring import record_stage
from meshjit.report import Report
from meshjit.report.optimum import optimum_text
from meshjit.report.units import bytes_text, seconds_text
from meshjit.runtime.array import LeafKey
from meshjit.trace.source import line_of, user_source
from meshjit.tree_views import users_treedef

Difference = tuple[int, str]  # how much it weighs when the nearest earlier call is looked for; what it is

log = logging.getLogger("meshjit")

_lines_seen: set[tuple[str, int]] = set()


def explain_miss(fun: Callable[..., Any], call: Call, before: Iterable[Call]) -> None:
    """Log why `call` needs tracing, against the earlier call that is nearest to it; of equally near ones the last."""
    nearest = min((differences(call, old) for old in reversed(list(before))), key=_weight, default=None)
    again = "" if nearest is None else " again"
    reasons = [_first_time(fun)] if nearest is None else [text for _, text in nearest]
    lines = [f"{call.title} is traced{again} at {line_of(user_source())}:", *(f"  {reason}" for reason in reasons)]
    log.warning("%s", "\n".join(lines))


def _weight(differences: Sequence[Difference]) -> int:
    return sum(weight for weight, _ in differences)


def _first_time(fun: Callable[..., Any]) -> str:
    line = _definition(fun)
    if line is None:
        return "it was never called before"
    again = line in _lines_seen
    _lines_seen.add(line)
    text = f"it was never called before (defined at {os.path.basename(line[0])}:{line[1]})"
    if not again:
        return text
    return (
        f"{text}, but another function from this line was: is it defined anew each time?\n"
        "  fix: define and jit it once, outside of the loop or function, and pass what changes as arguments"
    )


def _definition(fun: Any) -> tuple[str, int] | None:
    code = getattr(inspect.unwrap(getattr(fun, "func", fun)), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else None


def differences(new: Call, old: Call) -> list[Difference]:
    """What distinguishes two calls: trees, types, placements, static values, settings."""
    texts: list[Difference] = []
    if new.in_tree != old.in_tree:
        texts += _tree_differences(new, old)
    else:
        sizes, before = sizes_of(new.symbols, new.keys), sizes_of(old.symbols, old.keys)
        texts += [(1, f"axis {s} is {n}, before {before[s]}") for s, n in sizes.items() if n != before.get(s, n)]
        for i, (name, now, then) in enumerate(zip(new.names, new.keys, old.keys, strict=True)):
            if not (texts and new.symbols and _only_sizes_differ(now, then, new.symbols[i])):
                texts += _leaf_differences(name, now, then)
    texts += _static_differences(new, old)
    return texts + _context_differences(new.context, old.context)


def _tree_differences(new: Call, old: Call) -> list[Difference]:
    added = [n for n in new.names if n not in old.names]
    gone = [n for n in old.names if n not in new.names]
    texts: list[Difference] = []
    for names, what in ((added, "new"), (gone, "missing")):
        if names:
            subject = f"arguments {', '.join(names)} are" if len(names) > 1 else f"argument {names[0]} is"
            texts.append((8 * len(names), f"{subject} {what}"))
    return texts or [(8, f"the arguments' containers are {users_treedef(new.in_tree)}, before {users_treedef(old.in_tree)}")]


def _only_sizes_differ(now: LeafKey, then: LeafKey, symbols: Symbols) -> bool:
    """Whether the types differ in nothing but the sizes of dims with a symbol."""
    if now.type.rank != then.type.rank or now.type.dtype != then.type.dtype:
        return False
    pairs = zip(now.type.shape, then.type.shape, strict=True)
    return all(a == b or dim in symbols for dim, (a, b) in enumerate(pairs))


def _leaf_differences(name: str, now: LeafKey, then: LeafKey) -> list[Difference]:
    if now.type != then.type:
        changes = (now.type.shape != then.type.shape) + (now.type.dtype != then.type.dtype)
        return [(2 * changes + abs(now.type.rank - then.type.rank), f"argument {name} is {now.type}, before {then.type}")]
    texts: list[Difference] = []
    if now.weak != then.weak:
        kinds = ("an array", "a Python number")
        texts.append((1, f"argument {name} is {kinds[now.weak]} of type {now.type}, before {kinds[then.weak]}"))
    if now.normal != then.normal and place_text(now) != place_text(then):
        texts.append((1, f"argument {name} {now.type} is {place_text(now)}, before {place_text(then)}"))
    return texts


def place_text(key: LeafKey) -> str:
    return f"committed to {spec_of(key.sharding)}" if key.committed and key.sharding is not None else "not committed"


def _static_differences(new: Call, old: Call) -> list[Difference]:
    now, then = dict(new.statics), dict(old.statics)
    return [
        (1 if name in now and name in then else 2,
         f"static argument {name} is {_value(now, name)}, before {_value(then, name)}")
        for name in dict.fromkeys([*now, *then])
        if name not in now or name not in then or type(now[name]) is not type(then[name]) or now[name] != then[name]
    ]  # fmt: skip


def _value(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return "not given"
    text = repr(values[name])
    return text if len(text) <= 80 else text[:77] + "..."


def _context_differences(new: Context | None, old: Context | None) -> list[Difference]:
    if new is None or old is None:
        return []
    texts: list[Difference] = []
    if new.mesh != old.mesh:
        texts.append((1, f"the mesh context is {new.mesh}, before {old.mesh}"))
    pairs = [(name, new.options[name], old.options.get(name)) for name in new.options]
    return texts + [(1, f"config {name} is {now}, before {then}") for name, now, then in pairs if now != then]


def log_compile(title: str, what: str, seconds: float, event: str) -> None:
    """One line of `config.log_compiles`, and an event for those who listen (`meshjit.monitoring`)."""
    record_stage(event, seconds, title)
    if config.log_compiles:
        log.warning("%s: %s in %.3f s", title, what, seconds)


def log_plan(ask: Callable[[], Report]) -> None:
    """Of a plan that was just made: what it is of, what a step is predicted to take, and the largest collective with its line."""
    if config.log == "plan":
        report = ask()
        plan = report.subject.plan
        largest = next(iter(report.transfers), None)
        end = "" if largest is None else f"; largest: {largest.kind} over {largest.axes}, {bytes_text(largest.wire_bytes)}"
        end += f" at {largest.source}" if largest is not None and largest.source else ""
        end += f"; {optimum_text(report.subject)}" if plan.mesh.device_count > 1 else ""
        log.warning(
            "%s: %d equations on %d devices, %s a step predicted, %s sent a device%s", report.subject.title,
            len(plan.program.eqns), plan.mesh.device_count, seconds_text(report.cost.seconds),
            bytes_text(report.cost.wire_bytes), end,
        )  # fmt: skip
