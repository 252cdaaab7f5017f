"""One alternative to a draft."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from meshjit.core.program import Eqn, Program, Var
from meshjit.plan.draft import Draft
from meshjit.plan.flow import Limit
from sharding.graph import Seed


@dataclass(frozen=True)
class Proposal:
    """What else could be decided: other `seeds`, another `program`, loops done in `blocks` of so many iterations, or values that
    stay `unmoved` in loops.

    key: the same for the same proposal on another draft. family: the key of a proposal that this one is a part of.
    text: what it does, in words a user understands, about the value at `source`, the user's line.
    saves_memory: whether it is for the sake of memory, which is then compared exactly.
    saves_bytes: whether it is for the sake of bytes on the wire: the other plan has to halve the time.
    sends_less: whether it is to send less in the same time, which the other plan then has to beat clearly.
    saves_time: whether it is for the sake of time alone, however much it sends.
    once: whether it need not be tried again where the Program is written in another way.
    more: what to propose on top before the plans are compared, where one step alone need not pay.
    less: given the bytes that the plan that followed holds, what to propose instead if these are fewer than was supposed.
    """

    kind: str
    key: object
    text: str
    family: object = None
    source: str = ""
    saves_memory: bool = False
    saves_bytes: bool = False
    sends_less: bool = False
    saves_time: bool = False
    once: bool = False
    seeds: Callable[[], dict[int, Seed]] | None = field(default=None, repr=False, compare=False)
    program: Program | None = field(default=None, repr=False, compare=False)
    originals: Mapping[Var, Var] = field(default_factory=dict[Var, Var], repr=False, compare=False)  # of copies in `program`
    blocks: Mapping[Eqn, int] = field(default_factory=dict[Eqn, int], repr=False, compare=False)
    unmoved: frozenset[Var] = field(default=frozenset(), repr=False, compare=False)  # inputs of loops' bodies
    more: Callable[[Draft], Iterable[Proposal]] | None = field(default=None, repr=False, compare=False)
    less: Callable[[float], Proposal | None] | None = field(default=None, repr=False, compare=False)

    def apply(self, draft: Draft, limit: Limit | None) -> Draft:
        """The draft that follows. TooDear beyond the limit."""
        if self.program is not None:
            return draft.with_program(self.program, limit, self.originals)
        if self.blocks:
            return draft.with_blocks(self.blocks, limit)
        if self.unmoved:
            return draft.with_unmoved(self.unmoved, limit)
        assert self.seeds is not None
        return draft.with_seeds(self.seeds(), limit)
