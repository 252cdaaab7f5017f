"""The Op record: everything that is known about one operation, as pure functions of types, params and operands.

Each op stands in one paragraph of one family file in `meshjit/ops`, the record last. Ops never execute and never read globals.
Of the machine they ask the Target (`emitter.target`, `local.target`); only `partition` and `simulate` see the mesh. A
rule that cannot exist is `Absent("reason")`, never silence. An optional rule that is None means that the generic way holds.

The fields, and how each rule is called (T = TensorType, V = Var; rules that build equations call other Ops on Vars):

    name                        unique; the text of Programs has it
    samples() -> Samples        calls that the tests of every rule go through

  Meaning
    type_rule(in_types, params) -> tuple of T
                                raises TypeError with what does not fit
    evaluate(*arrays, **params) -> array, or tuple of arrays
                                NumPy meaning; exact dtype and shape
    emit(emitter, operands, in_types, out_types, params) -> names
                                StableHLO text, see `meshjit/emit`
    simulate(values, mesh, params) -> values
                                collectives, and what runs them: one entry per device, in and out
    joins                       whether a pass may join equations of the op that stand far apart (to send borders at once, to
                                transform several dims at once), or look there for readers of the memory that the op writes
    effects, or effects(params) what the op does besides computing (`core/effects.py`); the effects of its regions are added

  Derivatives and batches
    linear, or linear(in_types, params)
                                groups of operands that it is linear in, see `Op`
    jvp(primals, tangents, outs, params) -> list of V or None
                                None is a zero tangent; not needed where `linear` covers the operands
    keeps_sums(in_types, params)  whether op(sum of x_i) is sum of op(x_i), rounding aside, where the op is linear. None: it is.
                                A conversion to a dtype of a smaller range is not: an addend may overflow or vanish
    stops                       whether derivatives are zero whatever `linear` says
    transpose(cotangents, operands, in_types, params) -> list of V or None
                                linear operands are given as None; one cotangent per operand
    takes_none                  whether transpose is given None for a cotangent that is zero, or else, of several results, zeros
    batch(operands, dims, params) -> (outs, out_dims)
                                dims[i] is the batch dim of operand i, or None
    split(operands, dims, params) -> list of V or None
                                the op where dim `dims[i]` of operand i, which it reduces, has become the two dims dims[i]
                                and dims[i] + 1

  Code for single devices (bodies of `manual`)
    varying(axes of operands, params) -> axes of results
                                the mesh axes over which results vary (`core/varying.py`); by default all over which operands do

  Placement
    factor_rule(in_types, out_types, params) -> FactorRule
                                which dims of operands and results go together
    access(in_types, out_types, params) -> tuple of Access
                                where the elements of each result come from (`core/access.py`); by default what the factor
                                rule implies
    aligned(operands, dims, inside, params) -> V
                                the op on operands whose elements already stand at the result's places along its dims `dims`, or
                                where its windows see them. `inside(i, shape)`, a bool of this shape, is True where operand i has
                                elements along them, and None if it has them everywhere
    made_at(type, places, cut, params) -> V
                                of an op without operands, the part of its result, of this type, that stands at some places:
                                `places(dim)` says which these are along a dim that is cut, i32[n], and gives None along others;
                                `cut(whole)` is the part of a whole value
    localize(params, in_types, out_types) -> params
                                params that mention sizes, for local types
    partition(local) -> list of V
                                replaces the generic partitioning of an equation (`core/local.py`)
    asks_user                   whether `partition` asks a function of the user, who is told where operands and results lie:
                                these then lie as annotations have them, and no axis goes on to another dim
    whole                       why some dims stay whole, for `docs/ops.md`
    passes(in_types, params) -> float
                                how often the operands are read besides the once that every op reads them, for pricing (a sort
                                of n elements: 40 times for each halving). None means never
    column_work(in_types, params) -> ColumnWork
                                of an op that goes through a matrix column by column, for pricing: how many steps follow one
                                another, and multiplications for each element of the last operand
    touches                     what is read and written, for pricing: "all", operands and results; "part", no more of the
                                operands than the results have; "nothing", where the results lie in memory as the operand does
    in_place(in_types) -> tuple of int or None
                                per result, the operand that it is but for a part that the op writes: where nobody needs that
                                operand afterwards, its memory is the result's. Ops that go element by element, or touch nothing,
                                need not say so
    fills_registers             whether these reads take empty lanes of registers, too, for pricing (a running total; no FFT)
    breaks_lines(in_types, params) -> bool
                                whether neighbours along the minor dim come from places that are no neighbours, for pricing
    window_reads(in_types, params) -> (int, int)
                                how many places of windows are read, each for all features, and how many
                                features operands and results have at most; for pricing
    in_groups(in_types, params) -> (int, int)
                                of a convolution in groups, whose factor rule sums no features: places of the kernel for each
                                element of the result, and features for each place; (0, 0) without groups; for pricing
    best_orders(in_types, params) -> orders
                                of operands and results: their dims, major to minor, as they are read best; for pricing
    fetches(in_types, params) -> (int, int)
                                how many runs of elements are fetched from where indices say, and how long each is; those that
                                are written back count twice; for pricing
    search(in_types, params) -> Search
                                what is sought in how many entries; `plan/windows.py` prices the way that the target takes
    images(in_types, params) -> Images
                                what windows slide over, of operands and results; for pricing
    seed(params) -> PartitionSpec
                                where the user pinned the result
    pinned(params) -> (specs, specs, names)
                                where the operands must be, where the results are, and the mesh axes that it is written for;
                                `partition` writes the equation

  Memories (`core/memories.py`)
    memory(params) -> str       the memory that the result lies in, of the op that says it
    copies                      whether it copies runs of elements, or hands operands on: it needs none of them in the device's
                                own memory, and result i lies where operand i does

  Integers of 2 and 4 bits (`core/stored.py`), which the type rule of an op that computes refuses
    few_bits                    what fills their bytes up: "sign"; "zero", of an op that tells bits apart. "order": the op has an
                                identity, the least or the greatest number, which becomes that of the few bits. "none": refused

  Ops that hold Programs in their params (`core/region.py`)
    regions(params) -> Regions  how their inputs and outputs relate to operands and results, in the order of the Programs
    steps(*operands, **params)  the meaning: a generator that yields (Program, operands), is sent the results, and returns its
                                own
    prune(params, used, dce) -> (operands, results, params)
                                the op without the results whose flag in `used` is False: indices of the operands and
                                results that stay. Ops without regions may have it, too (barriers)
    with_invariants(operands, params, region, values, program) -> (operands, params)
                                the loop whose region of this number is `program`, which reads `values` every time, as its
                                first inputs
    with_carries(operands, params, starts, program) -> (operands, params)
                                the loop whose body is `program`, in which input i is several carries that start with starts[i]
    written_out(operands, params, final) -> list of V or None
                                the body's equations in place of the op; `final`: no derivative will be asked for any more

  Rules of an op with regions are given the pass for the nested Programs as their last argument: jvp(primals, tangents,
  params, derivative) -> (outs, tangents), transpose(…, backward), batch(…, batch).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from meshjit.core.access import Access
from meshjit.core.effects import Effect
from meshjit.core.program import Program, Var, current_builder
from meshjit.core.region import Region, Steps
from meshjit.core.stored import in_wider
from meshjit.core.types import TensorType
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec

Params = Mapping[str, Any]
Types = tuple[TensorType, ...]
Inside = Callable[[int, tuple[int, ...]], Var | None]
Touches = Literal["all", "part", "nothing"]


class Image(NamedTuple):
    """What a window slides over: bytes of an element, how many images and features there are, and the extents of its places."""

    itemsize: int
    batch: int
    features: int
    places: tuple[int, ...]


class ColumnWork(NamedTuple):
    """Work of an op that goes through a matrix column by column."""

    steps: float
    multiplications: float


class Search(NamedTuple):
    """The search for so many values, each in a sorted line of so many entries. `share`: the part of all elements of the operands
    the values are. `compares`: whether a value is compared with all entries; None where the target says so."""

    entries: int
    values: int
    share: float
    compares: bool | None


class MissingRule(NotImplementedError):
    """An op lacks the rule that a transformation or pass asked for; the message holds the stated reason. As in JAX."""


class NoDerivative(MissingRule, ValueError):
    """An op has no derivative by one of its operands; a ValueError in JAX."""


@dataclass(frozen=True)
class Absent:
    """Stands where a rule would stand and says why there is none. Calling it raises MissingRule, or `error` with the reason."""

    reason: str
    op: str = ""
    rule: str = ""
    error: type[Exception] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.error is not None:
            raise self.error(self.reason)
        raise MissingRule(f"{self.op} has no {self.rule} rule: {self.reason}")

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Sample:
    """One call of an op for the tests of its rules: operand types, params, and how operands may be filled.

    `fill` is "small" (small integers in the dtype), "positive" (1, 2, …), "unit" (in (0, 1)), or a function
    (generator, index, type) -> array for operands with a meaning, such as indices.
    """

    types: Types
    params: Params
    fill: str | Callable[[np.random.Generator, int, TensorType], np.ndarray[Any, Any]] = "small"

    def arrays(self, generator: np.random.Generator) -> list[np.ndarray[Any, Any]]:
        with np.errstate(all="ignore"):
            return [np.asarray(self._array(generator, i, t)) for i, t in enumerate(self.types)]

    def _array(self, generator: np.random.Generator, index: int, type: TensorType) -> np.ndarray[Any, Any]:
        if callable(self.fill):
            return np.asarray(self.fill(generator, index, type), type.dtype)
        if type.dtype == np.bool_:
            return generator.integers(0, 2, type.shape).astype(np.bool_)
        if self.fill == "unit":
            return generator.uniform(0.1, 0.9, type.shape).astype(type.dtype)
        low = 1 if self.fill == "positive" else (0 if type.dtype.kind == "u" else -4)
        return generator.integers(low, 5, type.shape).astype(type.dtype)


_NO_GRADIENT = Absent("the op has no derivative: its result is not a continuous function of its operands")


@dataclass(frozen=True, eq=False, kw_only=True)
class Op:
    """See the module's docstring for the rules.

    `linear` lists groups of operands: the op is linear in each group jointly, the other operands being fixed.
    add: ((0, 1),)  multiply: ((0,), (1,))  select: ((1, 2),)  dot_general: ((0,), (1,)).
    Autodiff derives the jvp from it, and partial sums flow through a group whose operands are all partial alike:
    op(sum of x_i) == sum of op(x_i). It is a function of (in_types, params) where that depends on them: concatenate has
    as many operands as it is given, and integer division or a conversion to integers truncates.
    """

    name: str
    type_rule: Callable[[Types, Params], Types]
    factor_rule: Callable[[Types, Types, Params], FactorRule]
    evaluate: Callable[..., Any]
    emit: Callable[..., Sequence[str]]
    samples: Callable[[], Iterable[Sample]]
    batch: Callable[..., tuple[list[Var], list[int | None]]] | Absent
    linear: tuple[tuple[int, ...], ...] | Callable[[Types, Params], tuple[tuple[int, ...], ...]] = ()
    keeps_sums: Callable[[Types, Params], bool] | None = None
    stops: bool = False
    jvp: Callable[..., Any] | Absent = _NO_GRADIENT
    transpose: Callable[..., Sequence[Var | None]] | Absent = Absent("the op is linear in none of its operands")
    takes_none: bool = False
    access: Callable[[Types, Types, Params], tuple[Access, ...]] | None = None
    aligned: Callable[[Sequence[Var], Collection[int], Inside, Params], Var] | None = None
    made_at: Callable[[TensorType, Callable[[int], Var | None], Callable[[Var], Var], Params], Var] | None = None
    localize: Callable[[Params, Types, Types], Params] | None = None
    partition: Callable[..., list[Var]] | None = None
    asks_user: bool = False
    whole: str | None = None
    simulate: Callable[..., list[Any]] | None = None
    varying: Callable[[Sequence[frozenset[str]], Params], Sequence[frozenset[str]]] | None = None
    passes: Callable[[Types, Params], float] | None = None
    column_work: Callable[[Types, Params], ColumnWork] | None = None
    touches: Touches = "all"
    in_place: Callable[[Types], Sequence[int | None]] | None = None
    fills_registers: bool = False
    breaks_lines: Callable[[Types, Params], bool] | None = None
    window_reads: Callable[[Types, Params], tuple[int, int]] | None = None
    in_groups: Callable[[Types, Params], tuple[int, int]] | None = None
    best_orders: Callable[[Types, Params], Sequence[Sequence[int]]] | None = None
    fetches: Callable[[Types, Params], tuple[int, int]] | None = None
    search: Callable[[Types, Params], Search] | None = None
    images: Callable[[Types, Params], Sequence[Image]] | None = None
    seed: Callable[[Params], PartitionSpec] | None = None
    split: Callable[..., list[Var] | None] | None = None
    regions: Callable[[Params], tuple[Region, ...]] | None = None
    steps: Callable[..., Steps] | None = None
    prune: Callable[..., tuple[Sequence[int], Sequence[int], Params]] | None = None
    with_invariants: Callable[[Sequence[Var], Params, int, Sequence[Var], Program], tuple[Sequence[Var], Params]] | None = None
    with_carries: (
        Callable[[Sequence[Var], Params, Mapping[int, Sequence[Var]], Program], tuple[Sequence[Var], Params]] | None
    ) = None
    written_out: Callable[[Sequence[Var], Params, bool], list[Var] | None] | None = None
    pinned: Callable[[Params], tuple[Sequence[PartitionSpec], Sequence[PartitionSpec], frozenset[str]]] | None = None
    memory: Callable[[Params], str] | None = None
    copies: bool = False
    joins: bool = False
    few_bits: Literal["sign", "zero", "order", "none"] = "sign"
    effects: Effect | Callable[[Params], Effect] = Effect.NONE

    def __post_init__(self) -> None:
        for rule in ("jvp", "transpose", "batch"):
            value = getattr(self, rule)
            if isinstance(value, Absent):
                object.__setattr__(self, rule, replace(value, op=self.name, rule=rule))
        register(self)

    def __call__(self, *operands: Var, **params: Any) -> Any:
        """Add an equation to the innermost builder; one output comes bare, several as a tuple."""
        builder = current_builder()
        try:
            outputs: Sequence[Var] = builder.emit(self, operands, params)
        except TypeError:
            results = in_wider(self, operands, params, REGISTRY, builder.emit)
            if results is None:
                raise
            outputs = tuple(results)
        return outputs[0] if len(outputs) == 1 else outputs

    @property
    def exchanges(self) -> bool:
        """Whether the op writes its local equations itself, and may send elements: its permuted factors can be sharded."""
        return self.partition is not None

    @property
    def is_local(self) -> bool:
        """Whether the op exists in the Programs of single devices only."""
        return self.simulate is not None and self.regions is None

    def linear_groups(self, in_types: Types, params: Params) -> tuple[tuple[int, ...], ...]:
        """`linear` for operands of these types and these params."""
        return self.linear(in_types, params) if callable(self.linear) else self.linear

    def sum_groups(self, in_types: Types, params: Params) -> tuple[tuple[int, ...], ...]:
        """The groups of operands whose unfinished sums may flow through."""
        keeps = self.keeps_sums is None or self.keeps_sums(in_types, params)
        return self.linear_groups(in_types, params) if keeps else ()

    def __repr__(self) -> str:
        return self.name


REGISTRY: dict[str, Op] = {}


def register(op: Op) -> None:
    if op.name in REGISTRY:
        raise ValueError(f"two ops are named {op.name}")
    REGISTRY[op.name] = op
