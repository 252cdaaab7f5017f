"""The mathematics of placement: meshes, specs, factor rules, propagation, resharding. Knows no ops and no jaxlib."""

from __future__ import annotations

from sharding.current import set_mesh as set_mesh, use_abstract_mesh as use_abstract_mesh, use_mesh as use_mesh
from sharding.manual_type import ManualAxisType as ManualAxisType
from sharding.mesh import (
    AbstractDevice as AbstractDevice,
    AbstractMesh as AbstractMesh,
    AxisRef as AxisRef,
    AxisType as AxisType,
    BaseMesh as BaseMesh,
    Mesh as Mesh,
    SubAxis as SubAxis,
    canonical as canonical,
    current_mesh as current_mesh,
)
from sharding.named import (
    AUTO as AUTO,
    UNSPECIFIED as UNSPECIFIED,
    NamedSharding as NamedSharding,
    Sharding as Sharding,
    SingleDeviceSharding as SingleDeviceSharding,
    UnspecifiedValue as UnspecifiedValue,
    is_auto as is_auto,
    make_mesh as make_mesh,
)
from sharding.placement import normalized as normalized
from sharding.propagation import (
    Conflict as Conflict,
    Graph as Graph,
    Node as Node,
    Origin as Origin,
    Propagated as Propagated,
    Seed as Seed,
    explain as explain,
    propagate as propagate,
)
from sharding.reshard import Walk as Walk, plan_reshard as plan_reshard
from sharding.rule import FactorRule as FactorRule
from sharding.spec import (
    UNCONSTRAINED as UNCONSTRAINED,
    P as P,
    PartitionSpec as PartitionSpec,
    Placement as Placement,
    ShardingError as ShardingError,
    check_spec as check_spec,
    open_dims as open_dims,
    placement_of as placement_of,
    spec_of as spec_of,
)
from sharding.topology import Topology as Topology
