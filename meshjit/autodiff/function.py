"""A Python function at given arguments, as a Program: what every transformation starts from.

Only what is differentiated (or mapped) becomes an input of the Program. Every other argument reaches the function as it
is: a string, a Python bool or a config object can be used in Python, an array is closed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshjit.core.ref import Ref
from meshjit.core.types import TensorType, is_inexact
from meshjit.lax.regions import kind_of_result
from meshjit.lax.written_back import Slots
from meshjit.trace import (
    Argument,
    Traced,
    Tracer,
    active_trace,
    argument_of,
    array_paths,
    as_operand,
    bind_program,
    concrete_info,
    line_of,
    trace_to_program,
    user_source,
)
from meshjit.trace.float0 import float0_zeros, without_float0
from meshjit.trace.names import function_name, parameter_names
from meshjit.trace.refs import is_slot, refs_in, resolved, store_outputs, type_of_ref
from meshjit.trace.values import Known
from meshjit.transform.derivable import derivable
from meshjit.transform.jvp import jvp
from meshjit.tree_views import tangents
from meshjit.trees import WORDS as tree

Function = Callable[..., Any]
_FIX = "leave it out of what is differentiated (argnums=..., or close over it); what is not may be anything"


@dataclass(frozen=True)
class Call:
    """fun(*args, **kwargs), traced. `arguments` are the leaves that were chosen, `wrt` says which of them are inputs of the
    Program (the others reach the function as they are), `operands` are those inputs' values."""

    traced: Traced
    arguments: list[Argument]
    wrt: list[bool]
    operands: list[Any]
    in_tree: Any  # of the chosen arguments
    outcome: Outcome
    slots: Slots = Slots()  # of refs that rules may write to on the way back

    @property
    def inputs(self) -> list[Any]:
        """What the traced Program is applied to: the operands, then what the function closed over."""
        return [*self.operands, *(resolved(self.traced.captured) if Ref.made else self.traced.captured)]

    @property
    def chosen(self) -> list[bool]:
        """The Program's inputs: whether each is an operand (or else something that the function closed over)."""
        return [True] * len(self.operands) + [False] * len(self.traced.captured)

    @property
    def chosen_back(self) -> list[bool]:
        """The same for reverse mode, where slots of refs have cotangents, too."""
        return [True] * len(self.operands) + [is_slot(x) for x in self.traced.captured]

    @property
    def weak(self) -> list[bool]:
        """Of what has cotangents."""
        return [a.weak for a, flag in zip(self.arguments, self.wrt, strict=True) if flag] + [False] * len(self.slots)

    @property
    def types_back(self) -> list[Argument | None]:
        """The types of these cotangents."""
        return [a.dual for a, flag in zip(self.arguments, self.wrt, strict=True) if flag] + [None] * len(self.slots)

    @property
    def value_count(self) -> int:
        """How many of the Program's outputs are the function's value; the others are arrays in aux, and contents of refs."""
        return self.value_tree.num_leaves

    @property
    def value_tree(self) -> Any:
        whole = self.traced.out_tree
        return tree.structures(whole)[0] if self.outcome.has_aux else whole

    def known(self, *directions: Any) -> Known | None:
        """The values of the inputs, then of tangents or cotangents, for custom rules; None under jit and vmap."""
        trace = active_trace()
        if trace is not None and trace.values is None:
            return None
        return Known([*self.inputs, *directions], self.traced.mesh)

    def value(self, outputs: Sequence[Any]) -> Any:
        return tree.unflatten(self.value_tree, outputs[: self.value_count])

    def store(self, outputs: Sequence[Any]) -> None:
        """Store what the function wrote to refs; TypeError where that has a derivative, which would be lost."""
        if not self.traced.writes:
            return
        flags = jvp(self.traced.program, self.chosen, known=None)[1]
        for ref, flag in zip(self.traced.writes, flags[len(flags) - len(self.traced.writes) :], strict=True):
            if flag:
                raise TypeError(_not_derived(ref))
        store_outputs(self.traced.writes, outputs)

    def with_aux(self, outputs: Sequence[Any], *rest: Any) -> tuple[Any, ...]:
        """rest, and aux behind it where the function has one."""
        return (*rest, self.outcome.aux(outputs[self.value_count :])) if self.outcome.has_aux else rest


class Outcome:
    """What a function returned, as arrays for the Program. Of aux only traced values go through it; the others (strings,
    Python numbers, concrete arrays, objects) are kept as they are."""

    def __init__(self, has_aux: bool, what: str) -> None:
        self.has_aux, self.what = has_aux, what
        self.leaves: list[Any] = []
        self.structure: Any = None

    def arrays(self, result: Any, name: str) -> Any:
        """The value, with has_aux (value, traced values of aux); TypeError where there should be an aux and is none."""
        if not self.has_aux:
            return result
        if not (isinstance(result, tuple | list) and len(result) == 2):
            raise TypeError(
                f"{self.what} with has_aux: {name} must return (value, aux), it returned {kind_of_result(result)}\n"
                f"  at {line_of(user_source())}\n"
                "  fix: return (value, aux), or leave has_aux out"
            )
        self.leaves, self.structure = tree.flatten(result[1])
        return result[0], [x for x in self.leaves if isinstance(x, Tracer)]

    def aux(self, arrays: Sequence[Any]) -> Any:
        rest = iter(arrays)
        return tree.unflatten(self.structure, [next(rest) if isinstance(x, Tracer) else x for x in self.leaves])


def call_of(
    fun: Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    what: str,
    positions: Sequence[int] | None = None,
    has_aux: bool = False,
) -> Call:
    """Trace fun(*args, **kwargs) for the derivative called `what` with respect to the arguments at `positions` (None: all).

    TypeError, with its path, for a leaf there that is no array or number. Integers have no derivatives: they reach the
    function as they are, as everything does that is elsewhere."""
    check_function(fun, what)
    if Ref.made:
        _check_no_refs(args, positions, what)
    places = range(len(args)) if positions is None else positions
    names = parameter_names(fun, len(args))
    chosen = without_float0(tuple(args[p] for p in places))
    leaves, in_tree = tree.flatten(chosen)
    paths = [path for p, x in zip(places, chosen, strict=True) for path in tree.path_names(x, names[p])]
    arguments = [argument_of(x, path, _FIX) for x, path in zip(leaves, paths, strict=True)]
    wrt = [is_inexact(a.type.dtype) for a in arguments]
    outcome = Outcome(has_aux, what)
    name = function_name(fun)

    def of_inputs(*inputs: Any) -> Any:
        rest = iter(inputs)
        full = list(args)
        values = tree.unflatten(in_tree, [next(rest) if flag else x for x, flag in zip(leaves, wrt, strict=True)])
        for p, x in zip(places, values, strict=True):
            full[p] = x
        return outcome.arrays(fun(*full, **kwargs), name)

    inputs = [a for a, flag in zip(arguments, wrt, strict=True) if flag]
    operands = [as_operand(x, a) for x, a, flag in zip(leaves, arguments, wrt, strict=True) if flag]
    traced = trace_flat(of_inputs, inputs, operands, _flat_tree(len(inputs)), name, _known(args, kwargs, names))
    slots = Slots.of(traced) if Ref.made else Slots()
    return Call(traced, arguments, wrt, operands, in_tree, outcome, slots)


def trace_flat(
    fun: Function,
    arguments: Sequence[Argument],
    operands: Sequence[Any],
    in_tree: Any,
    name: str,
    names: dict[int, str] | None = None,
) -> Traced:
    """Trace; jitted functions that `fun` calls become part of its Program, so that derivatives see through them, and
    parts at known places are seen whole, so that the derivative of a shift is a shift. `operands`: the values that Python may
    ask for outside of jit, None for those that there are none of."""
    traced = trace_to_program(fun, arguments, in_tree, name, {**array_paths(), **(names or {})}, operands, writes=True)
    return replace(traced, program=derivable(traced.program))


def _check_no_refs(args: tuple[Any, ...], positions: Sequence[int] | None, what: str) -> None:
    for i, x in enumerate(args):
        if (positions is None or i in positions) and refs_in(x):
            raise TypeError(
                f"{what}: argument {i} has a {type_of_ref(refs_in(x)[0])}, with respect to which there is no derivative\n"
                f"  at {line_of(user_source())}\n  fix: pass ref[...], its value; close over a Ref that is only plumbing"
            )


def _not_derived(ref: Any) -> str:
    return (
        "performing a set/swap operation with a differentiated value on a non-differentiated array reference of type"
        f" {type_of_ref(ref)}, made at {line_of(ref.source)}\n  at {line_of(user_source())}\n"
        "  fix: write jax.lax.stop_gradient(value), or make the Ref inside of the differentiated function"
    )


def _flat_tree(count: int) -> Any:
    return tree.structure(((0,) * count, {}))


def _known(args: Sequence[Any], kwargs: dict[str, Any], names: Sequence[str]) -> dict[int, str]:
    """The paths of the arrays among the arguments, by id."""
    return dict(pair for x, name in zip((*args, *kwargs.values()), (*names, *kwargs), strict=True) for pair in known_in(x, name))


def known_in(value: Any, name: str) -> Iterator[tuple[int, str]]:
    try:
        pairs = tree.leaves_with_path(value)
    except (TypeError, ValueError):  # a container that cannot be taken apart, such as a dict with keys of several kinds
        return
    for path, leaf in pairs:
        if isinstance(leaf, Tracer | np.ndarray) or concrete_info(leaf) is not None:
            yield id(leaf), name + tree.keystr(path)


def check_function(fun: Any, what: str) -> None:
    if not callable(fun):
        raise TypeError(f"{what} needs a function, was given {type(fun).__name__}: {fun!r}")


def no_reduce_axes(reduce_axes: Any, what: str) -> None:
    """JAX keeps the argument, and takes no axes any more."""
    if reduce_axes:
        raise NotImplementedError(f"reduce_axes argument to {what} is deprecated")


def operands_of(leaves: Sequence[Any], arguments: Sequence[Argument]) -> list[Any]:
    return [as_operand(x, a) for x, a in zip(leaves, arguments, strict=True)]


def named_leaves(fun: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any, list[str]]:
    """(leaves, structure, paths such as `params['w1']`) of `(args, kwargs)`."""
    leaves, in_tree = tree.flatten((args, kwargs))
    names: list[str] = []
    for name, x in zip(parameter_names(fun, len(args)), args, strict=True):
        names += tree.path_names(x, name)
    for name in sorted(kwargs):
        names += tree.path_names(kwargs[name], name)
    return leaves, in_tree, names


def no_derivative(type: TensorType) -> np.ndarray[Any, Any]:
    """What stands for the derivative with respect to an integer argument: zeros of dtype float0, as in JAX."""
    return float0_zeros(type.shape)


def run(
    program: Any, inputs: Sequence[Any], weak: Sequence[bool], mesh: Any, types: Sequence[Argument | None] | None = None
) -> list[Any]:
    """`mesh`: of the constraints in the function that the Program comes from. `types`: of the results, which are where these say;
    None for one that is where the function has it."""
    shardings = None if types is None else [None if a is None else a.sharding for a in types]
    return bind_program(program, inputs, weak, mesh, shardings)


def gradients(call: Call, results: Iterator[Any]) -> tuple[Any, ...]:
    """Derivatives with respect to the operands as trees like the chosen arguments."""
    leaves = [next(results) if flag else no_derivative(a.type) for a, flag in zip(call.arguments, call.wrt, strict=True)]
    return tangents(call.in_tree, leaves)
