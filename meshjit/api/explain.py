"""Why a function is traced again (`config.explain_cache_misses`), and what is compiled when (`config.log_compiles`)."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from meshjit.api.call import Call, Context
from meshjit.api.shardings import spec_of
from meshjit.config import config
from meshjit.runtime.array import LeafKey
from meshjit.trace.source import line_of, user_source

log = logging.getLogger("meshjit")

_lines_seen: set[tuple[str, int]] = set()


def explain_miss(fun: Callable[..., Any], call: Call, before: Iterable[Call]) -> None:
    """Log why `call` needs tracing, against the earlier call that is nearest to it."""
    reasons = min((differences(call, old) for old in before), key=len, default=None)
    if reasons is None:
        reasons = [_first_time(fun)]
    where = line_of(user_source())
    log.warning("%s", "\n".join([f"{call.title} is traced again at {where}:" if before else
                                 f"{call.title} is traced at {where}:", *(f"  {r}" for r in reasons)]))  # fmt: skip


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


def differences(new: Call, old: Call) -> list[str]:
    """What distinguishes two calls: trees, types, placements, static values, settings."""
    found: list[str] = []
    if new.in_tree != old.in_tree:
        found += _tree_differences(new, old)
    else:
        for name, now, then in zip(new.names, new.keys, old.keys, strict=True):
            found += _leaf_differences(name, now, then)
    found += _static_differences(new, old)
    return found + _context_differences(new.context, old.context)


def _tree_differences(new: Call, old: Call) -> list[str]:
    added = [n for n in new.names if n not in old.names]
    gone = [n for n in old.names if n not in new.names]
    found = [f"arguments {', '.join(added)} are new" if len(added) > 1 else f"argument {added[0]} is new"] if added else []
    if gone:
        found.append(f"arguments {', '.join(gone)} are missing" if len(gone) > 1 else f"argument {gone[0]} is missing")
    return found or [f"the arguments' containers are {new.in_tree}, before {old.in_tree}"]


def _leaf_differences(name: str, now: LeafKey, then: LeafKey) -> list[str]:
    if now.type != then.type:
        return [f"argument {name} is {now.type}, before {then.type}"]
    found: list[str] = []
    if now.weak != then.weak:
        kinds = ("an array", "a Python number")
        found.append(f"argument {name} is {kinds[now.weak]} of type {now.type}, before {kinds[then.weak]}")
    if now.normal != then.normal and place_text(now) != place_text(then):
        found.append(f"argument {name} {now.type} is {place_text(now)}, before {place_text(then)}")
    return found


def place_text(key: LeafKey) -> str:
    if key.sharding is None:
        return "on the host"
    return f"{'committed to' if key.committed else 'uncommitted on'} {spec_of(key.sharding)}"


def _static_differences(new: Call, old: Call) -> list[str]:
    now, then = dict(new.statics), dict(old.statics)
    return [
        f"static argument {name} is {_value(now, name)}, before {_value(then, name)}"
        for name in dict.fromkeys([*now, *then])
        if name not in now or name not in then or type(now[name]) is not type(then[name]) or now[name] != then[name]
    ]


def _value(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return "not given"
    text = repr(values[name])
    return text if len(text) <= 80 else text[:77] + "..."


def _context_differences(new: Context | None, old: Context | None) -> list[str]:
    if new is None or old is None:
        return []
    found = [] if new.mesh == old.mesh else [f"the mesh context is {new.mesh}, before {old.mesh}"]
    pairs = [(name, new.options[name], old.options[name]) for name in new.options]
    return found + [f"config {name} is {now}, before {then}" for name, now, then in pairs if now != then]


def log_compile(title: str, what: str, seconds: float) -> None:
    """One line of `config.log_compiles`."""
    if config.log_compiles:
        log.warning("%s: %s in %.3f s", title, what, seconds)
