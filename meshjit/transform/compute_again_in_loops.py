"""What a loop keeps of each iteration for a later loop is computed again there, from less that is kept.

    %c, %hs, %zs = scan(%x, %ws)               %c, %xs = scan(%x, %ws)         the carry instead of %z and %h
      z = dot(x, w)   h = tanh(z)                z = dot(x, w)   h = tanh(z)
      return h, z, h                             return h, x
    %g = scan(%dy, %ws, %hs, %zs) reverse      %g = scan(%dy, %ws, %xs) reverse
                                                 z = dot(x, w)   h = tanh(z)

Each value is computed just before the first equation that reads it. No barrier is needed: compilers do not merge equations of
different loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from meshjit.core.program import Eqn, Program, Var
from meshjit.core.region import copied, programs_of, with_programs
from meshjit.transform.compute_again import AGAIN
from meshjit.transform.dce import dce
from meshjit.transform.rewriting import Rewriter, everywhere


@dataclass(frozen=True)
class LoopPair:
    """Two scans of one Program, of equal length. The second reads slices of `stacked`, results of the first that nothing else
    reads."""

    forward: Eqn
    backward: Eqn
    stacked: tuple[Var, ...]

    @property
    def body(self) -> Program:
        return self.forward.params["body"]

    @property
    def residuals(self) -> dict[Var, Var]:
        """By result of the first scan, the value of its body that is stacked."""
        inner = dict(zip(self.forward.outputs, self.body.outputs, strict=True))
        return {outer: inner[outer] for outer in self.stacked}


@dataclass(frozen=True)
class LoopAgain:
    """`eqns` of the first body, in its order, all of them pure, are computed again in the second. The first stacks what they
    read, unless they make it, or both loops have it as an operand."""

    pair: LoopPair
    eqns: tuple[Eqn, ...]


def loop_pairs(program: Program) -> Iterator[LoopPair]:
    """Of the Program itself, in its order."""
    scans = [eqn for eqn in program.eqns if _is_scan(eqn)]
    if len(scans) < 2:
        return
    reads: dict[Var, set[tuple[Eqn | None, bool]]] = {v: {(None, False)} for v in program.outputs}
    for eqn in program.eqns:
        first_x = eqn.params["num_consts"] + eqn.params["num_carry"] if _is_scan(eqn) else len(eqn.inputs)
        for i, var in enumerate(eqn.inputs):
            reads.setdefault(var, set()).add((eqn, i >= first_x))
    for forward in scans:
        by_reader: dict[Eqn, list[Var]] = {}
        for var in forward.outputs[forward.params["num_carry"] :]:
            (reader, is_sliced), *others = reads.get(var, {(None, False)})
            if reader is not None and is_sliced and not others:
                by_reader.setdefault(reader, []).append(var)
        for backward, stacked in by_reader.items():
            if backward.params["length"] == forward.params["length"]:
                yield LoopPair(forward, backward, tuple(stacked))


def _is_scan(eqn: Eqn) -> bool:
    return eqn.op.name == "scan"


def compute_again_in_loop(program: Program, again: LoopAgain) -> tuple[Program, Mapping[Var, Var]]:
    """The Program with these two loops, wherever they stand in it, so written; and copy → original."""
    originals = dict[Var, Var]()

    def changed(part: Program) -> Program:
        return _Loops(again, originals).written(part) if again.pair.forward in part.eqns else part

    return everywhere(program, changed), originals


class _Loops:
    """Both scans as they become. `here`: what a value of the first body is in the second."""

    def __init__(self, again: LoopAgain, originals: dict[Var, Var]) -> None:
        self.again, self.pair, self.originals = again, again.pair, originals
        forward, backward = self.pair.forward, self.pair.backward
        self.makers = {v: eqn for eqn in again.eqns for v in eqn.outputs}
        self.consts, self.carry, self.xs = _split(backward.inputs, backward)
        self.inner_consts, self.inner_carry, self.inner_xs = _split(backward.params["body"].inputs, backward)
        self.here: dict[Var, Var] = {}
        self.awaited: dict[Var, list[Var]] = {}  # residuals that are made again → inputs of the second body that they were
        self.stacks: list[tuple[Var, Var]] = []  # further values of the first body, and the results that they become
        self.dropped = {outer for outer, inner in self.pair.residuals.items() if inner in self.makers}
        results = zip(self.pair.body.outputs, forward.outputs, strict=True)
        self.stacked = [(inner, outer) for inner, outer in results if outer not in self.dropped]  # and carries

    def written(self, program: Program) -> Program:
        self._leave_out()
        body = self._second_body()
        first = self._first()
        params = {**self.pair.backward.params, "body": body, "num_consts": len(self.consts)}
        second = replace(self.pair.backward, inputs=(*self.consts, *self.carry, *self.xs), params=params)
        names = {self.pair.forward: first, self.pair.backward: second}
        return replace(program, eqns=tuple([names.get(eqn, eqn) for eqn in program.eqns]))

    def _leave_out(self) -> None:
        """Slices of residuals that are made again are no inputs of the second body any more."""
        for outer, inner in [*zip(self.xs, self.inner_xs, strict=True)]:
            if outer in self.dropped:
                self.awaited.setdefault(self.pair.residuals[outer], []).append(inner)
        kept = [(outer, inner) for outer, inner in zip(self.xs, self.inner_xs, strict=True) if outer not in self.dropped]
        self.xs, self.inner_xs = [outer for outer, _ in kept], [inner for _, inner in kept]

    def _first(self) -> Eqn:
        forward, count = self.pair.forward, self.pair.forward.params["num_carry"]
        ends = [*self.stacked, *self.stacks]
        body = dce(self.pair.body.with_outputs([inner for inner, _ in ends]))
        assert [outer for _, outer in ends[:count]] == [*forward.outputs[:count]], "carries stay"
        return replace(forward, outputs=tuple([outer for _, outer in ends]), params={**forward.params, "body": body})

    def _second_body(self) -> Program:
        body = self.pair.backward.params["body"]
        waiting = {inner: value for value, each in self.awaited.items() for inner in each}
        rewriter = Rewriter(body)

        def await_(read: Sequence[Var]) -> None:
            for value in dict.fromkeys([waiting[v] for v in read if v in waiting]):
                for made in self._made_for(value):
                    rewriter.put(made)
                for inner in self.awaited[value]:
                    del waiting[inner]
                    if inner is not self.here[value]:
                        rewriter.names[inner] = self.here[value]

        for eqn in body.eqns:
            await_(eqn.inputs)
            rewriter.put(rewriter.renamed(eqn))
        await_(body.outputs)
        inputs = (*self.inner_consts, *self.inner_carry, *self.inner_xs)
        return Program(body.name, inputs, tuple(rewriter.eqns), tuple(map(rewriter.new, body.outputs)))

    def _made_for(self, value: Var) -> Iterator[Eqn]:
        """The equations that make a value of the first body in the second, as far as it is not there."""
        needed, eqns = {value}, list[Eqn]()
        for eqn in reversed(self.again.eqns):
            if not needed.isdisjoint(eqn.outputs) and eqn.outputs[0] not in self.here:
                eqns.append(eqn)
                needed.update(eqn.inputs)
        for eqn in reversed(eqns):
            yield self._copy(eqn)

    def _copy(self, eqn: Eqn) -> Eqn:
        inputs = tuple([self._again(v) for v in eqn.inputs])
        outputs = tuple([self.awaited[v][0] if v in self.awaited else Var(v.type, v.hint) for v in eqn.outputs])
        params = eqn.params if eqn.op.regions is None else self._own(eqn.params)
        self.here.update(zip(eqn.outputs, outputs, strict=True))
        self.originals.update(zip(outputs, eqn.outputs, strict=True))
        return Eqn(eqn.op, inputs, outputs, params, None if eqn.source is None else eqn.source.noted(AGAIN))

    def _own(self, params: Mapping[str, object]) -> Mapping[str, object]:
        """Params with nested Programs of their own."""
        own = with_programs(params, copied)
        for old, new in zip(programs_of(params), programs_of(own), strict=True):
            self.originals.update(zip(_vars(new), _vars(old), strict=True))
        return own

    def _again(self, var: Var) -> Var:
        """A value of the first body in the second: made again already, an operand of both loops, or stacked for it."""
        if var not in self.here:
            consts, _, xs = _split(self.pair.body.inputs, self.pair.forward)
            outer_consts, _, outer_xs = _split(self.pair.forward.inputs, self.pair.forward)
            if var in consts:
                inner = self._operand(outer_consts[consts.index(var)], var, self.consts, self.inner_consts)
            elif var in xs:
                inner = self._operand(outer_xs[xs.index(var)], var, self.xs, self.inner_xs)
            else:
                inner = self._operand(self._stack_of(var), var, self.xs, self.inner_xs)
            self.here[var] = inner
        return self.here[var]

    def _operand(self, outer: Var, var: Var, operands: list[Var], inputs: list[Var]) -> Var:
        """The input of the second body that is this operand; a further one where there is none."""
        if outer not in operands:
            operands.append(outer)
            inputs.append(Var(var.type, var.hint))
            self.originals[inputs[-1]] = var
        return inputs[operands.index(outer)]

    def _stack_of(self, var: Var) -> Var:
        """The result of the first scan that has a value of each iteration."""
        count = self.pair.forward.params["num_carry"]
        for inner, outer in self.stacked[count:]:
            if inner is var:
                return outer
        outer = Var(var.type.with_shape((self.pair.forward.params["length"], *var.shape)), var.hint)
        self.stacks.append((var, outer))
        return outer


def _split(values: Sequence[Var], scan: Eqn) -> tuple[list[Var], list[Var], list[Var]]:
    """(consts, carries, xs) of operands or inputs of a scan's body."""
    first, second = scan.params["num_consts"], scan.params["num_consts"] + scan.params["num_carry"]
    return [*values[:first]], [*values[first:second]], [*values[second:]]


def _vars(program: Program) -> Iterator[Var]:
    yield from program.vars()
    for eqn in program.eqns:
        for nested in programs_of(eqn.params) if eqn.op.regions is not None else ():
            yield from _vars(nested)
