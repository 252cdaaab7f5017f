"""How many iterations of a loop over a stencil to do at a time: every block that neighbours have the borders for is priced."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from meshjit.core.plan import PlanCost
from meshjit.partition.blocking import BlockedLoop, fetch_borders
from meshjit.partition.moves import Moves
from meshjit.partition.partition import write_locally
from meshjit.plan.block_work import BlockWork
from meshjit.plan.cost import Machine, is_cheaper

REMAINDER_WEIGHT: Final = 2.0  # remainder iterations cost double: they add a second copy of the body


@dataclass(frozen=True)
class BlockSizes:
    """Of a loop on a machine. Costs are those of the whole loop; at its peak it holds so much more than the ordinary one."""

    loop: BlockedLoop
    machine: Machine

    def best(self, held: float) -> int | None:
        """How many iterations to do at a time; None for the ordinary loop. `held`: bytes at the peak of a plan without blocks."""
        memory, ordinary = self.machine.topology.memory, self.ordinary
        cheaper = {n: c for n, c in self.possible.items() if is_cheaper(_beside(held, c), _beside(held, ordinary), memory)}
        return min(cheaper, key=lambda n: cheaper[n].seconds, default=None)

    @property
    def fastest(self) -> int | None:
        """The number with which it takes the least time, whatever it sends and holds; None for the ordinary loop."""
        faster = {n: c for n, c in self.possible.items() if c.seconds < self.ordinary.seconds}
        return min(faster, key=lambda n: faster[n].seconds, default=None)

    @property
    def least(self) -> float:
        """The seconds that it takes at least beyond the work of ordinary iterations, whatever the number: a block sends no less
        than the borders of one iteration."""
        seconds, _ = self._moving(1)
        return min([self.work.besides(n) + self.loop.length // n * seconds for n in self.counts])

    @functools.cached_property
    def possible(self) -> Mapping[int, PlanCost]:
        """The costs of those that may be cheaper than the ordinary loop."""
        return {n: self.cost(n) for n in self.counts if self._may_win(n)}

    @functools.cached_property
    def ordinary(self) -> PlanCost:
        """Where each iteration exchanges its own borders."""
        loop, machine = self.loop, self.machine
        exchange, sent = machine.moving(write_locally(loop.plan, machine.target))
        return PlanCost(loop.length * self.work.iteration(loop.needs[0]), loop.length * exchange, loop.length * sent, 0.0)

    def _may_win(self, count: int) -> bool:
        """Whether it copies for less than exchanges take, and works for less than all of the ordinary loop takes."""
        copying = self.loop.length // count * self.work.copying(count)
        return copying < self.ordinary.move_seconds and self.worked(count) < self.ordinary.seconds

    @property
    def counts(self) -> range:
        return range(1, len(self.loop.needs) + 1)

    @functools.cached_property
    def work(self) -> BlockWork:
        return self.machine.block_work(self.loop)

    def cost(self, count: int) -> PlanCost:
        """In blocks of so many iterations."""
        blocks, left = divmod(self.loop.length, count)
        (seconds, sent), (rest, rest_sent) = self._moving(count), self._moving(left)
        moved = blocks * seconds + REMAINDER_WEIGHT * rest
        return PlanCost(self.worked(count), moved, blocks * sent + rest_sent, self.work.held(count))

    def worked(self, count: int) -> float:
        blocks, left = divmod(self.loop.length, count)
        return blocks * self._block(count) + REMAINDER_WEIGHT * self._block(left)

    def _block(self, count: int) -> float:
        return self.work.of(count) if count else 0.0

    def _moving(self, count: int) -> tuple[float, float]:
        """Seconds and bytes of the borders of one block."""
        moves = Moves(self.machine.mesh, self.machine.target)
        return self.machine.moving(fetch_borders(self.loop, count, moves)) if count else (0.0, 0.0)


def _beside(held: float, cost: PlanCost) -> PlanCost:
    return dataclasses.replace(cost, peak_bytes=held + cost.peak_bytes)
