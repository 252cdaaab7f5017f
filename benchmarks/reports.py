"""What asking costs beside planning: the Llama-shaped step of benchmarks/lowering.py, processor seconds.

    python benchmarks/reports.py                  12 and 32 layers, unrolled, on 8 × 8 devices
    python benchmarks/reports.py --layers 32 --scan

why-not is asked of a fresh report, as a share of the time that planning took.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from lowering import Model

from meshjit.sharding import PartitionSpec as P


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def line_of(report: Any) -> tuple[str, Any]:
    """The line that adds the feed-forward network to the residual stream, and the sequence sharded there."""
    row = next(row for row in report.program if row.place is not None and row.place.function == "Model.block")
    return row.title, P("data", "model", None)


def measured(layers: int, scan: bool) -> dict[str, Any]:
    step, types = Model("meshjit", layers, scan).staged((8, 8))
    traced = step.trace(*types)
    planning, planned = timed(lambda: traced.plan(lowering_platforms=("tpu",)))
    report = planned.report()
    name, line = report.subject.inputs[5], line_of(report)
    ratios = [timed(lambda v=v, s=s: str(planned.report().why_not(v, s)))[0] / planning for v, s in ((name, P()), line)]
    text, _ = timed(lambda: str(report))
    page, html = timed(lambda: planned.report().to_html())
    why, _ = timed(lambda: str(report.why(name)))
    equations = len(planned.plan.program.eqns)
    return {
        "equations": equations, "plan": planning, "report": text, "why": why, "page": page, "page MB": len(html) / 1e6,
        "why-not of an argument / plan": ratios[0], "of a line / plan": ratios[1],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 32])
    parser.add_argument("--scan", action="store_true")
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    for layers in args.layers:
        runs = [measured(layers, args.scan) for _ in range(args.repeats)]
        best = {name: min(run[name] for run in runs) for name in runs[0]}
        print(f"{layers} layers", *(f"{name} {value:.3g}" for name, value in best.items()), sep="  ")


if __name__ == "__main__":
    main()
