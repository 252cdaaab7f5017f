"""`jax.interpreters.partial_eval`: what of a function's results is known although some of its arguments are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from meshjit.api.jaxpr import Jaxpr, eval_jaxpr
from meshjit.api.tools import make_jaxpr
from meshjit.as_jax.jax.extend.linear_util import WrappedFun
from meshjit.core.region import depending
from meshjit.missing import explain as _explain
from meshjit.trace.types import ShapedArray


class PartialVal(NamedTuple):
    """A value that is known, `const`, or of which only the type is, `pv`; the other is None."""

    pv: Any
    const: Any

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        return cls(None, const)

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        return cls(aval, None)

    def is_known(self) -> bool:
        return self.pv is None

    def get_known(self) -> Any:
        return self.const if self.is_known() else None

    def get_aval(self) -> Any:
        return self.pv


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """(what gives the results that are not known, all results, what it closes over) of a function of flat arguments.

    A result is known if it depends on no argument that is unknown. With `instantiate` none is."""

    def of_unknown(*values: Any) -> list[Any]:
        rest = iter(values)
        return list(fun.call_wrapped(*(p.const if p.is_known() else next(rest) for p in pvals)))

    avals = [p.pv for p in pvals if not p.is_known()]
    closed = make_jaxpr(of_unknown)(*(ShapedArray(a.shape, a.dtype, a.weak_type) for a in avals))
    jaxpr, outputs = closed.jaxpr, closed.program.outputs
    unknown = {*depending(closed.program.eqns, jaxpr.invars), *(outputs if instantiate else ())}
    eqns = [eqn for eqn in jaxpr.eqns if not unknown.intersection(eqn.outvars)]
    known = jaxpr.replace(invars=[], outvars=[v for v in outputs if v not in unknown], eqns=eqns)
    values = iter(eval_jaxpr(known, closed.consts))
    types = zip(outputs, jaxpr.out_avals, strict=True)
    results = [PartialVal.unknown(aval) if v in unknown else PartialVal.known(next(values)) for v, aval in types]
    return jaxpr.replace(outvars=[v for v in outputs if v in unknown]), results, closed.consts


_explain(__name__)
