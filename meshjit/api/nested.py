"""Calls of a jitted function inside of another trace: they become one call in that Program, or part of it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from meshjit.api.arguments import Split
from meshjit.api.call import Automatic
from meshjit.api.constraint import put_traced, reshard
from meshjit.api.leaves import host_array, stack_level, strict_argument
from meshjit.api.shardings import UNSPECIFIED, broadcast, check_count, is_sharding_leaf, keywords_not_placed
from meshjit.config import config
from meshjit.core.ref import Ref
from meshjit.core.region import nesting
from meshjit.runtime.shardings import one_device_mesh
from meshjit.trace import as_operand, require_mesh
from meshjit.trace.refs import check_distinct, store_outputs
from meshjit.trees import WORDS as tree
from sharding.mesh import BaseMesh
from sharding.named import NamedSharding, Sharding
from sharding.spec import PartitionSpec

if TYPE_CHECKING:
    from meshjit.api.wrapped import Wrapped

SEARCHED: Final = ContextVar("searched", default=False)  # whether an outer function that is traced is placed automatically
DEEPEST_CALLS: Final = 32  # Programs inside one another; what calls deeper ones has their equations: passes go into each level


def call_nested(wrapped: Wrapped, outer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call in the trace `outer`; the function's shardings become constraints. It is traced once per kind of arguments."""
    _check(wrapped)
    if Ref.made:
        check_distinct(wrapped.title(), (args, kwargs))
    args, kwargs = wrapped.without_float0(args, kwargs)
    split = wrapped.parameters.split(args, kwargs)
    names = wrapped.parameters.leaf_names(split)
    leaves, in_tree = tree.flatten((split.args, split.kwargs))
    leaves = [host_array(x) for x in leaves]
    arguments = [strict_argument(x, n) for x, n in zip(leaves, names, strict=True)]
    unplaced = wrapped.in_shardings is UNSPECIFIED and wrapped.out_shardings is UNSPECIFIED
    plain = unplaced and wrapped.abstracted_axes is None
    known = wrapped.cache.traced if plain else wrapped.cache.nested
    traced = wrapped.traced_program(known, _constrained_function(wrapped, split), split, arguments, in_tree)
    program = outer.translated(traced.program, traced.mesh)
    operands = [*(as_operand(x, a) for x, a in zip(leaves, arguments, strict=True)), *traced.captured]
    apply = outer.inline if wrapped.inline or nesting(program) > DEEPEST_CALLS else outer.call
    results = apply(program, operands, traced.out_weak)
    store_outputs(traced.writes, results)
    return tree.unflatten(traced.out_tree, results[: len(results) - len(traced.writes)])


def _check(wrapped: Wrapped) -> None:
    if wrapped.compiler_options:
        raise ValueError(
            f"{wrapped.title()} has compiler_options {dict(wrapped.compiler_options)}, but is called inside of another jitted"
            " function\n  XLA compiles one program, of the outermost function\n"
            "  fix: give the options to the outermost jit"
        )
    if wrapped.device is not None:
        require_mesh(one_device_mesh(wrapped.device))
    if wrapped.automatic is not None and not SEARCHED.get() and not config.automatic:
        warnings.warn(
            f"{wrapped.title()} is to be placed automatically, but is called inside of another function, which is placed as a"
            " whole: nothing is chosen, and the mesh is not used\n  fix: meshjit.auto of the outermost function, such as"
            " auto(grad(f)) for grad(auto(f))",
            stacklevel=stack_level(),
        )


@contextlib.contextmanager
def searched(automatic: Automatic | None) -> Generator[None]:
    """Inside the block a function is traced. Unless `automatic` is None, its best placements are searched, so a call inside of it
    that asks for the same is no reason to warn."""
    token = SEARCHED.set(SEARCHED.get() or automatic is not None)
    try:
        yield
    finally:
        SEARCHED.reset(token)


def _constrained_function(wrapped: Wrapped, split: Split) -> Callable[..., Any]:
    """The function of the arguments that are not static, its shardings as constraints."""
    mesh = None if wrapped.automatic is None else wrapped.automatic.mesh
    ins, outs = (_on_mesh(wrapped.meaning(each), mesh) for each in (wrapped.in_shardings, wrapped.out_shardings))

    def fun(*args: Any, **kwargs: Any) -> Any:
        if ins is not UNSPECIFIED and ins is not None:
            if kwargs:
                raise keywords_not_placed(wrapped.title(), sorted(kwargs))
            check_count(wrapped.title(), ins, args, "in_shardings")
            args = _all_constrained(args, ins, "in_shardings")
        return _all_constrained(wrapped.parameters.join(args, kwargs, split.statics), outs, "out_shardings")

    return fun


def _on_mesh(shardings: Any, mesh: BaseMesh | None) -> Any:
    """The same with specs on the mesh that `auto` was given."""
    if mesh is None or shardings is UNSPECIFIED:
        return shardings

    def on_mesh(sharding: Any) -> Any:
        return NamedSharding(mesh, sharding) if isinstance(sharding, PartitionSpec) else sharding

    return tree.map(on_mesh, shardings, is_leaf=is_sharding_leaf)


def _all_constrained(values: Any, shardings: Any, what: str) -> Any:
    """The arrays of a tree under the constraints that a pytree prefix of shardings means inside a trace."""
    if shardings is UNSPECIFIED:
        return values
    flat, structure = tree.flatten(values)
    shardings = tuple(shardings) if isinstance(shardings, list) and isinstance(values, tuple) else shardings
    entries = broadcast(shardings, structure, what)
    return tree.unflatten(structure, [_constrained(x, s) for x, s in zip(flat, entries, strict=True)])


def _constrained(value: Any, sharding: Any) -> Any:
    if not isinstance(sharding, Sharding | PartitionSpec):
        return value
    return put_traced(value, sharding) if isinstance(sharding, Sharding) else reshard(value, sharding)
