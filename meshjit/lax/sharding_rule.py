"""Sharding rules of users: which dims of a function's operands and results go together.

    "b m k, b k n -> b m n", reduction_factors=("k",)          a matrix product
    "... (h d) -> ... h d", h=4                                 any dims in front; one dim of two factors

Sources: JAX's `custom_partitioning`, and Shardy's sharding rules (openxla.org/shardy/propagation).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from meshjit.core.types import TensorType
from sharding.rule import FactorRule

BATCHING: Final = "…"  # any number of dims in front; with a number behind it those of one group, as …0
_BATCHING = re.compile(rf"{BATCHING}(\d*)")
_FACTOR = re.compile(r"[^\W\d_]\w*")
_TOKEN = re.compile(rf"{_BATCHING.pattern}|\w+|[()]|\S")


class CompoundFactor(tuple[str, ...]):
    """The factors of one dim, major to minor: CompoundFactor("h", "d"). ValueError for fewer than two."""

    __slots__ = ()

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ValueError("A compound factor should contain at least two factors")
        for factor in factors:
            if not isinstance(factor, str):
                raise ValueError(f"Each element of CompoundFactor must be a str, but got {type(factor)}")
            if _BATCHING.fullmatch(factor):
                raise ValueError("Ellipsis can't be used in a compound factor")
            _check_factor(factor)
        return super().__new__(cls, factors)


class ArrayMapping(tuple["str | CompoundFactor", ...]):
    """The factors of every dim of an operand or result: ArrayMapping(BATCHING, CompoundFactor("h", "d"), "n")."""

    __slots__ = ()

    def __new__(cls, *dim_mappings: str | CompoundFactor) -> ArrayMapping:
        for i, dim in enumerate(dim_mappings):
            if not isinstance(dim, str | CompoundFactor):
                raise ValueError(f"Each element of ArrayMapping must be a str or CompoundFactor, but got {type(dim)}")
            if isinstance(dim, str) and _BATCHING.fullmatch(dim):
                if i:
                    raise ValueError("Ellipsis can only be used at the beginning of a dimension")
            elif isinstance(dim, str):
                _check_factor(dim)
        return super().__new__(cls, dim_mappings)


class SdyShardingRule:
    """A rule for an operation, under the names of JAX.

    operand_mappings, result_mappings: an ArrayMapping per array. Factors pass through, but for those that are named:
    reduction_factors, of operands alone, which the function adds up itself; need_replication_factors, which are whole on
    every device; permutation_factors, along which it exchanges elements itself. factor_sizes: of those that stand in compound
    factors only. ValueError for what does not fit."""

    def __init__(
        self,
        operand_mappings: Sequence[ArrayMapping],
        result_mappings: Sequence[ArrayMapping],
        *,
        reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (),
        permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ) -> None:
        self.operand_mappings, self.result_mappings = tuple(operand_mappings), tuple(result_mappings)
        self.factor_sizes = factor_sizes
        self.reduction_factors, self.need_replication_factors = reduction_factors, need_replication_factors
        self.permutation_factors = permutation_factors
        dims = [dim for value in (*self.operand_mappings, *self.result_mappings) for dim in value]
        alone = {dim for dim in dims if isinstance(dim, str)}
        together = {factor for dim in dims if not isinstance(dim, str) for factor in dim}
        self._check_sizes(alone, together)
        self._check_kinds(alone | together)

    def _check_sizes(self, alone: set[str], together: set[str]) -> None:
        for factor in self.factor_sizes:
            if factor not in alone | together:
                raise ValueError(f"Factor {factor} is not used in the rule, but size is provided")
            if factor in alone:
                raise ValueError(f"Factor {factor} represents a whole dimension; do not specify its size")
        for factor in sorted(together - alone - self.factor_sizes.keys()):
            raise ValueError(f"Factor {factor} is only used in compound factors; must specify its size")

    def _check_kinds(self, known: set[str]) -> None:
        taken = set[str]()
        for kind in ("reduction_factors", "need_replication_factors", "permutation_factors"):
            factors = getattr(self, kind)
            if not isinstance(factors, tuple):
                raise ValueError(f"{kind} must be a tuple of factors")
            if len(factors) != len({*factors}):
                raise ValueError(f"{kind} contains duplicated factors")
            for factor in factors:
                if factor not in known:
                    raise ValueError(f"Factor {factor} in {kind} is not used in the rule")
                if factor in taken:
                    what = "reduction, need replication, or permutation factor sets"
                    raise ValueError(f"Factor {factor} can only be in one of the {what}.")
            taken.update(factors)

    def __str__(self) -> str:
        kinds = [name for name in ("reduction_factors", "need_replication_factors", "permutation_factors") if getattr(self, name)]
        notes = "".join(f" {name}={getattr(self, name)}" for name in kinds)
        return f"SdyShardingRule({self.operand_mappings}, {self.result_mappings}, {self.factor_sizes}{notes})"


def _check_factor(factor: str) -> None:
    if not factor[:1].isalpha():
        raise ValueError(f"Factor names have to start with a letter, but got '{factor[:1]}'")
    if not _FACTOR.fullmatch(factor):
        raise ValueError(f"Unknown character '{next(c for c in factor if not (c == '_' or c.isalnum()))}'")


# -- text


def parsed(text: Any, **settings: Any) -> SdyShardingRule:
    """The rule that a text writes, which is like einsum's with spaces between the factors. ValueError with what is wrong."""
    if not isinstance(text, str):
        raise TypeError(f"rule must be a str, but got {type(text)}")
    if BATCHING in text:
        raise ValueError(f"Unknown character '{BATCHING}'")
    text = text.replace("...", BATCHING)
    if "." in text:
        raise ValueError("Character '.' must be used inside ellipsis '...'")
    sides = text.split("->")
    if len(sides) != 2:
        raise ValueError(f"There is no -> in rule: '{text}'")
    return SdyShardingRule(*(tuple(map(_mapping, side.split(","))) for side in sides), **settings)


def _mapping(text: str) -> ArrayMapping:
    dims = list[Any]()
    inside: list[str] | None = None
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "(":
            if inside is not None:
                raise ValueError("Compound factors should be one level, nested brackets are not allowed")
            inside = []
        elif token == ")":
            if inside is None:
                raise ValueError("Brackets are not balanced")
            if len(inside) < 2:
                raise ValueError("Brackets should contain at least two factors")
            dims.append(CompoundFactor(*inside))
            inside = None
        elif token.startswith(BATCHING):
            if dims or inside is not None:
                raise ValueError("Ellipsis can only be used at the beginning of a dimension")
            dims.append(f"{BATCHING}{int(match[1] or 0)}")
        else:
            _check_factor(token)
            (dims if inside is None else inside).append(token)
    if inside is not None:
        raise ValueError(f"Brackets are not balanced in rule: '{text.strip()}'")
    return ArrayMapping(*dims)


# -- as the partitioner has it


def factor_rule_of(rule: SdyShardingRule, in_types: Sequence[TensorType], out_types: Sequence[TensorType]) -> FactorRule:
    """The rule for operands and results of these types. ValueError where their number, ranks or extents do not fit it."""
    sides = ((rule.operand_mappings, in_types, "operand"), (rule.result_mappings, out_types, "result"))
    for mappings, types, what in sides:
        if len(mappings) != len(types):
            raise ValueError(f"Sharding rule has {len(mappings)} {what}s, but the operation has {len(types)} {what}s")
    sizes = dict(rule.factor_sizes)
    pairs = [(*pair, f"{i}th {what}") for m, t, what in sides for i, pair in enumerate(zip(m, t, strict=True))]
    values = [list(_dims(mapping, type, where)) for mapping, type, where in pairs]
    _measure(sizes, values, [*in_types, *out_types])
    whole = {factor for factor, size in sizes.items() if size == 1}
    operands, results = (
        tuple(tuple(() if whole.intersection(dim) else dim for dim in value) for value in part)
        for part in (values[: len(in_types)], values[len(in_types) :])
    )
    used = {f for value in (*operands, *results) for dim in value for f in dim}
    kept = {f for value in results for dim in value for f in dim}
    kinds = dict.fromkeys(used - kept, "permute")
    kinds.update(dict.fromkeys((*rule.permutation_factors, *rule.reduction_factors), "permute"))
    kinds.update(dict.fromkeys(rule.need_replication_factors, "replicate"))
    return FactorRule(operands, results, {f: kind for f, kind in kinds.items() if f in used}, {f: sizes[f] for f in sorted(used)})


def _dims(mapping: ArrayMapping, type: TensorType, where: str) -> Iterator[tuple[str, ...]]:
    """The factors of every dim, with those of the dims in front."""
    own, first = list(mapping), mapping[0] if mapping else ""
    batching = _BATCHING.fullmatch(first) if isinstance(first, str) else None
    if batching:
        del own[0]
    count = type.rank - len(own)
    if count < 0 or (count and not batching):
        at_least = "at least " if batching else ""
        raise ValueError(f"Sharding rule {where} has rank {at_least}{len(own)}, but the operation's has rank {type.rank}")
    group = int(batching[1] or 0) if batching else 0
    yield from [(f"_{group}_{i}",) for i in range(count)]
    for dim in own:
        yield (dim,) if isinstance(dim, str) else tuple(dim)


def _measure(sizes: dict[str, int], values: Sequence[Sequence[tuple[str, ...]]], types: Sequence[TensorType]) -> None:
    """Read off the sizes of the factors, the least of those that one has. ValueError where they are not those of a dim."""
    dims = [pair for value, type in zip(values, types, strict=True) for pair in zip(value, type.shape, strict=True)]
    for (factor,), extent in [pair for pair in dims if len(pair[0]) == 1]:
        if factor.startswith("_") and sizes.setdefault(factor, extent) != extent:
            raise ValueError(f"Batching dimension {factor[1:]} corresponds to two sizes: {sizes[factor]} and {extent}")
        sizes[factor] = min(extent, sizes.get(factor, extent))
    for factors, extent in [pair for pair in dims if len(pair[0]) > 1]:
        size = math.prod(sizes[f] for f in factors)
        if size != extent:
            raise ValueError(f"a dim of extent {extent} doesn't match the size {size} that the factors {' '.join(factors)} have")


def whole_rule_of(in_types: Sequence[TensorType], out_types: Sequence[TensorType]) -> FactorRule:
    """Of a function without a rule: arrays are where they are, and dims have nothing to do with one another."""
    names = (f"_{i}" for i in range(sum(t.rank for t in (*in_types, *out_types))))
    operands, results = (tuple(tuple((next(names),) for _ in t.shape) for t in types) for types in (in_types, out_types))
    shapes = [(value, t.shape) for value, t in zip((*operands, *results), (*in_types, *out_types), strict=True)]
    sizes: Mapping[str, int] = {f: n for value, shape in shapes for (f,), n in zip(value, shape, strict=True)}
    return FactorRule(operands, results, {f: "permute" for value in operands for (f,) in value}, sizes)
