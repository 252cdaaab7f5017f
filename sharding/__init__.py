"""The mathematics of placement: meshes, specs, factor rules, propagation, resharding. Knows no ops and no jaxlib."""

from __future__ import annotations

from sharding.mesh import AbstractMesh as AbstractMesh
from sharding.mesh import AxisRef as AxisRef
from sharding.mesh import AxisType as AxisType
from sharding.mesh import BaseMesh as BaseMesh
from sharding.mesh import Mesh as Mesh
from sharding.mesh import SubAxis as SubAxis
from sharding.mesh import canonical as canonical
from sharding.mesh import current_mesh as current_mesh
from sharding.mesh import set_mesh as set_mesh
from sharding.mesh import use_mesh as use_mesh
from sharding.named import AUTO as AUTO
from sharding.named import UNSPECIFIED as UNSPECIFIED
from sharding.named import NamedSharding as NamedSharding
from sharding.named import Sharding as Sharding
from sharding.named import SingleDeviceSharding as SingleDeviceSharding
from sharding.named import UnspecifiedValue as UnspecifiedValue
from sharding.named import is_auto as is_auto
from sharding.named import make_mesh as make_mesh
from sharding.placement import normalized as normalized
from sharding.propagate import Conflict as Conflict
from sharding.propagate import Graph as Graph
from sharding.propagate import Node as Node
from sharding.propagate import Origin as Origin
from sharding.propagate import Propagated as Propagated
from sharding.propagate import Seed as Seed
from sharding.propagate import explain as explain
from sharding.propagate import propagate as propagate
from sharding.reshard import Walk as Walk
from sharding.reshard import plan_reshard as plan_reshard
from sharding.rule import FactorRule as FactorRule
from sharding.spec import UNCONSTRAINED as UNCONSTRAINED
from sharding.spec import P as P
from sharding.spec import PartitionSpec as PartitionSpec
from sharding.spec import Placement as Placement
from sharding.spec import ShardingError as ShardingError
from sharding.spec import check_spec as check_spec
from sharding.spec import open_dims as open_dims
from sharding.spec import placement_of as placement_of
from sharding.spec import spec_of as spec_of
from sharding.topology import Topology as Topology
