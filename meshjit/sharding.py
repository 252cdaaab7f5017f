"""Placement, under the names of `jax.sharding`."""

from meshjit.api.constraint import reshard as reshard
from meshjit.missing import explain as _explain
from sharding import (
    AUTO as AUTO,
    AbstractDevice as AbstractDevice,
    AbstractMesh as AbstractMesh,
    AxisType as AxisType,
    Mesh as Mesh,
    NamedSharding as NamedSharding,
    PartitionSpec as PartitionSpec,
    Sharding as Sharding,
    SingleDeviceSharding as SingleDeviceSharding,
    set_mesh as set_mesh,
    use_mesh as use_mesh,
)

_explain(__name__)
