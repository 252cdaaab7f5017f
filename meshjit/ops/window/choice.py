"""What the largest (smallest) element of each window decides: select_and_gather, select_and_scatter.

They are the derivative of reduce_window with max and min. Of each window the *chosen* element is the first that is
larger (smaller) than all before it, the last dim fastest; an element that is the identity of the reduction, as padding
is, is never chosen. Params: those of reduce_window without base_dilation, and `kind`, max or min.

    select_and_gather(moved, operand)        of each window the element of `moved` at the chosen place; 0 if there is none
    select_and_scatter(operand, source)      each window's element of `source` added to zeros at the chosen place

Where one window sees a whole dim that is sharded, every device chooses among its own elements, and then the best of these
wins, of equal ones the first: two small reductions of one element per window (`owners`).

For small windows both are written as a few elementwise operations per place, which XLA fuses into one loop over the
result; XLA's own select-and-scatter walks its windows one by one on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from meshjit.core.local import LocalEquation
from meshjit.core.op import Op, Params, Types
from meshjit.core.program import Builder, Var
from meshjit.core.types import TensorType
from meshjit.emit.emitter import integers, literal, tensor
from meshjit.ops.base.batching import align_to_first
from meshjit.ops.base.constants import scalar
from meshjit.ops.base.families import DTYPE_CLASSES, factor_names, require, require_param
from meshjit.ops.slicing.halos import shard_axes
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.ops.window.params import batched_windows, slides_of
from meshjit.ops.window.sliding import Slide, only_window
from sharding.rule import FactorRule

Array = np.ndarray[Any, Any]
I32 = np.dtype(np.int32)
UNROLLED = 64  # places of a window up to which these ops are written out
CHOICE_PARAMS = ("window", "strides", "padding", "window_dilation")


def check_choice(name: str, in_types: Types, params: Params) -> tuple[TensorType, TensorType]:
    require(len(in_types) == 2, name, f"takes 2 operands, was given {len(in_types)}")
    require_param(params["kind"] in ("max", "min"), name, "kind", repr(params["kind"]), "write max or min")
    first, second = in_types
    is_place = name == "select_and_gather" and first.dtype in (I32, np.int64)  # see `owners`
    require(is_place or first.dtype == second.dtype, name, f"operand dtypes differ: {first} and {second}")
    require(DTYPE_CLASSES["real"](second.dtype), name, f"takes real operands, was given {second}")
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
        operands_of = [names[v] for v in eqn.inputs]
        results = eqn.op.emit(e, operands_of, eqn.input_types, eqn.output_types, eqn.params)
        names.update(zip(eqn.outputs, results, strict=True))
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
    """`a b, a b -> 1 b | permute b, sum a`: windows slide along b, and one window sees all of a."""
    names, kinds, outer = factor_names(len(slides)), dict[str, str](), list[tuple[str, ...]]()
    for name, slide in zip(names, slides, strict=True):
        outer.append(() if is_alone(slide) else (name,))
        if not slide.is_trivial:
            kinds[name] = "sum" if is_alone(slide) and result == "o" else "permute"
    values = {"i": tuple((n,) for n in names), "o": tuple(outer)}
    sizes = {name: slide.extent for name, slide in zip(names, slides, strict=True)}
    return FactorRule(tuple(values[v] for v in operands), (values[result],), kinds, sizes)


def is_alone(slide: Slide) -> bool:
    """Whether there is one window along the dim."""
    return slide.out == 1 and not slide.is_trivial


def seen_alone(local: LocalEquation, operand: Var, slides: Sequence[Slide], fill: Any) -> tuple[Var, dict[int, Any]]:
    """The operand with `fill` wherever the only window of a sharded dim does not look; and these dims with their axes."""
    alone: dict[int, Any] = {}
    for dim, (name, slide) in enumerate(zip(factor_names(len(slides)), slides, strict=True)):
        axes = shard_axes(local, name)
        if axes and is_alone(slide):
            operand, alone[dim] = only_window(local, operand, dim, slide, axes, fill), axes
    return operand, alone


def alone_params(params: Params, shape: Sequence[int], alone: Sequence[int]) -> dict[str, Any]:
    """Params of a device: of dims in `alone` the window is the shard."""
    entries = {"strides": 1, "padding": (0, 0), "window_dilation": 1}
    changed = {
        name: tuple(entry if d in alone else old for d, old in enumerate(params[name])) for name, entry in entries.items()
    }
    window = tuple(shape[d] if d in alone else n for d, n in enumerate(params["window"]))
    return {**params, **changed, "window": window}


def choice_batch(op: Callable[[], Op]) -> Any:
    def batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
        aligned, dim = align_to_first(operands, dims)
        return [op()(*aligned, **batched_windows(params, dim))], [dim]

    return batch


CHOICE_KINDS = [("max", "f32"), ("min", "f32"), ("max", "bf16"), ("min", "i32")]
