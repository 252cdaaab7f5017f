"""Placements in types: where the results of an equation are in explicit axes, by its factor rule and its access.

A value's type has a spec with an entry per dim, of the mesh's explicit axes alone. An equation passes on what its factors say:

    f32[8@X,4] + f32[8,4@Y]         f32[8@X,4@Y]      a factor is sharded as the operand says that shards it
    f32[8@X,4] @ f32[4,16@Y]        f32[8@X,16@Y]     a factor that is reduced is gone, if one operand at most shards it
    f32[8@X,4][2:6]                 f32[4@X,4]        elements that move along a dim leave it sharded

and says `Unclear` where that is no answer: factors that two operands shard differently, sums over a dim that both operands
shard (the result may be whole or cut), dims that have to be whole, reshapes that cut a dim elsewhere than its shards.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from meshjit.core.access import Moved, Places, Reduced, Window
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import Region
from meshjit.core.rules import access_of, rule_of
from meshjit.core.types import TensorType, short_name
from meshjit.core.varying import REDUCED, UNREDUCED, with_mark
from sharding.axes import SubAxis, name_of
from sharding.mesh import BaseMesh
from sharding.placement import Placement
from sharding.rule import FactorRule
from sharding.spec import PartitionSpec, entry_axes, open_dims

Axes: TypeAlias = tuple[str, ...]
Dims: TypeAlias = tuple[Axes, ...]


@dataclass
class Unclear(Exception):
    """Why a result has no placement, in words; which operands say so, and which placement of each would do; or results that an
    `out_sharding` could choose, with the placement that the equation leaves by itself."""

    what: str
    operands: tuple[int, ...]
    resharded: tuple[Dims, ...] = ()
    choices: tuple[Dims, ...] = ()
    left: Placement | None = None


def typed(type: TensorType, spec: PartitionSpec | None, varying: frozenset[str] = frozenset()) -> str:
    """`f32[8@X,4@(Y,Z)]{V:W}`: a type with its placement in explicit axes, and the manual axes over which it varies."""
    entries = [entry_axes(e) for e in spec] if spec is not None else []
    dims = [str(n) + _at(entries[d] if d < len(entries) else ()) for d, n in enumerate(type.shape)]
    whole = PartitionSpec() if spec is None else spec
    unreduced, reduced = whole.unreduced | with_mark(varying, UNREDUCED), whole.reduced | with_mark(varying, REDUCED)
    sums = (("V", with_mark(varying, "")), ("U", unreduced), ("R", reduced))
    marks = [(mark, sorted(axes)) for mark, axes in sums if axes]
    extra = ", ".join(f"{mark}:{axes[0] if len(axes) == 1 else '(' + ','.join(axes) + ')'}" for mark, axes in marks)
    return f"{short_name(type.dtype)}[{','.join(dims)}]" + (f"{{{extra}}}" if extra else "")


def _at(axes: Sequence[object]) -> str:
    return "" if not axes else f"@{axes[0]}" if len(axes) == 1 else f"@({','.join(map(str, axes))})"


@functools.lru_cache(maxsize=4096)
def explicit_part(spec: PartitionSpec | None, rank: int, mesh: BaseMesh) -> PartitionSpec:
    """The spec with an entry per dim, of the mesh's explicit axes alone."""
    explicit = mesh.explicit_axes
    entries = [tuple(a for a in entry_axes(e) if a in explicit) or None for e in spec or ()]
    whole = PartitionSpec(*entries, *[None] * (rank - len(entries)))
    if spec is not None and (spec.unreduced or spec.reduced):
        whole = whole.update(unreduced=spec.unreduced & {*explicit}, reduced=spec.reduced & {*explicit})
    return whole


def pin_of(spec: PartitionSpec, mesh: BaseMesh) -> PartitionSpec:
    """The constraint that holds a value to its type; dims without explicit axes are open where other axes are automatic."""
    if not mesh.auto_axes:
        return spec
    return spec.update(partitions=[PartitionSpec.UNCONSTRAINED if entry is None else entry for entry in spec])


def result_specs(eqn: Eqn, specs: Sequence[PartitionSpec], mesh: BaseMesh, strict: bool = True) -> list[PartitionSpec]:
    """The specs of the results from those of the operands. Unclear where they do not say; unless `strict` that is whole."""
    if eqn.op.seed is not None:
        return [_constrained(eqn.op.seed(eqn.params), specs[0], mesh)]
    if eqn.op.pinned is not None:
        return _of_pinned(eqn, specs, mesh, *eqn.op.pinned(eqn.params))
    if eqn.op.regions is not None:
        return _of_regions(eqn, specs, mesh)
    dims = [tuple(entry_axes(e) for e in spec) for spec in specs]
    if not any(any(value) for value in dims):
        results = [PartitionSpec(*[None] * v.rank) for v in eqn.outputs]
    else:
        dims_of_results = _Typing(eqn, dims, mesh, strict).results()  # pyright: ignore[reportArgumentType]
        results = [PartitionSpec(*(axes or None for axes in value)) for value in dims_of_results]
    return _with_sums(eqn, specs, results, strict)


def program_specs(program: Program, inputs: Sequence[PartitionSpec], mesh: BaseMesh) -> list[PartitionSpec]:
    """The specs of a Program's outputs; what is unclear inside is whole."""
    known: dict[Var, PartitionSpec] = dict(zip(program.inputs, inputs, strict=True))
    follow(program.eqns, known, mesh)
    return [known[v] for v in program.outputs]


def likeness(eqn: Eqn, specs: Sequence[PartitionSpec]) -> Any:
    """Equal for equations with equal results: of one op, with equal params and operands. As long as the equation lives."""
    key = (eqn.op, eqn.input_types, eqn.output_types, *eqn.params.items(), *specs)
    try:
        hash(key)
    except TypeError:  # arrays
        return (eqn.identity, *specs)
    return key


def follow(eqns: Sequence[Eqn], known: dict[Var, PartitionSpec], mesh: BaseMesh) -> None:
    """Add the specs of what the equations compute to `known`. Copies on operands that are alike are looked at once."""
    done: dict[Any, list[PartitionSpec]] = {}
    for eqn in eqns:
        specs = [known[v] if v in known else explicit_part(None, v.rank, mesh) for v in eqn.inputs]
        key = likeness(eqn, specs)
        results = done.get(key)
        if results is None:
            results = done[key] = result_specs(eqn, specs, mesh, strict=False)
        known.update(zip(eqn.outputs, results, strict=True))


def _constrained(seed: PartitionSpec, spec: PartitionSpec, mesh: BaseMesh) -> PartitionSpec:
    asked, is_open = explicit_part(seed, len(spec), mesh), open_dims(seed, len(spec))
    return asked.update(partitions=[e if free else a for a, e, free in zip(asked, spec, is_open, strict=True)])


def _of_regions(eqn: Eqn, specs: Sequence[PartitionSpec], mesh: BaseMesh) -> list[PartitionSpec]:
    assert eqn.op.regions is not None
    results: dict[int, PartitionSpec] = {}
    for region in eqn.op.regions(eqn.params):
        if region.role == "run":
            results.update(_of_region(region, specs, mesh))
    return [results[i] if i in results else explicit_part(None, v.rank, mesh) for i, v in enumerate(eqn.outputs)]


def _of_region(region: Region, specs: Sequence[PartitionSpec], mesh: BaseMesh) -> dict[int, PartitionSpec]:
    inputs = [of_slice(specs[o]) if i in region.sliced else specs[o] for i, o in enumerate(region.operands)]
    outputs = program_specs(region.program, inputs, mesh)
    stacked = (s.update(partitions=(None, *s)) if i in region.stacked else s for i, s in enumerate(outputs))
    return {r: s for r, s in zip(region.results, stacked, strict=True) if r is not None}


def _of_pinned(
    eqn: Eqn,
    specs: Sequence[PartitionSpec],
    mesh: BaseMesh,
    operands: Sequence[PartitionSpec],
    results: Sequence[PartitionSpec],
    names: frozenset[str],
) -> list[PartitionSpec]:
    """Where the op says; along further axes, where its region has its shards."""
    own = [explicit_part(s, v.rank, mesh) for s, v in zip(results, eqn.outputs, strict=True)]
    regions = [r for r in (eqn.op.regions(eqn.params) if eqn.op.regions is not None else ()) if r.role == "run"]
    if not regions or not {*mesh.explicit_axes} - names:
        return own
    inner = program_specs(regions[0].program, [without_axes(s, names) for s in specs], mesh)
    return [
        PartitionSpec(*((*entry_axes(a), *entry_axes(b)) or None for a, b in zip(first, rest, strict=True)))
        for first, rest in zip(own, inner, strict=True)
    ]


def without_axes(spec: PartitionSpec, names: frozenset[str]) -> PartitionSpec:
    """What the spec says of other axes."""
    return PartitionSpec(*(tuple(a for a in entry_axes(e) if name_of(a) not in names) or None for e in spec))


def of_slice(spec: PartitionSpec) -> PartitionSpec:
    """Of what a loop goes through, that of each element."""
    return spec.update(partitions=spec.partitions[1:])


class _Typing:
    """One equation: the axes of its factors, as the operands say, and what they make of the results."""

    def __init__(self, eqn: Eqn, dims: Sequence[Dims], mesh: BaseMesh, strict: bool) -> None:
        self.eqn, self.dims, self.mesh, self.strict = eqn, dims, mesh, strict
        self.rule: FactorRule = rule_of(eqn)
        self.access = access_of(eqn)
        self.axes: dict[str, Axes] = {}
        self.sources: dict[str, tuple[int, int]] = {}  # factor → operand and dim that said so
        self.reduced: dict[str, list[tuple[int, int]]] = {}
        self.moved: dict[int, tuple[Axes, int, int]] = {}  # dim of the first result → axes, operand, dim
        self.kept = {name for value in self.rule.results for dim in value for name in dim}

    def results(self) -> list[Dims]:
        self._check_moving()
        for i, value in enumerate(self.dims):
            for d, axes in enumerate(value):
                if axes:
                    self._operand_dim(i, d, axes)
        self._check_sums()
        return [self._result(r) for r in range(len(self.eqn.outputs))]

    def _unclear(self, what: str, *operands: int, resharded: tuple[Dims, ...] = ()) -> None:
        if self.strict:
            raise Unclear(what, operands, resharded)

    def _places(self, i: int, d: int) -> Places:
        return self.access[0].operands[i][d]

    def _check_moving(self) -> None:
        """Ops that put elements of several operands side by side need them placed alike; what is whole is cut where it lies."""
        places = [p for value in self.access[0].operands for p in value] if self.access else []
        ranked = [i for i, value in enumerate(self.dims) if any(value) and len(value) == self.eqn.outputs[0].rank]
        if len(ranked) < 2 or len(self.eqn.outputs) != 1 or not any(isinstance(p, Moved) for p in places):
            return
        first = ranked[0]
        other = next((i for i in ranked if self.dims[i] != self.dims[first]), None)
        if other is not None:
            what = f"operands {first} and {other} are put side by side, but are placed differently"
            self._unclear(what, first, other, resharded=(self.dims[other], self.dims[first]))

    def _operand_dim(self, i: int, d: int, axes: Axes) -> None:
        dim = self.rule.operands[i][d]
        if not dim:
            return
        if len(dim) == 1:
            self._factor(dim[0], axes, i, d)
            return
        split, rest = self.rule.split_dim(dim, axes, self.mesh)
        if rest or any(isinstance(a, SubAxis) for part in split.values() for a in part):
            self._cut_elsewhere(i, d, axes)
            return
        for name, part in split.items():
            if part:
                self._factor(name, part, i, d)  # pyright: ignore[reportArgumentType]

    def _cut_elsewhere(self, i: int, d: int, axes: Axes) -> None:
        shards, extent = self.mesh.axes_size(axes), self.eqn.inputs[i].shape[d]
        result = self.eqn.outputs[0].shape
        what = f"dim {d} of extent {extent} is cut into {shards} shards, which are no parts of the result's dims {result}"
        self._unclear(what, i)

    def _factor(self, name: str, axes: Axes, i: int, d: int) -> None:
        places, kind = self._places(i, d), self.rule.kinds.get(name)
        if isinstance(places, Moved | Window):
            self._move(places, axes, i, d)
        elif kind in self.rule.reductions.values() and isinstance(places, Reduced):
            self._agree(name, axes, i, d)
            self.reduced.setdefault(name, []).append((i, d))
        elif kind is None:
            self._agree(name, axes, i, d)
        elif kind == "permute":  # elements along the dim are exchanged; a search along it, as argmax, leaves nothing of it
            if name in self.kept:
                self._agree(name, axes, i, d)
        elif kind in self.rule.reductions.values():
            self._unclear(f"dim {d} of operand {i} is looked up by computed places, and is sharded over {_and(axes)}", i)
        else:
            what = f"dim {d} of operand {i} has to be whole, and is sharded over {_and(axes)}"
            self._unclear(what, i, resharded=(self._without(i, d),))

    def _without(self, i: int, d: int) -> Dims:
        return tuple(() if e == d else axes for e, axes in enumerate(self.dims[i]))

    def _agree(self, name: str, axes: Axes, i: int, d: int) -> None:
        if name not in self.axes:
            self.axes[name], self.sources[name] = axes, (i, d)
        elif self.axes[name] != axes:
            j, e = self.sources[name]
            what = f"dim {e} of operand {j} is sharded over {_and(self.axes[name])}, dim {d} of operand {i} over {_and(axes)}"
            self._unclear(what, j, i, resharded=(self._as(j, e, axes), self._as(i, d, self.axes[name])))

    def _as(self, i: int, d: int, axes: Axes) -> Dims:
        """Operand i with dim d over these axes, which leave its other dims."""
        return tuple(axes if e == d else tuple(a for a in old if a not in axes) for e, old in enumerate(self.dims[i]))

    def _move(self, places: Moved | Window, axes: Axes, i: int, d: int) -> None:
        before, after = self.eqn.inputs[i].shape[d], self.eqn.outputs[0].shape[places.dim]
        shards = self.mesh.axes_size(axes)
        if before != after and before % shards == 0 and after % shards:
            what = f"dim {d} of extent {before} is sharded {shards} ways over {_and(axes)}, which do not divide"
            self._unclear(f"{what} the result's {after}", i, resharded=(self._without(i, d),))
            return
        self.moved[places.dim] = (axes, i, d)

    def _check_sums(self) -> None:
        """Dims that are summed over, of two operands that both shard them: the result may be whole, or cut further."""
        both = [places for places in self.reduced.values() if len(places) > 1]
        if not both or not self.strict:
            return
        left = self._result(0)
        summed = tuple(a for places in both for a in self.dims[places[0][0]][places[0][1]])
        kinds = {self.rule.kinds[n] for n, places in self.reduced.items() if len(places) > 1}
        pairs = " and ".join(f"dim {d} of operand {i}" for i, d in both[0])
        what = f"{pairs} are summed over and both sharded over {_and(summed)}: each device has a part of the sum"
        free = [d for d, axes in enumerate(left) if not axes and self.eqn.outputs[0].shape[d] % self.mesh.axes_size(summed) == 0]
        cut = tuple(summed if d == free[0] else axes for d, axes in enumerate(left)) if free else None
        partial = Placement(left, tuple((a, next(iter(kinds))) for a in summed))
        raise Unclear(what, tuple(i for i, _ in both[0]), (), (left, cut) if cut else (left,), partial)

    def _result(self, r: int) -> Dims:
        dims: list[Axes] = []
        for d, names in enumerate(self.rule.results[r]):
            axes = self._joined(r, d, names)
            dims.append(self.moved[d][0] if r == 0 and not axes and d in self.moved else axes)
        used: set[str] = set()
        for d, axes in enumerate(dims):
            twice = used.intersection(axes)
            if twice:
                text = typed(self.eqn.outputs[r].type, PartitionSpec(*(a or None for a in dims)))
                self._unclear(f"its result {text} would use {_and(sorted(twice))} twice", *range(len(self.eqn.inputs)))
                dims[d] = tuple(a for a in axes if a not in used)
            used.update(axes)
        return tuple(dims)


    def _joined(self, r: int, d: int, names: tuple[str, ...]) -> Axes:
        """The axes of a dim of several factors, of which each but the last that is sharded has to be."""
        if len(names) <= 1:
            return self.axes.get(names[0], ()) if names else ()
        sharded = [name for name in names if self.axes.get(name)]
        if not sharded:
            return ()
        axes = tuple(a for name in sharded for a in self.axes[name])
        inner = [n for n in names[: names.index(sharded[-1])] if not self.axes.get(n) and self.rule.sizes[n] != 1]
        if inner or self.eqn.outputs[r].shape[d] % self.mesh.axes_size(axes):
            (i, e), over = self.sources[sharded[-1]], _and(self.axes[sharded[-1]])
            what = f"dim {d} of the result is made of several dims, of which dim {e} of operand {i} is sharded over {over}"
            self._unclear(f"{what}, and one before it is whole", i)
            return self.rule.join_dim(names, self.axes, self.mesh)  # pyright: ignore[reportReturnType]
        return axes


def _and(axes: Sequence[str]) -> str:
    return " and ".join(map(str, axes))


# -- sums that are not finished: each device has an addend over the axes `unreduced`


def check_sums(eqn: Eqn, operands: Sequence[PartitionSpec]) -> None:
    """Unclear where code for single devices gives an equation addends that it does not take."""
    sums = {i: spec.unreduced for i, spec in enumerate(operands) if spec.unreduced}
    why = _not_linear(eqn, operands, sums) if sums else None
    if why is not None:
        raise Unclear(why, tuple(sums))


def _with_sums(
    eqn: Eqn, specs: Sequence[PartitionSpec], results: list[PartitionSpec], strict: bool
) -> list[PartitionSpec]:
    """The results' specs with the axes over which they are unreduced or reduced.

        {U:X} + {U:X}    {U:X}      a sum of addends is a sum
        {U:X} * {R:X}    {U:X}      and so is what is linear in one, if the cotangent of the other may be one
        f({R:X})         {R:X}      unless a factor is summed over, or a factor of another operand is sharded over X
    """
    sums = {i: spec.unreduced for i, spec in enumerate(specs) if spec.unreduced}
    reduced = frozenset[str]().union(*(spec.reduced for spec in specs))
    if sums:
        axes = next(iter(sums.values()))
        why = _not_linear(eqn, specs, sums)
        if why is None:
            return [s.update(unreduced=axes, reduced=reduced - axes) for s in results]
        if strict:
            ways = tuple(tuple(entry_axes(e) for e in specs[i]) for i in sums)
            raise Unclear(why, tuple(sums), ways)  # pyright: ignore[reportArgumentType]
        return results
    if not reduced or (len(specs) > 1 and rule_of(eqn).reductions):
        return results
    used = [{str(axis) for entry in s for axis in entry_axes(entry)} for s in results]
    both = sorted(reduced.intersection(*used[:1]))
    if both and strict:
        first = next(i for i, spec in enumerate(specs) if both[0] in spec.reduced)
        what = f"operand {first} is reduced over {both[0]}, over which another operand is sharded"
        raise Unclear(what, (first,), (tuple(entry_axes(e) for e in results[0]),))  # pyright: ignore[reportArgumentType]
    return [s.update(reduced=reduced - taken) for s, taken in zip(results, used, strict=True)]


def _not_linear(eqn: Eqn, specs: Sequence[PartitionSpec], sums: Mapping[int, frozenset[str]]) -> str | None:
    """Why an equation takes no unfinished sums in these operands; None if it does."""
    first, axes = min(sums), sums[min(sums)]
    over = _and(sorted(axes))
    other = next((i for i, theirs in sums.items() if theirs != axes), None)
    if other is not None:
        return f"operand {first} is an unfinished sum over {over}, operand {other} over {_and(sorted(sums[other]))}"
    groups = eqn.op.linear_groups(eqn.input_types, eqn.params)
    joint = next(({*group} - {*sums} for group in groups if {*group} >= {*sums}), None)
    if joint is None or any(eqn.inputs[i].rank for i in joint):  # one number is an addend on one device: the padding of a pad
        if joint:
            return f"operand {first} is an unfinished sum over {over}, and operand {min(joint)} is not: every device would add it"
        return f"operand {first} is an unfinished sum over {over}, in which {eqn.op.name} is not linear"
    for i, (type, spec) in enumerate(zip(eqn.input_types, specs, strict=True)):
        if i not in {*sums, *joint} and type.dtype.kind not in "biu" and not axes <= spec.reduced:
            return (
                f"operand {first} is an unfinished sum over {over}, and operand {i} is not reduced over {over}:"
                " its cotangent would be summed without being asked for"
            )
    return None
