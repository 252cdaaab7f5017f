"""jit: a function that is traced, planned and compiled once per kind of arguments."""

from __future__ import annotations

import functools
import inspect
import time
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from meshjit.api.arguments import Parameters, Split
from meshjit.api.axes import Symbols, axes_key, check_axes, symbols_of, with_symbols
from meshjit.api.caches import cache_of
from meshjit.api.call import Automatic, Call, Context
from meshjit.api.captured import CapturedNames
from meshjit.api.entrances import entrances
from meshjit.api.explain import explain_miss, log_compile
from meshjit.api.layouts import places_of
from meshjit.api.leaves import key_of_shape, key_of_value
from meshjit.api.memories import input_memories, with_output_memories
from meshjit.api.nested import call_nested, searched
from meshjit.api.options import checked_options, compiler_settings
from meshjit.api.putting import ShapeDtypeStruct, with_words
from meshjit.api.shapes_of_shards import shapes_of_shards
from meshjit.api.shardings import (
    UNSPECIFIED,
    check_shardings,
    is_sharding_leaf,
    mesh_to_run_on,
    replicated_nones,
)
from meshjit.api.stages import Compiled, Lowered, Traced
from meshjit.api.stateful import LoweredWithRefs, Stateful, borrowing, is_stateful, lending
from meshjit.api.traceable import check_function
from meshjit.api.tracebacks import hide_own_frames
from meshjit.api.watching import imaginers, tell
from meshjit.config import config
from meshjit.core.attached import NAME
from meshjit.core.garbage import rarely_collected
from meshjit.core.ref import Ref
from meshjit.monitoring import COMPILED, LOWERED, TRACED
from meshjit.runtime.array import LeafKey
from meshjit.runtime.fast import apart, forget_calls
from meshjit.trace import (
    Argument,
    Traced as TracedProgram,
    Tracer,
    active_trace,
    staging,
    trace_to_program,
    user_source,
)
from meshjit.trace.explicit import sharding_in_type
from meshjit.trace.float0 import is_float0, without_float0
from meshjit.trace.members import is_checked
from meshjit.trace.names import function_name
from meshjit.trace.once import context_key, traced_once
from meshjit.trace.outlived import as_array
from meshjit.trace.refs import check_distinct, lend, refs_in
from meshjit.trees import WORDS as tree
from sharding.mesh import current_mesh, mesh_context
from sharding.named import is_auto


class _SignatureOfFunction:
    """`__signature__` of an instance, for `inspect.signature(…, follow_wrapped=False)`, which would look into `__call__`."""

    def __get__(self, wrapped: Wrapped | None, owner: type) -> inspect.Signature:
        if wrapped is None:
            raise AttributeError("__signature__")
        try:
            return inspect.signature(wrapped.fun)
        except ValueError as error:  # of a function in C
            raise AttributeError(str(error)) from None


class Wrapped:
    """What `jit` gives: callable like the function, with `.trace`, `.lower`, `.eval_shape` and `.clear_cache`.

    Each instance has a `__call__` of its own (see `entrances`), which Python finds without entering a method."""

    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[..., Any]
    __signature__ = _SignatureOfFunction()

    def __init__(
        self,
        fun: Callable[..., Any],
        *,
        in_shardings: Any = UNSPECIFIED,
        out_shardings: Any = UNSPECIFIED,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Iterable[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        donate_argnames: str | Iterable[str] | None = None,
        keep_unused: bool = False,
        device: Any = None,
        inline: bool = False,
        abstracted_axes: Any = None,
        compiler_options: Mapping[str, Any] | None = None,
        replicates_none: bool = False,
        automatic: Automatic | None = None,
    ) -> None:
        """`replicates_none`: within `with mesh:`, None among the shardings means replicated, as pjit's does."""
        check_function(fun)
        own = {name: value for name, value in getattr(fun, "__dict__", {}).items() if not hasattr(Wrapped, name) and name != NAME}
        self.__dict__.update(own)  # as functools.wraps, but they must not hide `.lower` and the like
        functools.update_wrapper(self, fun, updated=())
        self.fun = fun
        self.parameters = Parameters(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
        self.has_statics = bool(self.parameters.static_nums or self.parameters.static_names)
        in_shardings, out_shardings = places_of(in_shardings, "in_shardings"), places_of(out_shardings, "out_shardings")
        check_shardings(in_shardings, "in_shardings")
        check_shardings(out_shardings, "out_shardings")
        self.in_shardings = in_shardings
        self.out_shardings = out_shardings
        self.source = user_source()
        self.replicates_none = replicates_none
        self.automatic = automatic or (Automatic() if _asks_for_a_plan(in_shardings, out_shardings) else None)
        self.keep_unused = bool(keep_unused)
        self.device = device
        self.inline = bool(inline)
        check_axes(self.title(), abstracted_axes)
        self.abstracted_axes = abstracted_axes
        self.compiler_options = checked_options(compiler_options, self.title())
        p = self.parameters
        self.cache = cache_of(
            fun,
            (p.static_nums, tuple(sorted(p.static_names)), p.donate_nums, tuple(sorted(p.donate_names)), in_shardings,
             out_shardings, replicates_none, self.keep_unused, device, self.inline, axes_key(abstracted_axes),
             dict(self.compiler_options), self.automatic),
        )  # fmt: skip
        self.unguarded = False  # whether C++ may be called without a frame of Python around it
        self.fast, self.__call__ = entrances(self, self.title())
        if self.fast is not None:
            self.cache.fast.add(self)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __copy__(self) -> Wrapped:
        """Itself, as of any function."""
        return self

    def __deepcopy__(self, memo: Any) -> Wrapped:
        return self

    def __reduce__(self) -> str:
        """Pickled by its name, as any function."""
        return getattr(self, "__qualname__", self.title())

    def _call_in_python(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Compiled | None]:
        """The result, and what was run if it needs no more than Arrays that lie where it wants them."""
        if active_trace() is not None:
            return self._nested(args, kwargs), None
        if Ref.made and refs_in((args, kwargs)) and not config.disable_jit:
            return self._call_with_refs(args, kwargs), None
        return self._call_at_top(args, kwargs)

    def _call_with_refs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call with refs among its arguments, whose contents are arguments in their place: found again for other refs."""
        check_distinct(self.title(), (args, kwargs))
        with lending(refs_in((args, kwargs))):
            return self._call_at_top(lend(args), lend(kwargs))[0]

    def _call_at_top(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Compiled | None]:
        statics: Any = ()
        if self.has_statics:
            split = self.parameters.split(args, kwargs)
            statics = tuple([(where, type(value), value) for where, value in split.statics])
            leaves, in_tree = tree.flatten((split.args, split.kwargs))
        else:
            leaves, in_tree = tree.flatten((args, kwargs))
        try:
            keys = tuple([getattr(x, "_key", None) or key_of_value(x) for x in leaves])
        except (TypeError, ValueError):
            with staging(leaves) as trace:
                if trace is not None:  # traced values inside ensure_compile_time_eval
                    return self._nested(args, kwargs), None
            if any(map(is_float0, leaves)):
                plain = (args, kwargs) if config.disable_jit else self.without_float0(args, kwargs)
                return (self._call_as_it_is if config.disable_jit else self._call_anyhow)(*plain), None
            if not any(isinstance(x, Tracer) for x in leaves):
                self._name_bad_leaf(args, kwargs)
                raise
            leaves = [as_array(x) for x in leaves]
            keys = tuple([key_of_value(x) for x in leaves])
        key = (in_tree, keys, statics, mesh_context(), config.context())
        try:
            entry = self.cache.by_look.get(key)
        except Exception:
            self.parameters.check_comparable(self.parameters.split(args, kwargs))
            raise
        if entry is None:
            if config.disable_jit:
                return self._call_as_it_is(args, kwargs), None
            compiled = self._find(self.parameters.split(args, kwargs), in_tree, keys, key[2:])
            entry = self.cache.by_look[key] = (compiled, not compiled.needs_moving(keys))
        return entry[0].run(leaves, entry[1]), entry[0] if entry[1] else None

    def _call_anyhow(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._call_in_python(args, kwargs)[0]

    def without_float0(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with float0 arrays as parts of their structure; static ones as they are."""
        static = {where for where, _ in self.parameters.split(args, kwargs).statics} if self.has_statics else ()
        positional = tuple([x if i in static else without_float0(x) for i, x in enumerate(args)])
        return positional, {name: x if name in static else without_float0(x) for name, x in kwargs.items()}

    def _call_as_it_is(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with apart():
            return self.fun(*args, **kwargs)

    def forget_fast(self) -> None:
        """Forget what C++ knows."""
        if self.fast is not None:
            forget_calls(self.fast)

    def _name_bad_leaf(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise the error of the first argument that is no array, now with its path."""
        split = self.parameters.split(args, kwargs)
        for leaf, name in zip(tree.leaves((split.args, split.kwargs)), self.parameters.leaf_names(split), strict=True):
            key_of_value(leaf, name)

    def _find(self, split: Split, in_tree: Any, keys: Sequence[LeafKey], rest: Any) -> Compiled:
        """A function compiled before for shardings that are spelt otherwise but mean the same, or a new one."""
        normal = (in_tree, tuple(k.normal for k in keys), rest)
        compiled = self.cache.by_meaning.get(normal)
        if compiled is None:
            compiled = self.cache.by_meaning[normal] = self._build(split, in_tree, keys)
        return compiled.spelt(keys)

    def _build(self, split: Split, in_tree: Any, keys: Sequence[LeafKey]) -> Compiled:
        call = self._call(split, in_tree, keys)
        if config.explain_cache_misses:
            explain_miss(self.fun, call, [c.call for c in self.cache.by_meaning.values()])
        if imaginers:
            return cast(Any, imaginers[-1](self._traced(split, call)))
        traced = self._traced(split, call)
        if is_stateful(traced.traced_program):
            return cast(Any, Stateful(self, split, traced))
        with mesh_to_run_on((call.in_shardings, call.out_shardings, call.automatic), traced.traced_program.mesh):
            lowered = rarely_collected(traced.lower)()
        log_compile(call.title, "planned and partitioned", sum(lowered.lowering.seconds.values()), LOWERED)
        compiled = lowered.compile()
        log_compile(call.title, f"compiled for {_types(keys)}", compiled.executable.compile_seconds, COMPILED)
        return compiled

    def _call(self, split: Split, in_tree: Any, keys: Sequence[LeafKey] | None = None) -> Call:
        names = self.parameters.leaf_names(split)
        if keys is None:
            leaves = tree.leaves((split.args, split.kwargs))
            keys = [key_of_shape(x, n) for x, n in zip(leaves, names, strict=True)]
        symbols: Sequence[Symbols] = ()
        if self.abstracted_axes is not None:
            symbols = symbols_of(self.title(), self.abstracted_axes, in_tree, names, keys)
        return Call(
            title=self.title(),
            names=names,
            keys=keys,
            in_tree=in_tree,
            in_shardings=self.meaning(self.in_shardings),
            out_shardings=self.meaning(self.out_shardings),
            donated=self.parameters.donated(split),
            keep_unused=self.keep_unused,
            automatic=self.automatic,
            device=self.device,
            options={**compiler_settings(), **self.compiler_options},
            statics=[(self.parameters.static_name(where), value) for where, value in split.statics],
            context=Context(current_mesh(), config.traced_values()),
            source=self.source,
            symbols=symbols,
        )

    def _traced(self, split: Split, call: Call) -> Traced:
        """Traced now, or for an earlier call or `lower` of the same kind."""

        def fun(*args: Any, **kwargs: Any) -> Any:
            if Ref.made:
                args, kwargs = borrowing((args, kwargs))
            return self.parameters.join(args, kwargs, split.statics)

        symbols = call.symbols or [{}] * len(call.keys)
        types = [with_symbols(k.type, s) for k, s in zip(call.keys, symbols, strict=True)]
        leaves = zip(types, call.keys, call.names, input_memories(call), strict=True)
        arguments = [Argument(t, k.weak, n, sharding=sharding_in_type(k), memory=m) for t, k, n, m in leaves]
        traced = with_output_memories(self.traced_program(self.cache.traced, fun, split, arguments, call.in_tree), call)
        if traced.captured:
            call = replace(call, captured=CapturedNames(self.fun, traced.captured))
        known, alone = weakref.ref(self), replace(split, args=(), kwargs={})  # caches hold what was traced, and nothing more

        def again(call: Call) -> Traced | None:
            wrapped = known()
            return None if wrapped is None else wrapped._traced(alone, call)

        return Traced(call, traced, again)

    def traced_program(
        self, known: dict[Any, TracedProgram], fun: Callable[..., Any], split: Split, arguments: Sequence[Argument], in_tree: Any
    ) -> TracedProgram:
        """fun, made of this function, as a Program; one of `known` if it was traced for such a call. One that closes over traced
        values is known as long as these are."""
        statics = tuple((where, type(value), value) for where, value in split.statics)
        types = tuple((a.type, a.weak, a.varying, a.sharding, a.memory) for a in arguments)
        key = (in_tree, types, statics, *context_key())
        traced = known.get(key)
        if traced is None:

            def trace() -> TracedProgram:
                if config.no_tracing:
                    raise RuntimeError(f"{self.title()} would be traced, and config.no_tracing is set")
                start = time.perf_counter()
                with searched(self.automatic):
                    traced = trace_to_program(fun, arguments, in_tree, function_name(self.fun), writes=True)
                log_compile(self.title(), "traced", time.perf_counter() - start, TRACED)
                return traced

            what = ("jit", self.cache, known is self.cache.nested, key)
            traced = trace() if active_trace() is None else traced_once(self.fun, what, trace, share=True)
            if not any(isinstance(x, Tracer) for x in traced.captured):
                known[key] = traced
        return traced

    def title(self) -> str:
        return f"jit({function_name(self.fun)})"

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments (arrays, or anything with a shape and a dtype)."""
        traced = self.staged(*args, **kwargs)
        traced.function = self
        tell(traced)
        return traced

    def staged(self, *args: Any, **kwargs: Any) -> Traced:
        """What `trace` gives, for our own purposes."""
        try:
            split = self.parameters.split(args, kwargs)
            plain = [without_float0(with_words(each)) for each in (split.args, split.kwargs)]
            split = replace(split, args=plain[0], kwargs=plain[1])
            return self._traced(split, self._call(split, tree.structure((split.args, split.kwargs))))
        except Exception as error:
            hide_own_frames(error)
            raise

    def _lowered(self, *args: Any, **kwargs: Any) -> Lowered:
        lent = refs_in((args, kwargs)) if Ref.made else []
        if Ref.made:
            args, kwargs = lend(args), lend(kwargs)
        traced = self.staged(*args, **kwargs)
        if is_stateful(traced.traced_program):
            split = self.parameters.split(args, kwargs)
            return cast(Any, LoweredWithRefs(self, Stateful(self, split, traced), split, lent))
        return traced.lower()

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace, plan, partition and emit for these arguments."""
        try:
            return rarely_collected(lambda: self._lowered(*args, **kwargs))()
        except Exception as error:
            hide_own_frames(error)
            raise

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The result's shapes and dtypes."""
        if is_checked():
            return shapes_of_shards(self._nested, self.title(), args, kwargs)
        info = self.staged(*args, **kwargs).out_info
        return tree.map(lambda x: ShapeDtypeStruct(x.shape, x.dtype) if is_float0(x) else x, info)

    def clear_cache(self) -> None:
        """Forget what was compiled for this function."""
        self.cache.clear()

    def _cache_size(self) -> int:
        return len(self.cache.by_meaning)

    def _nested(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer = active_trace()
        if outer is None or config.disable_jit:
            return self._call_as_it_is(args, kwargs)
        return call_nested(self, outer, args, kwargs)

    def meaning(self, shardings: Any) -> Any:
        """The shardings as they count; of pjit, None is replicated."""
        return replicated_nones(shardings) if self.replicates_none else shardings

    def __repr__(self) -> str:
        return f"<PjitFunction of {self.fun!r}>"


def _asks_for_a_plan(*shardings: Any) -> bool:
    """Whether AUTO is among them."""
    return any(is_auto(leaf) for tree_ in shardings for leaf in tree.leaves(tree_, is_leaf=is_sharding_leaf))


def _types(keys: Sequence[LeafKey]) -> str:
    shown = ", ".join(str(k.type) for k in keys[:8])
    return f"({shown}{', …' if len(keys) > 8 else ''})"
