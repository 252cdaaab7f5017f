"""Lowering costs what the program costs, whatever the extents of its arrays: nothing is made that has the size of one.

What is compared between arrays of 8 and of some 2**31 elements is counted, not timed: memory at its peak, calls of functions,
length of the text.
"""

from __future__ import annotations

import cProfile
import re
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import networkx  # noqa: F401  which the first plan that does not fit loads: that is no cost of its arrays'
import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn, random, scipy
from meshjit.sharding import NamedSharding, PartitionSpec as P
from tests.tools import size_cases
from tests.tools.size_cases import LARGE, SMALL

MODULES = {"np": mnp, "lax": lax, "nn": nn, "random": random, "scipy": scipy}
MEGABYTE = 1 << 20
DIGITS = 100  # characters by which numbers of large arrays are longer
PLANS = 3  # as many calls, where arrays do not fit the memory: some plans more are made, whatever the extents


class Cost(NamedTuple):
    memory: int
    calls: int
    text: int


def lowered(call: str, size: int, mesh: Any = None, around: Callable[[Any], Any] = lambda fun: fun) -> str:
    """The text of a function that makes this call of its arguments."""
    known = size_cases.types(size)
    names = [name for name in known if re.search(rf"\b{name}\b", call)]
    given = [mj.ShapeDtypeStruct(*known[name], sharding=placed(mesh, len(known[name][0]))) for name in names]
    if re.search(r"\bk\b", call):
        names, given = [*names, "data"], [*given, mj.ShapeDtypeStruct((2,), np.uint32)]

    def fun(*values: Any) -> Any:
        scope = {**MODULES, "vmap": mj.vmap, **size_cases.numbers(size), **dict(zip(names, values, strict=True))}
        if "data" in scope:
            scope["k"] = random.wrap_key_data(scope["data"])
        return eval(call, scope)

    return mj.jit(around(fun)).lower(*given).as_text()


def placed(mesh: Any, rank: int) -> Any:
    if mesh is None:
        return None
    return NamedSharding(mesh, P("x", "y") if rank > 1 else P(("x", "y")) if rank else P())


def cost(lower: Callable[[], str]) -> Cost:
    """Without the memory."""
    counter = cProfile.Profile(subcalls=False, builtins=False)  # of Python functions, counted in C
    text = counter.runcall(lower)
    return Cost(0, sum(entry.callcount for entry in counter.getstats()), len(text))


def with_memory(lower: Callable[[], str]) -> Cost:
    tracemalloc.start()
    try:
        return cost(lower)._replace(memory=tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def dearer(call: str, factor: int = 2, memory: int = 2 * MEGABYTE, **how: Any) -> str:
    """What of the large call costs more than `factor` times the small one; empty where nothing does. Memory that is asked for
    once alone is nobody's cost: some cache grew just then. That of the small call counts only where the large one takes much."""
    try:
        small = cost(lambda: lowered(call, SMALL, **how))
        large = with_memory(lambda: lowered(call, LARGE, **how))
        if large.memory >= memory:
            small, large = (with_memory(lambda size=size: lowered(call, size, **how)) for size in (SMALL, LARGE))
    except Exception as error:  # noqa: BLE001
        return f"{call}: {error!r:.300}"
    text = factor * small.text + DIGITS
    if large.memory < memory + small.memory and large.calls <= max(factor, PLANS) * small.calls and large.text <= text:
        return ""
    return f"{call}: {small} of arrays of 8, {large} of large ones"


def assert_none_dearer(calls: Sequence[str], **how: Any) -> None:
    found = [text for text in (dearer(call, **how) for call in dict.fromkeys(calls)) if text]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("group", size_cases.GROUPS, ids=lambda group: group.__name__)
def test_no_function_costs_more_for_large_arrays(group: Any) -> None:
    assert_none_dearer(list(group()))


def test_programs_of_a_logarithm_of_parts_grow_by_no_more() -> None:
    """31 doublings instead of 3; what they take is the Program itself."""
    assert_none_dearer(list(size_cases.growing()), factor=20, memory=6 * MEGABYTE)


def test_what_is_a_table_where_it_is_small_is_computed_where_it_is_large() -> None:
    for call in size_cases.computed():
        found = cost(lambda call=call: lowered(call, LARGE))
        assert found.memory < MEGABYTE and found.text < 20_000, f"{call}: {found}"


def test_every_public_function_is_called_or_named_with_the_reason_why_not() -> None:
    calls = "\n".join(call for group in (*size_cases.GROUPS, size_cases.growing, size_cases.computed) for call in group())
    names = {name for name in public_functions() if not re.search(rf"\b{re.escape(name)}\(", calls)}
    missing = {name for name in names if not re.search(rf"\b{re.escape(name)}[,)]", calls)}  # handed to another one
    left = sorted(missing - {*size_cases.NOT_CALLED})
    assert not left, f"neither called nor excused: {left}"


def public_functions() -> list[str]:
    modules = {**MODULES, "np.fft": mnp.fft, "np.linalg": mnp.linalg, "lax.linalg": lax.linalg, "scipy.linalg": scipy.linalg}
    modules |= {"nn.initializers": nn.initializers, "scipy.special": scipy.special}
    return [
        f"{room}.{name}" for room, module in modules.items() for name, value in vars(module).items() if is_public(module, name, value)
    ]


HELPERS = set("""NamedTuple Axes adjoint apply broadcast_all weak_of vary varying_of arange asarray bind broadcast_to cast complex_of concatenate counted dtype_of exactly eye placed
selection shape_tuple concrete kind_of
expand_dims float_of fori_loop iota is_float is_inexact lifted line_of matrices normal_axis ops part_dtype place_dtype promoted real_of
roll shape_of slice_in_dim splat squeeze take_along_axis total transform tril triu user_source zeros
Initializer""".split())


def is_public(module: Any, name: str, value: Any) -> bool:
    """A function that users know by this name: not a helper that a module has imported."""
    is_helper = module is not mnp and name in HELPERS
    return callable(value) and not name.startswith("_") and not isinstance(value, type) and not is_helper


GRADIENTS = """np.mean(f); np.var(f, axis=0); np.std(v); np.linalg.pinv(f[:2]); np.linalg.pinv(f[:, :2]); np.sort(v); np.median(v);
np.pad(v, 3, mode='wrap'); np.take(v, o); v.at[o[0]].add(1.0); v[::2]; np.fft.rfft(v); np.fft.irfft(c[0]).real; nn.softmax(f);
lax.reduce_window(v, -np.inf, lax.max, (2,), (2,), "VALID"); nn.avg_pool(f[None, ..., None], (2, 2)); np.linalg.norm(f);
nn.max_pool(f[None, ..., None], (2, 2)); np.matmul(f, q); np.einsum('ab,ac->bc', f, g); nn.logsumexp(v); np.where(b, f, 0.0);
lax.scan(lambda c, x: (np.sin(c + x), c * x), f[0], f)[1]; lax.map(np.sin, f); lax.fori_loop(0, 9, lambda i, c: c * 0.5 + f, f);
lax.cond(s > 0, np.sin, np.cos, f); np.roll(v, 1); np.interp(v, o[:4] * 1.0, o[:4] * 2.0); np.trace(q);
nn.dot_product_attention(t[None], t[None], t[None]); f + random.normal(k, f.shape); np.nanmean(f); np.average(v, weights=v)"""
PLAIN = [" ".join(call.split()) for call in GRADIENTS.split(";")]


def gradient_of(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Of a sum of all results, with respect to all floats among the arguments."""

    def total(floats: list[Any], others: list[Any]) -> Any:
        taken = [iter(others), iter(floats)]
        return sum(mnp.real(leaf).sum() for leaf in mj.tree.leaves(fun(*(next(taken[is_float]) for is_float in order))))

    order: list[bool] = []

    def gradient(*values: Any) -> Any:
        order[:] = [mnp.issubdtype(value.dtype, np.inexact) and not mnp.iscomplexobj(value) for value in values]
        split = [[value for value, is_float in zip(values, order, strict=True) if is_float == which] for which in (True, False)]
        return mj.grad(total)(*split)

    return gradient


def in_a_loop(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Seven times in a scan that stacks the results, behind a branch."""

    def loop(*values: Any) -> Any:
        def step(count: Any, _: Any) -> Any:
            return count + 1, fun(*values)

        return lax.cond(mnp.asarray(True), lambda: lax.scan(step, 0, None, length=7), lambda: lax.scan(step, 1, None, length=7))

    return loop


WAYS = {"gradient": gradient_of, "loop": in_a_loop, "gradient in a loop": lambda fun: in_a_loop(gradient_of(fun))}


@pytest.mark.parametrize("way, on_mesh", [("gradient", False), ("loop", False), ("gradient", True), ("gradient in a loop", True)])
def test_nor_do_gradients_and_loops_on_one_device_or_a_mesh(way: str, on_mesh: bool) -> None:
    mesh = mj.make_mesh((4, 2), ("x", "y")) if on_mesh else None
    assert_none_dearer(PLAIN, factor=3 if on_mesh else 2, around=WAYS[way], mesh=mesh)
