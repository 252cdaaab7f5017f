"""How C++ makes what the usual way gives: the executable of the one op that a call is, or one program of several ops.

A program of several ops is taken only if it gives the usual way's results to the bit: for the call's own operands and
for random ones. Where XLA rounds otherwise once it fuses (a product that is added is rounded once), it is compiled without.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.types import SMALL_INTEGERS
from meshjit.numpy.quick.numbers import original
from meshjit.runtime import eager
from meshjit.runtime.array import Array
from meshjit.runtime.executable import Executable
from meshjit.runtime.fast import fast_call
from meshjit.runtime.placing import place
from meshjit.runtime.shardings import fits, mesh_of
from meshjit.trace import Argument, Traced, trace_to_program
from meshjit.transform.checkify import has_checks
from meshjit.trees import WORDS as tree
from sharding.memory import DEVICE

_LARGE = 1 << 20  # elements: what is computed takes longer than the calls
_DRAWS, _FEW = 8, 1 << 13  # random operands: so many times, while they have few elements
# XLA's passes that are left out until no result differs: a division by what is known becomes a product in "algsimp"; in "fusion"
# what follows a product is added to it before it is rounded.
_LEFT_OUT = ("", "algsimp", "fusion,algsimp")


@dataclass(frozen=True)
class Call:
    """A call of `usual`; `traced` is the same for a trace. Both take Arrays in the structure `in_tree` of (args, kwargs).
    `at_any_size`: one pass over large operands is worth more than to know that each bit is the same."""

    name: str
    usual: Callable[..., Any]
    traced: Callable[..., Any]
    leaves: Sequence[Array]
    in_tree: Any
    at_any_size: bool = False

    def trace(self) -> Traced | None:
        """None if it does more than to compute from its operands, such as to warn."""
        keys = [x._key for x in self.leaves]
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            traced = trace_to_program(self.traced, [Argument(k.type, k.weak) for k in keys], self.in_tree, self.name)
        more = messages or traced.captured or traced.mesh or traced.memories or traced.writes or has_checks(traced.program)
        return None if more or any(k.memory != DEVICE for k in keys) else traced

    def on(self, leaves: Sequence[Any]) -> list[Any]:
        """The usual way's results."""
        args, kwargs = tree.unflatten(self.in_tree, leaves)
        return tree.leaves(self.usual(*args, **kwargs))


def is_possible(leaves: Sequence[Array]) -> bool:
    """Whether C++ may run anything of these operands: not where results have to be looked at, or processes meet."""
    mesh = _mesh(leaves)
    if config.debug_nans or config.debug_infs or mesh.is_multi_process:
        return False
    return len(leaves) == 1 or mesh == eager.common_mesh(leaves, "")


def _mesh(leaves: Sequence[Array]) -> Any:
    return mesh_of(leaves[0].sharding) if leaves else eager.common_mesh((), "")


def of_one_op(call: Call, traced: Traced, results: Sequence[Any]) -> Any:
    """How to run a call that is one op, whose executable is there already; None for others."""
    keys = [x._key for x in call.leaves]
    executable = eager.executable_of(traced.program, _mesh(call.leaves), keys, traced.out_weak)
    if executable is None or not _fits(call, executable):
        return None
    if not (_is_large(call, results) or _equal(results, executable.run_placed(call.leaves))):
        return None
    return _fitting(call, traced, executable, results)


def of_several_ops(call: Call, traced: Traced, results: Sequence[Any]) -> Any:
    """How to run a call that is several ops; None if a program of them gives anything else. It is compiled here."""
    mesh, keys = _mesh(call.leaves), [x._key for x in call.leaves]
    large = _is_large(call, results)
    if large and not call.at_any_size:
        return None
    for passes in _LEFT_OUT[1:2] if large else _LEFT_OUT:
        options = {"xla_disable_hlo_passes": passes} if passes else {}
        executable = eager.compiled(traced.program, mesh, keys, traced.out_weak, options=options)
        way = _fitting(call, traced, executable, results)
        if way is None or large or _gives_the_same(call, executable, results):
            return way
    return None


def _fitting(call: Call, traced: Traced, executable: Executable, results: Sequence[Any]) -> Any:
    """None where operands would have to be moved, or results are other Arrays than the usual way's, or operands themselves."""
    if executable.functions or not _fits(call, executable):
        return None
    if [getattr(x, "_key", None) for x in results] != executable.out_keys:
        return None
    if any(result is x for result in results for x in call.leaves):
        return None
    return fast_call(executable, traced.out_tree, [True] * len(call.leaves))


def _fits(call: Call, executable: Executable) -> bool:
    return all(map(fits, [x._key for x in call.leaves], executable.in_shardings))


def _is_large(call: Call, results: Sequence[Any]) -> bool:
    return sum(x.size for x in [*call.leaves, *results]) > _LARGE


def _gives_the_same(call: Call, executable: Executable, results: Sequence[Any]) -> bool:
    if not _equal(results, executable.run_placed(call.leaves)):
        return False
    rng = np.random.default_rng(0)
    draws = _DRAWS if sum(x.size for x in call.leaves) <= _FEW else 2
    for _ in range(draws):
        drawn = [x if original(x) is not x else _drawn(rng, x) for x in call.leaves]
        if not _equal(call.on(list(map(original, drawn))), executable.run_placed(drawn)):
            return False
    return True


def _drawn(rng: np.random.Generator, like: Array) -> Array:
    """Random elements, in the place of an Array."""
    dtype = like.dtype
    if dtype == np.bool_:
        value = rng.random(like.shape) < 0.5
    elif dtype in SMALL_INTEGERS:
        value = rng.integers(0, 2, like.shape)
    elif dtype.kind in "iu":
        value = rng.integers(0 if dtype.kind == "u" else -4, 9, like.shape)
    else:
        value = rng.normal(size=like.shape) * 3
        value = value + 1j * rng.normal(size=like.shape) if dtype.kind == "c" else value
    return place(np.asarray(value).astype(dtype), like.sharding, committed=like.committed, weak=like.weak_type)


def _equal(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """To the bit, but for those of NaN."""
    return all(_same_elements(np.asarray(x), np.asarray(y)) for x, y in zip(a, b, strict=True))


def _same_elements(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind == "c":
        return _same_elements(a.real, b.real) and _same_elements(a.imag, b.imag)
    if a.dtype.kind in "iub":
        return False
    same = (a == b) & (np.signbit(a) == np.signbit(b))
    return bool(np.all(same | ((a != a) & (b != b))))
