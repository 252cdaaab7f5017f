"""meshjit: an SPMD auto-partitioning compiler for meshes of devices, under JAX's names, on stock jaxlib.

    import meshjit as mj
    import meshjit.numpy as mnp
    from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
"""

from typing import TYPE_CHECKING, TypeAlias

import meshjit.own_packages as _own_packages  # first, before any module that imports sharding or launch
from meshjit import (
    ad as ad,
    ad_checkpoint as ad_checkpoint,
    beside_einops as _beside_einops,
    checkpoints as checkpoints,
    core as core,
    custom_batching as custom_batching,
    custom_derivatives as custom_derivatives,
    debug as debug,
    distributed as distributed,
    dlpack as dlpack,
    dtypes as dtypes,
    errors as errors,
    ffi as ffi,
    flatten_util as flatten_util,
    image as image,
    lax as lax,
    memory as memory,
    multihost as multihost,
    nn as nn,
    numpy as numpy,
    ops as ops,
    profiler as profiler,
    ref as ref,
    segments as segments,
    sharding as sharding,
    stages as stages,
    tree as tree,
    tree_util as tree_util,
    typing as typing,
)
from meshjit.api import jaxpr as _jaxpr, jit as jit, pjit as pjit
from meshjit.api.auto import auto as auto
from meshjit.api.caches import clear_caches as clear_caches
from meshjit.api.callbacks import pure_callback as pure_callback
from meshjit.api.constraint import reshard as reshard
from meshjit.api.kinds import TracedArray as _TracedArray
from meshjit.api.layouts import format_of as _format_of
from meshjit.api.meshes import set_mesh as set_mesh
from meshjit.api.putting import (
    block_until_ready as block_until_ready,
    copy_to_host_async as copy_to_host_async,
    device_get as device_get,
    device_put as device_put,
    make_array_from_process_local_data as make_array_from_process_local_data,
    make_mesh as make_mesh,
)
from meshjit.api.settings import (
    allow_f16_reductions as allow_f16_reductions,
    array_garbage_collection_guard as array_garbage_collection_guard,
    auto_pcast as auto_pcast,
    check_tracer_leaks as check_tracer_leaks,
    checking_leaks as checking_leaks,
    debug_infs as debug_infs,
    debug_nans as debug_nans,
    default_device as default_device,
    default_matmul_precision as default_matmul_precision,
    default_prng_impl as default_prng_impl,
    disable_jit as disable_jit,
    enable_checks as enable_checks,
    enable_custom_prng as enable_custom_prng,
    enable_x64 as enable_x64,
    explain_cache_misses as explain_cache_misses,
    jax2tf_associative_scan_reductions as jax2tf_associative_scan_reductions,
    legacy_prng_key as legacy_prng_key,
    log_compiles as log_compiles,
    make_user_context as make_user_context,
    no_execution as no_execution,
    no_tracing as no_tracing,
    numpy_dtype_promotion as numpy_dtype_promotion,
    numpy_rank_promotion as numpy_rank_promotion,
    remove_size_one_mesh_axis_from_type as remove_size_one_mesh_axis_from_type,
    softmax_custom_jvp as softmax_custom_jvp,
    thread_guard as thread_guard,
    threefry_partitionable as threefry_partitionable,
    transfer_guard as transfer_guard,
    transfer_guard_device_to_device as transfer_guard_device_to_device,
    transfer_guard_device_to_host as transfer_guard_device_to_host,
    transfer_guard_host_to_device as transfer_guard_host_to_device,
)
from meshjit.api.tools import (
    eval_shape as eval_shape,
    make_jaxpr as make_jaxpr,
    named_call as named_call,
    print_environment_info as print_environment_info,
    typeof as typeof,
)
from meshjit.autodiff import (
    checkpoint as checkpoint,
    checkpoint as remat,  # noqa: F401
    checkpoint_policies as checkpoint_policies,
    fwd_and_bwd as fwd_and_bwd,
    grad as grad,
    hessian as hessian,
    jacfwd as jacfwd,
    jacrev as jacobian,  # noqa: F401
    jacrev as jacrev,
    jvp as jvp,
    linearize as linearize,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
)
from meshjit.config import config as config
from meshjit.core.types import TensorType as _TensorType
from meshjit.custom_derivatives import (
    closure_convert as closure_convert,
    custom_gradient as custom_gradient,
    custom_jvp as custom_jvp,
    custom_vjp as custom_vjp,
    linear_transpose as linear_transpose,
)
from meshjit.dtypes import float0 as float0
from meshjit.inspect.verify import verify as verify
from meshjit.lax.pmap import pmap as pmap
from meshjit.lax.shard_map import shard_map as shard_map, smap as smap
from meshjit.lax.ufuncs import frompyfunc as _frompyfunc, of_numpy as _of_numpy, ufunc as _ufunc
from meshjit.missing import explain as _explain
from meshjit.ref import Ref as Ref, empty_ref as empty_ref, free_ref as free_ref, freeze as freeze, new_ref as new_ref
from meshjit.runtime import _jaxlib, eager as _eager
from meshjit.runtime._jaxlib import Device as Device
from meshjit.runtime.array import Array as _ConcreteArray, type_and_weak as _type_and_weak
from meshjit.runtime.array_shards import Shard as Shard
from meshjit.runtime.assembling import (
    live_arrays as live_arrays,
    make_array_from_callback as make_array_from_callback,
    make_array_from_single_device_arrays as make_array_from_single_device_arrays,
)
from meshjit.runtime.client import (
    default_backend as default_backend,
    device_count as device_count,
    devices as devices,
    local_device_count as local_device_count,
    local_devices as local_devices,
    process_count as host_count,  # noqa: F401
    process_count as process_count,
    process_index as host_id,  # noqa: F401
    process_index as process_index,
    process_indices as host_ids,  # noqa: F401
    process_indices as process_indices,
)
from meshjit.runtime.effects import barrier as effects_barrier  # noqa: F401
from meshjit.sharding import (
    AxisType as AxisType,
    NamedSharding as NamedSharding,
    PartitionSpec as P,  # noqa: N814, F401
    PartitionSpec as PartitionSpec,
)
from meshjit.trace import (
    ensure_compile_time_eval as ensure_compile_time_eval,
    named_scope as named_scope,
    register_concrete as _register_concrete,
    set_eager as _set_eager,
    set_put as _set_put,
)
from meshjit.trace.types import ShapedArray as _ShapedArray
from meshjit.version import __version__ as __version__

_beside_einops.register()

# The package of ops, which knows no arrays, is also where JAX keeps these four.
for _name in ("segment_max", "segment_min", "segment_prod", "segment_sum"):
    setattr(ops, _name, getattr(segments, _name))

# NumPy's functions of two operands are objects with methods, which loops are written for.
for _name, _value in {**_of_numpy(), "ufunc": _ufunc, "frompyfunc": _frompyfunc}.items():
    setattr(numpy, _name, _value)

# So is the package of Programs where JAX keeps these.
for _name, _value in {
    "max_dim": max, "min_dim": min,
    "AbstractValue": _TensorType, "Atom": _jaxpr.Atom, "ShapedArray": _ShapedArray, "Tracer": _TracedArray,
    "ensure_compile_time_eval": ensure_compile_time_eval, "eval_jaxpr": _jaxpr.eval_jaxpr,
    "ClosedJaxpr": _jaxpr.ClosedJaxpr, "Jaxpr": _jaxpr.Jaxpr, "JaxprEqn": _jaxpr.JaxprEqn, "Literal": _jaxpr.Literal,
    "jaxpr_as_fun": _jaxpr.jaxpr_as_fun, "jaxprs_in_params": _jaxpr.jaxprs_in_params,
}.items():  # fmt: skip
    setattr(core, _name, _value)

setattr(errors, "JaxRuntimeError", _jaxlib.XlaError)  # noqa: B010 - jaxlib's own, which knows our errors and not they it

# Arrays become operands of ops, and ops outside of a trace run at once.
_register_concrete(_jaxlib.ArrayImpl, _type_and_weak)
numpy.install_methods(_ConcreteArray)
setattr(_ConcreteArray, "format", property(_format_of))  # noqa: B010
_jaxlib.attach(_ConcreteArray)
_set_eager(_eager.run_op, _eager.run_program)
_set_put(device_put)

from meshjit import random as random, scipy as scipy  # noqa: E402
from meshjit.api.putting import ShapeDtypeStruct as ShapeDtypeStruct  # noqa: E402

if TYPE_CHECKING:
    Array: TypeAlias = _ConcreteArray
else:
    from meshjit.api.kinds import Array as Array

for _name in ("core", "custom_derivatives", "dlpack"):
    _explain(f"{__name__}.{_name}")
_explain(__name__, {"experimental": "meshjit.experimental", "export": "meshjit.export"})
