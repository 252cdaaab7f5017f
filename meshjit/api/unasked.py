"""Where `config.automatic` is on: a mesh alone asks for the search, as `auto` and AUTO do.

    config.update("automatic", True)         # or MESHJIT_AUTOMATIC=1
    with mesh:
        step(state, batch)                   # of jit(step): searched on the mesh
"""

from __future__ import annotations

import dataclasses
from typing import Any

from meshjit.api.call import Automatic, Call
from meshjit.api.shardings import UNSPECIFIED
from meshjit.config import config
from meshjit.trace import Traced as TracedProgram
from sharding.axis_types import AxisType
from sharding.named import AUTO, NamedSharding


def searched_on_mesh(call: Call, traced: TracedProgram) -> Call:
    """The call with AUTO for the mesh of its context where the option is on and nobody said anything: no in_shardings,
    out_shardings or device, automatic axes alone, and no array that is committed to other devices. Else the call itself."""
    mesh: Any = None if call.context is None else call.context.mesh
    if not config.automatic or call.automatic is not None or mesh is None or mesh.size == 1:
        return call
    if call.in_shardings is not UNSPECIFIED or call.out_shardings is not UNSPECIFIED or call.device is not None:
        return call
    shardings = [key.sharding for key in (*call.keys, *(x._key for x in traced.captured)) if key.committed]
    is_here = all(isinstance(s, NamedSharding) and s.mesh == mesh for s in shardings)
    if not is_here or any(kind is not AxisType.Auto for kind in mesh.axis_types):
        return call
    there = AUTO(mesh)
    return dataclasses.replace(call, in_shardings=there, out_shardings=there, automatic=Automatic())
