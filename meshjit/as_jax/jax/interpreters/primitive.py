"""Ops that a library defines by functions: what it means, its type, its derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit.api.tools import typeof
from meshjit.as_jax.jax.interpreters.ad import UndefinedPrimal, Zero, instantiate_zeros, primitive_jvps, primitive_transposes
from meshjit.as_jax.jax.interpreters.batching import not_mapped, primitive_batchers
from meshjit.core.types import is_inexact
from meshjit.lax.custom_batching import custom_vmap
from meshjit.lax.custom_jvp import custom_jvp
from meshjit.lax.custom_rules import SymbolicZero
from meshjit.lax.linear import with_transpose
from meshjit.numpy import moveaxis
from meshjit.trace import Tracer
from meshjit.trees import USERS


class Primitive:
    """`jax.extend.core.Primitive`: bind(*operands, **params) runs, or traces, what `def_impl` or `mlir.lower_fun` says that it
    means. Its rules in `ad.primitive_jvps` and `batching.primitive_batchers` are used; without one, the meaning is
    differentiated or batched."""

    call_primitive = map_primitive = False

    def __init__(self, name: str) -> None:
        self.name, self.multiple_results = name, False
        self.impl: Callable[..., Any] | None = None
        self.lowered: Callable[..., Any] | None = None
        self.abstract_eval: Callable[..., Any] | None = None

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        self.impl = impl
        return impl

    def def_abstract_eval(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        self.abstract_eval = rule
        return rule

    def bind(self, *operands: Any, **params: Any) -> Any:
        traced = any(isinstance(x, Tracer) for x in operands)
        meaning = (self.lowered or self.impl) if traced else (self.impl or self.lowered)
        if meaning is None:
            raise NotImplementedError(f"the primitive {self.name} means nothing: neither def_impl nor mlir.lower_fun was called")
        return self._with_rules(meaning, params)(*operands) if traced else meaning(*operands, **params)

    def _with_rules(self, meaning: Callable[..., Any], params: dict[str, Any]) -> Callable[..., Any]:
        """What it means, with what is registered for batches inside of what is registered for transposes and derivatives."""

        def call(*operands: Any) -> Any:
            return meaning(*operands, **params)

        if self in primitive_batchers:
            call = custom_vmap(call)
            call.def_vmap(lambda size, marks, *xs: self._batch(marks, xs, params))
        if self in primitive_transposes:
            call = self._transposable(call, params)
        if self in primitive_jvps:
            call = custom_jvp(call)
            call.defjvp(lambda primals, tangents: self._jvp(primals, tangents, params), symbolic_zeros=True)
        return call

    def _batch(self, marks: Sequence[bool], operands: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Any]:
        results, dims = primitive_batchers[self](tuple(operands), tuple(0 if mark else not_mapped for mark in marks), **params)
        if not self.multiple_results:
            return _batch_first(results, dims), dims is not not_mapped
        placed = [_batch_first(x, dim) for x, dim in zip(results, dims, strict=True)]
        return placed, [dim is not not_mapped for dim in dims]

    def _transposable(self, call: Callable[..., Any], params: dict[str, Any]) -> Callable[..., Any]:
        def with_rule(*operands: Any) -> Any:
            avals = [typeof(x) for x in operands]

            def transpose(flags: Sequence[bool], known: Sequence[Any], cotangents: Any) -> list[Any]:
                rest = iter(known)
                given = [UndefinedPrimal(a) if flag else next(rest) for a, flag in zip(avals, flags, strict=True)]
                cotangents = [ct if is_inexact(ct.dtype) else Zero(typeof(ct)) for ct in USERS.leaves(cotangents)]
                back = primitive_transposes[self](cotangents if self.multiple_results else cotangents[0], *given, **params)
                marked = [(ct, a) for ct, a, flag in zip(back, avals, flags, strict=True) if flag]
                return [instantiate_zeros(Zero(a) if ct is None else ct) for ct, a in marked]

            return with_transpose(call, transpose, *operands)

        return with_rule

    def _jvp(self, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Any]:
        zeros = [Zero(t.aval) if isinstance(t, SymbolicZero) else t for t in tangents]
        results, directions = primitive_jvps[self](tuple(primals), tuple(zeros), **params)
        if self.multiple_results:
            return results, [instantiate_zeros(t) for t in directions]
        return results, instantiate_zeros(directions)

    def __repr__(self) -> str:
        return self.name


def _batch_first(x: Any, dim: int | None) -> Any:
    return x if dim is not_mapped else moveaxis(x, dim, 0)
