"""A jaxpr as text, in JAX's notation:

    { lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b 2.0:f32[] in (c,) }

Before the semicolon stand arrays that the function closed over, behind it its arguments. `_` is a result that nobody uses. A
Program of more than a few equations, or one that is called several times, stands once at the top: `let name = { … } in`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshjit.core.explicit import typed
from meshjit.core.program import Program, Var
from meshjit.core.types import TensorType
from meshjit.report.layout import LINE, SOFT, Break, Part, group, laid_out, nest, separated
from sharding.spec import PartitionSpec

if TYPE_CHECKING:
    from meshjit.api.jaxpr import Atom, Jaxpr, JaxprEqn

WIDTH, LARGE = 80, 10  # of lines; equations of a Program that stands by itself

# Params that JAX's equations have, which ours need not: by the primitive's name.
_ALSO: Mapping[str, Mapping[str, Any]] = {
    "convert_element_type": {"weak_type": False},
    "reduce_sum": {"out_sharding": None},
    "reshape": {"dimensions": None, "sharding": None},
}


def jaxpr_text(jaxpr: Jaxpr, types: Sequence[Any] = ()) -> str:
    """The text. `types`: those of its arguments where users see others than the Program has."""
    return _Text().whole(jaxpr, types)


def eqn_text(eqn: JaxprEqn) -> str:
    """One equation; its operands have names in the order in which they are met."""
    text = _Text()
    return laid_out(text.eqn(eqn, Counter(eqn.outvars)), WIDTH)


class _Text:
    """`names`: of Vars and of constant arrays, and of Programs that stand at the top."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.letters = map(_letters, itertools.count())
        self.apart: dict[Program, str] = {}

    def whole(self, jaxpr: Jaxpr, types: Sequence[Any]) -> str:
        lines = []
        for alike in _standing_apart(jaxpr):
            text, name = laid_out(self.jaxpr(alike[0]), WIDTH), _title(alike[0])
            name = _free(name, self.apart.values())
            self.apart.update((inner.program, name) for inner in alike)
            lines.append(f"let {name} = {text} in\n")
        return "".join(lines) + laid_out(self.jaxpr(jaxpr, types), WIDTH)

    def jaxpr(self, jaxpr: Jaxpr, types: Sequence[Any] = ()) -> Part:
        arrays = {id(a): a for a in _constants(jaxpr)}
        constants = [f"{self.name(a)}:{_type(a.aval)}" for a in arrays.values()]
        constants += [f"{self.name(v)}:{_type(v.type, jaxpr.placements.get(v))}" for v in jaxpr.constvars]
        shown = zip(jaxpr.invars, types or [v.type for v in jaxpr.invars], strict=True)
        inputs = " ".join(f"{self.name(v)}:{_type(t, jaxpr.placements.get(v))}" for v, t in shown)
        head = f"{{ lambda {' '.join(constants)}; {inputs}. let"
        used = Counter([a for e in jaxpr.eqns for a in e.invars if isinstance(a, Var)])
        used.update(a for a in jaxpr.outvars if isinstance(a, Var))
        eqns: list[Part] = [self.eqn(e, used) for e in jaxpr.eqns]
        outputs = [self.atom(a) for a in jaxpr.outvars]
        end = f"in ({', '.join(outputs)}{',' * (len(outputs) == 1)}) }}"
        return group(head, nest(4, LINE, *_statements(eqns)), nest(2, LINE, end))

    def eqn(self, eqn: JaxprEqn, used: Mapping[Var, int]) -> Part:
        specs = eqn.within.placements if eqn.within is not None else {}
        results = " ".join(f"{self.name(v) if used.get(v) else '_'}:{_type(v.type, specs.get(v))}" for v in eqn.outvars)
        head = f"{results} = {eqn.primitive.name}" if results else eqn.primitive.name
        operands = "".join(f" {self.atom(a)}" for a in eqn.invars)
        self.share_names(eqn)
        params = sorted(_shown(eqn).items(), key=lambda pair: (pair[0] != "name", pair[0]))
        if not params:
            return head + operands
        pairs: list[Part] = [group(f"{name}=", self.value(value)) for name, value in params]
        return group(head, "[", nest(2, SOFT, *separated(pairs)), SOFT, f"]{operands}")

    def share_names(self, eqn: JaxprEqn) -> None:
        """What a jitted function calls its arguments and results is what they are called outside, where it stands."""
        if eqn.primitive.name != "jit" or eqn.params["jaxpr"].program in self.apart:
            return
        inner = eqn.params["jaxpr"].jaxpr
        for mine, outer in (*zip(inner.invars, eqn.invars, strict=True), *zip(inner.outvars, eqn.outvars, strict=True)):
            if isinstance(mine, Var) and isinstance(outer, Var) and outer in self.names:
                self.names.setdefault(mine, self.names[outer])

    def value(self, value: Any) -> Part:
        if hasattr(value, "program"):
            known = self.apart.get(value.program)
            return known if known is not None else self.jaxpr(getattr(value, "jaxpr", value))
        if isinstance(value, tuple) and any(hasattr(v, "program") for v in value):
            return group("(", nest(2, SOFT, *separated([self.value(v) for v in value])), SOFT, ")")
        return _text(value)

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Var):
            return self.name(atom)
        value = np.asarray(atom.val)
        return f"{value.item()}:{_type(TensorType((), atom.aval.dtype))}" if not value.shape else self.name(atom)

    def name(self, key: Any) -> str:
        key = key if isinstance(key, Var) else id(key)
        if key not in self.names:
            self.names[key] = next(self.letters)
        return self.names[key]


def _statements(eqns: Sequence[Part]) -> list[Part]:
    """Equations, on one line with semicolons between them."""
    return separated(eqns, Break("; "))


def _standing_apart(jaxpr: Jaxpr) -> Iterator[list[Jaxpr]]:
    """Jaxprs inside, innermost first and those that are alike together, that are called several times or are large."""
    kinds = _Kinds()
    kinds.sort(jaxpr)
    yield from (alike for alike in kinds.alike.values() if len(alike) > 1 or len(alike[0].eqns) > LARGE)


class _Kinds:
    """The jaxprs that are called inside of one, by their texts, in which those inside of them are numbers."""

    def __init__(self) -> None:
        self.alike: dict[Any, list[Jaxpr]] = {}
        self.order: dict[Any, int] = {}
        self.numbers: dict[Program, str] = {}

    def sort(self, jaxpr: Jaxpr) -> None:
        for eqn in jaxpr.eqns:
            for inner in _nested(eqn):
                self.sort(inner)
                if eqn.primitive.name == "jit":
                    self.add(inner)

    def add(self, jaxpr: Jaxpr) -> None:
        text = _Text()
        text.apart = self.numbers
        arrays = tuple(np.asarray(a.val).tobytes() for a in _constants(jaxpr))
        key = (_title(jaxpr), laid_out(text.jaxpr(jaxpr), WIDTH), arrays)
        self.alike.setdefault(key, []).append(jaxpr)
        self.numbers[jaxpr.program] = f"#{self.order.setdefault(key, len(self.order))}"


def _nested(eqn: JaxprEqn) -> Iterator[Jaxpr]:
    for value in eqn.params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if hasattr(item, "jaxpr"):
                yield item.jaxpr


def _constants(jaxpr: Jaxpr) -> Iterator[Any]:
    """Arrays that are operands, in nested jaxprs, too: they stand before the semicolon."""
    for atom in [*(a for e in jaxpr.eqns for a in e.invars), *jaxpr.outvars]:
        if not isinstance(atom, Var) and np.asarray(atom.val).shape:
            yield atom


def _shown(eqn: JaxprEqn) -> dict[str, Any]:
    """The params that say something beyond the types of operands and results."""
    name, params = eqn.primitive.name, dict(eqn.params)
    if name == "broadcast_in_dim":
        params = {k: v for k, v in params.items() if k == "broadcast_dimensions" and v}
    elif name == "dot_general":
        (contract, batch) = params["dimension_numbers"]
        params["dimension_numbers"] = tuple(tuple(list(dims) for dims in pair) for pair in (contract, batch))
        params["preferred_element_type"] = params["preferred_element_type"] or eqn.outvars[0].dtype
    elif name == "slice":
        params["strides"] = None if set(params["strides"]) <= {1} else params["strides"]
        return params
    elif name == "jit":
        params["name"] = _title(eqn.params["jaxpr"].jaxpr)
    return {**{k: v for k, v in params.items() if v is not None}, **_ALSO.get(name, {})}


def _title(jaxpr: Jaxpr) -> str:
    name = jaxpr.program.name
    return "<lambda>" if name == "lambda" else name


def _text(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' * (len(value) == 1)})"
    return str(value)


def _type(type: Any, spec: PartitionSpec | None = None) -> str:
    return str(type) if not isinstance(type, TensorType) else typed(type, spec)


def _letters(number: int) -> str:
    """a, b, … z, ba, bb, …"""
    text = ""
    while True:
        number, digit = divmod(number, 26)
        text = chr(ord("a") + digit) + text
        if number == 0:
            return text


def _free(name: str, taken: Collection[str]) -> str:
    names = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1)))
    return next(n for n in names if n not in taken)
