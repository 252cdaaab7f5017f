"""Which values a person means by `params['w1']`, `params.w1`, `%12`, `train.py:31`, `31`, `loss` or `result[0]`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

from meshjit.core.program import Source, Var
from meshjit.report.labels import targets
from meshjit.report.subject import Subject, starred
from meshjit.report.units import function_text


class UnknownName(LookupError):
    """No value has this name; the message lists the nearest names that do."""


def values_named(subject: Subject, name: str) -> list[Var]:
    """The values that a name means, in the order of the Program: one, or all that a line or function makes.

    UnknownName lists the nearest names."""
    for meaning in (_exact, _line, _function, _variable, _labelled):
        values = meaning(subject, name.strip())
        if values:
            return values
    known = known_names(subject)
    near = _lines_near(subject, name) or difflib.get_close_matches(name, known, n=4, cutoff=0.4) or known[:4]
    raise UnknownName(
        f"{subject.title} has no value {name!r}\n"
        f"  nearest: {', '.join(near)}\n"
        "  a value is an argument (params['w1']), a line (train.py:31), a variable,\n"
        "  a function, a result, or a name of the plan's text (%12)"
    )


def _lines_near(subject: Subject, name: str) -> list[str]:
    """Of a line on which nothing is made those of the same file that are nearest."""
    match = re.fullmatch(r"(?:(.*):)?(\d+)", name.strip())
    if match is None:
        return []
    sources = [eqn.source for eqn in subject.makers.values() if eqn.source is not None]
    lines = {(s.file.rsplit("/", 1)[-1], s.line) for s in sources if s.file.endswith(match[1] or "")}
    near = sorted(lines, key=lambda line: (abs(line[1] - int(match[2])), line))[:4]
    return [f"{file}:{line}" for file, line in near]


def known_names(subject: Subject) -> list[str]:
    """Inputs, results, functions and lines: what can be asked for without reading the plan first."""
    sources = [eqn.source for eqn in subject.makers.values() if eqn.source is not None]
    lines = [f"{source.file.rsplit('/', 1)[-1]}:{source.line}" for source in sources]
    functions, variables = map(function_text, sources), filter(None, map(_assigned_at, dict.fromkeys(sources)))
    return list(dict.fromkeys([*subject.inputs, *subject.outputs, *functions, *variables, *lines]))


def _exact(subject: Subject, name: str) -> list[Var]:
    program = subject.plan.program
    for var, output in zip(program.outputs, subject.outputs, strict=True):
        if _plain(output) == _plain(name):
            return [var]
    plain = _plain(name)
    named = [v for v, own in zip(program.inputs, subject.inputs, strict=True) if plain in (_plain(own), _plain(starred(own)))]
    return named or [var for var, own in subject.names.items() if own.lstrip("%") == name.lstrip("%")]


def _plain(name: str) -> str:
    """`layers[3]['attn'].q`, `layers[3].attn.q` and `layers.3.attn.q` are one name."""
    return ".".join(re.findall(r"[^\[\]'\".]+", name))


def _line(subject: Subject, name: str) -> list[Var]:
    match = re.fullmatch(r"(?:(.*):)?(\d+)", name)
    if match is None:
        return []
    file, line = match[1] or "", int(match[2])
    return _handed_on(subject, lambda source: source.line == line and source.file.endswith(file))


def _function(subject: Subject, name: str) -> list[Var]:
    def belongs(source: Source) -> bool:
        text = function_text(source)
        return name in (source.function, text, text.rsplit(".", 1)[-1])

    return _handed_on(subject, belongs)


def _variable(subject: Subject, name: str) -> list[Var]:
    """What lines assign to a variable of this name."""
    return [v for v in subject.makers if v not in subject.labels.steps and name == _assigned_at(subject.source(v))]


def _labelled(subject: Subject, name: str) -> list[Var]:
    """What reports call so: `exponential in scores`."""
    return [v for v in subject.names if subject.labels[v] == name]


def _assigned_at(source: Source | None) -> str | None:
    return None if source is None else targets(source.file).get(source.line)


def _handed_on(subject: Subject, belongs: Callable[[Source], bool]) -> list[Var]:
    """What these equations make that others read: not every step of a line, but what it comes to, forwards and backwards."""
    inside = [e for e in dict.fromkeys(subject.makers.values()) if e.source is not None and belongs(e.source)]
    passed = {v for eqn in set(subject.makers.values()).difference(inside) for v in eqn.inputs}
    passed |= subject.output_names.keys()
    values = [v for eqn in inside for v in eqn.outputs]
    return [v for v in values if v in passed] or values
