"""Functions that become the bodies of loops and branches: traced once, what they close over handed in as operands."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshjit.config import config
from meshjit.core.op import Op
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import TensorType
from meshjit.core.varying import NOWHERE, Axes
from meshjit.numpy.promote import cast
from meshjit.trace import (
    Argument,
    Trace,
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
from meshjit.trace.float0 import without_float0
from meshjit.trace.names import function_name
from meshjit.trace.once import traced_once
from meshjit.trees import WORDS as tree


def in_python() -> bool:
    """Whether loops and branches run as Python: under disable_jit, where there may be values to run them on."""
    trace = active_trace()
    return config.disable_jit and (trace is None or trace.values is not None)


@dataclass(frozen=True)
class Leaves:
    """A pytree of operands: flat values, what they are, their structure and paths."""

    values: list[Any]
    arguments: list[Argument]
    structure: Any

    @property
    def names(self) -> list[str]:
        return [a.name for a in self.arguments]

    @property
    def types(self) -> list[TensorType]:
        return [a.type for a in self.arguments]

    def cast(self, dtypes: Sequence[np.dtype[Any]], weak: Sequence[bool]) -> Leaves:
        """The same in these dtypes."""
        values = [
            x if a.type.dtype == d and a.weak == w else cast(x, d, w)
            for x, a, d, w in zip(self.values, self.arguments, dtypes, weak, strict=True)
        ]
        arguments = [
            replace(a, type=a.type.with_dtype(d), weak=w) for a, d, w in zip(self.arguments, dtypes, weak, strict=True)
        ]
        return Leaves(values, arguments, self.structure)


def leaves_of(value: Any, name: str) -> Leaves:
    """A pytree of arrays and numbers; TypeError with the path of a leaf that is neither."""
    value = without_float0(value)
    flat, structure = tree.flatten(value)
    arguments = [argument_of(x, n) for x, n in zip(flat, tree.path_names(value, name), strict=True)]
    return Leaves([as_operand(x, a) for x, a in zip(flat, arguments, strict=True)], arguments, structure)


def check_callable(what: str, fun: Any) -> None:
    if not callable(fun):
        raise TypeError(f"{what} needs a function, was given {type(fun).__name__}: {fun!r:.60}\n  at {line_of(user_source())}")


def kind_of_result(result: Any) -> str:
    """`an array f32[3]`, `a tuple of 3` or `a str`, for messages."""
    if isinstance(result, Tracer) or concrete_info(result) is not None:
        return f"an array {argument_of(result).type}"
    if isinstance(result, np.ndarray):
        return f"a NumPy array of shape {result.shape}"
    if result is None or tree.is_container(result):
        return tree.kind_text(result)
    name = type(result).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def trace_region(
    fun: Callable[..., Any],
    arguments: Sequence[Argument],
    *structures: Any,
    name: str | None = None,
    everywhere: Axes = NOWHERE,
    operands: Sequence[Any] | None = None,
    of: Any = None,
    what: Hashable = None,
    writes: bool = False,
) -> Traced:
    """fun as a Program; `structures` are those of its positional arguments, `arguments` their leaves together, and `everywhere`
    axes over which all that it is given varies, what it closes over included. `operands`: what Python may ask the values of.
    `writes`: it may write refs, and the caller stores what it wrote.

    It is traced once for equal arguments. Where fun was made for this call, `of` is the user's function that it was made of, and
    `what` all else that it was made of."""
    name = name or function_name(fun)

    def trace() -> Traced:
        dummies = tuple(tree.unflatten(s, [object()] * s.num_leaves) for s in structures)
        in_tree = tree.structure((without_float0(dummies), {}))
        return trace_to_program(fun, arguments, in_tree, name, array_paths(), operands, everywhere, writes)

    return traced_once(fun if of is None else of, (what, name, tuple(arguments), structures, everywhere), trace)


def captured_first(traced: Traced, captured: Sequence[Any] | None = None) -> Program:
    """The Program with what it closed over before its arguments; unread inputs where others closed over more. What it writes
    to refs comes before its results."""
    program = traced.program
    count = len(program.inputs) - len(traced.captured)
    own = dict(zip(map(id, traced.captured), program.inputs[count:], strict=True))
    everything = traced.captured if captured is None else captured
    inputs = [own[id(x)] if id(x) in own else Var(argument_of(x).type) for x in everything]
    program = program.with_inputs([*inputs, *program.inputs[:count]])
    return program.with_outputs(written_first(traced, program.outputs)) if traced.writes else program


def written_first(traced: Traced, outputs: Sequence[Any]) -> list[Any]:
    """What is said of each output, that of what is written to refs first."""
    results = len(outputs) - len(traced.writes)
    return [*outputs[results:], *outputs[:results]]


def split_captured(*traced: Traced) -> tuple[list[Any], list[Any]]:
    """Everything that any of these functions closed over, once: what none of them writes, and the refs that one does."""
    writes = {id(x): x for t in traced for x in t.writes}
    return [x for x in together(*traced) if id(x) not in writes], list(writes.values())


def together(*traced: Traced) -> list[Any]:
    """Everything that any of these functions closed over, once."""
    return list({id(x): x for t in traced for x in t.captured}.values())


def on_one_mesh(*traced: Traced) -> tuple[list[Traced], Any]:
    """The functions with their constraints said on one mesh, and that mesh; ShardingError where they do not go together."""
    trace = Trace(traced[0].program.name)
    programs = [trace.translated(t.program, t.mesh) for t in traced]
    return [replace(t, program=p, mesh=trace.mesh) for t, p in zip(traced, programs, strict=True)], trace.mesh


def apply(
    op: Op,
    operands: Sequence[Any],
    types: Sequence[TensorType],
    weak: Sequence[bool],
    mesh: Any = None,
    unchanged: Mapping[int, Any] | None = None,
    **params: Any,
) -> list[Any]:
    """One equation, staged by the active trace or run at once, its results with weak flags of their own.

    `mesh`: of the constraints in its bodies. `unchanged`: results that are values that the caller has, by their place; the
    others are the equation's."""
    kept = unchanged or {}
    with Builder(op.name) as builder, builder.at(user_source()):
        inputs = [builder.input(t) for t in types]
        beside = {i: builder.input(argument_of(x).type) for i, x in kept.items()}
        own = iter(builder.emit(op, inputs, params))
        program = builder.build([beside[i] if i in beside else next(own) for i in range(len(weak))])
    return bind_program(program, [*operands, *kept.values()], weak, mesh)
