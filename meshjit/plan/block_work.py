"""What a device works and holds in a loop that does several iterations at a time (`partition/blocking.py`).

    8 iterations in blocks of 4       2 times: carries put to their borders, 4 iterations on what is longer by these, cut off

Every iteration of a block computes as much as its first one, and borders are computed on two devices. Putting them to what the
loop carries, and cutting it off, writes all of that twice. So large grids lose more by blocks than starting collectives takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from meshjit.core.access import Same
from meshjit.core.plan import EquationPlan
from meshjit.core.program import Eqn, Var
from meshjit.core.rules import Reading, access_of, reading_of, rule_of
from meshjit.core.target import Target
from meshjit.core.types import TensorType
from meshjit.partition.blocking import BlockedLoop, Needs
from meshjit.plan.windows import Windows, windows_of
from sharding.rule import FactorRule

# How often what a loop carries could be read while a block puts it to borders and cuts it off. On 8 CPU devices 8 iterations of
# u + roll(u), 16 x 20,000 f32 a device, take 9.5, 6.8 and 6.9 ms in blocks of 2, 4 and 8, and 5.5 without: 1.2 ms a block,
# or 4.6 reads. An ordinary iteration writes some of that, too, which its price leaves out: it takes 0.3 to 1 ms more than one of
# a block. With 2 reads of the difference 18 loops of 0.1 to 4 MB a device are done in blocks where these took less time.
COPIES: Final = 2.0

LocalSeconds = Callable[[FactorRule, Sequence[TensorType], Reading, Windows], float]


@dataclass(frozen=True)
class BlockWork:
    """Prices of one loop on a target. `local_seconds` are those of `plan/cost.py`."""

    loop: BlockedLoop
    target: Target
    local_seconds: LocalSeconds

    def besides(self, count: int) -> float:
        """Seconds of the loop in blocks of `count` iterations, beside what it works where each exchanges its own borders."""
        blocks, left = divmod(self.loop.length, count)
        seconds = blocks * self.of(count) + (self.of(left) if left else 0.0)
        return seconds - self.loop.length * self.iteration(self.loop.needs[0])

    def of(self, count: int) -> float:
        """Seconds of one block."""
        return count * self.iteration(self.loop.needs[count - 1]) + self.copying(count)

    def copying(self, count: int) -> float:
        """The seconds of these in which what is carried is written once more."""
        carried = self._carried()
        copied = COPIES * carried + count * (self.target.pad_passes * carried + self._updates())
        return copied / self.target.topology.memory_bandwidth

    def held(self, count: int) -> float:
        """Bytes that a block holds at its peak beyond what an ordinary iteration does: all of it is longer by the borders."""
        types, own, reached = self.loop.divisions.type, self.loop.divisions.own, self.loop.stretches(count)
        inputs, cost = sum(types(v, own(v)).nbytes for v in reached), self.loop.plan.cost
        longer = sum(types(v, s).nbytes for v, s in reached.items()) / inputs - 1 if inputs else 0.0
        return longer * cost.peak_bytes if cost is not None else 0.0

    def iteration(self, stretches: Needs) -> float:
        """Seconds of one iteration whose values are computed at these stretches."""
        loop = self.loop
        seconds, plans = 0.0, dict(zip(loop.plan.program.eqns, loop.plan.equations, strict=True))
        for eqn in loop.body.eqns:
            if eqn.inputs and eqn.outputs[0] in stretches:
                values = (*eqn.inputs, *eqn.outputs)
                types = [loop.divisions.type(v, stretches[v]) if v in stretches else v.type for v in values]
                reading = Reading() if eqn in plans and _is_framed(plans[eqn]) else reading_of(eqn)
                seconds += self.local_seconds(rule_of(eqn), types, reading, windows_of(eqn, self.target))
        return seconds

    def _carried(self) -> int:
        return sum(map(self._own_bytes, self.loop.carried))

    def _updates(self) -> float:
        """Bytes that are read and written because what a loop carries is not updated where it lies: it is longer in a block."""
        makers = {v: eqn for eqn in self.loop.body.eqns for v in eqn.outputs}
        made = [(v, makers.get(out)) for v, out in self.loop.carried.items()]
        return self.target.moved_updates * sum(self._own_bytes(v) for v, eqn in made if eqn is not None and self._is_update(eqn))

    def _is_update(self, eqn: Eqn) -> bool:
        """Whether it puts a part into an operand along a dim that is not cut: along one that is, it chooses by place."""
        (out, *_), (access, *_), divisions = eqn.outputs, access_of(eqn), self.loop.divisions
        here, dims = tuple(map(Same, range(out.rank))), [d for d in range(out.rank) if (out, d) not in divisions]
        replaced = [v for v, places in zip(eqn.inputs, access.operands, strict=True) if places == here and v.shape == out.shape]
        return bool(replaced) and any(v.shape[d] != out.shape[d] for v in eqn.inputs if v.rank == out.rank for d in dims)

    def _own_bytes(self, var: Var) -> int:
        return self.loop.divisions.type(var, self.loop.divisions.own(var)).nbytes


def _is_framed(plan: EquationPlan) -> bool:
    """Whether it moves elements along a dim in frames: there it only reads its operand at another place."""
    return any(plan.assignment.get(factor) for factor, kind in plan.rule.kinds.items() if kind == "permute")
