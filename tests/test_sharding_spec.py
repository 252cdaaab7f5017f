"""PartitionSpec, Placement and the texts of check_spec."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
from hypothesis import given, strategies as st

from sharding import (
    UNCONSTRAINED,
    AbstractMesh,
    P,
    PartitionSpec,
    Placement,
    ShardingError,
    SubAxis,
    check_spec,
    open_dims,
    placement_of,
    spec_of,
)
from sharding.named import AUTO
from sharding.spec import shard_bounds

MESH = AbstractMesh((4, 2), ("data", "model"))


def test_a_spec_reads_as_a_tuple() -> None:
    spec = P("data", None, ("x", "y"))
    assert repr(spec) == "P('data', None, ('x', 'y'))" and repr(P("data")) == "P('data',)"
    assert list(spec) == ["data", None, ("x", "y")] and len(spec) == 3 and spec[0] == "data" and spec[-1] == ("x", "y")
    assert tuple(spec) == ("data", None, ("x", "y")) and spec == P("data", None, ["x", "y"]) and spec != P("data")
    assert spec != tuple(spec) and tuple(spec) != spec  # as in JAX
    assert hash(P("a", "b")) == hash(P(("a",), "b")) and P(("a",)) == P("a") and P(()) == P(None)
    assert spec[:2] == P("data", None) and isinstance(spec[:2], PartitionSpec)
    assert P("a") + P("b") == P("a", "b") == P("a") + ("b",) == ("a",) + P("b")
    assert spec.index(None) == 1 and spec.count("data") == 1 and "data" in spec
    assert pickle.loads(pickle.dumps(P("a", P.UNCONSTRAINED))) == P("a", UNCONSTRAINED)
    assert repr(P(P.UNCONSTRAINED)) == "P(UNCONSTRAINED,)"


@pytest.mark.parametrize("entry", [3, b"x", ("x", None), {"x"}, 1.5])
def test_bad_entries(entry: object) -> None:
    with pytest.raises(TypeError, match="\n  fix: AUTO in place of the spec; PartitionSpec.UNCONSTRAINED for one dim$"):
        PartitionSpec(AUTO)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="PartitionSpec entry 1 of .* an entry is None, an axis name"):
        P("data", entry)


def test_a_spec_as_a_placement() -> None:
    assert placement_of(P("data", ("model",)), 3) == Placement((("data",), ("model",), ()))
    assert placement_of(P(None, P.UNCONSTRAINED), 2).is_replicated
    assert open_dims(P("data", P.UNCONSTRAINED), 3) == (False, True, False)
    assert spec_of(Placement((("data",), (), (SubAxis("model", 1, 2),), ()))) == P("data", None, SubAxis("model", 1, 2))
    with pytest.raises(ShardingError, match="has 2 entries but the value has 1 dims"):
        placement_of(P("data", "model"), 1)


def test_placements() -> None:
    placement = Placement((("data",), (), ("model",)), ((SubAxis("z", 1, 2), "sum"),))
    assert placement.rank == 3 and not placement.is_replicated and Placement.replicated(2).is_replicated
    assert placement.axes() == ("data", "model", SubAxis("z", 1, 2)) and placement.partial_kind == "sum"
    assert placement.local_shape((10, 3, 4), MESH) == (3, 3, 2)
    assert placement.local_shape((0, 3, 1), MESH) == (0, 3, 1)
    assert placement.shards(0, MESH) == 4 and placement.is_even(0, 8, MESH) and not placement.is_even(0, 10, MESH)
    assert placement.with_dim(1, ("y",)).dims == (("data",), ("y",), ("model",))
    assert placement.without_partial() == Placement(placement.dims)
    assert Placement(((),), (("b", "max"), ("a", "max"))).partial == (("a", "max"), ("b", "max"))
    assert [shard_bounds(10, 4, i) for i in range(4)] == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert [shard_bounds(2, 4, i) for i in range(4)] == [(0, 1), (1, 2), (2, 2), (2, 2)]


def test_equal_placements_are_one_object() -> None:
    placement = Placement((("x",), ()), (("y", "sum"), ("z", "sum")))
    for other in (
        Placement((("x",), ()), (("z", "sum"), ("y", "sum"))),
        Placement.parse("[x, -] partial sum(z, y)"),
        dataclasses.replace(Placement((("x",), ())), partial=placement.partial),
        pickle.loads(pickle.dumps(placement)),
        copy.deepcopy(placement),
    ):
        assert other is placement
    assert placement != placement.without_partial() and Placement(((), ())) != Placement(((), (), ()))


def test_placements_that_cannot_be() -> None:
    with pytest.raises(ShardingError, match="uses an axis twice: x and x overlap"):
        Placement((("x",), ("x",)))
    with pytest.raises(ShardingError, match=r"x:\(1\)4 and x:\(2\)2 overlap"):
        Placement(((SubAxis("x", 1, 4),), (SubAxis("x", 2, 2),)))
    with pytest.raises(ShardingError, match="mixes partial kinds, which do not commute"):
        Placement(((),), (("x", "sum"), ("y", "max")))
    with pytest.raises(ShardingError, match="unknown partial kind 'avg'"):
        Placement(((),), (("x", "avg"),))
    with pytest.raises(ShardingError, match=r"has 1 dims but the shape \(2, 3\) has 2"):
        Placement(((),)).local_shape((2, 3), MESH)


def test_placement_texts() -> None:
    placement = Placement((("data",), ("model", SubAxis("x", 2, 2)), ()), (("y", "sum"),))
    assert str(placement) == "[data, model*x:(2)2, -] partial sum(y)"
    assert placement.annotate((8, 512, 3)) == "8@data, 512@model*x:(2)2, 3 | sum(y)"
    assert Placement((("data",), ())).annotate((8, 4)) == "8@data, 4"
    assert str(Placement(())) == "[]" and Placement(()).annotate(()) == ""
    assert Placement((), (("x", "max"),)).annotate(()) == "| max(x)"


REFS = st.permutations(["x", "y", SubAxis("z", 1, 2), SubAxis("z", 2, 3), SubAxis("w", 4, 2)])


@given(REFS, st.lists(st.integers(0, 5), min_size=0, max_size=3), st.integers(0, 2), st.sampled_from(["sum", "or"]))
def test_placement_texts_parse_back(refs: list, cuts: list[int], partial: int, kind: str) -> None:
    bounds = [0, *sorted(cuts)]
    dims = tuple(tuple(refs[a:b]) for a, b in zip(bounds, bounds[1:], strict=False))
    rest = refs[bounds[-1] :][:partial]
    placement = Placement(dims, tuple((axis, kind) for axis in rest))
    assert Placement.parse(str(placement)) == placement
    shape = tuple(range(3, 3 + placement.rank))
    assert Placement.parse_annotation(placement.annotate(shape)) == (shape, placement)


@pytest.mark.parametrize("text", ["data", "[data", "[a] partial", "[a] partial sum", "[a,,b]"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        Placement.parse(text)
    with pytest.raises(ValueError, match="not a placed shape"):
        Placement.parse_annotation("8@data, x")


W1 = "argument params['w1'] f32[10, 512]"


@pytest.mark.parametrize(
    "spec, text",
    [
        (
            P("model", "model"),
            f'{W1}: axis "model" of size 2 is used twice in P("model", "model")\n'
            "  asked for by in_shardings['params']['w1'] at train.py:31\n"
            '  fix: P("model", None) or P(None, "model")',
        ),
        (
            P(("data", "model"), "data"),
            f'{W1}: axis "data" of size 4 is used twice in P(("data", "model"), "data")\n'
            "  asked for by in_shardings['params']['w1'] at train.py:31\n"
            '  fix: P(("data", "model"), None) or P("model", "data")',
        ),
        (
            P(None, "modle"),
            f'{W1}: axis "modle" in P(None, "modle") is not in the mesh, whose axes are "data": 4, "model": 2\n'
            "  asked for by in_shardings['params']['w1'] at train.py:31\n"
            '  fix: P(None, "model") or P(None, None)',
        ),
        (
            P("data", "modle"),
            f'{W1}: axis "modle" in P("data", "modle") is not in the mesh, whose axes are "data": 4, "model": 2\n'
            "  asked for by in_shardings['params']['w1'] at train.py:31\n"
            '  fix: P("data", "model") or P("data", None)',
        ),
        (
            P("data", None, "model"),
            f'{W1}: P("data", None, "model") has 3 entries but the array has 2 dims (10, 512)\n'
            "  asked for by in_shardings['params']['w1'] at train.py:31\n"
            '  fix: P("data", None)',
        ),
    ],
)
def test_check_spec_texts(spec: PartitionSpec, text: str) -> None:
    with pytest.raises(ShardingError) as caught:
        check_spec(spec, (10, 512), MESH, W1, "in_shardings['params']['w1'] at train.py:31")
    assert str(caught.value) == text


def test_a_fix_that_does_not_fit_either_is_not_suggested() -> None:
    with pytest.raises(ShardingError) as caught:
        check_spec(P("model", "modle"), (10, 512), MESH, W1)
    assert str(caught.value).endswith('\n  fix: P("model", None)')  # not P("model", "model")


def test_extents_that_do_not_divide_are_fine() -> None:
    check_spec(P("data", ("model",)), (3, 5), MESH, W1)
    check_spec(P("data", "model"), None, MESH, W1)
    check_spec(P(), (), MESH, W1)
