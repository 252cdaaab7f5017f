"""Calls of functions registered with XLA, as JAX's "Foreign function interface (FFI)" has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from meshjit.api.layouts import Layout
from meshjit.api.putting import with_words
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from meshjit.core.types import DTYPES, TensorType
from meshjit.emit.emitter import element_type, literal, quoted, tensor
from meshjit.ops.control.callback import VMAP_METHODS
from meshjit.trace import argument_of, as_operand, bind_program, user_source
from meshjit.trees import WORDS as tree

Order = tuple[int, ...]


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[Any] | None = None,
    output_layouts: Any = None,
    input_output_aliases: Mapping[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
) -> Callable[..., Any]:
    """A function that calls what is registered as `target_name` (`jax.ffi.ffi_call`), with arrays as positional arguments and
    attributes as keyword arguments: bools, strings, NumPy scalars and arrays, Python's numbers as i64, f64, and dicts of these.

    Args:
      result_shape_dtypes: the result, as anything with a shape and a dtype, or a sequence of these.
      has_side_effect: call it even where nobody needs the results; one device does. Without, every device that needs the results
        calls it with the same whole arrays. Inside of shard_map every device calls it with its own shards.
      vmap_method: as that of `pure_callback`.
      input_layouts: per argument None (as NumPy has it), a `Layout`, or its dims from major to minor. `output_layouts`: so, too.
      input_output_aliases: number of an argument → number of the result that takes its memory.
      custom_call_api_version: 4 for XLA's typed FFI. Earlier ones take no attributes, but the string legacy_backend_config.

    Differentiating the call raises ValueError: custom_jvp or custom_vjp around it say what the derivative is. A name that nobody
    has registered is a RuntimeError when the program is compiled."""
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"ffi_call: there is no vmap_method {vmap_method!r}; there are {', '.join(map(repr, VMAP_METHODS))}")
    several = isinstance(result_shape_dtypes, Sequence)
    results = _result_types(result_shape_dtypes if several else [result_shape_dtypes])
    out_orders = _orders(results, output_layouts if several or output_layouts is None else [output_layouts], _OUTPUTS)
    if custom_call_api_version >= 4 and legacy_backend_config is not None:
        raise ValueError(
            f"ffi_call: legacy_backend_config is for custom_call_api_version 1 to 3, got {custom_call_api_version}\n"
            "  fix: pass attributes as keyword arguments of the call"
        )

    def call(*args: Any, **attributes: Any) -> Any:
        leaves = tree.leaves(args)
        arguments = [argument_of(x, f"args[{i}]") for i, x in enumerate(leaves)]
        types = [a.type for a in arguments]
        in_orders = _orders(types, input_layouts, _INPUTS)
        params = {
            "target": target_name,
            "results": results,
            "attributes": _config(attributes, custom_call_api_version, legacy_backend_config),
            "api_version": custom_call_api_version,
            "input_layouts": in_orders,
            "output_layouts": out_orders,
            "aliases": _aliases(input_output_aliases or {}, types, results, in_orders, out_orders),
            "has_side_effect": bool(has_side_effect),
            "vmap_method": vmap_method,
        }
        with Builder("ffi_call") as builder, builder.at(user_source()):
            inputs = [builder.input(type) for type in types]
            program = builder.build(builder.emit(REGISTRY["ffi_call"], inputs, params))
        operands = [as_operand(x, a) for x, a in zip(leaves, arguments, strict=True)]
        outputs = bind_program(program, operands, [False] * len(results))
        if not several:
            return outputs[0]
        return tuple(outputs) if isinstance(result_shape_dtypes, tuple) else list(outputs)

    return call


def _result_types(structs: Sequence[Any]) -> tuple[TensorType, ...]:
    for i, struct in enumerate(structs):
        if not hasattr(struct, "shape") or not hasattr(struct, "dtype"):
            raise ValueError(
                f"ffi_call: result_shape_dtypes[{i}] is {struct!r}, which has no shape and dtype\n"
                "  fix: ShapeDtypeStruct(shape, dtype)"
            )
    return tuple([TensorType(tuple(s.shape), np.dtype(s.dtype)) for s in tree.leaves(with_words(list(structs)))])


# -- layouts: the user's from major to minor, the op's from minor to major

_INPUTS = "ffi_call: {} arguments and {} input_layouts\n  fix: one for each argument, None where it lies as NumPy's arrays"
_OUTPUTS = "ffi_call: {} results and {} output_layouts\n  fix: one for each result, None where it lies as NumPy's arrays"


def _orders(types: Sequence[TensorType], layouts: Sequence[Any] | None, mismatch: str) -> tuple[Order, ...]:
    if layouts is None:
        layouts = [None] * len(types)
    if len(layouts) != len(types):
        raise ValueError(mismatch.format(len(types), len(layouts)))
    return tuple([_order(t, layout) for t, layout in zip(types, layouts, strict=True)])


def _order(type: TensorType, layout: Any) -> Order:
    if layout is None:
        return tuple(reversed(range(type.rank)))
    if isinstance(layout, Layout):
        layout = layout.major_to_minor
    return tuple([int(n) for n in layout[::-1]])


def _aliases(
    given: Mapping[int, int],
    types: Sequence[TensorType],
    results: Sequence[TensorType],
    in_orders: Sequence[Order],
    out_orders: Sequence[Order],
) -> tuple[tuple[int, int], ...]:
    pairs = [(int(i), int(o)) for i, o in sorted(given.items())]
    for i, o in pairs:
        alias = f"ffi_call: input_output_aliases[{i}] is {o}, "
        for kind, n, count in (("argument", i, len(types)), ("result", o, len(results))):
            if n >= count:
                raise ValueError(f"{alias}but there is no {kind} {n}: there are {count}")
        if types[i] != results[o]:
            both = f"the argument is {_shown(types[i])} and the result {_shown(results[o])}"
            raise ValueError(f"{alias}but {both}: they must be alike")
        if in_orders[i] != out_orders[o]:
            orders = f"the argument's dims lie in the order {in_orders[i][::-1]} and the result's in {out_orders[o][::-1]}"
            raise ValueError(f"{alias}but {orders}\n  fix: the same layout for both")
    return tuple(pairs)


def _shown(type: TensorType) -> str:
    return f"{type.dtype.name}[{','.join(map(str, type.shape))}]"


# -- attributes, as MLIR writes them


def _config(attributes: Mapping[str, Any], version: int, legacy: str | None) -> str:
    if version < 4:
        if attributes:
            raise ValueError(
                f"ffi_call: attributes ({', '.join(attributes)}) are for custom_call_api_version 4, got {version}\n"
                "  fix: legacy_backend_config, a string"
            )
        return quoted(legacy or "")
    for name, value in attributes.items():
        _require_hashable(name, value)
    return _attribute(dict(attributes))


def _require_hashable(name: str, value: Any) -> None:
    if isinstance(value, np.ndarray | dict):
        return
    try:
        hash(value)
    except TypeError as error:
        fix = "a number, a string, a NumPy array, or a dict of these"
        raise TypeError(f"ffi_call: the attribute {name} is {value!r}, which cannot be hashed\n  fix: {fix}") from error


def _attribute(value: Any) -> str:
    if isinstance(value, str | bytes):
        return quoted(value if isinstance(value, str) else value.decode("latin-1"))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{quoted(str(k))} = {_attribute(v)}' for k, v in sorted(value.items()))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_attribute, value))}]"
    if isinstance(value, np.ndarray):
        return f"{literal(value)} : {tensor(TensorType(value.shape, value.dtype))}"
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, int | float):
        value = np.int64(value) if isinstance(value, int) else np.float64(value)
    if isinstance(value, np.generic) and value.dtype in DTYPES.values():
        return _scalar(value)
    fix = "a number, a string, a NumPy array, or a dict of these"
    raise TypeError(f"ffi_call: an attribute is {value!r} of type {type(value).__name__}\n  fix: {fix}")


def _scalar(value: Any) -> str:
    if value.dtype.kind == "c":
        raise TypeError(f"ffi_call: an attribute is the complex number {value!r}\n  fix: its real and imaginary parts, as two")
    kind = element_type(value.dtype)
    if value.dtype.kind in "iu":
        return f"{value} : {kind}"
    return f"0x{value.tobytes()[::-1].hex()} : {kind}"
