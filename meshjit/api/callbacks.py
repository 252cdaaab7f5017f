"""Calls of Python functions from traced programs, as JAX's "External callbacks" has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit.api.putting import with_words
from meshjit.config import config
from meshjit.core.host import HostFunction, host_function
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from meshjit.core.promotion import canonical
from meshjit.core.types import TensorType
from meshjit.ops.control.callback import VMAP_METHODS
from meshjit.runtime.array import Array
from meshjit.runtime.callbacks import call_now, host_array
from meshjit.runtime.placing import asarray
from meshjit.trace import Argument, argument_of, as_operand, bind_program, function_name, trace_for, user_source
from meshjit.trees import WORDS as tree
from sharding.named import SingleDeviceSharding


@dataclass(frozen=True)
class FlatCall:
    """`function` as one of flat arrays. `statics` are the leaves that are no arrays, by position."""

    function: Callable[..., Any]
    in_tree: Any
    statics: tuple[tuple[int, Any], ...] = ()
    has_results: bool = True

    def __call__(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        leaves: list[Any] = [host_array(x) for x in arrays]
        for position, value in self.statics:
            leaves.insert(position, value)
        args, kwargs = tree.unflatten(self.in_tree, leaves)
        result = self.function(*args, **kwargs)
        return [np.asarray(x) for x in tree.leaves(result)] if self.has_results else []


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a Python function without side effects (`jax.pure_callback`). It may be called more or less often than written.

    Args:
      callback: is given Arrays on a CPU of this process, in the trees of `args` and `kwargs`, and returns arrays.
      result_shape_dtypes: what it returns, as a tree of anything with a shape and a dtype (`ShapeDtypeStruct`).
      sharding: SingleDeviceSharding of the device that calls; the first of the mesh if left out. It sees whole arrays. Inside
        of shard_map every device calls, with its own shards.
      vmap_method: under vmap "sequential" calls once per member, "sequential_unrolled" without a loop; "expand_dims" once with a
        leading dim, of extent 1 for arguments that all members share; "broadcast_all" once with all arguments broadcast;
        "legacy_vectorized" once with shared arguments as they are; None raises NotImplementedError.

    Differentiating it raises ValueError: custom_jvp or custom_vjp around it say what the derivative is. What the callback raises
    reaches the caller as a RuntimeError with its traceback."""
    if vmap_method not in VMAP_METHODS:
        methods = ", ".join(map(repr, VMAP_METHODS))
        raise ValueError(f"pure_callback: there is no vmap_method {vmap_method!r}; there are {methods}")
    params = {"device": _device(sharding), "vmap_method": vmap_method}
    return _call("pure_callback", callback, result_shape_dtypes, args, kwargs, params)


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function for what it does (`jax.experimental.io_callback`), as often as the program says.

    `ordered`: after all ordered calls before it, those of earlier programs of this thread included; refused under vmap. Without
    it vmap calls once per member, in any order. The other arguments are those of `pure_callback`."""
    params = {"ordered": bool(ordered), "device": _device(sharding)}
    return _call("io_callback", callback, result_shape_dtypes, args, kwargs, params)


def debug_callback(
    callback: Callable[..., Any] | None = None, *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any
) -> Any:
    """Call a Python function to see values (`jax.debug.callback`); its result is dropped.

    It is called whenever the values are computed: for every member of a vmap, in both branches of a cond that members go through
    differently, again where a checkpoint computes again; in differentiated functions with the values, not with tangents.
    Leaves of the arguments that are no arrays reach it as they are. `partitioned`: every device calls it with its own shards.
    Also `debug.callback(ordered=True)(callback, *args)`."""

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if not callable(function):
            raise TypeError(
                f"first argument to debug.callback must be callable, but got an object of type {type(function)}"
            )
        call_for_debugging(function, args, kwargs, ordered, partitioned)

    if callback is not None:
        return call(callback, *args, **kwargs)
    if args or kwargs:
        raise TypeError(f"debug_callback received unexpected arguments in the two-call form: args={args} kwargs={kwargs}")
    return call


def call_for_debugging(
    function: Callable[..., Any], args: Any, kwargs: Any, ordered: bool = False, partitioned: bool = False
) -> None:
    """`debug_callback` without its forms."""
    leaves, in_tree = tree.flatten((args, kwargs))
    arguments = [_argument(x) for x in leaves]
    statics = tuple((i, x) for i, (x, a) in enumerate(zip(leaves, arguments, strict=True)) if a is None)
    operands = [(as_operand(x, a), a) for x, a in zip(leaves, arguments, strict=True) if a is not None]
    host = host_function(FlatCall(function, in_tree, statics, False), function_name(function), len(operands), ())
    name = "debug_callback_shards" if partitioned else "debug_callback"
    apply_host(name, host, [x for x, _ in operands], [a for _, a in operands], {"ordered": bool(ordered)})


def _argument(leaf: Any) -> Argument | None:
    try:
        return argument_of(leaf)
    except TypeError:
        return None


def _call(
    op: str, callback: Callable[..., Any], result_shape_dtypes: Any, args: Any, kwargs: Any, params: dict[str, Any]
) -> Any:
    leaves, in_tree = tree.flatten((args, kwargs))
    names = tree.path_names((args, kwargs), "args")
    arguments = [argument_of(x, n) for x, n in zip(leaves, names, strict=True)]
    structs, out_tree = tree.flatten(with_words(result_shape_dtypes))
    types = [_result_type(s) for s in structs]
    host = host_function(FlatCall(callback, in_tree), function_name(callback), len(leaves), types)
    operands = [as_operand(x, a) for x, a in zip(leaves, arguments, strict=True)]
    return tree.unflatten(out_tree, apply_host(op, host, operands, arguments, params))


def _result_type(struct: Any) -> TensorType:
    dtype = np.dtype(struct.dtype)
    if canonical(dtype, config.enable_x64) != dtype:
        raise ValueError("result_shape_dtypes cannot specify 64-bit types when `enable_x64` is disabled")
    return TensorType(tuple(struct.shape), dtype)


def _device(sharding: Any) -> int | None:
    """The id of the device that a sharding names."""
    if sharding is None:
        return None
    if not isinstance(sharding, SingleDeviceSharding):
        raise NotImplementedError(f"pure_callback only supports SingleDeviceSharding, but got {type(sharding)}")
    return next(iter(sharding.device_set)).id


def apply_host(
    name: str, host: HostFunction, operands: Sequence[Any], arguments: Sequence[Argument], params: dict[str, Any]
) -> list[Any]:
    """The equation in the active trace; outside of traces the call itself, where its operands can be read here."""
    if trace_for(operands) is None and all(_is_whole_on_each(x) for x in operands):
        return [asarray(x) for x in call_now(host, [np.asarray(x) for x in operands], wraps=not name.startswith("debug"))]
    with Builder(name) as builder, builder.at(user_source()):
        inputs = [builder.input(a.type) for a in arguments]
        program = builder.build(builder.emit(REGISTRY[name], inputs, {"host": host, **params}))
    return bind_program(program, operands, [False] * len(host.results))


def _is_whole_on_each(value: Any) -> bool:
    return not isinstance(value, Array) or value._is_whole_on_each
