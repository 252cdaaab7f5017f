"""Materialize updates that are computed from other places of what they update. For local Programs for CPU, after partitioning.

    %u = subtract(slice(%y) [2:], slice(%y) [:-2])             %u = subtract(slice(%y) [2:], slice(%y) [:-2])
    %z = update_slice(%y, %u) {start=(1,)}              ->     %m = materialize(%u)
    %v = reshape(%z)                                           %z = update_slice(%y, %m) {start=(1,)};  %v = reshape(%z)

XLA:CPU fuses %u into the dynamic-update-slice and writes element by element into %y, from which later elements of %u are still
to be read. It refuses to do so if update and operand read the same instruction, but it does not look through views: it moves
the reshape from below the update to above it, and then the operand is another instruction over the same buffer. So %u is
written to memory first. This costs no more than XLA's own way out, which writes each of the slices. A scatter of one window
is such an update, too. A scatter of several is a loop, whose updates are in memory anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshjit.core.program import Eqn, Program, Var
from meshjit.ops.base.annotations import materialize
from meshjit.ops.base.families import elementwise_rule
from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
from meshjit.ops.index.scatter import scatter
from meshjit.ops.index.scatter_emission import is_one_window
from meshjit.ops.slicing.slices import slice_
from meshjit.ops.slicing.update_slice import update_slice
from meshjit.transform.rewriting import in_regions, rewrite

# which operand of these the update is; what it is put into is the first
_UPDATES = {update_slice.name: 1, dynamic_update_slice.name: 1, scatter.name: 2}


def materialize_updates(program: Program) -> Program:
    """The Program with every such update materialized, in nested Programs too."""
    program = in_regions(program, materialize_updates)
    updates = [eqn for eqn in program.eqns if _is_update(eqn)]
    if not updates:
        return program
    reads = _Reads(program.eqns, updates)
    return rewrite(program, dict.fromkeys(_UPDATES, lambda eqn, here: _written(eqn, reads)))


def _written(eqn: Eqn, reads: _Reads) -> Eqn | None:
    if not _is_update(eqn) or not reads.elsewhere(eqn):
        return None
    update = eqn.inputs[_UPDATES[eqn.op.name]]
    written = materialize(update)
    written.hint = update.hint
    return eqn.with_inputs(tuple([written if v is update else v for v in eqn.inputs]))


def _is_update(eqn: Eqn) -> bool:
    return eqn.op.name in _UPDATES and (eqn.op is not scatter or is_one_window(eqn.input_types))


class _Reads:
    """Which values are computed from the memory of an update's operand.

    Values of as many bytes that one equation reads and gives may lie in the same memory: views, elementwise ops and updates.
    Each set of such values that holds an operand of an update has a bit. The bits of a value say which it is computed from.
    """

    def __init__(self, eqns: Sequence[Eqn], updates: Sequence[Eqn]) -> None:
        self.makers: Mapping[Var, Eqn] = {v: eqn for eqn in eqns for v in eqn.outputs}
        self._leaders: dict[Var, Var] = {}
        for eqn in eqns:
            for a in eqn.outputs:
                for b in eqn.inputs:
                    if _size(a) == _size(b):
                        self._leaders[self._leader(a)] = self._leader(b)
        leaders = {self._leader(eqn.inputs[0]) for eqn in updates}
        self._bit = {leader: 1 << i for i, leader in enumerate(leaders)}
        self._bits: dict[Var, int] = {}
        for eqn in eqns:
            read = 0
            for v in eqn.inputs:
                read |= self.bits(v)
            for v in eqn.outputs:
                self._bits[v] = read | self.bit(v)

    def _leader(self, v: Var) -> Var:
        while (above := self._leaders.get(v, v)) is not v:
            self._leaders[v] = self._leaders.get(above, above)
            v = above
        return v

    def bit(self, v: Var) -> int:
        """The bit of the memory that v may lie in; 0 if no update's operand does."""
        return self._bit.get(self._leader(v), 0)

    def bits(self, v: Var) -> int:
        """The bits of all memory that v is computed from."""
        return self._bits.get(v, self.bit(v))

    def elsewhere(self, update: Eqn) -> bool:
        """Whether the new elements depend on the operand's memory in another way than each on the element that it replaces."""
        bit, seen, left = self.bit(update.inputs[0]), set[Var](), [update.inputs[_UPDATES[update.op.name]]]
        while left:
            v = left.pop()
            if v in seen or not self.bits(v) & bit:
                continue
            seen.add(v)
            eqn = self.makers.get(v)
            if eqn is None or not (_is_replaced(eqn, update) or eqn.op.factor_rule is elementwise_rule):
                return True
            if not _is_replaced(eqn, update):
                left += eqn.inputs
        return False


def _size(v: Var) -> int:
    return v.type.size * v.dtype.itemsize


def _is_replaced(eqn: Eqn, update: Eqn) -> bool:
    """Whether the equation takes from the operand just the elements that the update replaces."""
    operand, new, *starts = update.inputs
    same = eqn.op in (slice_, dynamic_slice) and eqn.inputs[0] is operand and eqn.outputs[0].shape == new.shape
    if not same or update.op is scatter:
        return False
    if eqn.op is dynamic_slice:
        return eqn.inputs[1:] == tuple(starts)
    dense = all(n == 1 for n in eqn.params["strides"])
    return dense and update.op is update_slice and eqn.params["start"] == update.params["start"]
