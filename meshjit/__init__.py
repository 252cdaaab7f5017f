"""meshjit: an SPMD auto-partitioning compiler for meshes of devices, under JAX's names, on stock jaxlib.

    import meshjit as mj
    import meshjit.numpy as mnp
    from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
"""

from typing import TYPE_CHECKING, TypeAlias

from meshjit import ad_checkpoint as ad_checkpoint
from meshjit import distributed as distributed
from meshjit import dlpack as dlpack
from meshjit import errors as errors
from meshjit import lax as lax
from meshjit import nn as nn
from meshjit import numpy as numpy
from meshjit import ops as ops
from meshjit import segments as segments
from meshjit import sharding as sharding
from meshjit import stages as stages
from meshjit import tree as tree
from meshjit import tree_util as tree_util
from meshjit.api import jit as jit
from meshjit.api import pjit as pjit
from meshjit.api.caches import clear_caches as clear_caches
from meshjit.api.constraint import reshard as reshard
from meshjit.api.kinds import register_array as _register_array
from meshjit.api.putting import block_until_ready as block_until_ready
from meshjit.api.putting import copy_to_host_async as copy_to_host_async
from meshjit.api.putting import device_get as device_get
from meshjit.api.putting import device_put as device_put
from meshjit.api.putting import eval_shape as eval_shape
from meshjit.api.putting import make_array_from_process_local_data as make_array_from_process_local_data
from meshjit.api.putting import make_mesh as make_mesh
from meshjit.api.tools import debug_infs as debug_infs
from meshjit.api.tools import debug_nans as debug_nans
from meshjit.api.tools import default_device as default_device
from meshjit.api.tools import default_matmul_precision as default_matmul_precision
from meshjit.api.tools import disable_jit as disable_jit
from meshjit.api.tools import enable_x64 as enable_x64
from meshjit.api.tools import explain_cache_misses as explain_cache_misses
from meshjit.api.tools import log_compiles as log_compiles
from meshjit.api.tools import make_jaxpr as make_jaxpr
from meshjit.api.tools import typeof as typeof
from meshjit.autodiff import checkpoint as checkpoint
from meshjit.autodiff import checkpoint as remat  # noqa: F401
from meshjit.autodiff import checkpoint_policies as checkpoint_policies
from meshjit.autodiff import grad as grad
from meshjit.autodiff import hessian as hessian
from meshjit.autodiff import jacfwd as jacfwd
from meshjit.autodiff import jacrev as jacobian  # noqa: F401
from meshjit.autodiff import jacrev as jacrev
from meshjit.autodiff import jvp as jvp
from meshjit.autodiff import linearize as linearize
from meshjit.autodiff import value_and_grad as value_and_grad
from meshjit.autodiff import vjp as vjp
from meshjit.autodiff import vmap as vmap
from meshjit.config import config as config
from meshjit.inspect.verify import verify as verify
from meshjit.runtime import _jaxlib
from meshjit.runtime import eager as _eager
from meshjit.runtime.array import Array as _ConcreteArray
from meshjit.runtime.array import type_and_weak as _type_and_weak
from meshjit.runtime.assembling import live_arrays as live_arrays
from meshjit.runtime.assembling import make_array_from_callback as make_array_from_callback
from meshjit.runtime.assembling import make_array_from_single_device_arrays as make_array_from_single_device_arrays
from meshjit.runtime.client import default_backend as default_backend
from meshjit.runtime.client import device_count as device_count
from meshjit.runtime.client import devices as devices
from meshjit.runtime.client import local_device_count as local_device_count
from meshjit.runtime.client import local_devices as local_devices
from meshjit.runtime.client import process_count as process_count
from meshjit.runtime.client import process_index as process_index
from meshjit.runtime.client import process_indices as process_indices
from meshjit.trace import ensure_compile_time_eval as ensure_compile_time_eval
from meshjit.trace import named_scope as named_scope
from meshjit.trace import register_concrete as _register_concrete
from meshjit.trace import set_eager as _set_eager
from meshjit.trace import set_put as _set_put
from meshjit.version import __version__ as __version__
from sharding import AxisType as AxisType
from sharding import NamedSharding as NamedSharding
from sharding import PartitionSpec as P  # noqa: N814, F401
from sharding import PartitionSpec as PartitionSpec
from sharding import set_mesh as set_mesh

# The package of ops, which knows no arrays, is also where JAX keeps these four.
for _name in ("segment_max", "segment_min", "segment_prod", "segment_sum"):
    setattr(ops, _name, getattr(segments, _name))

# Arrays become operands of ops, and ops outside of a trace run at once.
_register_concrete(_jaxlib.ArrayImpl, _type_and_weak)
numpy.install_methods(_ConcreteArray)
_jaxlib.attach(_ConcreteArray)
_set_eager(_eager.run_op, _eager.run_program)
_set_put(device_put)

from meshjit import random as random  # noqa: E402
from meshjit.api.putting import ShapeDtypeStruct as ShapeDtypeStruct  # noqa: E402

_register_array(random.PRNGKeyArray)
if TYPE_CHECKING:
    Array: TypeAlias = _ConcreteArray
else:
    from meshjit.api.kinds import Array as Array
