"""Programs: flat, frozen SSA. Inputs, equations, outputs; loops and branches are ops whose params hold Programs.

Constants are equations of the op `constant`, so every pass treats them like any other value and each use can have its
own copy. A Program is built by a `Builder`, which runs the type rule of every op as it is added:

    with Builder("main") as b:
        x = b.input(TensorType.parse("f32[8,4]"))
        y = mul(x, exp(x))                     # calling an Op on Vars adds an equation to the innermost builder
        program = b.build([y])
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from meshjit.core.types import TensorType

if TYPE_CHECKING:
    from meshjit.core.op import Op


@dataclass(frozen=True, slots=True)
class Source:
    """The user's line that an equation comes from. `note` says what derived it (`backward`, `vmap`), if anything did."""

    file: str
    line: int
    function: str
    note: str = ""

    def __str__(self) -> str:
        name = f"{self.file.rsplit('/', 1)[-1]}:{self.line} {self.function}"
        return f"{name} ({self.note})" if self.note else name

    def noted(self, note: str) -> Source:
        return _noted(self, note)


@functools.lru_cache(maxsize=4096)
def _noted(source: Source, note: str) -> Source:
    return source if note in source.note.split(", ") else replace(source, note=f"{source.note}, {note}".strip(", "))


class Var:
    """One value of a Program. Vars are equal only to themselves; the printer gives them names."""

    __slots__ = ("type", "hint")

    def __init__(self, type: TensorType, hint: str = "") -> None:
        self.type = type
        self.hint = hint

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return self.type.rank

    @property
    def aval(self) -> TensorType:
        """The type, under JAX's name."""
        return self.type

    def __repr__(self) -> str:
        return f"Var({self.hint or hex(id(self))}: {self.type})"


@dataclass(slots=True, eq=False)  # never changed; saying so would treble the time of making one
class Eqn:
    """outputs = op(inputs, **params), because of the user's line `source`."""

    op: Op
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    params: Mapping[str, Any]
    source: Source | None = None
    _identity: tuple[int, ...] = field(default=(), init=False, repr=False)  # from the first question on

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple([v.type for v in self.inputs])

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple([v.type for v in self.outputs])

    @property
    def identity(self) -> tuple[int, ...]:
        """Equal for copies of one equation, by which passes spare looking twice: its op, params and types as objects. Holds as
        long as the equation lives."""
        if not self._identity:
            types = [id(v.type) for v in self.inputs + self.outputs]
            self._identity = (id(self.op), id(self.params), len(self.inputs), *types)
        return self._identity

    def copy(self, inputs: tuple[Var, ...], outputs: tuple[Var, ...]) -> Eqn:
        """The same equation on other values, whose types are the same objects."""
        copy = Eqn(self.op, inputs, outputs, self.params, self.source)
        copy._identity = self.identity
        return copy

    def with_params(self, params: Mapping[str, Any]) -> Eqn:
        return Eqn(self.op, self.inputs, self.outputs, params, self.source)

    def with_inputs(self, inputs: tuple[Var, ...]) -> Eqn:
        return Eqn(self.op, inputs, self.outputs, self.params, self.source)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Program:
    """A function from tensors to tensors. An output may be an input, or appear twice."""

    name: str
    inputs: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outputs: tuple[Var, ...]
    answers: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False, repr=False)  # see `core/once.py`

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple([v.type for v in self.inputs])

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple([v.type for v in self.outputs])

    def vars(self) -> Iterator[Var]:
        """Every Var once, inputs first, in the order of definition."""
        return itertools.chain(self.inputs, *[eqn.outputs for eqn in self.eqns])

    def with_inputs(self, inputs: Sequence[Var]) -> Program:
        """The same with its inputs in another order, or with further ones."""
        return replace(self, inputs=tuple(inputs))

    def with_outputs(self, outputs: Sequence[Var]) -> Program:
        """The same equations with other values given back."""
        return replace(self, outputs=tuple(outputs))

    def __str__(self) -> str:
        from meshjit.core.printer import print_program  # which reads Programs

        return print_program(self)


_NONE: Final[Mapping[str, Any]] = {}  # one object, so that equations without params are alike by identity


@functools.lru_cache(maxsize=4096)
def _types(op: Op, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """What the type rule of an op without params gives; the same objects each time."""
    return tuple(map(_shared, op.type_rule(types, _NONE)))


def _shared(type: TensorType) -> TensorType:
    """One object for equal types; but for types that name an extent, which equal those that do not."""
    return type if _names_an_extent(type) else _one(type)


@functools.lru_cache(maxsize=4096)
def _one(type: TensorType) -> TensorType:
    return type


def _names_an_extent(type: TensorType) -> bool:
    for extent in type.shape:  # a loop is several times as fast as any(..)
        if extent.__class__ is not int:
            return True
    return False


class _Stack(threading.local):
    def __init__(self) -> None:
        self.builders: list[Builder] = []


_stack = _Stack()


class Builder:
    """Collects equations into a Program. As a context manager it is where ops called on Vars put their equations."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.inputs: list[Var] = []
        self.eqns: list[Eqn] = []
        self.source: Source | None = None
        self.known: Any = None  # outside of jit, what says the values of its Vars (`trace/values.py`)

    def __enter__(self) -> Builder:
        _stack.builders.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _stack.builders.pop()

    def input(self, type: TensorType, hint: str = "") -> Var:
        var = Var(_shared(type), hint)
        self.inputs.append(var)
        return var

    def emit(self, op: Op, inputs: Sequence[Var], params: Mapping[str, Any]) -> tuple[Var, ...]:
        """Add one equation; the op's type rule gives the output types or raises TypeError."""
        in_types = tuple([v.type for v in inputs])
        is_plain = not params and not any(map(_names_an_extent, in_types))
        types = _types(op, in_types) if is_plain else tuple(map(_shared, op.type_rule(in_types, params or _NONE)))
        params = params or _NONE
        outputs = tuple([Var(t) for t in types])
        self.eqns.append(Eqn(op, tuple(inputs), outputs, params, self.source))
        return outputs

    def repeat(self, eqn: Eqn) -> Var:
        """Add the same equation of one result once more, at the current line."""
        (out,) = eqn.outputs
        var = Var(out.type)
        self.eqns.append(Eqn(eqn.op, eqn.inputs, (var,), eqn.params, self.source))
        return var

    def inline(self, program: Program, inputs: Sequence[Var]) -> list[Var]:
        """Copy a Program's equations here, its inputs replaced; gives its outputs."""
        env = dict(zip(program.inputs, inputs, strict=True))
        alike, put = all([old.type is new.type for old, new in env.items()]), self.eqns.append
        for eqn in program.eqns:
            outputs: list[Var] = []
            for old in eqn.outputs:
                env[old] = new = Var(old.type, old.hint)
                outputs.append(new)
            given = tuple([env[v] for v in eqn.inputs])
            put(eqn.copy(given, tuple(outputs)) if alike else Eqn(eqn.op, given, tuple(outputs), eqn.params, eqn.source))
        return [env[v] for v in program.outputs]

    def at(self, source: Source | None, note: str = "") -> _At:
        """Equations added inside carry this source line."""
        return _At(self, source.noted(note) if source is not None and note else source)

    def build(self, outputs: Sequence[Var]) -> Program:
        return Program(self.name, tuple(self.inputs), tuple(self.eqns), tuple(outputs))


class _At:
    """A source line for the equations of a builder; a class because passes enter one for every equation."""

    __slots__ = ("before", "builder", "source")

    def __init__(self, builder: Builder, source: Source | None) -> None:
        self.builder, self.source = builder, source
        self.before: Source | None = None

    def __enter__(self) -> None:
        self.before, self.builder.source = self.builder.source, self.source

    def __exit__(self, *exc: object) -> None:
        self.builder.source = self.before


def current_builder() -> Builder:
    """The innermost `with builder:` of this thread."""
    if not _stack.builders:
        raise RuntimeError("an op was called on Vars outside of `with Builder(...)`")
    return _stack.builders[-1]
