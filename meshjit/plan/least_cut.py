"""The cheapest cut of a graph: which nodes to part from the source, so that the arcs that go from its side to the other's
cost least.

    cut = LeastCut(); cut.arc("source", "a", 3); cut.arc("a", "sink", 2)
    cut.sink_side("source", "sink")          {"sink"}: cutting a → sink costs 2
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, Final

UNITS: Final = 1 << 40  # of all finite costs together: in whole numbers equal questions have equal answers everywhere


class LeastCut:
    def __init__(self) -> None:
        self.arcs: dict[tuple[Hashable, Hashable], float] = {}

    def arc(self, start: Hashable, end: Hashable, cost: float) -> None:
        """Parting `start`, on the source's side, from `end` costs so much; inf: it must not be."""
        if cost > 0:
            self.arcs[start, end] = self.arcs.get((start, end), 0.0) + cost

    def sink_side(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """The nodes on the sink's side of the cheapest cut; of equally cheap ones that with fewest nodes there."""
        import networkx  # takes 0.2 s to load; only plans that do not fit the memory need it
        from networkx.algorithms.flow import boykov_kolmogorov  # the fastest of its algorithms on such graphs

        total = sum(cost for cost in self.arcs.values() if cost < math.inf)
        unit = UNITS / total if total else 1.0
        graph: Any = networkx.DiGraph()
        graph.add_nodes_from((source, sink))
        for (start, end), cost in self.arcs.items():
            room = {"capacity": round(cost * unit)} if cost < math.inf else {}  # without a capacity there is no bound
            graph.add_edge(start, end, **room)
        _, (_, side) = networkx.minimum_cut(graph, source, sink, flow_func=boykov_kolmogorov)
        return side
