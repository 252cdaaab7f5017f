"""Neighbours that are one: transforms along different dims, once every device knows which lines it has.

    %1 = fft(%0) {kind='FFT', axes=(1,)}      ->      %2 = fft(%0) {kind='FFT', axes=(0, 1)}
    %2 = fft(%1) {kind='FFT', axes=(0,)}

For local Programs: before, an equation per dim lets each dim be whole in its own turn.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import with_programs
from meshjit.transform.dce import dce

MOST_AXES = 3  # of one StableHLO fft

# (kind of the first, kind of the second) -> kind of both together
_TOGETHER = {("FFT", "FFT"): "FFT", ("IFFT", "IFFT"): "IFFT", ("RFFT", "FFT"): "RFFT", ("IFFT", "IRFFT"): "IRFFT"}


def fuse(program: Program) -> Program:
    """The Program with chains of transforms, of which nobody else needs the parts, as one equation each; in loops, too."""
    if any(eqn.op.regions for eqn in program.eqns):
        eqns = [e.with_params(with_programs(e.params, fuse)) if e.op.regions else e for e in program.eqns]
        program = replace(program, eqns=tuple(eqns))
    uses = Counter(v for eqn in program.eqns for v in eqn.inputs)
    uses.update(program.outputs)
    made: dict[Var, Eqn] = {}
    found: list[Eqn] = []
    for old in program.eqns:
        eqn = old
        if old.op.name == "fft":
            first = made.get(old.inputs[0])
            eqn = _together(first, old) if first is not None and uses[old.inputs[0]] == 1 else old
            made[eqn.outputs[0]] = eqn
        found.append(eqn)
    return dce(replace(program, eqns=tuple(found))) if made else program


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
