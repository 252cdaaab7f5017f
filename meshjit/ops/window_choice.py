"""What the largest (smallest) element of each window decides: select_and_gather, select_and_scatter.

They are the derivative of reduce_window with max and min. Of each window the *chosen* element is the first that is
larger (smaller) than all before it, the last dim fastest; an element that is the identity of the reduction, as padding
is, is never chosen. Params: those of reduce_window without base_dilation, and `kind`, max or min.

    select_and_gather(moved, operand)        of each window the element of `moved` at the chosen place; 0 if there is none
    select_and_scatter(operand, source)      each window's element of `source` added to zeros at the chosen place

For small windows both are written as a few elementwise operations per place, which XLA fuses into one loop over the
result; XLA's own select-and-scatter walks its windows one by one on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.op import Op, Params, Types
from meshjit.core.program import Builder, Var
from meshjit.core.types import TensorType
from meshjit.emit.emitter import integers, literal, tensor
from meshjit.ops.constants import scalar
from meshjit.ops.families import DTYPE_CLASSES, factor_names, require, require_param
from meshjit.ops.slicing import pad, slice_
from meshjit.ops.sliding import Slide
from meshjit.ops.window_params import batched_windows, slides_of
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
I32 = np.dtype(np.int32)
UNROLLED = 64  # places of a window up to which these ops are written out
CHOICE_PARAMS = ("window", "strides", "padding", "window_dilation")


def check_choice(name: str, in_types: Types, params: Params) -> tuple[TensorType, TensorType]:
    require(len(in_types) == 2, name, f"takes 2 operands, was given {len(in_types)}")
    require_param(params["kind"] in ("max", "min"), name, "kind", repr(params["kind"]), "write max or min")
    first, second = in_types
    require(first.dtype == second.dtype, name, f"operand dtypes differ: {first} and {second}")
    require(DTYPE_CLASSES["real"](first.dtype), name, f"takes real operands, was given {first}")
    return first, second


def pooled(type: TensorType, params: Params) -> TensorType:
    return type.with_shape(tuple(slide.out for slide in slides_of(type, params)))


def bounds(place: Sequence[int], slides: Sequence[Slide]) -> list[tuple[int, int]]:
    """Per dim from where to where the windows' elements at this place are, in the padded operand."""
    starts = [p * s.window_dilation for p, s in zip(place, slides, strict=True)]
    return [(a, a + (s.out - 1) * s.stride + 1) for a, s in zip(starts, slides, strict=True)]


def at_place(var: Var, place: Sequence[int], slides: Sequence[Slide]) -> Var:
    """The elements at this place of every window."""
    start, limit = zip(*bounds(place, slides), strict=True) if slides else ((), ())
    return slice_(var, start=start, limit=limit, strides=tuple(s.stride for s in slides))


def index(place: Sequence[int], slides: Sequence[Slide]) -> tuple[slice, ...]:
    return tuple(slice(low, high, s.stride) for (low, high), s in zip(bounds(place, slides), slides, strict=True))


def emit_body(e: Any, operands: Sequence[str], ins: Types, body: Callable[..., Var]) -> Sequence[str]:
    """StableHLO of `body(*Vars) -> Var`, equation by equation."""
    with Builder() as builder:
        inputs = [builder.input(type) for type in ins]
        result = body(*inputs)
    names = dict(zip(inputs, operands, strict=True))
    for eqn in builder.eqns:
        given = [names[v] for v in eqn.inputs]
        made = eqn.op.emit(e, given, eqn.input_types, eqn.output_types, eqn.params)
        names.update(zip(eqn.outputs, made, strict=True))
    return [names[result]]


def with_padding(x: Var, params: Params, fill: Any) -> Var:
    low, high = zip(*params["padding"], strict=True) if x.rank else ((), ())
    return pad(x, scalar(fill, x.dtype), low=tuple(low), high=tuple(high), interior=(0,) * x.rank)


def keeps(kind: str) -> str:
    """How the chosen element so far compares with the next one if it stays."""
    return "GE" if kind == "max" else "LE"


def window_attributes(params: Params, sides: Sequence[Any]) -> str:
    pads = np.array(sides, np.int64).reshape(-1, 2)
    text = f"padding = {literal(pads)} : {tensor(TensorType(pads.shape, pads.dtype))}"
    return (
        f"{text}, window_dimensions = {integers(params['window'])}, window_strides = {integers(params['strides'])}"
    )


def choice_rule(slides: Sequence[Slide], operands: str, result: str) -> FactorRule:
    """`a b, a b -> a b | permute b`: windows slide along b. Where one window sees a whole dim it is replicated."""
    names = factor_names(2 * len(slides))
    inner, outer, kinds, sizes = list(names[: len(slides)]), list(names[len(slides) :]), dict[str, str](), dict[str, int]()
    for dim, slide in enumerate(slides):
        alone = slide.out == 1 and not slide.is_trivial
        if not alone:
            outer[dim] = inner[dim]
        sizes |= {outer[dim]: slide.out, inner[dim]: slide.extent}
        if not slide.is_trivial:
            kinds |= dict.fromkeys((inner[dim], outer[dim]), "replicate" if alone else "permute")
    values = {"i": tuple((n,) for n in inner), "o": tuple((n,) for n in outer)}
    return FactorRule(tuple(values[v] for v in operands), (values[result],), kinds, sizes)


def choice_batch(op: Callable[[], Op]) -> Any:
    def batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
        from meshjit.ops.batching import align_to_first

        aligned, dim = align_to_first(operands, dims)
        return [op()(*aligned, **batched_windows(params, dim))], [dim]

    return batch


CHOICE_KINDS = [("max", "f32"), ("min", "f32"), ("max", "bf16"), ("min", "i32")]
