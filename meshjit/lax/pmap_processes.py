"""pmap in several processes: each calls with the slices of its own devices, and gets the results of these."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshjit import numpy as mnp
from meshjit.runtime.array import Array
from meshjit.runtime.assembling import make_array_from_process_local_data, make_array_from_single_device_arrays
from sharding.mesh import Mesh
from sharding.named import NamedSharding


def of_all_processes(x: Any, sharding: NamedSharding) -> Array:
    """The array of which this process has x. One that is of all processes already stays."""
    if isinstance(x, Array) and not x.is_fully_addressable:
        return x
    return make_array_from_process_local_data(sharding, np.asarray(mnp.asarray(x)))


def of_this_process(x: Array) -> Array:
    """The part of a result that this process's devices have, on these."""
    sharding = x.sharding
    assert isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh), "of a shard_map"
    own = [d for d in sharding.mesh.flat_devices if d.process_index == d.client.process_index()]
    place = NamedSharding(Mesh(np.array(own, dtype=object), sharding.mesh.axis_names), sharding.spec)
    shards = [shard.data for shard in x.addressable_shards]
    counts = [len(own) if entry is not None else 1 for entry in (*sharding.spec, *[None] * x.ndim)][: x.ndim]
    shape = [n * count for n, count in zip(shards[0].shape, counts, strict=True)]
    return make_array_from_single_device_arrays(shape, place, shards)
