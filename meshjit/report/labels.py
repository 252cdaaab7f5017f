"""What a user calls a value: the variable that its line assigns, or the function that gives it back; else a step towards one."""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from meshjit.core.program import Eqn, Program, Source, Var
from meshjit.core.region import run_regions
from meshjit.plan.graph import programs_in
from meshjit.report.user_code import Code

LONGEST: Final = 28  # characters of what an assignment's left side is shown with


class Labels(dict[Var, str]):
    """`params['w1']` of an argument; of others `scores`, `attention()`, `cast(params['w1'])` of what a function makes of one
    argument, `exponential in scores`, `scores (backward)`, by their lines; without a line `%12`. Written for those that somebody
    asks for. They are not unique: equal layers have the same."""

    def __init__(self, program: Program, names: Mapping[Var, str], makers: Mapping[Var, Eqn]) -> None:
        super().__init__(zip(program.inputs, [names[v] for v in program.inputs], strict=True))
        self.program, self.names, self.makers = program, names, makers

    @functools.cached_property
    def arguments(self) -> set[Var]:
        return {*self.program.inputs}

    @functools.cached_property
    def steps(self) -> set[Var]:
        """Values that another equation of their line reads."""
        pairs = ((v, eqn.source) for part in programs_in(self.program) for eqn in part.eqns for v in eqn.inputs)
        return {v for v, source in pairs if (maker := self.makers.get(v)) is not None and _is_same(maker.source, source)}

    @functools.cached_property
    def entering(self) -> dict[Var, tuple[Var, str]]:
        """For every input of a loop's or branch's body what it is outside, and how: `[i]` a slice of it, ` (carry)` its start."""
        return {inner: pair for part in programs_in(self.program) for eqn in part.eqns for inner, pair in _entering(eqn)}

    def __missing__(self, var: Var) -> str:
        self[var] = label = self._label(var)
        return label

    def _label(self, var: Var) -> str:
        maker = self.makers.get(var)
        if maker is None and var in self.entering:
            outside, how = self.entering[var]
            return f"{self[outside]}{how}"
        result = None if maker is None else result_of(maker.source)
        if maker is None or result is None:
            return self.names[var]
        note = f" ({maker.source.note})" if maker.source is not None and maker.source.note else ""
        if var in self.steps:
            return f"{maker.op.name} in {result}{note}"
        return f"{result[:-1]}{self[maker.inputs[0]]}){note}" if self._is_of_argument(result, maker) else f"{result}{note}"

    def _is_of_argument(self, result: str, maker: Eqn) -> bool:
        """Whether a function gives back what it made of one argument alone. Of code that cannot be read nobody knows that."""
        read = {*maker.inputs}
        is_given_back = result.endswith("()") and maker.source is not None and bool(targets(maker.source.file))
        return is_given_back and len(read) == 1 and read <= self.arguments


def _entering(eqn: Eqn) -> Iterator[tuple[Var, tuple[Var, str]]]:
    for region in run_regions(eqn) if eqn.op.regions is not None else ():
        hows = {**dict.fromkeys(region.sliced, "[i]"), **{i: " (carry)" for i, _ in region.carried}}
        for i, (operand, inner) in enumerate(zip(region.operands, region.program.inputs, strict=True)):
            yield inner, (eqn.inputs[operand], hows.get(i, ""))


def _is_same(one: Source | None, other: Source | None) -> bool:
    return one is other or (one is not None and one == other)


def result_of(source: Source | None) -> str | None:
    """What the statement at a line makes: `scores`, `(q, k, v)`; `attention()` where it gives that function's result back."""
    if source is None:
        return None
    target = targets(source.file).get(source.line)
    if target is not None:
        return target
    parts = [part for part in source.function.split(".") if not part.startswith("<")]
    return f"{parts[-1]}()" if parts else f"line {source.line}"


def targets(file: str) -> Mapping[int, str]:
    """For every line of a file that belongs to an assignment, what is assigned."""
    try:
        return _targets(file, os.stat(file).st_mtime_ns)
    except OSError:
        return {}


@functools.lru_cache(maxsize=64)
def _targets(file: str, changed: int) -> Mapping[int, str]:
    """`changed`: when the file was written, after which it is read anew."""
    lines: dict[int, str] = {}
    for node in ast.walk(Code.of(file).tree):  # statements before those inside of them
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            text = _assigned(node)
            body: Sequence[ast.stmt] = getattr(node, "body", ())
            if text is not None:
                lines.update(dict.fromkeys(range(node.lineno, node.end_lineno + 1), text))
            elif not body:
                for line in range(node.lineno, node.end_lineno + 1):
                    lines.pop(line, None)
    return lines


def _assigned(node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign):
        text = ast.unparse(node.targets[0])
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        text = ast.unparse(node.target)
    else:
        return None
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
