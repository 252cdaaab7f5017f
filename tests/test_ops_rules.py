"""Factor rules: well-formed for every sample, and the same as those of Shardy, which jaxlib ships, but where we mean
something else (see DIFFERENT)."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from meshjit.core.op import Op, Sample
from meshjit.core.types import TensorType
from sharding.rule import FactorRule
from tests.tools.op_harness import GLOBAL_OPS, NEEDS_LAPACK, describe, emitter, module, out_types, samples

UNEQUAL_EXTENTS = (
    "permute",
    "replicate",
)  # kinds of factors whose dims may differ in extent: slices, pads, concatenations

REDUCING_PLACES = ("convolution",)  # of a reduced spatial factor every operand has its own extent


def rule_of(op: Op, sample: Sample) -> FactorRule:
    return op.factor_rule(sample.types, out_types(op, sample), sample.params)


@pytest.mark.parametrize("op", GLOBAL_OPS, ids=str)
def test_rules_fit_the_types(op: Op) -> None:
    for sample in samples(op):
        rule, outs = rule_of(op, sample), out_types(op, sample)
        where = f"{describe(op, sample)}: {rule}"
        assert [len(dims) for dims in rule.operands] == [t.rank for t in sample.types], where
        assert [len(dims) for dims in rule.results] == [t.rank for t in outs], where
        assert set(rule.sizes) == set(rule.factors), where
        for dims, type in zip((*rule.operands, *rule.results), (*sample.types, *outs), strict=True):
            for dim, extent in zip(dims, type.shape, strict=True):
                kind = rule.kinds.get(dim[0]) if len(dim) == 1 else None
                if dim and kind not in UNEQUAL_EXTENTS and not (kind and op.name in REDUCING_PLACES):
                    assert math.prod(rule.sizes[f] for f in dim) == extent, where
        assert rule == dataclasses.replace(FactorRule.parse(str(rule), rule.sizes), uneven=rule.uneven), where


@pytest.mark.parametrize("op", GLOBAL_OPS, ids=str)
def test_localized_params_fit_local_types(op: Op) -> None:
    """With every plain factor halved where that is even, the op on local types gives the local result types."""
    for sample in samples(op):
        rule, outs = rule_of(op, sample), out_types(op, sample)
        factors = [f for f in rule.factors if f not in rule.kinds and rule.sizes[f] % 2 == 0 and rule.sizes[f]]
        for factor in factors if op.partition is None else ():
            ins, results = (
                halved(rule, side, types, factor) for side, types in (("operands", sample.types), ("results", outs))
            )
            params = op.localize(sample.params, ins, results) if op.localize else sample.params
            assert op.type_rule(ins, params) == results, f"{describe(op, sample)}: {rule}, half of {factor}"


def halved(rule: FactorRule, side: str, types: Any, factor: str) -> Any:
    pairs = zip(getattr(rule, side), types, strict=True)
    return tuple(
        t.with_shape(tuple(n // 2 if factor in dim else n for dim, n in zip(d, t.shape, strict=True))) for d, t in pairs
    )


# -- Shardy

# Where our rules are other than Shardy's on purpose.
DIFFERENT = {
    "slice": "one element of a dim has an owner and becomes a partial sum; Shardy permutes it like any other part",
    "dynamic_slice": "a sharded dim gives a partial sum, of which nothing is gathered; Shardy replicates the dim",
    "concatenate": "shards exchange what their windows lack (permute); Shardy replicates the dim",
    "reshape": "of dims whose borders do not meet the first ones exchange blocks (permute); Shardy shards their common divisor",
    "fft": "a line by itself is transformed in four steps (permute); Shardy replicates it",
    "argmax": "Shardy reduces the dim, we exchange one candidate per shard (permute)",
    "argmin": "as argmax",
    "convolution": "kernel and result are cut where the lhs is, whichever is longer; grouped features stay whole; Shardy permutes",
    "sort": "the dim moves to another one meanwhile, or every device makes its block (permute); Shardy replicates it",
    "shift": "borders are exchanged (permute); Shardy lets the dim of a pad that keeps its extent pass through",
    "update_slice": "operand and update are spread alike and shards exchange borders (permute); Shardy parts their dims",
    "reduce_window": "factors have the operand's extents; one window of a whole dim leaves a partial result; Shardy permutes",
    "triangular_solve": "right-hand sides are free to be anywhere; Shardy replicates them",
    "gather": "of a dim of which windows take a part every device gives what it has (sum); Shardy replicates it",
    "scatter": "a window of one element has an owner, so the dim may stay sharded; Shardy replicates it",
}

# Where newer versions of Shardy have another rule than the oldest that we support.
CHANGED = {"dynamic_update_slice": "since jaxlib 0.12 both factors of a cut dim are permuted; ours exchanges nothing"}

_RULE = re.compile(r"op_sharding_rule<\((.*?)\)->\((.*?)\)(?: \{(.*?)\}(.*?))?>")
_KINDS = {"reduction": "reduce", "need_replication": "replicate", "permutation": "permute"}


@functools.cache
def shardy_context() -> Any:
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    context, registry = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in (chlo, sdy, stablehlo):
        dialect.register_dialect(context)
    return context


def shardy_rules(calls: Any) -> list[str | None]:
    """Shardy's rule of every operation of main but the return, as text; None where it has none."""
    from jaxlib.mlir import ir, passmanager

    with shardy_context():
        parsed = ir.Module.parse(module(calls))
        pipeline = "builtin.module(func.func(sdy-populate-op-sharding-rules))"
        passmanager.PassManager.parse(pipeline).run(parsed.operation)
        operations = list(parsed.body.operations[0].regions[0].blocks[0].operations)[:-1]
        named = [
            op.attributes["sdy.sharding_rule"] if "sdy.sharding_rule" in op.attributes else None for op in operations
        ]
        return [None if attribute is None else f"{attribute}" for attribute in named]


Place = tuple[str, int, int, int]  # operand or result, its number, the dim, the place within the dim
Canonical = dict[frozenset[Place], tuple[int, str]]  # where a factor stands -> its size and kind


def canonical(rule: FactorRule, types: Sequence[TensorType]) -> Canonical:
    """Our rule without names; `types` are those of operands and results."""
    kinds = {**rule.kinds, **dict.fromkeys(rule.reductions, "reduce")}
    sides = [("operand", i, dims) for i, dims in enumerate(rule.operands)]
    sides += [("result", i, dims) for i, dims in enumerate(rule.results)]
    places, sizes = dict[str, set[Place]](), dict(rule.sizes)
    for (side, number, dims), type in zip(sides, types, strict=True):
        for d, dim in enumerate(dims):
            if not dim:  # never sharded: the same as a replicated factor of its own
                name = f"{side} {number} {d}"
                kinds[name], sizes[name] = "replicate", type.shape[d]
            collect(places, (side, number, d), dim or (name,))
    return normal(places, sizes, kinds)


def normal(places: Mapping[str, set[Place]], sizes: Mapping[str, int], kinds: Mapping[str, str]) -> Canonical:
    """Factors of extent 1 are left out, which Shardy has in some places and not in others. What is replicated need not
    be one factor, so every place of it stands alone."""
    found: Canonical = {}
    for factor, where in places.items():
        kind = kinds.get(factor, "")
        if kind == "replicate" and sizes[factor] != 1:
            found |= {frozenset([place]): (0, kind) for place in where}
        elif sizes[factor] != 1:
            found[frozenset(where)] = (sizes[factor], kind)
    return found


def collect(places: dict[str, set[Place]], dim: tuple[str, int, int], factors: Iterable[str]) -> None:
    for place, factor in enumerate(factors):
        places.setdefault(factor, set()).add((*dim, place))


def parsed_shardy(text: str, operands: int) -> Canonical:
    """`([ij, k], [])->([i, jk]) {i=6, j=2, k=8} reduction={i}`; operands beyond ours (a start) are dropped."""
    match = _RULE.search(text)
    assert match, text
    left, right, sizes, kinds = match.groups(default="")
    extents = {name: int(size) for name, size in re.findall(r"(\w+?)=(\d+)", sizes)}
    named = {
        f: _KINDS[k] for k, group in re.findall(r"(\w+)=\{(.*?)\}", kinds) if k in _KINDS for f in split_names(group)
    }
    places = dict[str, set[Place]]()
    for side, part, count in (("operand", left, operands), ("result", right, None)):
        for number, value in enumerate(re.findall(r"\[(.*?)\]", part)[:count]):
            for dim, text in enumerate(value.split(",") if value.strip() else []):
                collect(places, (side, number, dim), split_names(text))
    return normal(places, extents, named)


def split_names(text: str) -> list[str]:
    """`ijz_1k` → i, j, z_1, k."""
    return re.findall(r"[a-z](?:_\d+)?", text)


@pytest.mark.parametrize("op", GLOBAL_OPS, ids=str)
def test_rules_are_shardys(op: Op) -> None:
    """For samples that are emitted as one operation of which Shardy has a rule."""
    chosen = [s for s in samples(op) if single_operation(op, s) and s.types]
    found = shardy_rules([(op, s.types, out_types(op, s), s.params) for s in chosen]) if chosen else []
    lines = iter(found)
    differences = []
    for sample in chosen:
        texts = [next(lines) for _ in range(operation_count(op, sample))]
        if texts[-1] is not None:
            types = (*sample.types, *out_types(op, sample))
            ours, theirs = canonical(rule_of(op, sample), types), parsed_shardy(texts[-1], len(sample.types))
            if ours != theirs:
                differences.append(f"{describe(op, sample)}: {rule_of(op, sample)} but Shardy has {texts[-1]}")
    if op.name in DIFFERENT:
        assert differences or not chosen, f"{op.name} is Shardy's by now; take it out of the table"
    elif op.name not in CHANGED:
        assert not differences, "\n".join(differences)


def operation_count(op: Op, sample: Sample) -> int:
    e = emitter()
    names = [f"%x{i}" for i in range(len(sample.types))]
    e.types.update(zip(names, sample.types, strict=True))
    op.emit(e, names, sample.types, out_types(op, sample), sample.params)
    return len(e.lines)


def single_operation(op: Op, sample: Sample) -> bool:
    """One operation that computes; constants and clamped starts before it do not count."""
    if op.name in NEEDS_LAPACK:
        return False
    e = emitter()
    names = [f"%x{i}" for i in range(len(sample.types))]
    e.types.update(zip(names, sample.types, strict=True))
    op.emit(e, names, sample.types, out_types(op, sample), sample.params)
    made = [line for line in e.lines[:-1] if not any(f'"stablehlo.{name}"' in line for name in ("constant", "iota", "clamp"))]
    return bool(e.lines) and not made and '"stablehlo.constant"' not in e.lines[-1]


def test_reshape_examples() -> None:
    """The examples of the docstring."""
    from meshjit.ops.base.shape import reshape_rule

    assert str(reshape_rule((8, 1024), (8192,))) == "a b -> (a b)"
    assert str(reshape_rule((12,), (3, 1, 4))) == "(a b) -> a 1 b"
    assert str(reshape_rule((4, 6, 5), (6, 4, 5))) == "a b d -> a c d | replicate b c, permute a"
    assert str(reshape_rule((6, 4), (4, 6))) == "a c -> a b | replicate c b, permute a"
    assert str(reshape_rule((2, 3), (3, 2))) == "a b -> a c | replicate b c, permute a"
    assert str(reshape_rule((3, 0), (0,))) == "a b -> b | replicate a"


def test_rules_read_aloud() -> None:
    from meshjit.core.types import TensorType
    from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
    from meshjit.ops.slicing.slices import pad, slice_

    f = TensorType.parse
    start = f("i32[]")

    def text(op: Op, *types: str, **params: Any) -> str:
        ins = tuple(map(f, types))
        return str(op.factor_rule(ins, op.type_rule(ins, params), params))

    assert (
        text(slice_, "f32[8,8,8]", start=(0, 1, 2), limit=(8, 8, 3), strides=(1, 1, 1))
        == "a b c -> a b 1 | sum c, permute b"
    )
    assert text(slice_, "bool[4]", start=(1,), limit=(2,), strides=(1,)) == "a -> 1 | or a"
    assert text(pad, "f32[4,4,4]", "f32[]", low=(0, 1, 0), high=(0, 0, 0), interior=(0, 0, 1)) == (
        "a b c, [] -> a b c | permute b c"
    )
    assert (
        text(dynamic_slice, "f32[8,6]", str(start), str(start), slice_sizes=(8, 2))
        == "a b, [], [] -> a d | sum b"
    )
    assert (
        text(dynamic_slice, "f32[8,6]", str(start), str(start), slice_sizes=(8, 5))
        == "a b, [], [] -> a b | permute b"
    )
    assert text(dynamic_update_slice, "f32[8,6]", "f32[8,2]", str(start), str(start)) == (
        "a b, a d, [], [] -> a b | replicate d"
    )
