"""What a function is traced to, without compiling it, and types of arrays."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from meshjit.api import jit
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.shardings import cut
from meshjit.api.wrapped import Wrapped
from meshjit.core.attached import attached_to
from meshjit.core.keys import KeyType, PRNGKeyArray
from meshjit.core.ref import Ref
from meshjit.core.types import TensorType
from meshjit.runtime import _jaxlib, client
from meshjit.trace import Trace, active_trace, named_scope
from meshjit.trace.explicit import visible_sharding, without_devices
from meshjit.trace.members import member_axis
from meshjit.trace.names import function_name, wraps
from meshjit.trace.refs import value_of
from meshjit.trace.shaped import shaped_array_of
from meshjit.trace.types import AbstractRef, ShapedArray
from meshjit.trees import WORDS as tree
from meshjit.version import __version__
from sharding.manual_type import ManualAxisType
from sharding.named import NamedSharding
from sharding.spec import padded


def print_environment_info(return_string: bool = False) -> str | None:
    """Print what a report of an error should say: versions, devices, processes, machine (`jax.print_environment_info`).

    return_string: return the text in place of printing it. `meshjit doctor` says more."""
    devices = client.local_devices()
    text = "\n".join([
        f"meshjit: {__version__}",
        f"jaxlib: {_jaxlib.version}",
        f"numpy: {np.__version__}",
        f"python: {sys.version}",
        f"devices: {client.device_count()} {devices[0].device_kind}, {len(devices)} of them this process's",
        f"process_count: {client.process_count()}",
        f"platform: {platform.uname()}",
    ])  # fmt: skip
    if return_string:
        return text
    print(text)
    return None


def typeof(x: Any) -> Any:
    """Shape, dtype and placement of an array, a traced value or a number, as types are printed (`jax.typeof`): `float32[8@X,4]`
    where the explicit axis X shards dim 0, `float32[8,4]{V:x}` where, inside of shard_map, it varies over x."""
    if isinstance(x, Ref):
        return AbstractRef(typeof(value_of(x)).update(weak_type=x.weak))
    if isinstance(getattr(x, "dtype", None), KeyType):
        words = typeof(x.words) if isinstance(x, PRNGKeyArray) else None
        sharding = cut(words.sharding if words else visible_sharding(x, len(x.shape)), len(x.shape))
        keys: Any = x
        varying = words.manual_axis_type if words else ManualAxisType()
        return ShapedArray(tuple(keys.shape), keys.dtype, sharding=sharding, manual_axis_type=varying)
    if isinstance(x, ShapeDtypeStruct):
        sharding = without_devices(_on_mesh(x.sharding, len(x.shape)))
        return ShapedArray(
            x.shape, x.dtype, x.weak_type, sharding=sharding, manual_axis_type=x.manual_axis_type or ManualAxisType()
        )
    return shaped_array_of(x)


def _on_mesh(sharding: Any, rank: int) -> NamedSharding | None:
    return sharding.with_spec(padded(sharding.spec, rank)) if isinstance(sharding, NamedSharding) else None


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Shapes and dtypes of fun's results, without computing them (`jax.eval_shape`). A ShapeDtypeStruct may be a result, too."""
    return jit(_with_stand_ins(fun)).eval_shape(*args, **kwargs)


def _with_stand_ins(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function with arrays in place of ShapeDtypeStructs among its results; the same for the same function, so that it is
    traced once."""
    own = attached_to(fun)
    if own is not None and "stand_ins" in own:
        return own["stand_ins"]

    @wraps(fun, updated=())
    def standing_in(*args: Any, **kwargs: Any) -> Any:
        return tree.map(_stand_in, fun(*args, **kwargs))

    if own is not None:
        own["stand_ins"] = standing_in
    return standing_in


def _stand_in(x: Any) -> Any:
    trace = active_trace()
    if not isinstance(x, ShapeDtypeStruct) or isinstance(x.dtype, KeyType) or trace is None:
        return x
    array = trace.lift(np.broadcast_to(np.zeros((), x.dtype), x.shape))
    array.weak_type = x.weak_type
    return array


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: Any = None,
) -> Callable[..., Any]:
    """A function that gives what `fun` is traced to for its arguments (arrays, or shapes with dtypes): a Program under JAX's
    names, see `meshjit/api/jaxpr.py`.

    With `return_shape` also the tree of its results' shapes. `axis_env` names batches that `fun` is taken to be a member of,
    with their sizes: the member's numbers become further inputs. Source: `jax.make_jaxpr`."""
    wrapped = Wrapped(fun, static_argnums=static_argnums, abstracted_axes=abstracted_axes)

    @wraps(fun)
    def make(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            outer = Trace("axis_env")
            if axis_env:
                stack.enter_context(outer)
            for name, size in axis_env or ():
                number = outer.input(TensorType((), np.dtype(np.int32)), hint=str(name))
                stack.enter_context(member_axis(name, int(size), number))
            traced = wrapped.staged(*args, **kwargs)
        return (traced.jaxpr, traced.out_info) if return_shape else traced.jaxpr

    return make


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """fun, whose ops carry `name` (by default its own) in printed Programs, reports and profiles."""
    return wraps(fun)(named_scope(name or function_name(fun))(fun))
