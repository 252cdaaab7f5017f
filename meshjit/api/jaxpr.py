"""A Program under JAX's names, for programs that look at what a function was traced to (`jax.make_jaxpr`).

    closed = make_jaxpr(f)(x)
    [eqn.primitive.name for eqn in closed.eqns]      ['sin', 'mul']
    eval_jaxpr(closed.jaxpr, closed.consts, x)       [f(x)]

Equations have JAX's names and params where an op of JAX's corresponds, and their own elsewhere. Constants are no equations here
but `Literal`s among the operands. `.program` is the Program itself; the text is in JAX's notation (`jaxpr_text.py`). What
`replace` gives is a Program, too: an interpreter that rewrites makes
`jaxpr.replace(eqns=[eqn.replace(primitive=lax.cos_p), …])`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from meshjit.api.jaxpr_literals import Literal, constant, is_constant, literal_of
from meshjit.api.jaxpr_placements import held, placements_in
from meshjit.api.jaxpr_text import eqn_text, jaxpr_text
from meshjit.api.primitives import jax_params, op_of, takes_scalars
from meshjit.core.effects import Effect, effect_of
from meshjit.core.keys import KeyType, PRNGKeyArray
from meshjit.core.primitives import Primitive, primitive_of
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.types import TensorType
from meshjit.trace import argument_of, as_operand, bind_program, line_of, user_source
from meshjit.trace.explicit import governing
from meshjit.trace.types import ShapedArray
from meshjit.trees import WORDS as tree
from sharding.mesh import AbstractMesh, Mesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec

Atom: TypeAlias = Var | Literal


@dataclass(frozen=True, eq=False)
class JaxprEqn:
    """outvars = primitive(invars, **params). `eqn` is the Program's equation, `source_info` the user's line."""

    eqn: Eqn
    invars: list[Atom]
    within: Jaxpr | None = field(repr=False, default=None)  # whose equation it is

    @property
    def outvars(self) -> list[Var]:
        return list(self.eqn.outputs)

    @property
    def primitive(self) -> Primitive:
        return primitive_of(self.eqn)

    @functools.cached_property
    def params(self) -> dict[str, Any]:
        """Nested Programs are ClosedJaxprs."""
        return {name: _closed(value, self.within) for name, value in jax_params(self.eqn).items()}

    def replace(
        self,
        invars: Sequence[Atom] | None = None,
        outvars: Sequence[Var] | None = None,
        primitive: Primitive | None = None,
        params: Mapping[str, Any] | None = None,
        source_info: Any = None,
    ) -> JaxprEqn:
        """The same with other parts. TypeError where its results are not of the types of `outvars` then."""
        atoms = self.invars if invars is None else list(invars)
        operands = tuple(Var(a.aval) if isinstance(a, Literal) else a for a in atoms)
        results = tuple(self.outvars if outvars is None else outvars)
        name = (primitive or self.primitive).name
        if primitive is None and params is None:
            op, own = self.eqn.op, self.eqn.params
        else:
            op, own = op_of(name, [v.type for v in operands], self.params if params is None else params)
        types = tuple(op.type_rule(tuple(v.type for v in operands), own))
        if types != tuple(v.type for v in results):
            given, there = (", ".join(map(str, x)) for x in (types, (v.type for v in results)))
            raise TypeError(
                f"JaxprEqn.replace: {name} gives ({given}) here, and the outvars are ({there})\n  at {line_of(user_source())}\n"
                "  fix: outvars=[Var(type), …], and these in the equations after it"
            )
        return JaxprEqn(Eqn(op, operands, results, own, source_info or self.eqn.source), atoms)

    @property
    def effects(self) -> set[Effect]:
        return {effect_of(self.eqn)} - {Effect.NONE}

    @property
    def source_info(self) -> Any:
        return self.eqn.source

    def __str__(self) -> str:
        return eqn_text(self)


@dataclass(frozen=True, eq=False)
class Jaxpr:
    """A Program whose last inputs are `constvars`, for what the function closed over."""

    program: Program
    count: int  # of constvars
    weak: tuple[bool, ...] = field(repr=False)  # of the results
    mesh: Any = field(repr=False, default=None)  # of the constraints inside
    in_weak: tuple[bool, ...] = field(repr=False, default=())  # of arguments, by position
    in_keys: tuple[KeyType | None, ...] = field(repr=False, default=())  # of arguments that are arrays of keys, by position
    out_keys: tuple[KeyType | None, ...] = field(repr=False, default=())
    shardings: tuple[Any, ...] = field(repr=False, default=())  # of the Program's inputs, where these are known
    around: Jaxpr | None = field(repr=False, default=None)  # that in whose params it is

    @property
    def invars(self) -> list[Var]:
        return list(self.program.inputs[: len(self.program.inputs) - self.count])

    @property
    def constvars(self) -> list[Var]:
        return list(self.program.inputs[len(self.program.inputs) - self.count :])

    @functools.cached_property
    def eqns(self) -> list[JaxprEqn]:
        return [JaxprEqn(e, self._operands(e), self) for e in self.program.eqns if not is_constant(e) and not self._holds(e)]

    @functools.cached_property
    def placements(self) -> Mapping[Var, PartitionSpec]:
        """By value, in explicit axes; of Programs inside, too."""
        if self.around is not None:
            return self.around.placements
        return placements_in(self.program, self.shardings, self.mesh) if self.shardings else {}

    @functools.cached_property
    def _held(self) -> Mapping[Var, Var]:
        """Values behind constraints that hold them where they are, and the values before."""
        return held(self.program, self.placements)

    def _holds(self, eqn: Eqn) -> bool:
        return bool(eqn.outputs) and eqn.outputs[0] in self._held

    def _operands(self, eqn: Eqn) -> list[Atom]:
        atoms, scalars = [self._atom(v) for v in eqn.inputs], takes_scalars(eqn)
        if not scalars or all(isinstance(a, Literal) for a in atoms):
            return atoms
        return [a.as_scalar() if isinstance(a, Literal) else a for a in atoms]

    @property
    def outvars(self) -> list[Atom]:
        return [self._atom(v) for v in self.program.outputs]

    @property
    def in_avals(self) -> list[ShapedArray]:
        return self._avals(self.invars, self.in_weak, self.in_keys)

    @property
    def out_avals(self) -> list[ShapedArray]:
        return self._avals(self.program.outputs, self.weak, self.out_keys)

    def _avals(self, values: Sequence[Var], weak: Sequence[bool], keys: Sequence[KeyType | None]) -> list[ShapedArray]:
        flags, types = weak or [False] * len(values), _users_types([v.type for v in values], keys)
        shardings = [self._sharding(v, len(t.shape)) for v, t in zip(values, types, strict=True)]
        return [ShapedArray(t.shape, t.dtype, w, sharding=s) for t, w, s in zip(types, flags, shardings, strict=True)]

    def _sharding(self, value: Var, rank: int) -> NamedSharding | None:
        spec, mesh = self.placements.get(value), governing(self.mesh)
        if spec is None or not isinstance(mesh, Mesh | AbstractMesh):
            return None
        return NamedSharding(mesh.abstract_mesh, spec.update(partitions=spec.partitions[:rank]))

    def replace(
        self,
        *,
        constvars: Sequence[Var] | None = None,
        invars: Sequence[Var] | None = None,
        outvars: Sequence[Atom] | None = None,
        eqns: Sequence[JaxprEqn] | None = None,
        **others: Any,
    ) -> Jaxpr:
        """The same with other parts, a Program again; `others`, such as effects, follow from these."""
        unknown = set(others) - {"effects", "debug_info", "is_high"}
        if unknown:
            raise TypeError(f"Jaxpr.replace: there is no {', '.join(sorted(unknown))}")
        inputs, consts = self.invars if invars is None else invars, self.constvars if constvars is None else constvars
        body, constants = self.eqns if eqns is None else eqns, {v: literal for v, literal in self._literals.items()}
        for eqn in body:
            constants.update((v, a) for v, a in zip(eqn.eqn.inputs, eqn.invars, strict=True) if isinstance(a, Literal))
        outputs = list(self.program.outputs)
        if outvars is not None:
            outputs = [Var(a.aval) if isinstance(a, Literal) else a for a in outvars]
            constants.update((v, a) for v, a in zip(outputs, outvars, strict=True) if isinstance(a, Literal))
        used = {*outputs, *(v for eqn in body for v in eqn.eqn.inputs)}
        first = [constant(v, literal) for v, literal in constants.items() if v in used]
        own = self._with_constraints([e.eqn for e in body], outputs)
        program = Program(self.program.name, (*inputs, *consts), (*first, *own), tuple(outputs))
        weak = dict(zip(self.program.outputs, self.weak, strict=True))
        flags = tuple(weak.get(v, False) for v in outputs)
        in_weak = dict(zip(self.invars, self.in_weak, strict=False))
        in_keys = dict(zip(self.invars, self.in_keys, strict=False))
        out_keys = dict(zip(self.program.outputs, self.out_keys, strict=False))
        keys = tuple(map(in_keys.get, inputs)), tuple(map(out_keys.get, outputs))
        shardings = dict(zip(self.program.inputs, self.shardings, strict=False))
        places = tuple(map(shardings.get, program.inputs)) if self.shardings else ()
        return Jaxpr(program, len(consts), flags, self.mesh, tuple(in_weak.get(v, False) for v in inputs), *keys, places)

    def _with_constraints(self, eqns: Sequence[Eqn], outputs: Sequence[Var]) -> list[Eqn]:
        """The equations, and before those that read them the constraints that are no equations of the Jaxpr."""
        holding = {e.outputs[0]: e for e in self.program.eqns if self._holds(e)}
        result = list[Eqn]()

        def add(values: Sequence[Var]) -> None:
            for eqn in [holding.pop(v) for v in dict.fromkeys(values) if v in holding]:
                add(eqn.inputs)
                result.append(eqn)

        for eqn in eqns:
            add(eqn.inputs)
            result.append(eqn)
        add(outputs)
        return result

    @property
    def effects(self) -> set[Effect]:
        return {effect for eqn in self.eqns for effect in eqn.effects}

    @functools.cached_property
    def _literals(self) -> dict[Var, Literal]:
        return {e.outputs[0]: literal_of(e) for e in self.program.eqns if is_constant(e)}

    def _atom(self, var: Var) -> Atom:
        var = self._held.get(var, var)
        return self._literals.get(var, var)

    def __str__(self) -> str:
        return jaxpr_text(self, _users_types([v.type for v in self.invars], self.in_keys))

    __repr__ = __str__

    def pretty_print(self, *, use_color: bool = False, **kwargs: Any) -> str:
        """The text; there are no colours."""
        del use_color, kwargs
        return str(self)


@dataclass(frozen=True, eq=False)
class ClosedJaxpr:
    """A Jaxpr and the values of its constvars: what `make_jaxpr` and `jit(f).trace(x).jaxpr` give."""

    jaxpr: Jaxpr
    consts: list[Any]

    @property
    def program(self) -> Program:
        return self.jaxpr.program

    @property
    def eqns(self) -> list[JaxprEqn]:
        return self.jaxpr.eqns

    @property
    def literals(self) -> list[Any]:
        return self.consts

    @property
    def in_avals(self) -> list[ShapedArray]:
        return self.jaxpr.in_avals

    @property
    def out_avals(self) -> list[ShapedArray]:
        return self.jaxpr.out_avals

    @property
    def effects(self) -> set[Effect]:
        return self.jaxpr.effects

    def replace(self, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None) -> ClosedJaxpr:
        """The same with another of its parts."""
        return ClosedJaxpr(self.jaxpr if jaxpr is None else jaxpr, self.consts if consts is None else list(consts))

    def __str__(self) -> str:
        return str(self.jaxpr)

    __repr__ = __str__

    def pretty_print(self, *, use_color: bool = False, **kwargs: Any) -> str:
        """The text; there are no colours."""
        return self.jaxpr.pretty_print(use_color=use_color, **kwargs)


def closed_jaxpr(
    program: Program,
    consts: Sequence[Any],
    weak: tuple[Sequence[bool], Sequence[bool]],
    mesh: Any = None,
    keys: tuple[Any, Any] = ((), ()),
    shardings: Sequence[Any] = (),
    around: Jaxpr | None = None,
) -> ClosedJaxpr:
    """A Program whose last inputs have the values `consts`; which of its arguments and results are weak, and arrays of keys;
    where its inputs are, or the Jaxpr inside of which it stands."""
    (ins, outs), (in_keys, out_keys) = map(tuple, weak), map(tuple, keys)
    jaxpr = Jaxpr(program, len(consts), outs, mesh, ins, in_keys, out_keys, tuple(shardings), around)
    return ClosedJaxpr(jaxpr, list(consts))


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any) -> list[Any]:
    """The results for these arguments, flat (`jax.core.eval_jaxpr`): computed, or inlined into what is being traced.

    TypeError where their number or a type does not fit."""
    values = tree.leaves([*args, *consts])  # of keys, their words
    arguments = [argument_of(x, f"args[{i}]") for i, x in enumerate(values)]
    expected = jaxpr.program.input_types
    if [a.type for a in arguments] != list(expected):
        given = ", ".join(str(a.type) for a in arguments)
        raise TypeError(
            f"eval_jaxpr: {jaxpr.program.name} takes ({', '.join(map(str, expected))}), arguments and then constants,"
            f" and was given ({given})\n  at {line_of(user_source())}\n  fix: make_jaxpr for arguments like these"
        )
    operands = [as_operand(x, a) for x, a in zip(values, arguments, strict=True)]
    results = bind_program(jaxpr.program, operands, jaxpr.weak, jaxpr.mesh)
    kinds = jaxpr.out_keys or [None] * len(results)
    return [x if kind is None else PRNGKeyArray(kind, x) for x, kind in zip(results, kinds, strict=True)]


def jaxpr_as_fun(closed: ClosedJaxpr) -> Callable[..., list[Any]]:
    """A function of its arguments, flat, that gives its results, flat (`jax.core.jaxpr_as_fun`)."""

    def function(*args: Any) -> list[Any]:
        return eval_jaxpr(closed.jaxpr, closed.consts, *args)

    function.__name__ = closed.program.name
    return function


def jaxprs_in_params(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    """The Jaxprs among the params of an equation, in order."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr


def _users_types(types: Sequence[TensorType], keys: Sequence[KeyType | None]) -> list[TensorType]:
    kinds = keys or [None] * len(types)
    return [t if kind is None else TensorType(t.shape[:-1], cast(Any, kind)) for t, kind in zip(types, kinds, strict=True)]


def _closed(value: Any, around: Jaxpr | None) -> Any:
    """Programs, also in a tuple, as ClosedJaxprs without constants; anything else as it is."""
    if isinstance(value, Program):
        mesh = None if around is None else around.mesh
        return closed_jaxpr(value, (), ((), [False] * len(value.outputs)), mesh, around=around)
    if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
        return tuple([_closed(v, around) for v in value])
    return value
