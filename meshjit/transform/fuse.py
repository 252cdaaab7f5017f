"""Neighbours that are one: transforms along different dims, once every device knows which lines it has.

    %1 = fft(%0) {kind='FFT', axes=(1,)}      ->      %2 = fft(%0) {kind='FFT', axes=(0, 1)}
    %2 = fft(%1) {kind='FFT', axes=(0,)}

For local Programs: before, an equation per dim lets each dim be whole in its own turn.
"""

from __future__ import annotations

from dataclasses import replace

from meshjit.core.program import Eqn, Program
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, in_regions, rewrite, uses_of

MOST_AXES = 3  # of one StableHLO fft

# (kind of the first, kind of the second) -> kind of both together
_TOGETHER = {("FFT", "FFT"): "FFT", ("IFFT", "IFFT"): "IFFT", ("RFFT", "FFT"): "RFFT", ("IFFT", "IRFFT"): "IRFFT"}


def fuse(program: Program) -> Program:
    """The Program with chains of transforms, of which nobody else needs the parts, as one equation each; in loops, too."""
    program = in_regions(program, fuse)
    if not any(eqn.op.name == "fft" for eqn in program.eqns):
        return program
    uses = uses_of(program)

    def rule(eqn: Eqn, here: Rewriter) -> Eqn:
        first = here.makers.get(eqn.inputs[0])
        is_chain = first is not None and first.op is eqn.op and uses[eqn.inputs[0]] == 1
        return _together(first, eqn) if first is not None and is_chain else eqn

    return dce(rewrite(program, {"fft": rule}))


def _together(first: Eqn, second: Eqn) -> Eqn:
    """Both as one equation in the place of the second; the second itself where that cannot be."""
    kind = _TOGETHER.get((first.params["kind"], second.params["kind"]))
    lengths = dict(zip(first.params["axes"], first.params["lengths"], strict=True))
    more = dict(zip(second.params["axes"], second.params["lengths"], strict=True))
    if kind is None or lengths.keys() & more.keys() or len(lengths) + len(more) > MOST_AXES:
        return second
    lengths |= more
    halved = {"RFFT": first.params["axes"][-1:], "IRFFT": second.params["axes"][-1:]}.get(kind, ())
    axes = (*sorted(axis for axis in lengths if axis not in halved), *halved)
    params = {"kind": kind, "axes": axes, "lengths": tuple(lengths[axis] for axis in axes)}
    return replace(second, inputs=first.inputs, params=params)
