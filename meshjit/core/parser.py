"""Reads what `printer` prints: text → Program. Placements annotated in types come back as a side map."""

from __future__ import annotations

import ast
import base64
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from meshjit.core.host import HostFunction, read_host_function
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder, Program, Source, Var
from meshjit.core.region import Rule
from meshjit.core.splat import splat
from meshjit.core.types import DTYPES, TensorType
from sharding.spec import PartitionSpec, Placement

_TOKEN = re.compile(
    r"""(?P<space>[ \t\n]+)
      | \#\ (?P<source>[^\n]*)
      | (?P<var>%[\w.]+)
      | (?P<number>-?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+))
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<word>[A-Za-z_]\w*)
      | (?P<mark>->|[][(){},:=@*|/])""",
    re.VERBOSE,
)


class ParseError(ValueError):
    """The text is not a Program; the message shows the line and what was expected there."""


def parse_program(text: str) -> Program:
    """The Program whose text this is."""
    return parse_annotated(text)[0]


def parse_annotated(text: str) -> tuple[Program, dict[Var, Placement]]:
    """The Program and the placements that its types are annotated with."""
    parser = _Parser(text)
    program = parser.program()
    parser.expect("end")
    return program, parser.placements


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokenize(text))
        self.position = 0
        self.placements: dict[Var, Placement] = {}

    # -- tokens

    def peek(self, ahead: int = 0) -> tuple[str, str, int]:
        index = min(self.position + ahead, len(self.tokens) - 1)
        return self.tokens[index]

    def next(self) -> tuple[str, str, int]:
        token = self.peek()
        self.position += 1
        return token

    def accept(self, text: str) -> bool:
        if self.peek()[1] == text and self.peek()[0] in ("mark", "word"):
            self.position += 1
            return True
        return False

    def expect(self, what: str) -> str:
        """The next token, which must be this mark or word, or of this kind."""
        kind, text, place = self.next()
        if what in (kind, text):
            return text
        line = self.text.count("\n", 0, place) + 1
        raise ParseError(f"line {line}: expected {what}, found {text!r}: {self.text.splitlines()[line - 1].strip()}")

    def sequence(self, item: Callable[[], Any], close: str) -> list[Any]:
        """Items separated by commas up to the closing mark; a trailing comma is fine."""
        items: list[Any] = []
        while not self.accept(close):
            items.append(item())
            if not self.accept(","):
                self.expect(close)
                break
        return items

    # -- programs

    def program(self) -> Program:
        self.expect("program")
        builder = Builder(self.expect("word"))
        self.expect("(")
        env: dict[str, Var] = {}
        self.sequence(lambda: self.input(builder, env), ")")
        self.expect("->")
        self.expect("(")
        self.sequence(lambda: self.type(), ")")
        self.expect("{")
        while not self.accept("return"):
            self.equation(builder, env)
        outputs = [] if self.peek()[1] == "}" else self.sequence_until_brace(env)
        self.expect("}")
        return builder.build(outputs)

    def sequence_until_brace(self, env: dict[str, Var]) -> list[Var]:
        outputs = [env[self.expect("var")]]
        while self.accept(","):
            outputs.append(env[self.expect("var")])
        return outputs

    def input(self, builder: Builder, env: dict[str, Var]) -> None:
        name = self.expect("var")
        self.expect(":")
        type, placement = self.type()
        env[name] = builder.input(type, _hint(name))
        self.note(env[name], placement)

    def equation(self, builder: Builder, env: dict[str, Var]) -> None:
        results: list[tuple[str, TensorType, Placement | None]] = []
        while self.peek()[0] != "word" and not self.accept("="):
            name = self.expect("var")
            self.expect(":")
            results.append((name, *self.type()))
            self.accept(",")
        op = REGISTRY[self.expect("word")]
        self.expect("(")
        inputs = self.sequence(lambda: env[self.expect("var")], ")")
        params = dict(self.sequence(self.param, "}")) if self.accept("{") else {}
        builder.source = _source(self.next()[1]) if self.peek()[0] == "source" else None
        outputs = builder.emit(op, inputs, params)
        for (name, type, placement), var in zip(results, outputs, strict=True):
            if var.type != type:
                raise ParseError(f"{name} is written as {type}, but {op.name} gives {var.type}")
            var.hint = _hint(name)
            env[name] = var
            self.note(var, placement)

    def param(self) -> tuple[str, Any]:
        name = self.expect("word")
        self.expect("=")
        return name, self.value()

    def note(self, var: Var, placement: Placement | None) -> None:
        if placement is not None:
            self.placements[var] = placement

    # -- types and values

    def type(self) -> tuple[TensorType, Placement | None]:
        """`f32[8@data, 512@model | sum(x)]` → the type, and the placement if anything is annotated."""
        dtype = DTYPES[self.expect("word")]
        self.expect("[")
        start = self.peek()[2]
        while self.peek()[1] != "]":
            self.next()
        shape, placement = Placement.parse_annotation(self.text[start : self.next()[2]])
        return TensorType(shape, dtype), None if placement.is_replicated else placement

    def value(self) -> Any:
        kind, text, _ = self.peek()
        if kind == "number":
            self.next()
            return float(text) if any(c in text for c in ".e") else int(text)
        if kind == "string":
            self.next()
            return _unquote(text)
        if text == "(":
            self.next()
            return tuple(self.sequence(self.value, ")"))
        if text == "program":
            return self.program()
        return self.named_value()

    def named_value(self) -> Any:
        word = self.peek()[1]
        if word in DTYPES and self.peek(1)[1] == "[":
            return self.type()[0]
        self.expect("word")
        if word in ("None", "True", "False"):
            return {"None": None, "True": True, "False": False}[word]
        readers: dict[str, Callable[[], Any]] = {"rule": self.rule, "host": self.host}
        readers |= {"dtype": self.dtype, "float": self.special_float, "P": self.spec, "array": self.array, "splat": self.splat}
        if word not in readers:
            raise ParseError(f"unknown value {word!r}")
        self.expect("(")
        return readers[word]()

    def dtype(self) -> np.dtype[Any]:
        dtype = DTYPES[self.expect("word")]
        self.expect(")")
        return dtype

    def special_float(self) -> float:
        """What follows `float(`: nan, inf or -inf, up to the closing mark."""
        start = self.tokens[self.position - 1][2] + 1
        while not self.accept(")"):
            self.position += 1
        return float(self.text[start : self.tokens[self.position - 1][2]])

    def rule(self) -> Rule:
        name = self.value()
        self.expect(")")
        return Rule(name)

    def spec(self) -> PartitionSpec:
        def entry() -> Any:
            return PartitionSpec.UNCONSTRAINED if self.accept("*") else self.value()

        spec = PartitionSpec(*self.sequence(entry, ")"))
        for name in ("unreduced", "reduced"):
            if self.accept(name):
                spec = spec.update(**{name: self.value()})
        return spec.with_priorities(*self.value()) if self.accept("/") else spec

    def host(self) -> HostFunction:
        name, number, operands, *results = self.sequence(self.value, ")")
        return read_host_function(name, number, operands, results)

    def array(self) -> np.ndarray[Any, Any]:
        type, _ = self.type()
        self.expect(",")
        if self.peek()[0] == "string":
            raw = base64.b64decode(_unquote(self.next()[1]))
            self.expect(")")
            return np.frombuffer(raw, type.dtype).reshape(type.shape).copy()
        self.expect("(")
        elements = self.sequence(lambda: self.element(type), ")")
        self.expect(")")
        flat = np.empty(type.size, type.dtype)
        for i, x in enumerate(elements):
            flat[i] = x
        return flat.reshape(type.shape)

    def splat(self) -> np.ndarray[Any, Any]:
        type, _ = self.type()
        self.expect(",")
        value = self.element(type)
        self.expect(")")
        return splat(np.asarray(value, type.dtype), type.shape)

    def element(self, type: TensorType) -> Any:
        if not self.accept("bits"):
            return self.value()
        start = self.peek()[2] + 1
        self.expect("(")
        while not self.accept(")"):
            self.position += 1
        raw = bytes.fromhex(self.text[start : self.tokens[self.position - 1][2]])
        return np.frombuffer(raw, type.dtype)[0]


def _tokenize(text: str) -> Any:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            # `bits(0000c07f)` and `float(-inf)` hold characters that mean nothing elsewhere; their readers slice the text.
            yield "other", text[position], position
            position += 1
            continue
        kind = match.lastgroup or ""
        if kind != "space":
            yield kind, match[kind], match.start()
        position = match.end()
    yield "end", "end", len(text)


def _unquote(text: str) -> str:
    return ast.literal_eval(text)


def _hint(name: str) -> str:
    bare = name[1:]
    return "" if bare.isdigit() else bare


def _source(text: str) -> Source:
    """`train.py:31 mlp (backward)` → Source; the folder is not printed, so it does not come back."""
    match = re.fullmatch(r"(.*):(\d+) (.*?)(?: \(([^()]*)\))?", text.strip())
    if match is None:
        raise ParseError(f"not a source line: {text!r}")
    return Source(match[1], int(match[2]), match[3], match[4] or "")
