"""What bwd of a custom_vjp writes to refs leaves the derivative as cotangents.

A call of the function takes one more operand for each Ref that its rules can reach, a slot: nobody computes with it, and the
functions around capture it as any Ref. Where reverse mode meets one among what a function captured, it asks for its cotangent,
too. Additions are added up, wherever they happen. What a Ref is set to is known where that happens once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshjit import numpy as mnp
from meshjit.core.program import Eqn, Program, Var
from meshjit.core.ref import Ref, slot_of
from meshjit.core.splat import is_known_splat
from meshjit.core.types import is_inexact
from meshjit.lax.custom_rules import CustomCall
from meshjit.lax.regions import Leaves
from meshjit.numpy.promote import cast
from meshjit.trace import Argument, Trace, Traced, Tracer, active_trace, line_of, user_source
from meshjit.trace.refs import content_of, is_slot, store, type_of_ref


def with_slots(call: CustomCall) -> CustomCall:
    """The call, which takes the slots of the refs that its rules may write to as further operands."""
    refs = [x for x in call.closed if isinstance(x, Ref) and x.of is None and x.keys is None and is_inexact(x.type.dtype)]
    slots = tuple(map(slot_of, refs))
    arguments = [Argument(slot.type, name="a ref") for slot in slots]
    leaves = Leaves([*call.leaves.values, *slots], [*call.leaves.arguments, *arguments], call.leaves.structure)
    return replace(call, leaves=leaves, slots=slots)


def written_back(slots: Sequence[Ref]) -> list[Any]:
    """At the end of bwd: the cotangents of the slots. What was written is not written otherwise."""
    trace, cotangents = active_trace(), list[Any]()
    assert trace is not None
    for slot in slots:
        ref = slot.of
        assert ref is not None
        held, cotangent = trace.refs[id(ref)], mnp.zeros(ref.type.shape, ref.type.dtype)
        if held.written:
            held.written = False
            before, after = trace.stand_ins[id(ref)][1].variable, held.value
            slot.mode = "add" if before in _reached_from(after.variable, trace.builder.eqns) else "set"
            cotangent = after if slot.mode == "set" else _added(trace, ref, after.variable, before, cotangent)
        cotangents.append(cast(cotangent, ref.type.dtype, False))
    return cotangents


def _reached_from(var: Var, eqns: Sequence[Eqn]) -> set[Var]:
    """All that a value is computed with, and itself."""
    needed = {var}
    for eqn in reversed(eqns):
        if needed & {*eqn.outputs}:
            needed |= {*eqn.inputs}
    return needed


def _added(trace: Trace, ref: Ref, after: Var, before: Var, zeros: Any) -> Any:
    """What was added to the content: the additions again, to zeros. NotImplementedError for what is no addition."""
    makers = {v: eqn for eqn in trace.builder.eqns for v in eqn.outputs}
    chain, var = list[tuple[Eqn, int]](), after
    while var is not before:
        eqn = makers[var]
        uses = [i for i, v in enumerate(eqn.inputs) if before in _reached_from(v, trace.builder.eqns)]
        if len(uses) != 1 or eqn.op.name != "add":
            raise NotImplementedError(_neither(ref))
        chain.append((eqn, uses[0]))
        var = eqn.inputs[uses[0]]
    total = zeros
    for eqn, place in reversed(chain):
        operands = [total if i == place else Tracer(v, trace, False, None) for i, v in enumerate(eqn.inputs)]
        (total,) = trace.emit(eqn.op, operands, eqn.params, False)
    return total


def _neither(ref: Ref) -> str:
    return (
        f"bwd of a custom_vjp may add to a {type_of_ref(ref)}, or set all of it without reading it; this one does"
        " something else\n"
        f"  at {line_of(user_source())}\n  fix: ref[...] += g, jax.ref.addupdate(ref, index, g), or ref[...] = g"
    )


@dataclass(frozen=True)
class Slots:
    """Those that a function captured: slots, and whether each is used once, outside of loops, branches and checkpoints."""

    slots: tuple[Ref, ...] = ()
    single: tuple[bool, ...] = ()

    @staticmethod
    def of(traced: Traced) -> Slots:
        program = traced.program
        captured = zip(traced.captured, program.inputs[len(program.inputs) - len(traced.captured) :], strict=True)
        pairs = [(x, var) for x, var in captured if is_slot(x)]
        users = [[eqn.op.name for eqn in program.eqns if var in eqn.inputs] for _, var in pairs]
        return Slots(tuple(x for x, _ in pairs), tuple(names == ["custom_vjp"] for names in users))

    def __len__(self) -> int:
        return len(self.slots)

    def taken(self, results: list[Any], program: Program) -> list[Any]:
        """The results of a derivative without its last, the cotangents of the slots: what these say is stored."""
        if not self.slots:
            return results
        count, zero = len(results) - len(self.slots), _zeros(program)
        own = program.outputs[len(program.outputs) - len(self.slots) :]
        for ref in dict.fromkeys(slot.of for slot in self.slots):
            assert ref is not None
            places = [i for i, s in enumerate(self.slots) if s.of is ref and s.mode and own[i] not in zero]
            if places and not (ref.home is not None and ref.home.ended):
                self._store(ref, places, results[count:])
        return results[:count]

    def _store(self, ref: Ref, places: list[int], cotangents: list[Any]) -> None:
        modes = [self.slots[i].mode for i in places]
        if "set" not in modes:
            store(ref, functools.reduce(operator.add, [cotangents[i] for i in places], content_of(ref)))
        elif modes == ["set"] and self.single[places[0]]:
            store(ref, cotangents[places[0]])
        else:
            raise NotImplementedError(
                f"bwd of a custom_vjp sets a {type_of_ref(ref)} that others write to, or in a loop, a branch or a checkpoint:"
                f" which is the last to do so is not known\n  at {line_of(user_source())}\n  fix: add to it: ref[...] += g"
            )


def _zeros(program: Program) -> set[Var]:
    """The constants of zeros."""
    eqns = [eqn for eqn in program.eqns if eqn.op.name == "constant"]
    values = [(eqn.outputs[0], eqn.params["value"]) for eqn in eqns]
    return {v for v, x in values if is_known_splat(x) and x.size and not x.flat[0]}
