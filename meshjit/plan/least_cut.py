"""The cheapest cut of a graph: which nodes to part from the source, so that the arcs that go from its side to the other's
cost least.

    cut = LeastCut(); cut.arc("source", "a", 3); cut.arc("a", "sink", 2)
    cut.sink_side("source", "sink")          {"sink"}: cutting a → sink costs 2

Dinic's algorithm (Soviet Math. Doklady 11, 1970) with whole numbers, so that equal questions have equal answers everywhere.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from typing import Final

UNITS: Final = 1 << 40  # of all finite costs together


class LeastCut:
    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.leaving: list[list[int]] = []  # numbers of arcs, by node
        self.ends: list[int] = []  # of arcs; arc i ^ 1 is the way back
        self.costs: list[float] = []

    def arc(self, start: Hashable, end: Hashable, cost: float) -> None:
        """Parting `start`, on the source's side, from `end` costs so much; inf: it must not be."""
        if cost > 0:
            for a, b, own in ((start, end, cost), (end, start, 0.0)):
                self.leaving[self._number(a)].append(len(self.ends))
                self.ends.append(self._number(b))
                self.costs.append(own)

    def _number(self, node: Hashable) -> int:
        if node not in self.numbers:
            self.numbers[node] = len(self.numbers)
            self.leaving.append([])
        return self.numbers[node]

    def sink_side(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """The nodes on the sink's side of the cheapest cut; of equally cheap ones that with fewest nodes there."""
        start, end = self._number(source), self._number(sink)
        total = sum(cost for cost in self.costs if cost < math.inf)
        unit, none = UNITS / total if total else 1.0, 4 * UNITS
        self.left = [none if cost == math.inf else round(cost * unit) for cost in self.costs]
        while (levels := self._levels(start))[end] >= 0:
            tried = [0] * len(self.leaving)
            while self._push(start, end, levels, tried):
                pass
        side = self._reaching(end)
        return {node for node, number in self.numbers.items() if number in side}

    def _levels(self, start: int) -> list[int]:
        """How many arcs with room each node is away; -1 where there is no way."""
        levels, waiting = [-1] * len(self.leaving), deque([start])
        levels[start] = 0
        while waiting:
            node = waiting.popleft()
            for arc in self.leaving[node]:
                if self.left[arc] > 0 and levels[self.ends[arc]] < 0:
                    levels[self.ends[arc]] = levels[node] + 1
                    waiting.append(self.ends[arc])
        return levels

    def _push(self, start: int, end: int, levels: list[int], tried: list[int]) -> bool:
        """Fill one shortest way; False if there is none left."""
        way, node = list[int](), start
        while node != end:
            arcs = self.leaving[node]
            while tried[node] < len(arcs):
                arc = arcs[tried[node]]
                if self.left[arc] > 0 and levels[self.ends[arc]] == levels[node] + 1:
                    break
                tried[node] += 1
            if tried[node] < len(arcs):
                way.append(arcs[tried[node]])
                node = self.ends[way[-1]]
            elif way:
                node = self.ends[way.pop() ^ 1]
                tried[node] += 1
            else:
                return False
        room = min(self.left[arc] for arc in way)
        for arc in way:
            self.left[arc] -= room
            self.left[arc ^ 1] += room
        return True

    def _reaching(self, end: int) -> set[int]:
        """The nodes from which there still is a way to the end."""
        seen, waiting = {end}, [end]
        while waiting:
            node = waiting.pop()
            for arc in self.leaving[node]:
                if self.left[arc ^ 1] > 0 and self.ends[arc] not in seen:
                    seen.add(self.ends[arc])
                    waiting.append(self.ends[arc])
        return seen
