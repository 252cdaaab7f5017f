"""jit: a function that is traced, planned and compiled once per kind of arguments."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from meshjit import tree
from meshjit.api.arguments import Parameters, Split
from meshjit.api.constraint import with_sharding_constraint
from meshjit.api.leaves import key_of_shape, key_of_value
from meshjit.api.shardings import UNSPECIFIED, broadcast, keywords_not_placed
from meshjit.api.stages import Call, Compiled, Lowered, Traced
from meshjit.config import config
from meshjit.runtime.array import Array, LeafKey
from meshjit.trace import Argument, active_trace, trace_to_program
from meshjit.trace.program import function_name
from sharding.mesh import current_mesh
from sharding.named import Sharding
from sharding.spec import PartitionSpec


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
        functools.update_wrapper(self, fun, updated=())  # an object's own attributes must not hide `.lower` and the like
        self.fun = fun
        self.parameters = Parameters(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
        self.has_statics = bool(self.parameters.static_nums or self.parameters.static_names)
        self.in_shardings = in_shardings
        self.out_shardings = out_shardings
        self.keep_unused = keep_unused
        self.device = device
        self.compiler_options = compiler_options
        # By what a call looks like, and whether its arguments lie where they are wanted. Many keys may lead to …
        self.cache: dict[Any, tuple[Compiled, bool]] = {}
        self.compiled: dict[Any, Compiled] = {}  # … one compiled function, by what the call means.
        self.listeners: list[Callable[[Compiled], None]] = []

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active_trace() is not None:
            return self._inline(args, kwargs)
        statics: Any = ()
        if self.has_statics:
            split = self.parameters.split(args, kwargs)
            statics = tuple([(where, type(value), value) for where, value in split.statics])
            leaves, in_tree = tree.flatten((split.args, split.kwargs))
        else:
            leaves, in_tree = tree.flatten((args, kwargs))
        try:
            keys = tuple([x._key if type(x) is Array else key_of_value(x) for x in leaves])
        except (TypeError, ValueError):
            self._name_bad_leaf(args, kwargs)
            raise
        key = (in_tree, keys, statics, _context())
        entry = self.cache.get(key)
        if entry is None:
            compiled = self._find(self.parameters.split(args, kwargs), in_tree, keys, key[2:])
            entry = self.cache[key] = (compiled, not compiled.needs_moving(keys))
        return entry[0].run(leaves, entry[1])

    def _name_bad_leaf(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise the error of the first argument that is no array, now with its path."""
        split = self.parameters.split(args, kwargs)
        for leaf, name in zip(tree.leaves((split.args, split.kwargs)), self.parameters.leaf_names(split), strict=True):
            key_of_value(leaf, name)

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
        keys = [key_of_shape(x, n) for x, n in zip(leaves, names, strict=True)] if keys is None else keys
        arguments = [Argument(k.type, k.weak, n) for k, n in zip(keys, names, strict=True)]

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
        if self.in_shardings is UNSPECIFIED:
            result = self.fun(*args, **kwargs)
        else:
            split = self.parameters.split(args, kwargs)
            if split.kwargs:
                raise keywords_not_placed(self._title(), sorted(split.kwargs))
            placed = _all_constrained(split.args, self.in_shardings, "in_shardings")
            result = self.parameters.join(placed, {}, split.statics)
        return _all_constrained(result, self.out_shardings, "out_shardings")

    def __repr__(self) -> str:
        return f"<{self._title()}>"


# Called with every newly compiled function: how `meshjit inspect` sees what a script jits.
compilation_listeners: list[Callable[[Compiled], None]] = []


def _all_constrained(values: Any, shardings: Any, what: str) -> Any:
    """The arrays of a tree under the constraints that a pytree prefix of shardings means inside a trace."""
    if shardings is UNSPECIFIED:
        return values
    flat, structure = tree.flatten(values)
    shardings = tuple(shardings) if isinstance(shardings, list) and isinstance(values, tuple) else shardings
    given = broadcast(shardings, structure, what)
    return tree.unflatten(structure, [_constrained(x, s) for x, s in zip(flat, given, strict=True)])


def _constrained(value: Any, sharding: Any) -> Any:
    if sharding is None and current_mesh() is not None:
        sharding = PartitionSpec()  # as at the outermost level: replicated
    if not isinstance(sharding, Sharding | PartitionSpec):
        return value
    return with_sharding_constraint(value, sharding)


def _context() -> Any:
    """Everything outside of the arguments that tracing and planning depend on."""
    return current_mesh(), config.enable_x64, config.threefry_partitionable, config.default_matmul_precision
