"""Functions of the host's as params of equations: what a device's program calls back in Python.

A HostFunction takes NumPy arrays and gives NumPy arrays of known types. Equal calls with equal results are one object, which
the equations that hold it keep alive: a Program, and what is compiled of it, keeps its functions, and nothing else does. Its
text is `host('name', 7, 2, f32[3])`: its number, how many operands it takes, and its results. Reading that gives the object
as long as it lives, and elsewhere one that cannot be called.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from meshjit.core.effects import Effect, own_effect
from meshjit.core.once import once_per_program
from meshjit.core.program import Eqn, Program
from meshjit.core.region import run_programs
from meshjit.core.types import TensorType

Array = np.ndarray[Any, Any]
Call = Callable[[Sequence[Array]], Sequence[Any]]


class HostFunction:
    """`function(arrays)`: of `operands` arrays, NumPy arrays of the types in `results`. `number` names it in texts. Those whose
    calls are equal, by their own `==`, are equal."""

    __slots__ = ("call", "name", "number", "operands", "results", "__weakref__")

    def __init__(self, call: Call, name: str, number: int, operands: int, results: tuple[TensorType, ...]) -> None:
        self.call, self.name, self.number, self.operands, self.results = call, name, number, operands, results

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostFunction) or (self.operands, self.results) != (other.operands, other.results):
            return self is other
        return self is other or bool(self.call == other.call)

    def __hash__(self) -> int:
        try:
            return hash((self.call, self.operands, self.results))
        except TypeError:  # no other is looked for
            return id(self)

    def __call__(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """RuntimeError for results of another number or other types than those declared."""
        values = list(self.call(arrays))
        if len(values) != len(self.results):
            raise RuntimeError(
                "Mismatched number of outputs from callback. "
                f"Expected: {len(self.results)}, Actual: {len(values)}"
            )
        return tuple([_checked(np.asarray(v), t, i) for i, (v, t) in enumerate(zip(values, self.results, strict=True))])

    def with_results(self, results: Sequence[TensorType]) -> HostFunction:
        """The same call where its results are of other types: a batch of them."""
        return host_function(self.call, self.name, self.operands, results)

    def __repr__(self) -> str:
        return f"host({self.name!r}, {self.number})"


def _checked(value: Array, type: TensorType, position: int) -> Array:
    if value.shape != type.shape:
        raise RuntimeError(
            f"Incorrect output shape for return value #{position}: Expected: {type.shape}, Actual: {value.shape}"
        )
    if value.dtype == type.dtype:
        return value
    if value.dtype == _WIDE.get(type.dtype):  # what NumPy and Python make of numbers that nobody gave a dtype
        return value.astype(type.dtype)
    raise RuntimeError(f"Incorrect output dtype for return value #{position}: Expected: {type.dtype}, Actual: {value.dtype}")


_WIDE = {np.dtype(narrow): np.dtype(wide) for narrow, wide in
         {"float32": "float64", "int32": "int64", "uint32": "uint64", "complex64": "complex128"}.items()}  # fmt: skip

_lock = threading.Lock()
_numbers = itertools.count(1)
_alive: WeakKeyDictionary[HostFunction, ref[HostFunction]] = WeakKeyDictionary()  # by nothing that would hold the call


def host_function(call: Call, name: str, operands: int, results: Sequence[TensorType]) -> HostFunction:
    """The one object for equal calls (by their own `==`) with results of these types."""
    new = HostFunction(call, name, 0, operands, tuple(results))
    with _lock:
        alive = _alive.get(new)
        known = None if alive is None else alive()
        if known is None:
            known, new.number = new, next(_numbers)
            _alive[new] = ref(new)
        return known


def read_host_function(name: str, number: int, operands: int, results: Sequence[TensorType]) -> HostFunction:
    """The object of a text: itself where it lives, else one that says that it cannot be called."""
    known = next((function for function in list(_alive) if function.number == number), None)
    if known is not None and known.name == name and known.results == tuple(results):
        return known
    return HostFunction(_Absent(name), name, number, operands, tuple(results))


class _Absent:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, arrays: Sequence[Array]) -> Sequence[Any]:
        raise RuntimeError(f"the function {self.name} was called in the process that printed this program; it is not here")


def without_numbers(text: str) -> str:
    """A Program's text that is the same in processes that made their functions in another order."""
    return re.sub(r"host\(('(?:[^'\\]|\\.)*'|\"[^\"]*\"), \d+", r"host(\1", text)


def calls_host(eqn: Eqn) -> bool:
    """Whether its params hold a function, which a cache by params would keep alive."""
    return "host" in eqn.params or "messages" in eqn.params


HostCall = tuple[HostFunction, bool]  # the function, and whether it is called in order, with a token


def host_calls(program: Program) -> list[HostCall]:
    """The functions that a Program calls, nested Programs included, each once, in the order of the Program."""
    return list(_host_calls(program))


@once_per_program
def _host_calls(program: Program) -> dict[HostCall, None]:
    calls = dict[HostCall, None]()
    for eqn in program.eqns:
        host = eqn.params.get("host")
        if isinstance(host, HostFunction):
            calls[host, bool(own_effect(eqn) & Effect.ORDERED)] = None
        for nested in run_programs(eqn):
            calls |= _host_calls(nested)
    return calls
