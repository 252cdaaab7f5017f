"""Where nothing fits the memory: the largest part of the batch that does, which is tried.

The batch are the arguments that no result replaces: those of one leading extent. The function is traced again with a half of it,
a quarter, and so on; where it cannot be traced so, nothing is said.

    fix: 16 devices, {'x': 16} (tried: 8,126,464 bytes), or memory=12713984, or a half of the batch, x f32[4096,512] (tried: …)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from meshjit.api.call import Automatic, Call
from meshjit.core.program import Program
from meshjit.core.types import TensorType
from meshjit.plan.automatic.refusal import DoesNotFit
from meshjit.runtime.array import leaf_key
from sharding.mesh import BaseMesh

PARTS: Final = {2: "a half", 4: "a quarter", 8: "an eighth", 16: "a sixteenth"}
EXTENTS: Final = 2  # leading extents that may be that of the batch
LONGEST: Final = 1000  # equations of a Program that is planned once more


def trial(call: Call, program: Program, state: Iterable[int], mesh: BaseMesh) -> tuple[Call | None, frozenset[int]]:
    """The call as smaller batches of it are tried on a mesh, and `state`, the arguments that results replace; None where nobody
    asked for a memory, or it is too much to try, or that state alone does not fit."""
    limits, state = None if call.automatic is None else call.automatic.limits, frozenset(state)
    if limits is None or limits.memory is None or limits.plan is not None or not limits.explains:
        return None, state
    is_too_much = sum(program.input_types[i].nbytes for i in state) > limits.memory * mesh.size
    if is_too_much or len(program.eqns) > LONGEST:
        return None, state
    automatic = Automatic(dataclasses.replace(limits, effort=0.0, explains=False), (mesh,))
    return dataclasses.replace(call, automatic=automatic), state


def fitting_batch(call: Call, state: Collection[int], bytes_of: Callable[[Call], float | None]) -> str:
    """The largest part of the batch that fits, in words; "" where there is none. `bytes_of`: of the plan of a smaller call, None
    where it has none; it may raise anything."""
    assert call.automatic is not None and call.automatic.limits.memory is not None
    for extent in _extents(call, state):
        for times, part in PARTS.items():
            smaller = _divided(call, state, extent, times)
            peak = None if smaller is None else _peak_of(smaller, bytes_of)
            if smaller is None or peak is None:
                break
            if peak <= call.automatic.limits.memory:
                changed = next(i for i, key in enumerate(call.keys) if key is not smaller.keys[i])
                return f"{part} of the batch, {call.input_name(changed)} {smaller.keys[changed].type} (tried: {peak:,.0f} bytes)"
    return ""


def _peak_of(call: Call, bytes_of: Callable[[Call], float | None]) -> float | None:
    """Bytes of its plan; the least that was found, where none fits; None where it cannot be traced."""
    try:
        return bytes_of(call)
    except DoesNotFit as error:
        return error.least
    except Exception:  # whatever the function says of types that nobody gave it
        return None


def _extents(call: Call, state: Collection[int]) -> Iterator[int]:
    """Leading extents, that of most bytes first."""
    held = dict[int, int]()
    for i, key in enumerate(call.keys):
        if i not in state and key.type.rank:
            held[key.type.shape[0]] = held.get(key.type.shape[0], 0) + key.type.nbytes
    yield from sorted(held, key=lambda extent: -held[extent])[:EXTENTS]


def _divided(call: Call, state: Collection[int], extent: int, times: int) -> Call | None:
    """The call with so many times fewer of what has this leading extent; None where that is no whole number."""
    if extent % times or extent == 0:
        return None
    keys = list(call.keys)
    for i, key in enumerate(call.keys):
        if i not in state and key.type.shape[:1] == (extent,):
            type = TensorType((extent // times, *key.type.shape[1:]), key.type.dtype)
            keys[i] = leaf_key(type, key.weak, key.sharding, key.committed)
    return dataclasses.replace(call, keys=keys)
