"""`config.check_tracer_leaks`: values of a trace that outlive it are an error where it ends, not where they are used."""

from __future__ import annotations

import gc

from meshjit.errors import UnexpectedTracerError
from meshjit.trace.outlived import outlives
from meshjit.trace.tracer import Tracer, described, origin
from meshjit.trace.tracing import Trace


def check_leaks(trace: Trace) -> None:
    """UnexpectedTracerError for a Tracer of an ended trace to which something but the trace still refers."""
    trace.bodies.clear()
    trace.stand_ins.clear()
    gc.collect()
    kept = [x for x in gc.get_referrers(trace) if isinstance(x, Tracer) and not outlives(x)]
    if kept:
        more = f", and {len(kept) - 1} more" if len(kept) > 1 else ""
        raise UnexpectedTracerError(
            f"{described(kept[0])}{more}: the trace of {trace.name} has ended, and something still refers to a value of it\n"
            f"  the value: {origin(kept[0])}\n"
            "  fix: return it from the function instead of keeping it in a global, an attribute or a closure"
        )
