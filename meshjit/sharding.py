"""Placement, under the names of `jax.sharding`."""

from meshjit.api.constraint import reshard as reshard
from sharding import AUTO as AUTO
from sharding import AbstractMesh as AbstractMesh
from sharding import AxisType as AxisType
from sharding import Mesh as Mesh
from sharding import NamedSharding as NamedSharding
from sharding import PartitionSpec as PartitionSpec
from sharding import Sharding as Sharding
from sharding import SingleDeviceSharding as SingleDeviceSharding
from sharding import set_mesh as set_mesh
from sharding import use_mesh as use_mesh
