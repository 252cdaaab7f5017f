"""Mesh axes and parts of them.

A mesh axis of size n may be cut into a more-major part of size ``pre``, a slice of size ``size`` and a less-major rest;
the slice is the *sub-axis* ``x:(pre)size`` (Shardy's notation). On x of size 8, ``x:(1)2`` is the major bit,
``x:(2)2`` the middle one, ``x:(4)2`` the minor one, and ``x:(2)4`` the two minor ones together. Sub-axes are what
makes a reshape of a sharded dim free: 8@x reshaped to 2, 4 is 2@x:(1)2, 4@x:(2)4.

Every function here takes axes major to minor. A *canonical* tuple writes a whole axis as its plain name, holds no piece
of size 1 of a larger axis, and joins neighbours that continue one another: (x:(1)2, x:(2)4) is ("x",).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias


class SubAxis(NamedTuple):
    """The size-`size` slice of axis `name` whose more-major part has size `pre`."""

    name: str
    pre: int
    size: int

    def __str__(self) -> str:
        return f"{self.name}:({self.pre}){self.size}"

    __repr__ = __str__


AxisRef: TypeAlias = str | SubAxis

NAME = re.compile(r"[^\s,*@|\[\]():\"']+")
_REF = re.compile(rf"({NAME.pattern})(?::\((\d+)\)(\d+))?")


def parse_ref(text: str) -> AxisRef:
    """``"x"`` or ``"x:(2)2"``; ValueError for anything else."""
    match = _REF.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a mesh axis: {text!r}; write a name such as x, or a part of an axis such as x:(2)2")
    name, pre, size = match.groups()
    return name if pre is None else SubAxis(name, int(pre), int(size))


def name_of(ref: AxisRef) -> str:
    """The mesh axis that `ref` is, or is a part of."""
    return ref if isinstance(ref, str) else ref.name


def axes_text(refs: Sequence[AxisRef]) -> str:
    """`data`, or `(data, model)`."""
    return str(refs[0]) if len(refs) == 1 else f"({', '.join(map(str, refs))})"


def span(ref: AxisRef, sizes: Mapping[str, int]) -> SubAxis:
    """`ref` with its extent spelt out: on x of size 4, "x" is x:(1)4."""
    return SubAxis(ref, 1, sizes[ref]) if isinstance(ref, str) else ref


def check_ref(ref: AxisRef, sizes: Mapping[str, int]) -> None:
    """ValueError unless `ref` is an axis of the mesh, or a part of one that divides it."""
    name = name_of(ref)
    if name not in sizes:
        raise ValueError(f'axis "{name}" is not in the mesh, whose axes are {", ".join(sizes) or "none"}')
    if isinstance(ref, SubAxis) and (ref.pre < 1 or ref.size < 1 or sizes[name] % (ref.pre * ref.size)):
        raise ValueError(
            f'{ref} is no part of axis "{name}" of size {sizes[name]}: {ref.pre} * {ref.size} must divide it'
        )


def canonical_axes(refs: Iterable[AxisRef], sizes: Mapping[str, int]) -> tuple[AxisRef, ...]:
    """The canonical tuple for `refs`: (x:(1)2, x:(2)2) on x of size 4 is ("x",)."""
    joined: list[AxisRef] = []
    for ref in refs:
        if isinstance(ref, str):
            joined.append(ref)
        elif ref.size > 1 or sizes[ref.name] == 1:
            last = joined[-1] if joined else None
            if isinstance(last, SubAxis) and last.name == ref.name and last.pre * last.size == ref.pre:
                joined[-1] = SubAxis(last.name, last.pre, last.size * ref.size)
            else:
                joined.append(ref)
    return tuple(r.name if isinstance(r, SubAxis) and r.size == sizes[r.name] else r for r in joined)


def overlap(a: AxisRef, b: AxisRef) -> bool:
    """Whether the two share a part of an axis. Needs no sizes: a plain name overlaps every part of its axis."""
    if name_of(a) != name_of(b):
        return False
    if isinstance(a, str) or isinstance(b, str):
        return True
    return max(a.pre, b.pre) < min(a.pre * a.size, b.pre * b.size)


def first_overlap(refs: Sequence[AxisRef]) -> tuple[AxisRef, AxisRef] | None:
    """The first two members that overlap, or None."""
    if len({name_of(ref) for ref in refs}) == len(refs):
        return None
    for index, ref in enumerate(refs):
        for other in refs[:index]:
            if overlap(ref, other):
                return other, ref
    return None


def cut_points(refs: Iterable[AxisRef], sizes: Mapping[str, int]) -> dict[str, list[int]]:
    """For every axis where some member of `refs` begins or ends, as sizes of major parts: x:(2)2 on 8 gives [2, 4]."""
    points: dict[str, set[int]] = {}
    for ref in refs:
        if isinstance(ref, SubAxis):
            points.setdefault(ref.name, set()).update((ref.pre, ref.pre * ref.size))
    return {name: sorted(cuts - {1, sizes[name]}) for name, cuts in points.items()}


def atoms(ref: AxisRef, cuts: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> list[SubAxis]:
    """`ref` cut at the points inside it, major to minor. ValueError when these do not divide one another."""
    name, pre, size = span(ref, sizes)
    bounds = [pre, *(cut for cut in cuts.get(name, ()) if pre < cut < pre * size), pre * size]
    pieces: list[SubAxis] = []
    for low, high in zip(bounds, bounds[1:], strict=False):
        if high % low:
            raise ValueError(f'axis "{name}" of size {sizes[name]} cannot be cut at both {low} and {high}')
        pieces.append(SubAxis(name, low, high // low))
    return pieces


def split_at_common(
    a: Sequence[AxisRef], b: Sequence[AxisRef], sizes: Mapping[str, int]
) -> tuple[list[SubAxis], list[SubAxis]]:
    """Both tuples cut into pieces fine enough that two pieces are either equal or disjoint.

    Cuts of one axis at 2 and at 3 fit no common grid (x:(1)2 against x:(1)3 on 6); then pieces are left as they are,
    which makes them compare unequal: incompatible, as they are.
    """
    cuts = cut_points([*a, *b], sizes)
    try:
        return [p for r in a for p in atoms(r, cuts, sizes)], [p for r in b for p in atoms(r, cuts, sizes)]
    except ValueError:
        return [span(r, sizes) for r in a], [span(r, sizes) for r in b]


def common_prefix(a: Sequence[AxisRef], b: Sequence[AxisRef], sizes: Mapping[str, int]) -> tuple[AxisRef, ...]:
    """The longest common major part: ("x", "y") and (x:(1)2,) give (x:(1)2,)."""
    if tuple(a) == tuple(b):
        return tuple(a)
    left, right = split_at_common(a, b, sizes)
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return canonical_axes(left[:count], sizes)


def is_prefix(short: Sequence[AxisRef], long: Sequence[AxisRef], sizes: Mapping[str, int]) -> bool:
    """Whether `long` begins with `short`, parts of axes taken into account: (x:(1)2,) is a prefix of ("x",)."""
    if tuple(long[: len(short)]) == tuple(short):
        return True
    left, right = split_at_common(short, long, sizes)
    return right[: len(left)] == left


def without_prefix(axes: Sequence[AxisRef], prefix: Sequence[AxisRef], sizes: Mapping[str, int]) -> tuple[AxisRef, ...]:
    """What is left of `axes` behind `prefix`, which it must begin with."""
    if tuple(axes[: len(prefix)]) == tuple(prefix):
        return tuple(axes[len(prefix) :])
    left, right = split_at_common(prefix, axes, sizes)
    assert right[: len(left)] == left, f"{prefix} is no prefix of {axes}"
    return canonical_axes(right[len(left) :], sizes)
