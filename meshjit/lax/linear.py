"""Linear functions: their transposes, transposes of the user's, and closures as arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshjit.api.tracebacks import boundary
from meshjit.core.program import Program
from meshjit.core.promotion import is_python_number
from meshjit.core.region import Rule
from meshjit.core.types import TensorType, is_inexact
from meshjit.lax.custom_rules import Function, custom_call, traced_rule
from meshjit.lax.regions import apply, captured_first, leaves_of, trace_region
from meshjit.numpy.promote import described, ops
from meshjit.trace import Argument, Tracer, argument_of, bind_program
from meshjit.trace.explicit import sharding_in_type
from meshjit.trace.names import function_name
from meshjit.transform.derivable import derivable
from meshjit.transform.transpose import backward
from meshjit.trees import WORDS as tree


@dataclass(frozen=True)
class Closed:
    """A function of trees of arrays without closures: `captured` are the values that it closed over, its first arguments."""

    program: Program
    captured: list[Any]
    structure: Any  # of the tuple of arguments
    out_tree: Any
    out_weak: tuple[bool, ...]
    mesh: Any

    @property
    def bare(self) -> Closed:
        """The same without the values, for rules: those would be closed over by these."""
        return replace(self, captured=[])

    def flat(self, captured: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        types = self.program.input_types[len(captured) :]
        arrays = [np.asarray(x, t.dtype) if is_python_number(x) else x for x, t in zip(leaves, types, strict=True)]
        return bind_program(self.program, [*captured, *arrays], self.out_weak, self.mesh)

    def __call__(self, captured: Sequence[Any], *args: Any) -> Any:
        leaves, structure = tree.flatten(args)
        if structure != self.structure:
            raise TypeError(
                "The inputs to the closure produced by closure_convert must have the same Pytree structure as the example "
                f"arguments passed when closure_convert was called. Expected {self.structure}, but got {structure}"
            )
        types = self.program.input_types[len(captured) :]
        for i, (x, type) in enumerate(zip(leaves, types, strict=True)):
            given = argument_of(x).type
            if given != type and not (is_python_number(x) and given.shape == type.shape):
                raise TypeError(
                    f"closure_convert: argument {i} is {given} here, and was {type} among the example arguments\n"
                    "  fix: closure_convert with example arguments like these"
                )
        return tree.unflatten(self.out_tree, self.flat(captured, leaves))


def closed(fun: Function, *args: Any) -> Closed:
    """fun at arguments of these types, which may have no values (ShapeDtypeStruct)."""
    leaves, structure = tree.flatten(args)
    traced = trace_region(fun, [_argument(x) for x in leaves], *tree.structures(structure), name=function_name(fun))
    return Closed(
        derivable(captured_first(traced)), list(traced.captured), structure, traced.out_tree, traced.out_weak, traced.mesh
    )


def _argument(x: Any) -> Argument:
    if is_python_number(x) or isinstance(x, Tracer | np.ndarray | np.generic) or not hasattr(x, "dtype"):
        return argument_of(x, "an argument")
    type, weak = described(x) or (TensorType(tuple(x.shape), np.dtype(x.dtype)), bool(getattr(x, "weak_type", False)))
    return Argument(type, weak, sharding=sharding_in_type(x))


def closure_convert(fun: Callable[..., Any], *example_args: Any) -> tuple[Callable[..., Any], list[Any]]:
    """(function, values): fun as a function of its arguments and then of the values that it closes over, as far as
    derivatives may go through these (`jax.closure_convert`). The arguments have to be of the types of `example_args`."""
    whole = closed(fun, *example_args)
    hoisted = [isinstance(x, Tracer) and is_inexact(x.dtype) for x in whole.captured]
    values = [x for x, flag in zip(whole.captured, hoisted, strict=True) if flag]

    count = len(values)  # the function must not reach the values themselves: rules that it is given to would
    fixed = [None if flag else x for x, flag in zip(whole.captured, hoisted, strict=True)]
    bare = whole.bare

    def converted(*args: Any) -> Any:
        rest = iter(args[len(args) - count :])
        captured = [next(rest) if flag else x for x, flag in zip(fixed, hoisted, strict=True)]
        return bare(captured, *args[: len(args) - count])

    return converted, values


@boundary
def linear_transpose(fun: Function, *primals: Any, reduce_axes: Any = ()) -> Function:
    """The transpose of a function that is linear in all its arguments (`jax.linear_transpose`): a function from cotangents of the
    result to a tuple of those of the arguments. Of `primals` only shapes and dtypes matter.

    TypeError for a mixture of integers and inexact numbers; from the transpose for a cotangent of another structure or type.
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to transpose is deprecated")
    whole = closed(fun, *primals)
    count = len(whole.captured)
    dtypes = [t.dtype for t in whole.program.input_types[count:]], [t.dtype for t in whole.program.output_types]
    kinds = {is_inexact(d) if d.kind != "b" else None for side in dtypes for d in side}
    if len(kinds) > 1 or None in kinds:
        raise TypeError(
            "linear_transpose only supports [float or complex] -> [float or complex], and integer -> integer functions, "
            f"but got {', '.join(map(str, dtypes[0]))} -> {', '.join(map(str, dtypes[1]))}."
        )
    linear = [i >= count for i in range(len(whole.program.inputs))]
    types = [_argument(x) for x in tree.leaves(primals)]
    program, weak, places = backward(whole.program, linear), [a.weak for a in types], [a.dual.sharding for a in types]

    @boundary
    def transposed(cotangent: Any) -> Any:
        flat, structure = tree.flatten(cotangent)
        if structure != whole.out_tree:
            raise TypeError(f"cotangent tree does not match function output, expected {whole.out_tree} but got {structure}")
        given, types = [argument_of(x) for x in flat], whole.program.output_types
        for a, type in zip(given, types, strict=True):
            if a.type != type:
                raise TypeError(f"cotangent type does not match function output, expected {type} but got {a.type}")
        values = [np.asarray(x, t.dtype) if is_python_number(x) else x for x, t in zip(flat, types, strict=True)]
        # a strong result of a weak argument was converted on the way, and its cotangent is on the way back
        all_weak = all(a.weak or not w for a, w in zip(given, whole.out_weak, strict=True))
        results = bind_program(program, [*whole.captured, *values], [w and all_weak for w in weak], whole.mesh, places)
        return tree.unflatten(whole.structure, results)

    return transposed


def linear_call(fun: Function, fun_transpose: Function, residual_args: Any, linear_args: Any) -> Any:
    """fun(residual_args, linear_args), linear in the latter, with fun_transpose(residual_args, cotangent) as its transpose
    (`jax.custom_derivatives.linear_call`). The transpose of the transpose is fun again."""
    args = (residual_args, linear_args)
    call = custom_call(fun, args, (), [fun_transpose])
    if call is None:
        return fun(*args)
    residual_tree, linear_tree = tree.structures(call.leaves.structure)
    count = residual_tree.num_leaves
    consts = len(call.closed) + count

    def make(linear: tuple[bool, ...]) -> Program:
        if any(linear[:consts]) or not all(linear[consts:]):
            raise TypeError(
                f"linear_call of {call.name}: it is linear in all of its linear arguments together,"
                " and in nothing else"
            )

        def of_leaves(*values: Any) -> list[Any]:
            cotangent = tree.unflatten(call.out_tree, values[count:])
            result, structure = tree.flatten(fun_transpose(tree.unflatten(residual_tree, values[:count]), cotangent))
            if structure != linear_tree:
                raise TypeError(
                    "transpose output pytree structure must match that of linear inputs, "
                    f"got output structure {structure} and input structure {linear_tree}."
                )
            return result

        given = [replace(a, weak=False) for a in call.traced.out_arguments]
        return traced_rule(of_leaves, call, [*call.leaves.arguments[:count], *given], function_name(fun_transpose))[0]

    params = {"body": call.body, "consts": consts, "transpose": Rule(function_name(fun_transpose), make)}
    results = apply(ops("linear_call"), call.operands, call.types, call.traced.out_weak, call.traced.mesh, **params)
    return tree.unflatten(call.out_tree, results)


def with_transpose(fun: Function, transpose: Function, *operands: Any) -> Any:
    """fun(*operands), of arrays. Transposed with respect to the operands marked by `flags` it is
    transpose(flags, the other operands, cotangents of the results), which gives their cotangents."""
    call = custom_call(fun, operands, (), [transpose])
    if call is None:
        return fun(*operands)
    structures, count = tree.structures(call.leaves.structure), len(call.closed)

    def make(linear: tuple[bool, ...]) -> Program:
        if any(linear[:count]):
            raise TypeError(f"{call.name} closes over a value that is differentiated, of which its transpose says nothing")
        flags = linear[count:]
        known = [(s, a) for s, a, flag in zip(structures, call.leaves.arguments, flags, strict=True) if not flag]

        def of_leaves(*values: Any) -> list[Any]:
            others = [tree.unflatten(s, [x]) for (s, _), x in zip(known, values, strict=False)]
            return list(transpose(flags, others, tree.unflatten(call.out_tree, values[len(known) :])))

        arguments = [*(a for _, a in known), *map(Argument, call.out_types)]
        return traced_rule(of_leaves, call, arguments, function_name(transpose))[0]

    params = {"body": call.body, "consts": len(call.operands), "transpose": Rule(function_name(transpose), make)}
    results = apply(ops("linear_call"), call.operands, call.types, call.traced.out_weak, call.traced.mesh, **params)
    return tree.unflatten(call.out_tree, results)


def no_tangents(values: Sequence[Any]) -> list[Any]:
    """The values as constants for derivatives."""
    bind_stop = leaves_of(list(values), "values").values
    return [apply(ops("stop_gradient"), [x], [argument_of(x).type], [False])[0] for x in bind_stop]
