"""checkify: a Program whose errors are results, instead of something that happens (`jax.experimental.checkify`).

    check(%p, %code, %x)        ->      of each kind of error: whether there was one, the code of the first, what it tells of

A kind is a category and the types of what its messages tell of. Errors go along with the values: through calls, branches and
checkpoints, round with the carries of loops, and out of code for single devices, one per device, of which the last counts.
Rules of custom derivatives know of no errors, so theirs are those of the values alone, computed beside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from meshjit.core.effects import effect_of_program
from meshjit.core.host import HostFunction, host_function
from meshjit.core.program import Builder, Eqn, Program, Var, current_builder
from meshjit.core.region import run_programs, with_regions_changed
from meshjit.core.types import TensorType
from meshjit.ops.base.annotations import stop_gradient
from meshjit.ops.base.bits import or_
from meshjit.ops.base.comparison import select
from meshjit.ops.base.constants import scalar, spread, zeros
from meshjit.ops.base.shape import reshape
from meshjit.ops.control.check import CODE, PRED, last_error
from meshjit.transform.checks import NAN_OPS, JaxException, Wording, bounds_of, braced, has_nan, has_zero
from sharding.spec import PartitionSpec

Kind: TypeAlias = tuple[str, tuple[TensorType, ...]]  # category, types of the payload
Errors: TypeAlias = dict[Kind, tuple[Var, Var, tuple[Var, ...]]]  # pred, code, payload
Messages: TypeAlias = dict[int, HostFunction]

next_code = itertools.count(1).__next__  # of one place in one program: the first of several errors has the least


@dataclass(frozen=True)
class Checked:
    """outputs: for each kind pred, code and payload, then those of the Program before."""

    program: Program
    kinds: tuple[Kind, ...]
    messages: Mapping[int, HostFunction]


def checkify(program: Program, categories: Collection[str]) -> Checked:
    """The Program with errors of these categories as its first outputs; checks of others are dropped."""
    checker = _Checker(frozenset(categories), {})
    checked, kinds = checker.program(program, ())
    return Checked(checked, kinds, checker.messages)


def has_checks(program: Program) -> bool:
    """Whether something in it raises unless it is made a result."""
    if not effect_of_program(program):
        return False
    mine = any(eqn.op.name == "check" and not eqn.params["debug"] for eqn in program.eqns)
    return mine or any(has_checks(nested) for eqn in program.eqns for nested in run_programs(eqn))


def first_error(
    values: Mapping[Kind, tuple[Any, Any, Sequence[Any]]], messages: Mapping[int, HostFunction]
) -> JaxException | None:
    """Of errors with values the one that stands first in the program, if there is any."""
    failures = [(int(code), payload) for pred, code, payload in values.values() if pred]
    if not failures:
        return None
    code, payload = min(failures, key=lambda error: error[0])
    return messages[code].call(payload)[0]


def values_of(kinds: Sequence[Kind], values: Sequence[Any]) -> dict[Kind, tuple[Any, Any, tuple[Any, ...]]]:
    """The first outputs of a checked Program, by kind."""
    rest = iter(values)
    return {kind: (next(rest), next(rest), tuple([next(rest) for _ in kind[1]])) for kind in kinds}


def types_of(kinds: Sequence[Kind]) -> list[TensorType]:
    return [t for _, payload in kinds for t in (PRED, CODE, *payload)]


def _flat(errors: Errors, kinds: Sequence[Kind]) -> list[Var]:
    return [v for kind in kinds for v in (errors[kind][0], errors[kind][1], *errors[kind][2])]


class _Checker:
    """Writes the equations of checked Programs; `messages` collects what their codes mean."""

    def __init__(self, categories: frozenset[str], messages: Messages) -> None:
        self.categories, self.messages = categories, messages

    def program(self, program: Program, kinds: Sequence[Kind]) -> tuple[Program, tuple[Kind, ...]]:
        """(errors of these kinds, inputs) -> (errors of these and further kinds, outputs), and which."""
        with Builder(program.name) as builder:
            errors = values_of(kinds, [builder.input(t) for t in types_of(kinds)])
            outputs = self.write(program, [builder.input(v.type, v.hint) for v in program.inputs], errors)
            return builder.build([*_flat(errors, tuple(errors)), *outputs]), tuple(errors)

    def write(self, program: Program, operands: Sequence[Var], errors: Errors) -> list[Var]:
        """The equations in the current builder; gives the outputs. `errors` grow."""
        env = dict(zip(program.inputs, operands, strict=True))
        for eqn in program.eqns:
            with current_builder().at(eqn.source):
                results = self.equation(eqn, [env[v] for v in eqn.inputs], errors)
            env.update(zip(eqn.outputs, results, strict=True))
        return [env[v] for v in program.outputs]

    def equation(self, eqn: Eqn, operands: list[Var], errors: Errors) -> Sequence[Var]:
        if eqn.op.name == "check":
            self.noted(eqn, operands, errors)
            return ()
        if eqn.op.regions is not None:
            return _REGIONS.get(eqn.op.name, _Checker.beside)(self, eqn, operands, errors)
        results = current_builder().emit(eqn.op, operands, eqn.params)
        self.automatic(eqn, operands, results, errors)
        return results

    # -- errors

    def noted(self, eqn: Eqn, operands: Sequence[Var], errors: Errors) -> None:
        """An error that the user checks for."""
        if eqn.params["category"] in self.categories:
            self.messages.update(eqn.params["messages"])
            pred, code, *payload = operands
            _note(errors, eqn.params["category"], pred, code, payload)

    def automatic(self, eqn: Eqn, operands: Sequence[Var], results: Sequence[Var], errors: Errors) -> None:
        """Errors that the op itself can make."""
        name = NAN_OPS.get(eqn.op.name)
        if "DivisionByZeroError" in self.categories and eqn.op.name == "divide":
            self.record(eqn, errors, "DivisionByZeroError", "division by zero", has_zero(operands[1]))
        if "OOBError" in self.categories and (bounds := bounds_of(eqn, operands)) is not None:
            text = f"out-of-bounds indexing for array of shape {operands[0].shape}: index "
            self.record(eqn, errors, "OOBError", text + "{0[0]} is out of bounds for axis {0[1]} with size {0[2]}. ", *bounds)
        if "NaNError" in self.categories and name is not None and (nan := has_nan(results)) is not None:
            self.record(eqn, errors, "NaNError", f"nan generated by primitive: {braced(name)}.", nan)

    def record(self, eqn: Eqn, errors: Errors, category: str, text: str, pred: Var, *payload: Var) -> None:
        code = next_code()
        self.messages[code] = host_function(Wording(category, text, eqn.source), category, len(payload), ())
        _note(errors, category, pred, scalar(code, CODE.dtype), payload)

    # -- ops with regions

    def nested(self, program: Program, errors: Errors) -> tuple[Kind, ...]:
        """Which kinds of errors a nested Program makes; `errors` have them from now on, as none so far."""
        _, kinds = _Checker(self.categories, {}).program(program, ())
        for category, types in kinds:
            if (category, types) not in errors:
                errors[category, types] = scalar(False, PRED.dtype), scalar(-1, CODE.dtype), tuple(map(zeros, types))
        return kinds

    def body(self, program: Program, kinds: Sequence[Kind]) -> Program:
        """A nested Program with errors of exactly these kinds as its first inputs and outputs."""
        checked, all_kinds = self.program(program, kinds)
        assert all_kinds == tuple(kinds), "a Program makes the same kinds of errors each time"
        return checked

    def call(self, eqn: Eqn, operands: list[Var], errors: Errors) -> Sequence[Var]:
        return self.write(eqn.params["body"], operands, errors)

    def checkpoint(self, eqn: Eqn, operands: list[Var], errors: Errors) -> Sequence[Var]:
        kinds = self.nested(eqn.params["body"], errors)
        params = {**eqn.params, "body": self.body(eqn.params["body"], kinds)}
        return _returned(errors, kinds, current_builder().emit(eqn.op, [*_flat(errors, kinds), *operands], params))

    def case(self, eqn: Eqn, operands: list[Var], errors: Errors) -> Sequence[Var]:
        kinds = tuple(dict.fromkeys(k for branch in eqn.params["branches"] for k in self.nested(branch, errors)))
        branches = tuple([self.body(branch, kinds) for branch in eqn.params["branches"]])
        values = [operands[0], *_flat(errors, kinds), *operands[1:]]
        return _returned(errors, kinds, current_builder().emit(eqn.op, values, {**eqn.params, "branches": branches}))

    def scan(self, eqn: Eqn, operands: list[Var], errors: Errors) -> Sequence[Var]:
        params, consts = eqn.params, eqn.params["num_consts"]
        kinds = self.nested(params["body"], errors)
        flat = _flat(errors, kinds)
        body = _inputs_moved(self.body(params["body"], kinds), len(flat), consts)
        params = {**params, "body": body, "num_carry": params["num_carry"] + len(flat)}
        values = [*operands[:consts], *flat, *operands[consts:]]
        return _returned(errors, kinds, current_builder().emit(eqn.op, values, params))

    def while_(self, eqn: Eqn, operands: list[Var], errors: Errors) -> Sequence[Var]:
        """The condition is asked before the loop, and behind the body for the next time: its errors are those of the body."""
        params, first = eqn.params, eqn.params["cond_consts"]
        cond, carry = params["cond"], operands[first + params["body_consts"] :]
        self.write(cond, [*operands[:first], *carry], errors)
        with Builder(params["body"].name) as builder:
            consts = [builder.input(v.type, v.hint) for v in cond.inputs[:first]]
            inputs = [builder.input(v.type, v.hint) for v in params["body"].inputs]
            after = builder.inline(params["body"], inputs)
            builder.inline(cond, [*consts, *after])
            step = builder.build(after)
        kinds = self.nested(step, errors)
        flat = _flat(errors, kinds)
        body = _inputs_moved(self.body(step, kinds), len(flat), first + params["body_consts"])
        asked = without_checks(cond)
        unread = [Var(v.type) for v in flat]
        asked = asked.with_inputs([*asked.inputs[:first], *unread, *asked.inputs[first:]])
        params = {**params, "cond": asked, "body": body, "body_consts": first + params["body_consts"]}
        values = [*operands[:first], *operands[:first], *operands[first : len(operands) - len(carry)], *flat, *carry]
        return _returned(errors, kinds, current_builder().emit(eqn.op, values, params))

    def manual(self, eqn: Eqn, operands: list[Var], errors: Errors) -> Sequence[Var]:
        """Each device has an error of its own, which its body begins without."""
        kinds = self.nested(eqn.params["body"], {})
        everywhere = PartitionSpec(tuple(name for name, _ in eqn.params["mesh"]))
        with Builder(eqn.params["body"].name) as builder:
            own: Errors = {}
            outputs = self.write(eqn.params["body"], [builder.input(v.type, v.hint) for v in eqn.params["body"].inputs], own)
            flat = [reshape(v, shape=(1, *v.shape)) for v in _flat(own, kinds)]
            body = builder.build([*flat, *outputs])
        specs = (*[everywhere] * len(flat), *eqn.params["out_specs"])
        results = current_builder().emit(eqn.op, operands, {**eqn.params, "body": body, "out_specs": specs})
        for (category, _), (pred, code, payload) in values_of(kinds, results[: len(flat)]).items():
            one, (which, *values) = last_error(pred, [code, *payload])
            _note(errors, category, one, which, values)
        return results[len(flat) :]

    def beside(self, eqn: Eqn, operands: list[Var], errors: Errors) -> Sequence[Var]:
        """Errors of an op whose rules know of none: its body, if it takes the operands, is computed once more for them."""
        for body in run_programs(eqn):
            if body.input_types == tuple([v.type for v in operands]):
                if self.nested(body, {}):
                    self.write(without_effects(body), [stop_gradient(v) for v in operands], errors)
            elif has_checks(body):
                raise NotImplementedError(f"checkify: {eqn.op.name} cannot carry the errors of checks inside of it")
        return current_builder().emit(eqn.op, operands, with_regions_changed(eqn, without_checks).params)


_REGIONS: Mapping[str, Callable[[_Checker, Eqn, list[Var], Errors], Sequence[Var]]] = {
    "call": _Checker.call, "checkpoint": _Checker.checkpoint, "case": _Checker.case, "scan": _Checker.scan,
    "while": _Checker.while_, "manual": _Checker.manual,
}  # fmt: skip


def _note(errors: Errors, category: str, pred: Var, code: Var, payload: Sequence[Var]) -> None:
    """An error, unless there has been one of its kind."""
    kind = category, tuple([v.type for v in payload])
    if kind in errors:
        before, old, values = errors[kind]
        code = select(before, old, code)
        payload = [select(spread(before, v.shape), v, w) for v, w in zip(values, payload, strict=True)]
        pred = or_(before, pred)
    errors[kind] = pred, code, tuple(payload)


def _returned(errors: Errors, kinds: Sequence[Kind], results: Sequence[Var]) -> Sequence[Var]:
    """An equation's own results, behind the errors that it gives."""
    count = len(types_of(kinds))
    errors.update(values_of(kinds, results[:count]))
    return results[count:]


def _inputs_moved(program: Program, count: int, places: int) -> Program:
    """The first `count` inputs behind the `places` that follow them."""
    inputs = program.inputs
    return program.with_inputs([*inputs[count : count + places], *inputs[:count], *inputs[count + places :]])


def without_checks(program: Program) -> Program:
    """The Program with nothing in it that raises."""
    return _without(program, lambda eqn: eqn.op.name == "check")


def without_effects(program: Program) -> Program:
    """The Program for a second time: what only tells of values is left out."""
    return _without(program, lambda eqn: not eqn.outputs and eqn.op.name != "check" and eqn.op.regions is None)


def _without(program: Program, drops: Callable[[Eqn], bool]) -> Program:
    if not effect_of_program(program):
        return program
    eqns: Sequence[Any] = [with_regions_changed(e, lambda p: _without(p, drops)) for e in program.eqns if not drops(e)]
    return Program(program.name, program.inputs, tuple(eqns), program.outputs)
