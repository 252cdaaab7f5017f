"""Placements under the axes of another mesh: the same shards at the same flat positions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from sharding.axes import SubAxis
from sharding.mesh import AbstractMesh
from sharding.placement import Placement
from sharding.translate import translate


def grid(**sizes: int) -> AbstractMesh:
    return AbstractMesh(tuple(sizes.values()), tuple(sizes))


def index(placement: Placement, mesh: AbstractMesh) -> list[Any]:
    return [(mesh.axes_size(axes), mesh.axes_index(axes).tolist()) for axes in placement.dims]


@pytest.mark.parametrize(
    ("placement", "source", "target", "expected"),
    [
        ("[a]", grid(a=8), grid(x=4, y=2), "[x*y]"),
        ("[a]", grid(a=4, b=2), grid(p=8), "[p:(1)4]"),
        ("[b]", grid(a=4, b=2), grid(p=8), "[p:(4)2]"),
        ("[a*b]", grid(a=4, b=2), grid(p=8), "[p]"),
        ("[b*a]", grid(a=4, b=2), grid(p=8), "[p:(4)2*p:(1)4]"),
        ("[a, b]", grid(a=4, b=2), grid(x=2, y=2, z=2), "[x*y, z]"),
        ("[a] partial sum(b)", grid(a=4, b=2), grid(x=2, y=4), "[x*y:(1)2] partial sum(y:(2)2)"),
        ("[a]", grid(a=4, one=1), grid(uno=1, x=4), "[x]"),
        ("[one]", grid(a=4, one=1), grid(x=4), "[-]"),
        ("[-, a]", grid(a=3), grid(x=3), "[-, x]"),
        ("[a]", grid(a=2, b=3), grid(x=3, y=2), None),
        ("[a]", grid(a=6), grid(x=3, y=2), "[x*y]"),
        ("[a]", grid(a=4), grid(x=8), None),
    ],
)
def test_worked_examples(placement: str, source: AbstractMesh, target: AbstractMesh, expected: str | None) -> None:
    found = translate(Placement.parse(placement), source, target)
    assert (None if found is None else str(found)) == expected


MESHES = [grid(a=12), grid(a=2, b=6), grid(a=6, b=2), grid(a=3, b=4), grid(a=2, b=3, c=2), grid(a=1, b=12), grid(a=2, b=2, c=3)]


@given(st.sampled_from(MESHES), st.sampled_from(MESHES), st.data())
def test_the_same_shards_are_at_the_same_positions(source: AbstractMesh, target: AbstractMesh, data: st.DataObject) -> None:
    names = data.draw(st.permutations(source.axis_names))
    cut = data.draw(st.integers(0, len(names)))
    placement = Placement((tuple(names[:cut]), (), tuple(names[cut : data.draw(st.integers(cut, len(names)))])))
    found = translate(placement, source, target)
    if found is not None:
        assert index(found, target) == index(placement, source)
        back = translate(found, target, source)
        assert back is not None and index(back, source) == index(placement, source)


def test_parts_of_axes_are_translated_too() -> None:
    found = translate(Placement(((SubAxis("a", 2, 2),),)), grid(a=8), grid(x=2, y=2, z=2))
    assert found is not None and str(found) == "[y]"
