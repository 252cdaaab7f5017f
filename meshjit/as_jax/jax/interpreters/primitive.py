"""Ops that a library defines by functions: what it means, its type, its derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit.as_jax.jax.interpreters.ad import Zero, instantiate_zeros, primitive_jvps
from meshjit.lax.custom_jvp import custom_jvp
from meshjit.lax.custom_rules import SymbolicZero
from meshjit.trace import Tracer


class Primitive:
    """`jax.extend.core.Primitive`: bind(*operands, **params) runs, or traces, what `def_impl` or `mlir.lower_fun` says that it
    means. Its rule in `ad.primitive_jvps` is used; without one, and in batches, the meaning is differentiated and batched."""

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
        if not traced or self not in primitive_jvps:
            return meaning(*operands, **params)
        call = custom_jvp(lambda *xs: meaning(*xs, **params))
        call.defjvp(lambda primals, tangents: self._jvp(primals, tangents, params), symbolic_zeros=True)
        return call(*operands)

    def _jvp(self, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Any]:
        zeros = [Zero(t.aval) if isinstance(t, SymbolicZero) else t for t in tangents]
        results, directions = primitive_jvps[self](tuple(primals), tuple(zeros), **params)
        if self.multiple_results:
            return results, [instantiate_zeros(t) for t in directions]
        return results, instantiate_zeros(directions)

    def __repr__(self) -> str:
        return self.name
