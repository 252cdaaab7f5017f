"""Where axes go that a dim cannot keep because it has to be whole: to another dim of the same value.

    a b -> a b | replicate b        a transform or a sort along b, given as [-, x]

Instead of being gathered, b is exchanged for a (an all-to-all), every device does its rows, and the result is [x, -],
or goes back the same way. The refuge is the first factor that is neither reduced nor special, has no axes yet, stands
alone in its dim, and has at least as many elements as there are shards; one that divides evenly comes before others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from sharding.axes import AxisRef, span
from sharding.mesh import BaseMesh
from sharding.rule import FactorRule, ValueDims


def refuge(
    rule: FactorRule, dims: ValueDims, axes: Sequence[AxisRef], busy: Collection[str], mesh: BaseMesh
) -> str | None:
    """The factor of a value with these `dims` that takes `axes` over; None if there is none. `busy` ones have axes."""
    shards = math.prod(span(axis, mesh.shape).size for axis in axes)
    free = [dim[0] for dim in dims if len(dim) == 1 and dim[0] not in rule.kinds and dim[0] not in busy]
    fitting = [name for name in free if rule.sizes.get(name, 0) >= shards > 1]
    return next((name for name in fitting if rule.sizes[name] % shards == 0), next(iter(fitting), None))
