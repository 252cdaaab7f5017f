"""Placement, under the names of `jax.sharding`."""

from meshjit.api.axis_types import auto_axes as auto_axes, explicit_axes as explicit_axes
from meshjit.api.constraint import reshard as reshard
from meshjit.api.meshes import (
    get_abstract_mesh as get_abstract_mesh,
    get_mesh as get_mesh,
    set_mesh as set_mesh,
    use_mesh as use_mesh,
)
from meshjit.missing import explain as _explain
from sharding import (
    AUTO as AUTO,
    AbstractDevice as AbstractDevice,
    AbstractMesh as AbstractMesh,
    AxisType as AxisType,
    ManualAxisType as ManualAxisType,
    Mesh as Mesh,
    NamedSharding as NamedSharding,
    PartitionSpec as PartitionSpec,
    Sharding as Sharding,
    SingleDeviceSharding as SingleDeviceSharding,
    use_abstract_mesh as use_abstract_mesh,
)
from sharding.named import make_single_device_sharding as make_single_device_sharding

_explain(__name__)
