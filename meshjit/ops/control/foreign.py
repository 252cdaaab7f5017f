"""Calls of functions that others have compiled and registered with XLA: `ffi_call`.

    %y, %info = ffi_call(%a) {target='lapack_spotrf_ffi', results=(f32[5, 5], i32[]), attributes='{uplo = 76 : ui8}', ...}

Params: target, the name under which the function is registered; results, their types; attributes, as MLIR writes them;
api_version, 4 for XLA's typed FFI; input_layouts and output_layouts, dims from minor to major; aliases, pairs (operand,
result) of one memory; has_side_effect; vmap_method, as that of pure_callback. The function is given whole arrays, or, in code for
single devices (`manual`), shards. Nothing else is known of it. Without side effects it is a function of its operands, and every
device that needs its results calls it; with them one device does, and sends the results.

Source: JAX's "Foreign function interface (FFI)".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from meshjit.core.effects import Effect
from meshjit.core.local import LocalEquation
from meshjit.core.op import Absent, Op, Params, Sample, Types
from meshjit.core.program import Var, current_builder
from meshjit.ops.base.families import require
from meshjit.ops.control.callback import batched_by_method, one_calls
from meshjit.ops.control.nested import whole_rule
from sharding.spec import PartitionSpec

Layouts = Sequence[Sequence[int]]


def _type(in_types: Types, params: Params) -> Types:
    for what, types in (("input", in_types), ("output", params["results"])):
        ranks = [len(layout) for layout in params[f"{what}_layouts"]]
        require(ranks == [t.rank for t in types], "ffi_call", f"{what} layouts of {ranks} dims for {list(map(str, types))}")
    return params["results"]


def _evaluate(*arrays: Any, target: str, **params: Any) -> NoReturn:
    raise NotImplementedError(
        f"what {target} computes is known to XLA's devices alone, not in NumPy\n"
        "  fix: a pure_callback of a NumPy function in its place"
    )


def _emit(e: Any, operands: Sequence[str], ins: Types, outs: Types, params: Params) -> Sequence[str]:
    aliases = ", ".join(_alias(i, o, len(outs)) for i, o in params["aliases"])
    attributes = (
        f"call_target_name = {e.string(params['target'])}, api_version = {params['api_version']} : i32, "
        f"backend_config = {params['attributes']}, has_side_effect = {str(params['has_side_effect']).lower()}, "
        f"operand_layouts = {_layouts(params['input_layouts'])}, result_layouts = {_layouts(params['output_layouts'])}, "
        f"output_operand_aliases = [{aliases}]"
    )
    return e.op("custom_call", operands, outs, attributes)


def _layouts(layouts: Layouts) -> str:
    return f"[{', '.join(f'dense<{list(order) if order else str()}> : tensor<{len(order)}xindex>' for order in layouts)}]"


def _alias(operand: int, result: int, results: int) -> str:
    indices = f"output_tuple_indices = [{result if results > 1 else ''}]"
    return f"#stablehlo.output_operand_alias<{indices}, operand_index = {operand}, operand_tuple_indices = []>"


class _NoDerivative(Absent):
    """An error that names the function."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        which = f" of {args[-1]['target']!r}" if args else ""
        raise ValueError(
            f"ffi_call{which} has no derivative: {self.reason}\n  fix: custom_jvp or custom_vjp around the call say what it is"
        )

    def __bool__(self) -> bool:
        return True  # it is asked, and answers with the error


_NO_DERIVATIVE = _NoDerivative("nothing is known of the function", error=ValueError)


def _batch(operands: Sequence[Var], dims: Sequence[int | None], params: Params) -> Any:
    shared_in_full = params["vmap_method"] != "legacy_vectorized"

    def whole(size: int) -> Params:
        outer = [shared_in_full or d is not None for d in dims]
        return {
            **params,
            "results": tuple(t.with_shape((size, *t.shape)) for t in params["results"]),
            "input_layouts": tuple(_outer(x) if o else x for x, o in zip(params["input_layouts"], outer, strict=True)),
            "output_layouts": tuple(map(_outer, params["output_layouts"])),
        }

    return batched_by_method(ffi_call, whole, operands, dims, params)


def _outer(layout: Sequence[int]) -> tuple[int, ...]:
    """With one more dim in front, the most major."""
    return (*(n + 1 for n in layout), 0)


_of_one = one_calls(lambda: ffi_call)


def _partition(local: LocalEquation) -> list[Var]:
    if local.params["has_side_effect"]:
        return _of_one(local)
    return list(current_builder().emit(ffi_call, local.operands, local.params))


def _pinned(params: Params) -> tuple[list[PartitionSpec], list[PartitionSpec], frozenset[str]]:
    return [PartitionSpec()] * len(params["input_layouts"]), [PartitionSpec()] * len(params["results"]), frozenset()


def _no_samples() -> list[Sample]:
    """A function of somebody else's: tests over the registry know none."""
    return []


ffi_call = Op(
    name="ffi_call",
    type_rule=_type,
    factor_rule=whole_rule,
    evaluate=_evaluate,
    emit=_emit,
    samples=_no_samples,
    jvp=_NO_DERIVATIVE,
    transpose=_NO_DERIVATIVE,
    batch=_batch,
    partition=_partition,
    pinned=_pinned,
    effects=lambda params: Effect.IO if params["has_side_effect"] else Effect.NONE,
)
