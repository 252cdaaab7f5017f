"""Collectives over the members of a batch (`vmap(axis_name=...)`) or the devices of a mesh (`shard_map`): psum, all_gather and
their kin of `jax.lax`.

`axis_name` is a name or a tuple of names, major to minor. Under jit alone nothing is needed on a mesh: there arrays are whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.core.keys import PRNGKeyArray
from meshjit.core.promotion import is_python_number
from meshjit.lax import device_collectives as of_devices
from meshjit.lax.device_collectives import Devices, devices_of
from meshjit.lax.slicing import dynamic_index_in_dim
from meshjit.numpy.named_axes import over
from meshjit.numpy.promote import cast, normal_axis, ops, shape_of, value
from meshjit.trace import Tracer, bind
from meshjit.trace.members import DeviceAxis, MemberAxis, find_axis
from meshjit.trees import USERS, WORDS as tree

AxisName = Hashable | tuple[Hashable, ...]


def _names(axis_name: AxisName) -> tuple[Hashable, ...]:
    return tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)


def _axes(axis_name: AxisName, what: str, groups: Any = None) -> list[MemberAxis] | Devices:
    """Members of batches, or devices; ValueError for both in one, which only reductions can have."""
    axes = [find_axis(name, what) for name in _names(axis_name)]
    members, devices = _of_kinds(axes)
    if members and devices:
        raise NotImplementedError(
            f"{what} over {_names(axis_name)}: of members of a batch, {[a.name for a in members]}, and of devices,"
            f" {[a.name for a in devices]}, at once\n  fix: {what} over the ones, then over the others"
        )
    if devices:
        return devices_of(devices, groups, what)
    _check_no_groups(groups, what)
    return members


def _of_kinds(axes: Sequence[MemberAxis | DeviceAxis]) -> tuple[list[MemberAxis], list[DeviceAxis]]:
    return [a for a in axes if isinstance(a, MemberAxis)], [a for a in axes if isinstance(a, DeviceAxis)]


def _check_no_groups(groups: Any, what: str) -> None:
    if groups is not None:
        raise NotImplementedError(
            f"{what}: axis_index_groups are not there for vmap, as in JAX\n"
            "  fix: nest two vmaps with an axis each, and name the inner one"
        )


def _size(axes: Sequence[MemberAxis] | Devices) -> int:
    return axes.size if isinstance(axes, Devices) else math.prod(axis.size for axis in axes)


def axis_size(axis_name: AxisName) -> int:
    """How many members or devices there are; a Python int. NameError where no vmap or shard_map around has the name."""
    return math.prod(find_axis(name, "axis_size").size for name in _names(axis_name))


def axis_index(axis_name: AxisName) -> Any:
    """The member's or device's own number, i32[]."""
    axes = [find_axis(name, "axis_index") for name in _names(axis_name)]
    if axes and all(isinstance(axis, DeviceAxis) for axis in axes):
        return of_devices.number(Devices(tuple(_of_kinds(axes)[1])))
    index: Any = None
    for axis in axes:
        own = axis.number if isinstance(axis, MemberAxis) else of_devices.number(Devices((axis,)))
        index = own if index is None else index * axis.size + own
    return index


def _number(axes: Sequence[MemberAxis]) -> Any:
    number: Any = axes[0].number
    for axis in axes[1:]:
        number = number * axis.size + axis.number
    return number


def _gathered(x: Any, axes: Sequence[MemberAxis]) -> Any:
    """All members' values along one new dim 0."""
    shape = shape_of(x)
    for axis in reversed(axes):
        x = bind(ops("gather_members"), x, axis.number, size=axis.size)
    return x if len(axes) == 1 else mnp.reshape(x, (_size(axes), *shape))


def _array(x: Any, what: str) -> Any:
    """Operands of ops as they are, a bool as a weak number's array."""
    return value(x, what)[0]


# -- psum, pmean, pmax, pmin


_KINDS = {"reduce_sum": "sum", "reduce_max": "max", "reduce_min": "min", "reduce_or": "or", "reduce_and": "and"}


def _reduced(x: Any, axis_name: AxisName, groups: Any, what: str, op: str) -> Any:
    """One leaf, over named axes and positional ones."""
    names = _names(axis_name)
    positions = tuple(n for n in names if isinstance(n, int))
    members, devices = _of_kinds([find_axis(n, what) for n in names if not isinstance(n, int)])
    if not devices:
        _check_no_groups(groups, what)
    x, type, weak = value(x, what)
    if positions:
        x = bind(ops(op), x, axes=tuple(normal_axis(p, type.rank) for p in positions), weak_type=weak)
    for axis in members:
        x = bind(ops("gather_members"), x, axis.number, size=axis.size, weak_type=weak)
        x = bind(ops(op), x, axes=(0,), weak_type=weak)
    return of_devices.reduced(x, devices_of(devices, groups, what), _KINDS[op], weak, what) if devices else x


def psum(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The sum over all members or devices, for every array of a tree; bools are counted. Of a Python number a Python number."""
    names = _names(axis_name)
    leaves = USERS.leaves(x)
    is_constant = bool(leaves) and not any(isinstance(leaf, Tracer) for leaf in leaves)

    def leaf(x: Any) -> Any:
        if not any(isinstance(n, int) for n in names) and (is_python_number(x) or (is_constant and _among_devices(names))):
            size = _count(names, axis_index_groups, "psum")
            return int(x) * size if isinstance(x, bool) else x * size
        array, type, _ = value(x, "psum")
        if type.dtype == np.bool_:
            array = cast(array, np.dtype(np.int32))
        return _reduced(array, axis_name, axis_index_groups, "psum", "reduce_sum")

    return USERS.map(leaf, x)


def _among_devices(names: Sequence[Hashable]) -> bool:
    return all(isinstance(find_axis(name, "psum"), DeviceAxis) for name in names)


def _count(names: Sequence[Hashable], groups: Any, what: str) -> int:
    """How many values a reduction has."""
    axes = [find_axis(name, what) for name in names]
    devices = _of_kinds(axes)[1]
    if not devices:
        _check_no_groups(groups, what)
    return devices_of(devices, groups, what).size if groups is not None else math.prod(axis.size for axis in axes)


def pmean(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
    """The mean over all members; integers become floats."""
    count = psum(1, axis_name, axis_index_groups=axis_index_groups)
    return tree.map(lambda y: mnp.divide(y, count), psum(x, axis_name, axis_index_groups=axis_index_groups))


def _extreme(name: str, op: str, bits: str) -> Callable[..., Any]:
    def function(x: Any, axis_name: AxisName, *, axis_index_groups: Any = None) -> Any:
        def leaf(x: Any) -> Any:
            is_bool = value(x, name)[1].dtype == np.bool_
            return _reduced(x, axis_name, axis_index_groups, name, bits if is_bool else op)

        return USERS.map(leaf, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {'largest' if name == 'pmax' else 'smallest'} value of all members, element by element."
    return function


pmax = _extreme("pmax", "reduce_max", "reduce_or")
pmin = _extreme("pmin", "reduce_min", "reduce_and")
over.update(reduce_sum=psum, reduce_max=pmax, reduce_min=pmin)


# -- the values of other members


def all_gather(
    x: Any,
    axis_name: AxisName,
    *,
    axis_index_groups: Any = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> Any:
    """All members' values along a new dim `axis`; `tiled`: one behind the other along the dim that is there.

    `to`: "invarying" for a result of which it is known that it is the same on all devices of a shard_map."""
    if to not in ("varying", "invarying", "reduced"):
        raise ValueError(f"all_gather: to is {to!r}; it is 'varying', 'invarying' or 'reduced'")
    axes = _axes(axis_name, "all_gather", axis_index_groups)

    def leaf(x: Any, rank: int) -> Any:
        x = _array(x, "all_gather")
        dim = normal_axis(axis, rank if tiled else rank + 1)
        if isinstance(axes, Devices):
            return of_devices.gathered(x, axes, dim, tiled, to)
        return _in_place(_gathered(x, axes), dim, tiled)

    return _moved(leaf, x)


def _moved(leaf: Callable[[Any, int], Any], x: Any) -> Any:
    """leaf(array, its rank) for every array of a tree; of keys the words, but the rank that keys have."""

    def of_any(x: Any) -> Any:
        return PRNGKeyArray(x.dtype, leaf(x.words, x.ndim)) if isinstance(x, PRNGKeyArray) else leaf(x, len(shape_of(x)))

    return USERS.map(of_any, x)


def _in_place(gathered: Any, dim: int, tiled: bool) -> Any:
    """Dim 0 as dim `dim`, merged with the dim behind it if `tiled`."""
    moved = mnp.moveaxis(gathered, 0, dim)
    shape = shape_of(moved)
    return mnp.reshape(moved, (*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :])) if tiled else moved


def _check_extent(x: Any, dim: int, count: int, tiled: bool, what: str) -> None:
    """ValueError where dim `dim` has no slice per member; `tiled`: no equal part."""
    shape = shape_of(x)
    if (not count or shape[dim] % count == 0) if tiled else shape[dim] == count:
        return
    relation = "a multiple of" if tiled else "equal to"
    raise ValueError(
        f"{what}: dim {dim} of {shape} has extent {shape[dim]}, which must be {relation} the number of members, {count}"
        + ("" if tiled else "\n  fix: tiled=True splits a dim into equal parts")
    )


def _split(x: Any, dim: int, count: int, tiled: bool) -> Any:
    """Dim `dim` with a slice per member; `tiled`: as two, the slices and what is in each."""
    shape = shape_of(x)
    return mnp.reshape(x, (*shape[:dim], count, shape[dim] // max(count, 1), *shape[dim + 1 :])) if tiled else x


def psum_scatter(
    x: Any, axis_name: AxisName, *, scatter_dimension: int = 0, axis_index_groups: Any = None, tiled: bool = False
) -> Any:
    """Of the sum over all members the member's own part along `scatter_dimension`; that dim goes unless `tiled`."""
    axes = _axes(axis_name, "psum_scatter", axis_index_groups)

    def leaf(x: Any) -> Any:
        x = _array(x, "psum_scatter")
        dim = normal_axis(scatter_dimension, len(shape_of(x)))
        _check_extent(x, dim, _size(axes), tiled, "psum_scatter")
        if isinstance(axes, Devices):
            return of_devices.scattered(x, axes, dim, tiled)
        x = mnp.moveaxis(_split(x, dim, _size(axes), tiled), dim, 0)
        rest = shape_of(x)[1:]
        x = mnp.reshape(x, (*(axis.size for axis in axes), *rest))
        for axis in axes:
            x = bind(ops("scatter_members"), x, axis.number)
        return x

    return USERS.map(leaf, x)


def all_to_all(
    x: Any,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Any:
    """Part i of dim `split_axis` goes to member i; the parts received stand along `concat_axis`, a new dim unless `tiled`."""
    axes = _axes(axis_name, "all_to_all", axis_index_groups)

    def leaf(x: Any, rank: int) -> Any:
        x = _array(x, "all_to_all")
        source, target = normal_axis(split_axis, rank), normal_axis(concat_axis, rank)
        _check_extent(x, source, _size(axes), tiled, "all_to_all")
        if isinstance(axes, Devices):
            return of_devices.exchanged(x, axes, source, target, tiled)
        x = _split(x, source, _size(axes), tiled)
        mine = dynamic_index_in_dim(_gathered(x, axes), _number(axes), source + 1, keepdims=False)
        return _in_place(mine, target, tiled)

    return _moved(leaf, x)


def ppermute(x: Any, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Any:
    """Member j's result is member i's value for the pairs (i, j) of `perm`, and zeros where no pair names j."""
    axes = _axes(axis_name, "ppermute")
    count, pairs = _size(axes), [(int(i), int(j)) for i, j in perm]
    sources = _sources(pairs, count)
    if isinstance(axes, Devices):
        devices = axes
        return tree.map(lambda x: of_devices.permuted(_array(x, "ppermute"), devices, pairs), x)
    members = axes
    received = np.array([s is not None for s in sources], np.bool_)
    order = np.array([s or 0 for s in sources], np.int32)

    def leaf(x: Any) -> Any:
        everyone = mnp.take(_gathered(_array(x, "ppermute"), members), order, axis=0, mode="clip")
        mine = dynamic_index_in_dim(everyone, _number(members), 0, keepdims=False)
        if received.all():
            return mine
        return mnp.where(mnp.asarray(received)[_number(members)], mine, mnp.zeros_like(mine))

    return tree.map(leaf, x)


def _sources(perm: Sequence[tuple[int, int]], count: int) -> list[int | None]:
    """Who sends to each member."""
    sources: list[int | None] = [None] * count
    for i, j in perm:
        if not (0 <= i < count and 0 <= j < count):
            raise ValueError(f"ppermute: perm has {(i, j)}, but members go from 0 to {count - 1}")
        if sources[j] is not None:
            raise ValueError(f"ppermute: perm sends to {j} twice, from {sources[j]} and from {i}; once is allowed")
        sources[j] = i
    senders = [i for i, _ in perm]
    twice = next((i for i in senders if senders.count(i) > 1), None)
    if twice is not None:
        fix = "pbroadcast or all_gather, where several want one value"
        raise ValueError(f"ppermute: perm sends from {twice} twice\n  fix: {fix}")
    return sources


def pshuffle(x: Any, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Member i's result is member perm[i]'s value; `perm` holds every member once."""
    count = axis_size(axis_name)
    if sorted(perm) != list(range(count)):
        raise ValueError(f"pshuffle: perm is {list(perm)}; it must hold every number from 0 to {count - 1} once")
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])


def pbroadcast(x: Any, axis_name: AxisName, source: int) -> Any:
    """Member `source`'s value for all members."""
    axes = _axes(axis_name, "pbroadcast")
    if not 0 <= source < _size(axes):
        raise ValueError(f"pbroadcast: source is {source}, but members go from 0 to {_size(axes) - 1}")
    if isinstance(axes, Devices):
        devices = axes
        return tree.map(lambda leaf: of_devices.broadcast(leaf, devices, source, "pbroadcast"), x)
    members = axes
    return tree.map(lambda leaf: _gathered(_array(leaf, "pbroadcast"), members)[source], x)


def pswapaxes(x: Any, axis_name: AxisName, axis: int, *, axis_index_groups: Any = None) -> Any:
    """The batch's dim and dim `axis`, of the same extent, change places."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: AxisName,
    axis_index_groups: Any = None,
) -> Any:
    """`output` with rows that devices send each other (`jax.lax.ragged_all_to_all`): to device i go `send_sizes[i]` rows of
    operand from `input_offsets[i]` on, and stand there from `output_offsets[i]` on.

    Offsets and sizes are i32[devices]. All rows are gathered, since sizes are known only when it runs; `recv_sizes` are what
    follows from the others."""
    what = "ragged_all_to_all"
    operand, output = _array(operand, what), _array(output, what)
    parts = [_array(x, what) for x in (input_offsets, send_sizes, output_offsets)]
    if shape_of(operand)[1:] != shape_of(output)[1:]:
        raise ValueError(f"{what}: rows of operand {shape_of(operand)} and of output {shape_of(output)} must have one shape")
    groups = axis_index_groups
    starts, sizes, targets = (
        mnp.expand_dims(all_to_all(x, axis_name, 0, 0, axis_index_groups=groups, tiled=True), 1) for x in parts
    )
    rows = mnp.arange(shape_of(operand)[0], dtype=np.int32)
    is_sent = (rows >= starts) & (rows < starts + sizes)
    places = mnp.where(is_sent, rows - starts + targets, shape_of(output)[0])
    everyone = all_gather(operand, axis_name, axis_index_groups=groups, tiled=True)
    return output.at[mnp.ravel(places)].set(everyone, mode="drop")


def pcast(x: Any, axis_name: AxisName, *, to: str) -> Any:
    """The arrays of a tree, taken to be something else along axes of a shard_map (`jax.lax.pcast`). Nothing is sent or computed.

    Along an axis a value is "invarying" (the same on all devices), "varying", "unreduced" (devices hold addends of it), or
    "reduced" (the same, and its cotangent is unreduced). Invarying becomes varying, and backwards cotangents are summed;
    or reduced, and backwards their sum is finished; reduced becomes varying, and varying unreduced. ValueError for others."""
    if isinstance(axis_name, set | frozenset):
        raise TypeError(f"pcast: axis_name must be a name or a tuple of names, got {axis_name}")
    axes = [find_axis(name, "pcast") for name in _names(axis_name)]
    names = tuple(axis.name for axis in axes if isinstance(axis, DeviceAxis))
    if to not in ("unreduced", "reduced", "varying"):
        raise ValueError(f"pcast: to is {to!r}; it is 'varying', 'unreduced' or 'reduced'")
    return tree.map(lambda leaf: of_devices.cast(leaf, names, to), x)


def pvary(x: Any, axis_name: AxisName) -> Any:
    """`pcast(x, axis_name, to="varying")`, under its older name."""
    return pcast(x, axis_name, to="varying")
