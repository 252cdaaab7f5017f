"""Factor rules: text, sizes, projection to factors and back."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sharding import AbstractMesh, FactorRule, Placement, SubAxis

MESH = AbstractMesh((4, 2), ("data", "model"))
TEXTS = [
    "b m k, b k n -> b m n | sum k",
    "(h d) -> h d",
    "1 n, m n -> m n",
    "b n -> b n | replicate n",
    "b t -> b t | permute t",
    "[], b -> b",
    "-> b n",
    "[] -> []",
    "b -> [], [] | max b",
    "a b c d -> a d | sum b c",
    "a b c, c -> a, c | or b, replicate c, permute a",
]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_parse_back(text: str) -> None:
    assert str(FactorRule.parse(text)) == text
    assert FactorRule.parse(str(FactorRule.parse(text))) == FactorRule.parse(text)
    assert hash(FactorRule.parse(text)) == hash(FactorRule.parse(text))


@pytest.mark.parametrize(
    "text, error",
    [
        ("a b", "has no ->"),
        ("a b -> a", "factor b is in no result; say how it ends, such as: sum b"),
        ("a a -> a", "factor a stands twice in a a"),
        ("a k -> a k | sum k", "factor k is reduced by sum, so no result can hold it"),
        ("a -> a | mean a", "after | come kind and factors"),
        ("a -> a | sum", "after | come kind and factors"),
        ("a -> a | permute b", "permute b is not one of"),
        ("a b -> a | sum b, max b", "factor b has two kinds, sum and max"),
        ("a -> (a", "is no list of dims; a scalar is written"),
        ("a, -> a", "is no list of dims; a scalar is written"),
        ("a 2 -> a", "'2' is no factor"),
    ],
)
def test_errors(text: str, error: str) -> None:
    with pytest.raises(ValueError) as caught:
        FactorRule.parse(text)
    assert error in str(caught.value)


def test_what_a_rule_knows() -> None:
    product = FactorRule.parse("b m k, b k n -> b m n | sum k")
    assert product.factors == ("b", "m", "k", "n") and product.reductions == {"k": "sum"}
    assert not product.is_passthrough and FactorRule.elementwise(2, 2).is_passthrough
    assert (
        str(FactorRule.elementwise(2, 2)) == "a b, a b -> a b"
        and str(FactorRule.elementwise(0, 1, 2)) == "[] -> [], []"
    )
    assert len(FactorRule.elementwise(30, 1).factors) == 30
    assert product.partial({"k": ("data", "model"), "m": ()}) == (("data", "sum"), ("model", "sum"))


def test_sizes() -> None:
    assert FactorRule.parse("(h d) -> h d").with_sizes([(12,)], [(3, 4)]).sizes == {"h": 3, "d": 4}
    assert FactorRule.parse("h (d e) -> (h d) e").with_sizes([(3, 8)], [(12, 2)]).sizes == {"h": 3, "d": 4, "e": 2}
    assert FactorRule.parse("(h d) -> h d", {"h": 3}).with_sizes([(12,)]).sizes == {"h": 3, "d": 4}
    assert FactorRule.parse("(h d) -> h d").with_sizes([(0,)], [(0, 4)]).sizes == {"h": 0, "d": 4}
    assert FactorRule.parse("-> a").with_sizes([], [(5,)]).sizes == {"a": 5}
    with pytest.raises(ValueError, match="dim 0 of operand 1 has extent 6, which does not fit k=5"):
        FactorRule.parse("m k, k n -> m n | sum k").with_sizes([(4, 5), (6, 7)], [(4, 7)])
    with pytest.raises(ValueError, match="has extent 13, which does not fit h=3, d=4"):
        FactorRule.parse("(h d) -> h d").with_sizes([(13,)], [(3, 4)])
    with pytest.raises(ValueError, match="which does not fit h=., d=."):
        FactorRule.parse("(h d) -> (h d)").with_sizes([(13,)], [(13,)])
    with pytest.raises(ValueError, match="operand 0 has 1 dims, its shape .2, 3. 2"):
        FactorRule.parse("a -> a").with_sizes([(2, 3)], [(2,)])
    with pytest.raises(ValueError, match="has 1 operands, got 2 shapes"):
        FactorRule.parse("a -> a").with_sizes([(2,), (2,)], [(2,)])


def project(text: str, placement: str, **sizes: int) -> tuple[dict[str, str], list[str]]:
    rule = FactorRule.parse(text, sizes)
    placed = Placement.parse(placement)
    found = rule.project(rule.operands[0], placed, MESH)
    lost = rule.dropped(rule.operands[0], placed, MESH)
    return {k: "*".join(map(str, v)) or "-" for k, v in found.items()}, [f"{dim}: {axis}" for dim, axis in lost]


def test_projection() -> None:
    assert project("b f -> b f", "[data, model]") == ({"b": "data", "f": "model"}, [])
    assert project("(h d) -> h d", "[model*data]", h=2, d=4) == ({"h": "model", "d": "data"}, [])
    assert project("(h d) -> h d", "[data]", h=2, d=4) == ({"h": "data:(1)2", "d": "data:(2)2"}, [])
    assert project("(h d) -> h d", "[data]", h=8, d=4) == ({"h": "data", "d": "-"}, [])
    assert project("(h d) -> h d", "[data]", h=3, d=4) == ({"h": "-", "d": "-"}, ["0: data"])
    assert project("(h d) -> h d", "[data]", h=6, d=4) == ({"h": "data:(1)2", "d": "-"}, ["0: data:(2)2"])
    assert project("(h d) -> h d", "[model*data]", h=1, d=8) == ({"h": "-", "d": "model*data"}, [])
    assert project("1 n -> n", "[data, model]") == ({"n": "model"}, ["0: data"])
    with pytest.raises(ValueError, match="needs the size of factor h"):
        project("(h d) -> h d", "[data]")


def back(text: str, sizes: dict[str, int], **axes: str) -> str:
    rule = FactorRule.parse(text, sizes)
    assignment = {name: Placement.parse(f"[{value}]").dims[0] for name, value in axes.items()}
    return str(Placement(rule.placement(rule.operands[0], assignment, MESH)))


def test_and_back() -> None:
    assert back("b f -> b f", {}, b="data", f="model") == "[data, model]"
    assert back("(h d) -> h d", {"h": 4, "d": 6}, h="data", d="model") == "[data*model]"
    assert back("(h d) -> h d", {"h": 4, "d": 8}, h="model", d="data") == "[model]"
    assert back("(h d) -> h d", {"h": 4, "d": 6}, d="model") == "[-]"
    assert back("(h d) -> h d", {"h": 1, "d": 6}, d="model") == "[model]"
    assert back("(h d) -> h d", {"h": 6, "d": 6}, h="data") == "[-]"
    assert back("(h d) -> h d", {"h": 2, "d": 2}, h="data:(1)2", d="data:(2)2") == "[data]"
    assert back("1 n -> n", {}, n="model") == "[-, model]"


@given(st.integers(0, 10**6))
def test_placements_from_factors_say_what_the_factors_say(number: int) -> None:
    """An even dim (a b c) placed over the factors' axes holds on every device exactly the blocks of a, b and c."""
    draw = random.Random(number)
    mesh = AbstractMesh((4, 2, 3), ("x", "y", "z"))
    sizes = {name: draw.choice([1, 2, 3, 4, 6, 8, 12]) for name in "abc"}
    rule = FactorRule.parse("(a b c) -> a b c", sizes)
    refs = draw.sample(["x", "y", "z", SubAxis("x", 1, 2), SubAxis("x", 2, 2)], 5)
    used = []
    for ref in refs:
        if not any(mesh.overlap(ref, other) for other in used):
            used.append(ref)
    cuts = sorted(draw.choices(range(len(used) + 1), k=2))
    assignment = {"a": tuple(used[: cuts[0]]), "b": tuple(used[cuts[0] : cuts[1]]), "c": tuple(used[cuts[1] :])}
    (axes,) = rule.placement(rule.operands[0], assignment, mesh)
    factors = rule.project(rule.operands[0], Placement((axes,)), mesh)
    assert rule.dropped(rule.operands[0], Placement((axes,)), mesh) == ()
    extents = tuple(sizes.values())
    shards = mesh.axes_size(axes)
    assert math.prod(extents) % shards == 0
    flat = np.arange(math.prod(extents))
    for device in range(mesh.size):
        local = flat.size // shards
        mine = flat[int(mesh.axes_index(axes)[device]) * local :][:local]
        block = flat.reshape(extents)
        for dim, name in enumerate("abc"):
            count = mesh.axes_size(factors[name])
            block = np.split(block, count, dim)[int(mesh.axes_index(factors[name])[device])]
        assert np.array_equal(mine, block.ravel())


@given(st.integers(0, 10**6))
def test_projection_inverts_placement_on_the_mesh(number: int) -> None:
    draw = random.Random(number)
    sizes = {name: draw.choice([2, 4, 8]) for name in "abcd"}
    rule = FactorRule.parse("(a b) (c d) -> a b c d", sizes)
    order = draw.sample(["data", "model"], 2)
    dims = ((order[0],), (order[1],)) if draw.random() < 0.5 else ((*order,), ())
    factors = rule.project(rule.operands[0], Placement(dims), MESH)
    if not rule.dropped(rule.operands[0], Placement(dims), MESH):
        assert rule.placement(rule.operands[0], factors, MESH) == dims
    assert len(set(itertools.chain.from_iterable(factors.values()))) == sum(len(axes) for axes in factors.values())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a b, c -> a b, c", [0, 0, 1]),
        ("a, [], b c, d -> a, [], b c, d", [0, 1, 1, 2]),
        ("m, n -> m n", [0, 0]),
        ("m k, k n -> m n | sum k", [0, 0, 0]),
        ("v, b -> b | sum v", [0, 0]),
        ("a, b -> b, a", [0, 1]),
        ("a b, c -> b, c | sum a", [0, 0, 0]),
        ("a, b -> a, b | permute b", [0, 0]),
        ("a -> a, b", [0, 0]),
    ],
)
def test_factors_that_never_meet_may_share_axes(text: str, parts: list[int]) -> None:
    assert list(FactorRule.parse(text).parts.values()) == parts
