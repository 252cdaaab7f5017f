"""A suggestion as a patch of the user's file.

    h = jnp.tanh(x @ w1)
    h = with_sharding_constraint(h, PartitionSpec("data", None))        # a line is added behind a statement that binds one name

    return with_sharding_constraint(x @ w1, PartitionSpec("data"))      # what is returned, or what a lambda gives, is wrapped

Arguments: the entry of `in_shardings` is changed where there is one; else constraints stand at the beginning of the function, of
entries of lists and dicts, too. For others the text says which edit to make by hand.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from meshjit.core.program import Source
from meshjit.report.subject import Subject
from meshjit.report.suggest import Suggestion
from meshjit.report.user_code import Code, body_start

NAMES = "from meshjit.lax import with_sharding_constraint"
SPEC = "from meshjit.sharding import PartitionSpec"


@dataclasses.dataclass(frozen=True)
class Patch:
    """The lines of a file before and after; `text` is the unified diff, or, where there is none, what a person has to write."""

    file: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    advice: str = ""

    @property
    def text(self) -> str:
        if self.advice:
            return self.advice
        relative = os.path.relpath(self.file)
        file = self.file if relative.startswith("..") else relative
        return "".join(difflib.unified_diff(self.before, self.after, file, file))


def apply(patch: Patch) -> str:
    """Write the file; the patch's text."""
    if not patch.advice:
        Path(patch.file).write_text("".join(patch.after), encoding="utf-8")
    return patch.text


def patch_of(subject: Subject, suggestion: Suggestion) -> Patch:
    """The patch that adds one annotation. Nothing is written yet."""
    spec = suggestion.placement.replace("P(", "PartitionSpec(", 1)
    if suggestion.is_argument:
        return _of_in_shardings(subject, suggestion) or _of_argument(subject, suggestion.value, spec)
    if suggestion.place is None:
        return _by_hand(suggestion.value, spec, None)
    return _of_statement(subject, suggestion, suggestion.place, spec)


def _by_hand(value: str, spec: str, place: Source | None) -> Patch:
    """Which edit to make, where there is none that is surely right."""
    lines = Code.of(place.file).lines if place is not None else ()
    where = f" at {place.file}:{place.line}" if place is not None else ""
    edit = [f"  write with_sharding_constraint({value}, {spec})"]
    if place is not None and place.line <= len(lines):
        code = lines[place.line - 1].strip()
        edit = [f"  the line is: {code}", f"  in it, put with_sharding_constraint(…, {spec}) around {value}"]
        if "backward" in place.note:
            about = f"no patch: {value} comes of differentiating {place.file}:{place.line}, where nothing stands for it"
            more = "  what is constrained there is constrained in its derivative, too, so the gain differs: try it by --why-not"
            return Patch("", (), (), "\n".join([about, edit[0], more]))
    text = "\n".join([f"no patch: write it yourself{where}", *edit, f"  with {NAMES}", f"       {SPEC}"])
    return Patch("", (), (), text)


# -- values that the function makes


def _of_statement(subject: Subject, suggestion: Suggestion, place: Source, spec: str) -> Patch:
    code = Code.of(place.file)
    statement, lambdas = code.statement(place.line), code.lambdas(place.line)
    if place.note or statement is None or not _is_result(subject, suggestion):
        return _by_hand(suggestion.value, spec, place)
    if place.function.endswith("<lambda>"):
        return _wrapped(code, lambdas[0].body, spec) if len(lambdas) == 1 else _by_hand(suggestion.value, spec, place)
    if lambdas or code.has_comprehension(place.line):
        return _by_hand(suggestion.value, spec, place)
    if isinstance(statement, ast.Return) and statement.value is not None and not isinstance(statement.value, ast.Tuple):
        return _wrapped(code, statement.value, spec)
    name = _bound(statement)
    if name is None:
        return _by_hand(suggestion.value, spec, place)
    line = f"{' ' * statement.col_offset}{name} = {_constrained(name, spec)}"
    return _with_imports(code, code.inserted(statement.end_lineno or statement.lineno, [line]))


def _is_result(subject: Subject, suggestion: Suggestion) -> bool:
    """Whether it has the shape of what its line comes to: then a constraint on that says the same."""
    made = [e for e in dict.fromkeys(subject.makers.values()) if e.source == suggestion.place]
    read = {v for eqn in made for v in eqn.inputs}
    results = [v for eqn in made for v in eqn.outputs if v not in read]
    return suggestion.var in results or any(v.shape == suggestion.var.shape for v in results)


def _bound(statement: ast.stmt) -> str | None:
    """The one name that a statement binds."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    is_binding = isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
    return targets[0].id if is_binding and len(targets) == 1 and isinstance(targets[0], ast.Name) else None


def _wrapped(code: Code, expression: ast.expr, spec: str) -> Patch:
    return _with_imports(code, code.replaced(expression, _constrained(code.text(expression), spec)))


def _constrained(value: str, spec: str) -> str:
    return f"with_sharding_constraint({value}, {spec})"


def _with_imports(code: Code, after: tuple[str, ...]) -> Patch:
    missing = [line + "\n" for line in (NAMES, SPEC) if line + "\n" not in code.lines]
    place = code.first_import
    return Patch(code.file, code.lines, (*after[:place], *missing, *after[place:]))


# -- arguments


def _codes(subject: Subject) -> list[Code]:
    """The files that equations come from."""
    sources = (eqn.source for eqn in subject.makers.values() if eqn.source is not None)
    return [Code.of(file) for file in dict.fromkeys(source.file for source in sources)]


def _of_argument(subject: Subject, path: str, spec: str) -> Patch:
    """At the beginning of the traced function, whose name is the title's and which has the parameter."""
    path = path.partition(" × ")[0]
    tokens = _tokens(path)
    if tokens is None:
        return _by_hand(path, spec, None)
    for code in _codes(subject):
        for node in code.functions(subject.plan.program.name):
            if tokens[0] in [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]:
                first = body_start(node)
                lines = [" " * first.col_offset + line for line in _assignment(tokens[0], tokens[1:], spec)]
                return _with_imports(code, code.inserted(first.lineno - 1, lines))
    return _by_hand(path, spec, None)


def _tokens(path: str) -> list[str] | None:
    """`state[*]['w']` → state, *, 'w'; None for paths with attributes, whose objects may be frozen."""
    if re.fullmatch(r"\w+(\[(\*|\d+|'[^']*')\])*", path) is None:
        return None
    return re.findall(r"^\w+|(?<=\[)(?:\*|\d+|'[^']*')(?=\])", path)


def _assignment(name: str, rest: Sequence[str], spec: str) -> list[str]:
    """Statements that constrain an entry; of all members of a list, in a loop. Containers of arguments are the trace's own."""
    if not rest:
        return [f"{name} = {_constrained(name, spec)}"]
    if list(rest) == ["*"]:
        return [f"{name} = [{_constrained('each', spec)} for each in {name}]"]
    if "*" not in rest:
        entry = name + "".join(f"[{token}]" for token in rest)
        return [f"{entry} = {_constrained(entry, spec)}"]
    at = list(rest).index("*")
    container = name + "".join(f"[{token}]" for token in rest[:at])
    if at == len(rest) - 1:
        return [f"{container} = [{_constrained('each', spec)} for each in {container}]"]
    member = f"{name}_{at}"
    return [f"for {member} in {container}:", *(f"    {line}" for line in _assignment(member, rest[at + 1 :], spec))]


def _of_in_shardings(subject: Subject, suggestion: Suggestion) -> Patch | None:
    """Where the jit of this function has `in_shardings` as a literal with an entry of this argument, that entry changed."""
    tokens = _tokens(suggestion.value.partition(" × ")[0])
    if tokens is None or "*" in tokens:
        return None
    name = subject.plan.program.name
    for code in _codes(subject):
        for value in code.in_shardings(name):
            parameters = [a.arg for f in code.functions(name) for a in (*f.args.posonlyargs, *f.args.args)]
            entry = _entry(value, tokens, parameters)
            text = None if entry is None else _spelt(code, entry, suggestion.placement)
            if entry is not None and text is not None:
                return Patch(code.file, code.lines, code.replaced(entry, text))
    return None


def _entry(value: ast.expr, tokens: Sequence[str], parameters: Sequence[str]) -> ast.expr | None:
    """The expression for an argument's path in a literal of tuples, lists and dicts."""
    if isinstance(value, ast.Tuple | ast.List) and tokens[0] in parameters[: len(value.elts)]:
        value = value.elts[parameters.index(tokens[0])]
    elif len(parameters) != 1:
        return None
    for token in tokens[1:]:
        members = _members(value)
        if token not in members:
            return None
        value = members[token]
    return value


def _members(value: ast.expr) -> dict[str, ast.expr]:
    """Of a literal, by token of a path."""
    if isinstance(value, ast.Tuple | ast.List):
        return {str(i): each for i, each in enumerate(value.elts)}
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return {repr(key.value): each for key, each in pairs if isinstance(key, ast.Constant)}
    return {}


def _spelt(code: Code, entry: ast.expr, placement: str) -> str | None:
    """The spec as the entry is written now: `P(…)`, or `NamedSharding(mesh, P(…))`; None where it is written otherwise."""
    if not isinstance(entry, ast.Call):
        return None
    name, inner = code.text(entry.func), "(" + placement.partition("(")[2]
    if name.rpartition(".")[2] != "NamedSharding":
        return name + inner if name.rpartition(".")[2] in ("P", "PartitionSpec") else None
    if len(entry.args) == 2 and isinstance(entry.args[1], ast.Call):
        return f"{name}({code.text(entry.args[0])}, {code.text(entry.args[1].func)}{inner})"
    return None
