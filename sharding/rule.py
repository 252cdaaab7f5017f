"""Factor rules: how the dims of an op's operands and results belong together.

A rule names the *factors* of an op, as in an einsum. A matrix product, a reshape, a broadcast and a softmax:

    b m k, b k n -> b m n | sum k          k is in operands only: sharding it leaves a partial sum over its axes
    (h d) -> h d                           a dim of two factors, major to minor
    1 n, m n -> m n                        a dim that the rule never shards (an extent of 1 that is broadcast)
    b n -> b n | replicate n               n has to be whole on every device
    b t -> b t | permute t                 elements move or neighbours' are needed (roll, pad, convolution): a halo
    [] , b -> b                            a scalar operand
    -> b n                                 no operands (iota)

Sharding a factor over some axes shards every dim that holds it over the same axes. Propagation knows nothing else of an
op. The reduction kinds are those of a partial value: sum, max, min, prod, and, or.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from sharding.axes import AxisRef, SubAxis, canonical_axes, span
from sharding.mesh import BaseMesh
from sharding.spec import PARTIAL_KINDS, Placement

Dim: TypeAlias = tuple[str, ...]  # the factors of one dim, major to minor; () is a dim that the rule never shards
ValueDims: TypeAlias = tuple[Dim, ...]  # the dims of one operand or result
Assignment: TypeAlias = Mapping[str, tuple[AxisRef, ...]]  # factor -> axes, major to minor

FACTOR_KINDS = (*PARTIAL_KINDS, "replicate", "permute")
_FACTOR = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"\s*(?:\[\s*\]|(?:\(\s*[\w\s]+\)|\w+)(?:\s*(?:\(\s*[\w\s]+\)|\w+))*)\s*")
_DIM = re.compile(r"\(([\w\s]+)\)|(\w+)")


@dataclasses.dataclass(frozen=True)
class FactorRule:
    """Factors per dim of every operand and result, and what is special about a factor (see the module's text).

    `kinds`: factor -> a reduction kind, "replicate" or "permute"; other factors pass through. `sizes`: factor ->
    extent, possibly empty; needed only where a dim holds several factors. `uneven`: leading factors that may be sharded
    unevenly; shards then exchange elements across borders, which is valid only while the dim's other factors are
    unsharded. ValueError for a factor that stands twice in one value, a kind for no factor, a reduced factor in a
    result, or a factor of operands alone without a kind. Hashable.
    """

    operands: tuple[ValueDims, ...]
    results: tuple[ValueDims, ...]
    kinds: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    uneven: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()  # mesh axes that do not spread here: what comes first on a dim of theirs stays as it is

    def __post_init__(self) -> None:
        for value in (*self.operands, *self.results):
            names = list(itertools.chain.from_iterable(value))
            if len({*names}) < len(names):
                twice = [name for name in names if names.count(name) > 1]
                raise ValueError(f"rule {self}: factor {twice[0]} stands twice in {_value_text(value)}")
        factors, kept = {*self.factors}, {*_factors_of(self.results)}
        if not self.kinds and factors == kept:
            return
        for name, kind in self.kinds.items():
            if kind not in FACTOR_KINDS or name not in factors:
                raise ValueError(f"rule {self}: {kind} {name} is not one of {', '.join(FACTOR_KINDS)} of a factor")
            if kind in PARTIAL_KINDS and name in kept:
                raise ValueError(f"rule {self}: factor {name} is reduced by {kind}, so no result can hold it")
        lost = [name for name in self.factors if name not in kept and name not in self.kinds]
        if lost:
            raise ValueError(f"rule {self}: factor {lost[0]} is in no result; say how it ends, such as: sum {lost[0]}")

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.operands, self.results, frozenset(self.kinds.items()), frozenset(self.sizes.items())))

    @functools.cached_property
    def factors(self) -> tuple[str, ...]:
        """All factors, in order of first appearance."""
        return _factors_of((*self.operands, *self.results))

    @functools.cached_property
    def is_passthrough(self) -> bool:
        """Whether no factor is reduced, replicated or permuted: elementwise ops, broadcasts, transposes, reshapes."""
        return not self.kinds

    @functools.cached_property
    def is_simple(self) -> bool:
        """Whether no dim holds several factors."""
        return all(len(dim) <= 1 for value in (*self.operands, *self.results) for dim in value)

    @functools.cached_property
    def reductions(self) -> dict[str, str]:
        """Factor -> reduction kind, for the reduced factors."""
        return {name: kind for name, kind in self.kinds.items() if kind in PARTIAL_KINDS}

    @functools.cached_property
    def parts(self) -> dict[str, int]:
        """Factor -> the number of its part. Factors of different parts may be sharded over the same axes: nothing is
        made of both. `a b, c -> a b, c` has the parts a b and c. In any other op that combines, reduces or moves elements
        all factors are one part, whether or not some value holds two of them: `v, b -> b | sum v` looks b up in v."""
        heads = {name: name for name in self.factors}
        if self.kinds or len(self.results) < 2:
            return dict.fromkeys(heads, 0)

        def head(name: str) -> str:
            while heads[name] != name:
                name = heads[name]
            return name

        for value in (*self.operands, *self.results):
            first, *others = [name for dim in value for name in dim] or [""]
            for name in others:
                heads[head(name)] = head(first)
        sides = [{head(name) for name in _factors_of(values)} for values in (self.operands, self.results)]
        if sides[0] != sides[1]:
            return dict.fromkeys(heads, 0)
        numbers = {name: number for number, name in enumerate(dict.fromkeys(map(head, self.factors)))}
        return {name: numbers[head(name)] for name in self.factors}

    # --- text ---------------------------------------------------------------------------------------------------------

    @staticmethod
    def parse(text: str, sizes: Mapping[str, int] | None = None) -> FactorRule:
        """The rule that `text` writes; the inverse of str() up to `sizes`. ValueError for text that is no rule."""
        body, _, notes = text.partition("|")
        left, arrow, right = body.partition("->")
        if not arrow:
            raise ValueError(f"not a factor rule: {text!r} has no ->; write one such as: m k, k n -> m n | sum k")
        operands, results = _parse_values(left, text), _parse_values(right, text)
        return FactorRule(operands, results, _parse_kinds(notes, text), dict(sizes or {}))

    def __str__(self) -> str:
        left, right = (", ".join(map(_value_text, values)) for values in (self.operands, self.results))
        text = f"{left} -> {right}".strip()
        noted = [kind for kind in FACTOR_KINDS if kind in self.kinds.values()]
        groups = [" ".join([kind, *(name for name in self.factors if self.kinds.get(name) == kind)]) for kind in noted]
        return f"{text} | {', '.join(groups)}" if groups else text

    # --- making rules -------------------------------------------------------------------------------------------------

    @staticmethod
    def elementwise(rank: int, operand_count: int, result_count: int = 1) -> FactorRule:
        """All operands and results alike: elementwise(2, 2) is ``a b, a b -> a b``."""
        return _elementwise(rank, operand_count, result_count)

    def with_sizes(
        self, operand_shapes: Sequence[Sequence[int]], result_shapes: Sequence[Sequence[int]] = ()
    ) -> FactorRule:
        """The rule with the factors' sizes, read off the shapes; known sizes are kept.

        A dim of one factor gives its size; a dim of several gives the last unknown one. ``(h d) -> h d`` on 12 and 3,
        4 is h=3, d=4. ValueError where shapes contradict one another or the rule. `result_shapes` may be left out.
        """
        sizes = dict(self.sizes)
        pairs = [*self._paired(self.operands, operand_shapes, "operand")]
        if result_shapes or not self.results:
            pairs += self._paired(self.results, result_shapes, "result")
        for dim, extent, where in sorted(pairs, key=lambda pair: len(pair[0])):
            unknown = [name for name in dim if name not in sizes]
            product = math.prod(sizes[name] for name in dim if name in sizes)
            if len(unknown) == 1 and product and extent % product == 0:
                sizes[unknown[0]] = extent // product
            elif dim and not (unknown and (extent == 0 or product == 0)) and (unknown or product != extent):
                have = ", ".join(f"{name}={sizes.get(name, '?')}" for name in dim)
                raise ValueError(f"rule {self}: {where} has extent {extent}, which does not fit {have}")
        return dataclasses.replace(self, sizes=sizes)

    def _paired(
        self, values: tuple[ValueDims, ...], shapes: Sequence[Sequence[int]], what: str
    ) -> Iterable[tuple[Dim, int, str]]:
        if len(values) != len(shapes):
            raise ValueError(f"rule {self} has {len(values)} {what}s, got {len(shapes)} shapes")
        for index, (value, shape) in enumerate(zip(values, shapes, strict=True)):
            if len(value) != len(shape):
                raise ValueError(
                    f"rule {self}: {what} {index} has {len(value)} dims, its shape {tuple(shape)} {len(shape)}"
                )
            for dim, extent in enumerate(shape):
                yield value[dim], extent, f"dim {dim} of {what} {index}"

    # --- projection ---------------------------------------------------------------------------------------------------

    def project(self, value_dims: ValueDims, placement: Placement, mesh: BaseMesh) -> dict[str, tuple[AxisRef, ...]]:
        """The axes of every factor of one operand or result that `placement` gives it (Shardy's sharding projection).

        On data=4, model=2 and sizes h=2, d=4:

            dims    placement             factors
            b f     [data, model]         b: data      f: model
            (h d)   [model*data]          h: model     d: data         model fills h, so data falls to d
            (h d)   [data]                h: data:(1)2 d: data:(2)2    data is cut where h ends
            1       [data]                                             dropped: the rule never shards this dim

        Axes that cannot be said in factors (h=3 over data=4) are left out; `dropped` lists them.
        """
        if self.is_simple:
            return {dim[0]: axes for dim, axes in zip(value_dims, placement.dims, strict=True) if dim}
        return self._project(value_dims, placement, mesh)[0]

    def dropped(self, value_dims: ValueDims, placement: Placement, mesh: BaseMesh) -> tuple[tuple[int, AxisRef], ...]:
        """The (dim, axis) pairs of `placement` that `project` leaves out: the value has to be resharded first."""
        return self._project(value_dims, placement, mesh)[1]

    def _project(
        self, value_dims: ValueDims, placement: Placement, mesh: BaseMesh
    ) -> tuple[dict[str, tuple[AxisRef, ...]], tuple[tuple[int, AxisRef], ...]]:
        factors: dict[str, tuple[AxisRef, ...]] = {}
        lost: list[tuple[int, AxisRef]] = []
        for index, (dim, axes) in enumerate(zip(value_dims, placement.dims, strict=True)):
            split, rest = self.split_dim(dim, axes, mesh)
            factors.update(split)
            lost += [(index, axis) for axis in rest]
        return factors, tuple(lost)

    def placement(
        self, value_dims: ValueDims, assignment: Assignment, mesh: BaseMesh
    ) -> tuple[tuple[AxisRef, ...], ...]:
        """The dims of one operand or result when every factor has the axes of `assignment` (none if absent).

        A dim of several factors must be cut evenly at the factors' borders: of ``(h d)`` with h=4, d=6, h takes axes
        whose product divides 4, and d takes any only behind axes that fill h. What does not fit is left out:

            h: data(4)   d: model(2)   ->  data*model
            h: model(2)  d: data(4)    ->  model               2 of the 4 of h: the next cut would be inside h
            h: -         d: model(2)   ->  -
        """
        if self.is_simple:
            return tuple([tuple(assignment.get(dim[0], ())) if dim else () for dim in value_dims])
        return tuple([self.join_dim(dim, assignment, mesh) for dim in value_dims])

    def partial(self, assignment: Assignment) -> tuple[tuple[AxisRef, str], ...]:
        """The partial axes of the results when the factors have the axes of `assignment`."""
        return tuple((axis, kind) for name, kind in self.reductions.items() for axis in assignment.get(name, ()))

    def split_dim(
        self, dim: Dim, axes: tuple[AxisRef, ...], mesh: BaseMesh
    ) -> tuple[dict[str, tuple[AxisRef, ...]], list[AxisRef]]:
        """`project` of one dim: the axes of each of its factors, and the axes that cannot be said in factors."""
        if len(dim) == 1:
            return {dim[0]: axes}, []
        factors, rest = _split_axes([(name, self._size(name)) for name in dim], axes, mesh.shape)
        if rest and self._fits_unevenly(dim, axes, mesh):
            return {name: axes if name == dim[0] else () for name in dim}, []
        return factors, rest

    def _fits_unevenly(self, dim: Dim, axes: Sequence[AxisRef], mesh: BaseMesh) -> bool:
        """Whether the axes may cut the dim where its first factor has no border: no more shards than that is long."""
        return bool(dim) and dim[0] in self.uneven and mesh.axes_size(axes) <= self._size(dim[0])

    def join_dim(self, dim: Dim, assignment: Assignment, mesh: BaseMesh) -> tuple[AxisRef, ...]:
        """`placement` of one dim."""
        if len(dim) == 1:
            return tuple(assignment.get(dim[0], ()))
        sizes = mesh.shape
        kept: list[AxisRef] = []
        first = tuple(assignment.get(dim[0], ())) if dim else ()
        if first and self._fits_unevenly(dim, first, mesh) and self._size(dim[0]) % mesh.axes_size(first):
            return first
        for name in dim:
            size, shards = self._size(name), 1
            for axis in assignment.get(name, ()):
                grown = shards * span(axis, sizes).size
                if size == 0 or size % grown:
                    break
                shards = grown
                kept.append(axis)
            if shards != size:
                break
        return canonical_axes(kept, sizes)

    def _size(self, name: str) -> int:
        if name not in self.sizes:
            raise ValueError(f"rule {self} needs the size of factor {name}: call with_sizes first")
        return self.sizes[name]


@functools.lru_cache(maxsize=1024)
def _elementwise(rank: int, operand_count: int, result_count: int) -> FactorRule:
    names = string.ascii_lowercase if rank <= 26 else [f"d{i}" for i in range(rank)]
    dims: ValueDims = tuple((name,) for name in names[:rank])
    return FactorRule((dims,) * operand_count, (dims,) * result_count)


def _factors_of(values: Iterable[ValueDims]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for value in values for dim in value for name in dim))


def _split_axes(
    dim: Sequence[tuple[str, int]], axes: Sequence[AxisRef], sizes: Mapping[str, int]
) -> tuple[dict[str, tuple[AxisRef, ...]], list[AxisRef]]:
    """The axes of a dim of several factors (name, size) dealt out major to minor; and those that do not fit.

    A factor is filled before the next gets any. An axis that overfills one is cut there if the sizes divide; at the
    first that fits neither way the rest is left over, because minor axes mean nothing without their major ones.
    """
    factors: dict[str, tuple[AxisRef, ...]] = {name: () for name, _ in dim}
    queue = [span(axis, sizes) for axis in axes]
    for name, size in dim:
        room = size
        taken: list[AxisRef] = []
        while queue and room > 1:
            axis = queue[0]
            fits = math.gcd(axis.size, room)
            if fits == axis.size:
                queue.pop(0)
            elif fits == room:  # the axis reaches past this factor's end: cut it there
                queue[0] = SubAxis(axis.name, axis.pre * fits, axis.size // fits)
            else:  # no even cut of the factor; take the major part that is one
                if fits > 1:
                    taken.append(SubAxis(axis.name, axis.pre, fits))
                    queue[0] = SubAxis(axis.name, axis.pre * fits, axis.size // fits)
                factors[name] = canonical_axes(taken, sizes)
                return factors, list(canonical_axes(queue, sizes))
            taken.append(SubAxis(axis.name, axis.pre, fits))
            room //= fits
        factors[name] = canonical_axes(taken, sizes)
        if room != 1:
            break
    return factors, list(canonical_axes(queue, sizes))


# --- text -------------------------------------------------------------------------------------------------------------


def _value_text(value: ValueDims) -> str:
    return " ".join("1" if not dim else dim[0] if len(dim) == 1 else f"({' '.join(dim)})" for dim in value) or "[]"


def _parse_values(text: str, rule: str) -> tuple[ValueDims, ...]:
    return tuple(_parse_value(part, rule) for part in text.split(",")) if text.strip() else ()


def _parse_value(text: str, rule: str) -> ValueDims:
    if _VALUE.fullmatch(text) is None:
        raise ValueError(f"not a factor rule: {rule!r}; {text.strip()!r} is no list of dims; a scalar is written []")
    dims = cast(list[tuple[str, str]], _DIM.findall(text))
    return tuple(_parse_dim((compound or single).split(), rule) for compound, single in dims)


def _parse_dim(names: list[str], rule: str) -> Dim:
    if names == ["1"]:
        return ()
    bad = [name for name in names if _FACTOR.fullmatch(name) is None]
    if bad:
        raise ValueError(
            f"not a factor rule: {rule!r}; {bad[0]!r} is no factor; write letters, or 1 alone for no factor"
        )
    return tuple(names)


def _parse_kinds(notes: str, rule: str) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for note in notes.split(",") if notes.strip() else []:
        kind, *names = note.split() or [""]
        if kind not in FACTOR_KINDS or not names:
            raise ValueError(
                f"not a factor rule: {rule!r}; after | come kind and factors, such as: sum k, replicate s t"
            )
        for name in names:
            if kinds.setdefault(name, kind) != kind:
                raise ValueError(f"not a factor rule: {rule!r}; factor {name} has two kinds, {kinds[name]} and {kind}")
    return kinds
