"""The user's source, looked at: which statement stands on a line, what a function is jitted with; and text put in its place."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Code:
    """A file's lines, each with its end, and its syntax tree; empty where it cannot be read."""

    file: str
    lines: tuple[str, ...]
    tree: ast.Module

    @classmethod
    def of(cls, file: str) -> Code:
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines(keepends=True)
            return cls(file, tuple(lines), ast.parse("".join(lines)))
        except (OSError, SyntaxError, ValueError):
            return cls(file, (), ast.Module([], []))

    def statement(self, line: int) -> ast.stmt | None:
        """The innermost statement that covers a line."""
        covering = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt) and _covers(node, line)]
        return max(covering, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)

    def lambdas(self, line: int) -> list[ast.Lambda]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.Lambda) and _covers(node.body, line)]

    def has_comprehension(self, line: int) -> bool:
        nodes = (n for n in ast.walk(self.tree) if isinstance(n, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp))
        return any(_covers(node, line) for node in nodes)

    def functions(self, name: str) -> Iterator[ast.FunctionDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef) and node.name == name)

    def in_shardings(self, name: str) -> list[ast.expr]:
        """What stands behind `in_shardings=` where a function of this name is jitted: `jit(step, in_shardings=…)`, or a decorator
        `@jit(in_shardings=…)` or `@partial(jit, in_shardings=…)`."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and node.args]
        wrapping = [node for node in calls if isinstance(node.args[0], ast.Name) and node.args[0].id == name]
        decorators = [each for f in self.functions(name) for each in f.decorator_list if isinstance(each, ast.Call)]
        return [k.value for node in (*wrapping, *decorators) for k in node.keywords if k.arg == "in_shardings"]

    def text(self, node: ast.expr) -> str:
        return ast.get_source_segment("".join(self.lines), node) or ""

    def replaced(self, node: ast.expr, text: str) -> tuple[str, ...]:
        """The lines with other text where an expression stands."""
        assert node.end_lineno is not None and node.end_col_offset is not None, "parsed nodes have ends"
        first, last = self.lines[node.lineno - 1].encode(), self.lines[node.end_lineno - 1].encode()
        changed = first[: node.col_offset] + text.encode() + last[node.end_col_offset :]
        return (*self.lines[: node.lineno - 1], *changed.decode().splitlines(keepends=True), *self.lines[node.end_lineno :])

    def inserted(self, at: int, lines: Sequence[str]) -> tuple[str, ...]:
        """With further lines behind the first `at` ones."""
        before = self.lines[:at]
        if before and not before[-1].endswith("\n"):
            before = (*before[:-1], before[-1] + "\n")
        return (*before, *(line + "\n" for line in lines), *self.lines[at:])

    @property
    def first_import(self) -> int:
        """How many lines stand before the first import, but for those from __future__."""
        imports = [s for s in self.tree.body if isinstance(s, ast.Import | ast.ImportFrom)]
        own = [s for s in imports if getattr(s, "module", "") != "__future__"]
        return own[0].lineno - 1 if own else (imports[-1].end_lineno or 0) if imports else 0


def _covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def body_start(function: ast.FunctionDef) -> ast.stmt:
    """The first statement behind a docstring."""
    first, *rest = function.body
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return rest[0] if is_docstring and rest else first
