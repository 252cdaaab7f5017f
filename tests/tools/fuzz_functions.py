"""Random functions as users write them: code for single devices, custom rules, checkpoints, loops and callbacks in one another.

    python -m tests.tools.fuzz_functions      (where JAX is installed) writes tests/goldens/fuzz_functions.json: what JAX gives
    python -m tests.tools.fuzz_users --minutes 10      runs as many as you like, see there

A `Writer` draws a function of arrays while it is traced: every function has a seed of its own, so that tracing it twice draws
it twice alike. Only names that JAX has are used, so the same seed is the same function there. Values are small integers in f32,
so that sums are exact in any order. From seed `FURTHER` on there are further steps, integers and empty arrays, and JAX may refuse what we
compute; the seeds before are the functions that they were.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.tools import fuzz_rules

GOLDEN = Path(__file__).parents[1] / "goldens" / "fuzz_functions.json"
RULES = 100_000  # the first seed that draws the steps of `fuzz_rules`, too
FURTHER = 1_000_000  # the first seed with further steps instead
RECORDED = (*range(96), *range(RULES, RULES + 40))  # seeds
EXTENTS = (2, 4, 4, 8, 8, 3, 6)
MESHES = (((4, 2), ("x", "y")), ((2, 2, 2), ("x", "y", "z")), ((2, 2), ("x", "y")), ((4,), ("x",)), ((1, 2), ("x", "y")))
LARGEST = 512  # elements of a value


def environment(jax: Any, mesh: Any) -> Any:
    """What functions are written with: JAX's modules, or ours by the same names."""

    def struct(x: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, manual_axis_type=jax.typeof(x).manual_axis_type)

    own = jax.__name__ != "jax"
    alike = importlib.import_module(f"{jax.__name__}.experimental.shard_alike").shard_alike
    checkpointing, checkify = (importlib.import_module(f"{jax.__name__}.{name}") for name in ("ad_checkpoint", "experimental.checkify"))
    return SimpleNamespace(
        alike=alike,
        jax=jax, jnp=jax.numpy, lax=jax.lax, P=jax.sharding.PartitionSpec, mesh=mesh, struct=struct,
        checkify=checkify, checkpoint_name=checkpointing.checkpoint_name,
        pbroadcast=jax.lax.pbroadcast if own else functools.partial(_broadcast, jax), ragged=_ragged if own else _in_blocks,
    )  # fmt: skip


def _broadcast(jax: Any, x: Any, name: str, source: int) -> Any:
    """`pbroadcast` where JAX has none on CPUs."""
    total = jax.lax.psum(jax.numpy.where(jax.lax.axis_index(name) == source, x, 0 * x), name)
    return jax.lax.pcast(total, name, to="varying")


def _ragged(e: Any, x: Any, name: str, n: int, rows: int) -> Any:
    """To device i go (own number + i) % (rows + 1) rows of block i of x; there they stand in the block of the sender."""
    own, everyone, jnp = e.lax.axis_index(name), np.arange(n, dtype=np.int32), e.jnp
    starts, sizes = jnp.asarray(everyone * rows), (own + everyone) % (rows + 1)
    output = jnp.zeros((n * rows, *x.shape[1:]), x.dtype)
    return e.lax.ragged_all_to_all(x, output, starts, sizes, jnp.full(n, own * rows), sizes, axis_name=name)


def _in_blocks(e: Any, x: Any, name: str, n: int, rows: int) -> Any:
    """The same by an all_to_all of whole blocks: JAX has no ragged one on CPUs."""
    blocks = x[: n * rows].reshape(n, rows, *x.shape[1:])
    sizes = (e.lax.axis_index(name) + np.arange(n)) % (rows + 1)
    sent = np.arange(rows)[None, :] < sizes[:, None]
    blocks = e.jnp.where(sent.reshape(n, rows, *[1] * (x.ndim - 1)), blocks, 0)
    return e.lax.all_to_all(blocks, name, 0, 0, tiled=True).reshape(n * rows, *x.shape[1:])


class Writer:
    """Draws one function: steps that each make a value of those that are there.

    `manual`: the mesh axes that the code is for single devices of. `checked`: whether it is known which values vary.
    `explicit`: whether the mesh's axes are, so that operands are brought to equal placements by hand.
    `members`: named axes of vmaps around, with their sizes. `further`: whether the steps that were added later are drawn, too.
    `closed`: mesh axes that nothing inside may name.
    `rules`: whether the steps of `fuzz_rules` are drawn, too.
    `smooth`: whether only what has derivatives is drawn, `forward`: and has them in forward mode. `depth`: how many functions it is inside of.
    """

    def __init__(self, e: Any, seed: int, values: Sequence[Any], manual: tuple[str, ...] = (), checked: bool = True,
                 smooth: bool = True, forward: bool = False, explicit: bool = False, depth: int = 0,
                 members: tuple[tuple[str, int], ...] = (), further: bool = False, rules: bool = False,
                 closed: tuple[str, ...] = ()) -> None:  # fmt: skip
        self.further, self.closed = further, closed
        self.e, self.generator, self.values = e, np.random.default_rng(seed), list(values)
        self.manual, self.checked, self.smooth, self.forward, self.depth = manual, checked, smooth, forward, depth
        self.explicit, self.members, self.rules = explicit, members, rules

    # -- draws

    def number(self, low: int, high: int) -> int:
        return int(self.generator.integers(low, high))

    def coin(self, of: int = 2) -> bool:
        return self.number(0, of) == 0

    def one_of(self, things: Sequence[Any]) -> Any:
        return things[self.number(0, len(things))]

    def pick(self, test: Callable[[Any], bool] = lambda x: True) -> Any:
        fitting = [x for x in self.values if test(x)]
        return self.one_of(fitting) if fitting else None

    def some(self, things: Sequence[Any]) -> tuple[Any, ...]:
        """At least one of them."""
        chosen = [t for t in things if self.coin()]
        return tuple(chosen or [self.one_of(things)])

    # -- functions

    def function(self, smooth: bool | None = None, forward: bool = False, automatic: bool = False, manual: tuple[str, ...] | None = None, checked: bool | None = None,
                 steps: int = 4, members: tuple[tuple[str, int], ...] | None = None, closed: tuple[str, ...] = ()) -> Callable[..., Any]:  # fmt: skip
        """A function of arrays to one array: of their own seed, so drawn alike whenever it is traced."""
        e, seed, count = self.e, self.number(0, 2**31), self.number(1, steps)
        settings = {
            "manual": self.manual if manual is None else manual, "checked": self.checked if checked is None else checked,
            "smooth": self.smooth if smooth is None else smooth, "forward": forward or self.forward,
            "explicit": self.explicit and not automatic and (not manual or (self.further and {*manual} != {*self.e.mesh.axis_names})),
            "depth": self.depth + 1, "further": self.further, "rules": self.rules, "closed": (*self.closed, *closed),
            "members": self.members if manual is None and members is None else members or (),
        }  # fmt: skip

        def drawn(*args: Any) -> Any:
            return Writer(e, seed, args, **settings).write(count)

        return drawn

    def write(self, count: int) -> Any:
        """The last value after `count` steps."""
        kinds = STEPS + (() if self.smooth else ROUGH) + (COLLECTIVES if self.manual else ()) + (MEMBERS if self.members else ())
        kinds += (
            (EXPLICIT if self.explicit else ())
            + (INSIDE if self.depth < 3 else ())
            + (() if self.smooth or self.depth >= 3 else ROUGH_INSIDE)
        )
        if self.further:
            kinds += FURTHER_STEPS + (FURTHER_EXPLICIT if self.explicit and not self.manual else ()) + (FURTHER_INSIDE if self.depth < 3 else ())
        if self.rules and self.depth < 3:
            kinds += fuzz_rules.SMOOTH + (() if self.smooth else fuzz_rules.ROUGH)
        done = 0
        for _ in range(8 * count):
            result = self.one_of(kinds)(self)
            if result is not None and math.prod(result.shape) <= LARGEST:
                self.values.append(self.bounded(result) if self.coin(3) else result)
                done += 1
            if done == count:
                break
        return self.values[-1]

    def bounded(self, x: Any) -> Any:
        return self.e.jnp.clip(x, -7, 7)

    # -- which values vary

    def varying(self, x: Any) -> frozenset[str]:
        return self.e.jax.typeof(x).manual_axis_type.varying if self.manual and self.checked else frozenset()

    def varied(self, x: Any, axes: Sequence[str] | None = None) -> Any:
        """x, varying over all axes of the region, as carries and results of branches have to."""
        if not (self.manual and self.checked):
            return x
        missing = tuple(n for n in (self.manual if axes is None else axes) if n not in self.varying(x))
        return self.e.lax.pcast(x, missing, to="varying") if missing else x

    def like(self, x: Any, result: Any) -> Any:
        """A value of x's shape that depends on result."""
        more = self.placed_as(result, x) if result.shape == x.shape else self.e.jnp.sign(self.e.jnp.sum(result))
        return self.varied(self.bounded(x + more).astype(x.dtype))

    def varied_over(self, x: Any, axes: Sequence[str]) -> Any:
        """x in a region over all axes, varying over these at least."""
        missing = tuple(n for n in axes if n not in self.e.jax.typeof(x).manual_axis_type.varying)
        return self.e.lax.pcast(x, missing, to="varying") if missing else x

    # -- explicit axes

    def placed(self, x: Any, spec: Any = None) -> Any:
        """x where the spec says, by default whole everywhere."""
        return self.e.jax.sharding.reshard(x, self.e.P() if spec is None else spec) if self.explicit else x

    def placed_as(self, x: Any, other: Any) -> Any:
        return self.placed(x, self.e.jax.typeof(other).sharding.spec) if self.explicit else x

    def any_spec(self, shape: Sequence[int]) -> Any:
        return self.spec(shape, self.left)

    @property
    def left(self) -> list[str]:
        """The mesh axes that the code is not for single devices of."""
        return [n for n in self.e.mesh.axis_names if n not in (*self.manual, *self.closed)]

    def size(self, axes: Sequence[str]) -> int:
        return math.prod(dict(zip(self.e.mesh.axis_names, self.e.mesh.axis_sizes, strict=True))[n] for n in axes)

    def spec(self, shape: Sequence[int], axes: Sequence[str], start: Sequence[str] = ()) -> Any:
        """A drawn spec of an array of this shape, over some of the axes, that divides its extents."""
        dims: list[list[str]] = [[] for _ in shape]
        for name in self.generator.permutation(list(axes)):
            d = self.number(0, len(shape) + 1)
            if d < len(shape) and shape[d] % (self.size(dims[d]) * self.size([name])) == 0:
                dims[d].append(str(name))
        return self.e.P(*[tuple(d) if len(d) > 1 else d[0] if d else None for d in dims])


def _names(spec: Any) -> set[str]:
    return {n for entry in spec if entry is not None for n in (entry if isinstance(entry, tuple) else (entry,))}


# -- steps on values


def unary(w: Writer) -> Any:
    x, jnp = w.pick(), w.e.jnp
    return w.one_of((jnp.negative, jnp.abs, lambda v: v * w.number(-1, 3), lambda v: v + 1))(x)


def binary(w: Writer) -> Any:
    x, jnp = w.pick(), w.e.jnp
    y = w.placed_as(w.pick(lambda v: v.shape == x.shape), x)
    return w.one_of((jnp.add, jnp.subtract, jnp.maximum, lambda a, b: a * jnp.sign(b), lambda a, b: jnp.where(a > b, b, 2 * a)))(
        x, y
    )


def reduced(w: Writer) -> Any:
    x = w.pick(lambda v: v.ndim > 0)
    return x if x is None else w.one_of((w.e.jnp.sum, w.e.jnp.max))(x, axis=w.number(0, x.ndim))


def dot(w: Writer) -> Any:
    x = w.pick(lambda v: v.ndim == 2)
    y = None if x is None else w.pick(lambda v: v.ndim == 2 and v.shape[0] == x.shape[1])
    if x is None or y is None:
        return None
    return w.e.jnp.dot(w.e.jnp.sign(x), y, out_sharding=w.any_spec((x.shape[0], y.shape[1])) if w.explicit else None)


def shaped(w: Writer) -> Any:
    x, jnp = w.pick(lambda v: v.ndim > 0), w.e.jnp
    if x is None:
        return None
    k = w.number(0, x.shape[0]) if x.shape[0] else 0
    ways = [lambda v: v.T, lambda v: v[::-1], lambda v: jnp.roll(v, 1, 0), lambda v: v.reshape(-1), lambda v: v[None],
            lambda v: jnp.concatenate([v, -v]), lambda v: v[k:], lambda v: jnp.cumsum(v, 0), lambda v: v.at[0].add(1),
            lambda v: jnp.pad(v, [(1, 0)] * v.ndim), lambda v: jnp.broadcast_to(v, (2, *v.shape))]  # fmt: skip
    return w.one_of(ways)(w.placed(x))


def sorted_(w: Writer) -> Any:
    x = w.pick(lambda v: v.ndim > 0)
    return x if x is None else w.e.jnp.sort(w.placed(x), axis=w.number(0, x.ndim))


STEPS = (unary, binary, binary, reduced, dot, shaped, shaped)
ROUGH = (sorted_,)


# -- collectives of code for single devices


def summed(w: Writer) -> Any:
    x = w.pick()
    varying = sorted(w.varying(x)) or list(w.manual)
    return w.one_of((w.e.lax.psum, w.e.lax.psum, w.e.lax.pmean))(x, w.some(varying))


def largest(w: Writer) -> Any:
    return None if w.smooth else w.one_of((w.e.lax.pmax, w.e.lax.pmin))(w.pick(), w.some(w.manual))


def gathered(w: Writer) -> Any:
    x = w.pick(lambda v: v.ndim > 0)
    if x is None:
        return None
    return w.e.lax.all_gather(x, w.some(w.manual), axis=w.number(0, x.ndim), tiled=w.coin())


def scattered(w: Writer) -> Any:
    axes = w.some(w.manual)
    x = w.pick(lambda v: v.ndim > 0 and v.shape[0] and v.shape[0] % w.size(axes) == 0)
    return x if x is None else w.e.lax.psum_scatter(x, axes, tiled=True)


def exchanged(w: Writer) -> Any:
    axes = (w.one_of(w.manual),)
    x = w.pick(lambda v: v.ndim > 1 and v.shape[0] and v.shape[0] % w.size(axes) == 0)
    return x if x is None else w.e.lax.all_to_all(x, axes[0], 0, 1, tiled=True)


def permuted(w: Writer) -> Any:
    name = w.one_of(w.manual)
    n = w.size((name,))
    pairs = [(i, (i + 1) % n) for i in range(n) if not w.coin(5)]
    return w.e.lax.ppermute(w.pick(), name, pairs)


def indexed(w: Writer) -> Any:
    return w.pick() * (w.e.lax.axis_index(w.one_of(w.manual)) - 1)


def cast(w: Writer) -> Any:
    return w.varied(w.pick(), w.some(w.manual))


def shuffled(w: Writer) -> Any:
    name = w.one_of(w.manual)
    order = w.generator.permutation(w.size((name,))).tolist()
    return w.e.lax.pshuffle(w.pick(), name, order)


def spread(w: Writer) -> Any:
    name = w.one_of(w.manual)
    return w.e.pbroadcast(w.varied(w.pick(), (name,)), name, w.number(0, w.size((name,))))


def ragged(w: Writer) -> Any:
    """Rows that devices send each other, as many as their numbers say."""
    name = w.one_of(w.manual)
    n = w.size((name,))
    x = None if w.smooth else w.pick(lambda v: v.ndim > 0 and v.shape[0] >= n)
    return x if x is None else w.e.ragged(w.e, w.varied(x, (name,)), name, n, x.shape[0] // n)


def unfinished(w: Writer) -> Any:
    """Addends that are added, or cut, before their sum is finished."""
    whole = set(w.manual) == set(w.e.mesh.axis_names)
    x = w.pick(lambda v: bool(w.varying(v))) if whole and w.checked else None
    if x is None:
        return None
    axes = w.some(sorted(w.varying(x)))
    u = w.e.lax.pcast(x, axes, to="unreduced")
    u = w.one_of((lambda v: v, lambda v: v + v, lambda v: v.reshape(-1)))(u)
    if u.ndim and u.shape[0] and u.shape[0] % w.size(axes) == 0 and w.coin():
        return w.e.lax.psum_scatter(u, axes, tiled=True)
    return w.e.lax.psum(u, axes)


COLLECTIVES = (shuffled, spread, ragged, unfinished, unfinished, summed, summed, largest, gathered, scattered, exchanged, permuted, indexed, cast)


# -- collectives of the members of a batch


def of_members(w: Writer) -> Any:
    """One that gives every member a value of the same shape."""
    (name, n), x, lax = w.one_of(w.members), w.pick(), w.e.lax
    pairs = [(i, (i + 1) % n) for i in range(n)]  # all of them: JAX asks for that here
    order, source = w.generator.permutation(n).tolist(), w.number(0, n)
    ways = [lambda v: lax.psum(v, name), lambda v: lax.pmean(v, name), lambda v: lax.ppermute(v, name, pairs),
            lambda v: lax.pshuffle(v, name, order), lambda v: v * (lax.axis_index(name) - 1),
            lambda v: lax.all_gather(v, name)[source]]  # fmt: skip
    return w.one_of(ways if w.smooth else [*ways, lambda v: lax.pmax(v, name), lambda v: lax.pmin(v, name)])(x)


def between_members(w: Writer) -> Any:
    """One that cuts dim 0, or puts parts together along it."""
    (name, n), lax = w.one_of(w.members), w.e.lax
    x = w.pick(lambda v: v.ndim > 0 and v.shape[0] and v.shape[0] % n == 0)
    if x is None:
        return lax.all_gather(w.pick(), name)
    x = x + 0 * lax.axis_index(name)  # of each member's own: JAX's all_to_all of what is not gives other shapes
    ways = (lambda v: lax.psum_scatter(v, name, tiled=True), lambda v: lax.all_gather(v, name, tiled=True),
            lambda v: lax.all_to_all(v, name, 0, 0, tiled=True))  # fmt: skip
    return w.one_of(ways)(x)


MEMBERS = (of_members, of_members, between_members)


# -- placements in types


def resharded(w: Writer) -> Any:
    x = w.pick()
    return w.placed(x, w.any_spec(x.shape))


def automatic(w: Writer) -> Any:
    """A function in which all axes are automatic, its result placed by hand."""
    x, y, f = w.pick(), w.pick(), w.function(automatic=True)
    return w.e.jax.sharding.auto_axes(lambda a, b: w.e.jnp.sum(f(a, b)) + a, out_sharding=w.any_spec(x.shape))(x, y)


def left_unreduced(w: Writer) -> Any:
    """A product whose sum is left unfinished over axes, what is linear in it, and its end."""
    x = w.pick(lambda v: v.ndim == 2 and v.shape[1] > 0)
    y = None if x is None else w.pick(lambda v: v.ndim == 2 and v.shape[0] == x.shape[1])
    if x is None or y is None:
        return None
    axes = [n for n in w.left if w.size((n,)) > 1]
    axes = w.some(axes) if axes else ()
    if not axes or x.shape[1] % w.size(axes):
        return None
    P = w.e.P
    x, y = w.placed(w.e.jnp.sign(x), P(None, axes)), w.placed(y, P(axes))
    u = w.e.jnp.dot(x, y, out_sharding=P(None, None, unreduced=set(axes)))
    f, jnp = w.one_of((lambda v: v, lambda v: v + v, lambda v: v.T, lambda v: v.sum(0), lambda v: w.e.jnp.concatenate([v, v]))), w.e.jnp
    u = f(u)
    if w.coin():
        u = w.e.lax.fori_loop(0, 2, lambda i, c: c + c, u)
    return w.placed(u, w.any_spec(u.shape)).astype(jnp.float32)


def from_reduced(w: Writer) -> Any:
    """A value whose cotangent is a sum that is finished behind everything it is used for."""
    x, axes = w.pick(), w.some(w.left)
    reduced = w.placed(w.placed(x), w.e.P(*[None] * x.ndim, reduced=set(axes)))
    return w.placed(w.e.jnp.sum(reduced * 2 + 1))


EXPLICIT = (resharded, resharded, automatic, left_unreduced, left_unreduced, from_reduced)


# -- functions inside


def shards(w: Writer) -> Any:
    """shard_map over some of the axes that are left."""
    left = w.left
    if not left:
        return None
    whole = (w.explicit and not w.further) or w.coin()
    names, checked = (tuple(left) if whole else w.some(left)), w.checked if w.manual else not w.coin(4)
    args = [w.pick() for _ in range(w.number(1, 3))]
    in_specs = tuple(w.spec(x.shape, names) for x in args)
    args = [w.placed(x, spec) for x, spec in zip(args, in_specs, strict=True)]
    inner, out_spec = w.function(manual=(*w.manual, *names), checked=checked, steps=5), w.spec((64, 64), names)

    def body(*shards: Any) -> Any:
        result = inner(*shards)
        held = Writer(w.e, 0, [], (*w.manual, *names), checked).varying(result) if checked else names
        over = tuple(n for n in names if n not in _names(out_spec) and n in held)
        result = w.e.lax.psum(result, over) if over else result
        return (w.placed(result) if w.explicit and len(names) < len(left) else result).reshape(1, -1)

    settings = {"out_specs": out_spec, "axis_names": set(names), "check_vma": checked}
    inferred = w.further and w.explicit and w.coin()
    return w.e.jax.shard_map(body, **settings, **({} if inferred else {"in_specs": in_specs}))(*args)


def scanned(w: Writer) -> Any:
    carry, x = w.pick(), w.pick(lambda v: v.ndim > 0 and v.shape[0] <= 4)
    f = w.function()
    if x is None:
        return None
    body = lambda c, row: (w.like(c, f(c, row)), row if w.depth else c)  # noqa: E731
    return w.e.lax.scan(body, w.varied(carry), w.varied(w.placed(x)))[0]


def looped(w: Writer) -> Any:
    carry, f = w.pick(), w.function()
    return w.e.lax.fori_loop(0, w.number(0, 4), lambda i, c: w.like(c, f(c)), w.varied(carry))


def branched(w: Writer) -> Any:
    x, test = w.pick(), w.pick()
    f, g = w.function(), w.function()
    total = w.e.jnp.sum(test)
    over = tuple(n for n in w.manual if not w.checked or n in w.varying(total))  # all devices go the same way
    total = w.e.lax.psum(total, over) if over else total
    return w.e.lax.cond(total > 0, lambda v: w.like(v, f(v)), lambda v: w.like(v, g(v)), w.varied(x))


def while_(w: Writer) -> Any:
    """As often as a value says, which differs between devices where it varies: no collectives then."""
    x, f = w.pick(), w.function(manual=())
    if w.manual:
        return None
    bound = w.e.jnp.clip(w.e.jnp.sum(x), 0, 3)
    return w.e.lax.while_loop(lambda c: c[0] < bound, lambda c: (c[0] + 1, w.like(c[1], f(c[1]))), (0.0, x))[1]


def mapped(w: Writer) -> Any:
    x, y = w.pick(lambda v: v.ndim > 0 and v.shape[0] > 0), w.pick()
    if x is None:
        return None
    if w.manual or w.explicit or w.members or w.coin():
        return w.e.jax.vmap(w.function(), in_axes=(0, None))(w.placed(x), y)
    function = w.function(members=(("batch", x.shape[0]),))
    return w.e.jax.vmap(function, in_axes=(0, None), axis_name="batch")(x, y)


def derived(w: Writer) -> Any:
    """The gradient of a drawn function, as large as its argument."""
    x, y, f = w.pick(), w.pick(), w.function(smooth=True)
    x = x.astype(w.e.jnp.float32) if w.further else x
    return w.bounded(w.e.jax.grad(lambda v: w.e.jnp.sum(f(v, y)).astype(x.dtype))(x))


def pushed(w: Writer) -> Any:
    x, f = w.pick(), w.function(smooth=True, forward=True)
    x = x.astype(w.e.jnp.float32) if w.further else x
    return w.e.jax.jvp(f, (x,), (x,))[1]


def jitted(w: Writer) -> Any:
    return w.e.jax.jit(w.function())(w.pick())


def kept(w: Writer) -> Any:
    return w.e.jax.checkpoint(w.function())(w.pick(), w.pick())


def with_jvp(w: Writer) -> Any:
    """A function whose derivative is another's, times two."""
    f, jax = w.function(smooth=True, forward=True), w.e.jax
    function = jax.custom_jvp(f)

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        value, tangent = jax.jvp(f, primals, tangents)
        return value, 2 * tangent

    return function(w.pick())


def with_vjp(w: Writer) -> Any:
    if w.forward:
        return None
    f, x = w.function(smooth=True), w.pick()
    function = w.e.jax.custom_vjp(f)

    def forward(v: Any) -> Any:
        return f(v), v

    def backward(v: Any, cotangent: Any) -> Any:
        return (w.e.jax.vjp(f, v)[1](3 * cotangent)[0],)

    function.defvjp(forward, backward)
    return function(x)


def called(w: Writer) -> Any:
    """Python in the middle of the program, with a batch in front where it is mapped."""
    if w.explicit:
        return None
    x, k = w.pick(), w.number(1, 3)
    method = w.one_of(("sequential", "broadcast_all", "expand_dims"))
    result = w.e.jax.pure_callback(lambda a: (np.asarray(a) * k).astype(np.asarray(a).dtype), w.e.struct(x), x, vmap_method=method)
    return w.varied(result)  # JAX forgets over which axes it varies


# -- further steps


def constrained(w: Writer) -> Any:
    """A value that is pinned over the axes that are left to the compiler."""
    x = w.pick()
    return w.e.lax.with_sharding_constraint(x, w.any_spec(x.shape)) if w.left and not w.explicit else None


def counted(w: Writer) -> Any:
    """Integers of numbers, or numbers of integers; or the signs of a comparison."""
    x, jnp = w.pick(), w.e.jnp
    if w.smooth or w.forward:
        return None
    return w.one_of((lambda v: v.astype(jnp.int32), lambda v: v.astype(jnp.float32), lambda v: (v > 0).astype(v.dtype)))(x)


def sums_of_shards(w: Writer) -> Any:
    """Addends that leave code for single devices as an unfinished sum."""
    x, axes, P, lax = w.pick(), w.some(w.left), w.e.P, w.e.lax
    spec, f = w.spec(x.shape, axes), w.function(manual=tuple(w.left), checked=True)

    def body(x: Any) -> Any:
        return lax.pcast(w.varied_over(f(x), axes).reshape(-1), axes, to="unreduced")

    over = tuple(n for n in w.left if n not in axes)
    finished = (lambda x: lax.psum(body(x), over)) if over else body
    out_spec = P(None, unreduced=set(axes))
    u = w.e.jax.shard_map(finished, in_specs=spec, out_specs=out_spec)(w.placed(x, spec))
    return w.placed(u, w.any_spec(u.shape))


def of_reduced(w: Writer) -> Any:
    """Code for single devices that takes a value whose cotangents are left unfinished."""
    x, y, axes, P = w.pick(), w.pick(), w.some(w.left), w.e.P
    reduced, spec = P(*[None] * x.ndim, reduced=set(axes)), w.spec(y.shape, axes)

    def body(x: Any, y: Any) -> Any:
        x = w.e.lax.pcast(x, axes, to="varying")
        return w.e.lax.psum(w.e.jnp.sum(x) + w.varied_over(w.e.jnp.sum(y), axes), axes)

    mapped = w.e.jax.shard_map(body, in_specs=(reduced, spec), out_specs=P())
    return mapped(w.placed(w.placed(x), reduced), w.placed(y, spec))


def spread_members(w: Writer) -> Any:
    """A batch of code for single devices, spread over an axis that the code leaves alone."""
    x, y = w.pick(lambda v: v.ndim > 1 and v.shape[0] > 0), w.pick()
    if x is None or w.manual or w.explicit or w.members or len(w.left) < 2:
        return None
    name, *names = w.generator.permutation(w.left).tolist()
    checked = not w.coin(4)
    whole = w.coin()
    inner = w.function(manual=tuple(names), checked=checked, closed=(name,) if whole else ())
    specs = w.spec(x.shape[1:], names), w.spec(y.shape, names)

    def body(a: Any, b: Any) -> Any:
        result = inner(a, b)
        held = Writer(w.e, 0, [], tuple(names), checked).varying(result) if checked else names
        over = tuple(n for n in names if n in held)
        return (w.e.lax.psum(result, over) if over else result).reshape(-1)

    chosen = set(w.left) if whole else set(names)
    code = w.e.jax.shard_map(body, in_specs=specs, out_specs=w.e.P(), axis_names=chosen, check_vma=checked)
    return w.e.jax.vmap(code, (0, None), spmd_axis_name=name)(x, y)


def alike(w: Writer) -> Any:
    """One of two values that lie alike."""
    x = w.pick()
    y = w.placed_as(w.pick(lambda v: v.shape == x.shape), x)
    return None if w.manual else w.e.alike(x, y)[w.number(0, 2)]


FURTHER_STEPS = (constrained, counted, alike)
FURTHER_EXPLICIT = (sums_of_shards, of_reduced)
FURTHER_INSIDE = (spread_members, shards)

INSIDE = (shards, shards, scanned, looped, branched, mapped, derived, jitted, kept, with_vjp, with_jvp, pushed)
ROUGH_INSIDE = (called, while_)


@dataclass(frozen=True)
class Drawn:
    """A function of arrays to a list of arrays, its arguments, and the specs that these have on a mesh."""

    function: Callable[..., list[Any]]
    arrays: list[np.ndarray[Any, Any]]
    specs: list[Any]
    mesh: Any
    explicit: bool

    def results(self, jax: Any) -> list[np.ndarray[Any, Any]]:
        """Of the jitted function."""
        with jax.set_mesh(self.mesh):
            arrays: list[Any] = list(self.arrays)
            if self.explicit:
                shardings = [jax.sharding.NamedSharding(self.mesh, s) for s in self.specs]
                arrays = [jax.device_put(x, s) for x, s in zip(arrays, shardings, strict=True)]
            return [np.asarray(x) for x in jax.jit(self.function)(*arrays)]


def drawn_by(jax: Any, seed: int) -> Drawn:
    """A third are gradients, a quarter have explicit axes."""
    generator = np.random.default_rng(seed)
    shape, names = MESHES[seed % len(MESHES)]
    smooth, explicit = seed % 3 == 0, seed % 4 == 1
    types = [jax.sharding.AxisType.Explicit if explicit else jax.sharding.AxisType.Auto] * len(shape)
    mesh = jax.make_mesh(shape, names, axis_types=tuple(types), devices=jax.devices()[: math.prod(shape)])
    e = environment(jax, mesh)
    further = seed >= FURTHER
    extents = (*EXTENTS, 0) if further and generator.integers(0, 4) == 0 else EXTENTS
    dtype = np.int32 if further and not smooth and generator.integers(0, 3) == 0 else np.float32
    arrays = [generator.integers(-3, 4, generator.choice(extents, generator.integers(1, 4))).astype(dtype) for _ in range(2)]
    specs = [Writer(e, seed, []).any_spec(x.shape) for x in arrays]

    def function(*args: Any) -> list[Any]:
        writer = Writer(e, seed, args, smooth=smooth, explicit=explicit, further=further, rules=RULES <= seed < FURTHER)
        writer.write(3 + seed % 5)
        return writer.values[len(args) :][-2:]

    def gradients(*args: Any) -> list[Any]:
        return list(e.jax.grad(lambda *xs: e.jnp.sum(function(*xs)[-1]), (0, 1))(*args))

    return Drawn(gradients if smooth else function, arrays, specs, mesh, explicit)


FAULTS = (  # of JAX 0.10.2
    "should match the aval mesh",  # it traces a rule outside of the code for single devices that asks it
    "has no attribute accum", "Expected cotangent type",  # refs in branches and loops, backwards
    "too many values to unpack (expected 0)",  # checkify of a checkpoint with a policy
)  # fmt: skip
Summary = list[list[Any]] | str


def summary(jax: Any, seed: int) -> Summary:
    """Shape, sum and a sum with weights of every result; or the kind of error."""
    try:
        results = drawn_by(jax, seed).results(jax)
    except Exception as error:  # noqa: BLE001 - its kind is what is recorded
        if any(fault in str(error) for fault in FAULTS):
            return "NotImplementedError"
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")
    weights = [np.arange(x.size, dtype=np.float64) % 7 + 1 for x in results]
    return [
        [list(x.shape), float(x.sum(dtype=np.float64)), float(x.reshape(-1) @ w)] for x, w in zip(results, weights, strict=True)
    ]


def is_alike(mine: Summary, its: Summary, further: bool = False) -> bool:
    """What JAX has not implemented is no difference, nor names of vmaps that rules do not find where JAX traces them later; nor,
    of `further` steps, whatever it refuses."""
    if further and isinstance(its, str):
        return True
    if its in ("NotImplementedError", "NameError"):
        return True
    if isinstance(mine, str) or isinstance(its, str):
        return mine == its
    pairs = list(zip(mine, its, strict=True))
    return all(a[0] == b[0] and np.allclose(a[1:], b[1:], rtol=1e-4, atol=1e-4) for a, b in pairs)


def record(seeds: Sequence[int] = RECORDED, path: str = str(GOLDEN)) -> None:
    jax = importlib.import_module("jax")  # where it is installed, to record what it gives

    lines = [f" {json.dumps(str(seed))}: {json.dumps(summary(jax, seed))}" for seed in seeds]
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        record()
    else:
        record(range(int(sys.argv[1]), int(sys.argv[2])), sys.argv[3])
