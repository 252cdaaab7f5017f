"""jit: a function that is traced, planned and compiled once per kind of arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from meshjit import tree
from meshjit.api.arguments import Parameters, Split
from meshjit.api.shardings import UNSPECIFIED, broadcast
from meshjit.api.stages import Call, Compiled, Lowered, Traced
from meshjit.config import config
from meshjit.runtime.array import Array, LeafKey, leaf_key
from meshjit.trace import active_trace, argument_of, trace_to_program
from meshjit.trace.program import function_name
from sharding.mesh import current_mesh
from sharding.named import Sharding


class Wrapped:
    """What `jit` gives: callable like the function, with `.trace`, `.lower` and `.clear_cache`."""

    def __init__(
        self,
        fun: Callable[..., Any],
        *,
        in_shardings: Any,
        out_shardings: Any,
        static_argnums: int | Sequence[int] | None,
        static_argnames: str | Iterable[str] | None,
        donate_argnums: int | Sequence[int] | None,
        donate_argnames: str | Iterable[str] | None,
        keep_unused: bool,
        device: Any,
        compiler_options: Mapping[str, Any] | None,
    ) -> None:
        if not callable(fun):
            raise TypeError(f"jit needs a function, was given {type(fun).__name__}: {fun!r}")
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.parameters = Parameters(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
        self.in_shardings = in_shardings
        self.out_shardings = out_shardings
        self.keep_unused = keep_unused
        self.device = device
        self.compiler_options = compiler_options
        self.cache: dict[Any, Compiled] = {}  # by what a call looks like: many keys may lead to
        self.compiled: dict[Any, Compiled] = {}  # one compiled function, by what it means
        self.listeners: list[Callable[[Compiled], None]] = []

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active_trace() is not None:
            return self._inline(args, kwargs)
        split = self.parameters.split(args, kwargs)
        leaves, in_tree = tree.flatten((split.args, split.kwargs))
        keys = tuple([x._key if type(x) is Array else key_of_leaf(x) for x in leaves])
        key = (in_tree, keys, tuple((w, type(v), v) for w, v in split.statics), _context())
        compiled = self.cache.get(key)
        if compiled is None:
            compiled = self.cache[key] = self._find(split, in_tree, keys, key[2:])
        return compiled.run(leaves)

    def _find(self, split: Split, in_tree: Any, keys: Sequence[LeafKey], rest: Any) -> Compiled:
        """A function compiled before for shardings that are spelt otherwise but mean the same, or a new one."""
        normal = (in_tree, tuple(k.normal for k in keys), rest)
        if normal not in self.compiled:
            self.compiled[normal] = self._build(split, in_tree, keys)
        return self.compiled[normal]

    def _build(self, split: Split, in_tree: Any, keys: Sequence[LeafKey]) -> Compiled:
        compiled = self._traced(split, in_tree, keys).lower().compile()
        for listen in [*self.listeners, *compilation_listeners]:
            listen(compiled)
        return compiled

    def _traced(self, split: Split, in_tree: Any, keys: Sequence[LeafKey] | None = None) -> Traced:
        names = self.parameters.leaf_names(split)
        leaves = tree.leaves((split.args, split.kwargs))
        keys = [key_of_leaf(x, n) for x, n in zip(leaves, names, strict=True)] if keys is None else keys
        arguments = [argument_of_key(k, n) for k, n in zip(keys, names, strict=True)]

        def fun(*args: Any, **kwargs: Any) -> Any:
            return self.parameters.join(args, kwargs, split.statics)

        traced = trace_to_program(fun, arguments, in_tree, function_name(self.fun))
        donated = self.parameters.donated(split)
        call = Call(
            self._title(), names, keys, in_tree, self.in_shardings, self.out_shardings, donated,
            self.keep_unused, self.device, self.compiler_options,
        )  # fmt: skip
        return Traced(call, traced)

    def _title(self) -> str:
        return f"jit({function_name(self.fun)})"

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments (arrays, or anything with a shape and a dtype)."""
        split = self.parameters.split(args, kwargs)
        return self._traced(split, tree.structure((split.args, split.kwargs)))

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace, plan, partition and emit for these arguments."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The result's shapes and dtypes."""
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        self.cache.clear()
        self.compiled.clear()

    def _cache_size(self) -> int:
        return len(self.compiled)

    def _inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inside another trace the function becomes part of it; its shardings become constraints."""
        if self.in_shardings is not UNSPECIFIED and not kwargs:
            split = self.parameters.split(args, kwargs)
            flat, structure = tree.flatten(split.args)
            given = broadcast(self.in_shardings, structure, "in_shardings")
            placed = tree.unflatten(structure, [_constrained(x, s) for x, s in zip(flat, given, strict=True)])
            result = self.parameters.join(placed, {}, split.statics)
        else:
            result = self.fun(*args, **kwargs)
        if self.out_shardings is UNSPECIFIED:
            return result
        flat, structure = tree.flatten(result)
        given = broadcast(self.out_shardings, structure, "out_shardings")
        return tree.unflatten(structure, [_constrained(x, s) for x, s in zip(flat, given, strict=True)])

    def __repr__(self) -> str:
        return f"<{self._title()}>"


# Called with every newly compiled function: how `meshjit inspect` sees what a script jits.
compilation_listeners: list[Callable[[Compiled], None]] = []


def _constrained(value: Any, sharding: Any) -> Any:
    from meshjit.api.constraint import with_sharding_constraint
    from sharding.spec import PartitionSpec

    if not isinstance(sharding, Sharding | PartitionSpec):
        return value
    return with_sharding_constraint(value, sharding)


def _context() -> Any:
    """Everything outside of the arguments that tracing and planning depend on."""
    return current_mesh(), config.enable_x64, config.threefry_partitionable


def key_of_leaf(value: Any, name: str = "") -> LeafKey:
    """The key of an argument leaf; TypeError, with its path, for what is no array."""
    if isinstance(value, Array):
        return value._key
    if isinstance(value, bool | int | float | complex | np.ndarray | np.generic):
        argument = argument_of(value, name)
        return leaf_key(argument.type, argument.weak, None, False)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        from meshjit.core.types import tensor_type

        sharding = getattr(value, "sharding", None)
        return leaf_key(tensor_type(value.shape, value.dtype), bool(getattr(value, "weak_type", False)), sharding,
                        sharding is not None)  # fmt: skip
    argument = argument_of(value, name)
    return leaf_key(argument.type, argument.weak, None, False)


def argument_of_key(key: LeafKey, name: str) -> Any:
    from meshjit.trace import Argument

    return Argument(key.type, key.weak, name)
