"""The one room that knows jaxlib: plain functions over opaque handles.

Handles, none of which is ever looked into outside this package:

    client       an XLA client: all devices of one platform, of every process
    device       jaxlib's Device: `.id`, `.process_index`, `.platform`, `.device_kind`
    executable   a compiled program, loaded on a row of devices
    handle       the shards of one array, one per device of a row; only this process's shards can be read

A handle whose layout has a key is an Array, as users see it: jaxlib's class has our attributes (array_class.py).
Another says nothing about the logical array: shards may be anything of equal shape. jaxlib wants a global shape
and a sharding with every array; we tell it the *shard's* shape under a MANUAL sharding, which is true for scalars,
empty arrays and any number of devices. (REPLICATED must not be claimed of several: jaxlib then copies shard 0 to every
device. Of one it is, for Python's buffer protocol.)

jaxlib's private surface differs between versions; what differs is asked for by feature, once, at import.
"""

import os as _os

_os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when jaxlib loads: else one line per device

from meshjit.runtime._jaxlib.analyses import (
    array_layout as array_layout,  # noqa: E402
    computation as computation,  # noqa: E402
    cost_analysis as cost_analysis,  # noqa: E402
    cost_of_module as cost_of_module,  # noqa: E402
    hlo_text as hlo_text,  # noqa: E402
    hlo_text_of_module as hlo_text_of_module,  # noqa: E402
    memory_stats as memory_stats,  # noqa: E402
    parameter_layouts as parameter_layouts,  # noqa: E402
    result_layouts as result_layouts,  # noqa: E402
)
from meshjit.runtime._jaxlib.array_class import (
    ArrayImpl as ArrayImpl,  # noqa: E402
    ArrayMeta as ArrayMeta,  # noqa: E402
    attach as attach,  # noqa: E402
    raw_delete as raw_delete,  # noqa: E402
    refuse_jax as refuse_jax,  # noqa: E402
)
from meshjit.runtime._jaxlib.arrays import (
    block as block,  # noqa: E402
    buffer_address as buffer_address,  # noqa: E402
    copy_to_devices as copy_to_devices,  # noqa: E402
    copy_to_host_async as copy_to_host_async,  # noqa: E402
    copy_to_layout as copy_to_layout,  # noqa: E402
    delete as delete,  # noqa: E402
    fetch as fetch,  # noqa: E402
    from_dlpack as from_dlpack,  # noqa: E402
    from_single_device_handles as from_single_device_handles,  # noqa: E402
    handle_devices as handle_devices,  # noqa: E402
    in_layout as in_layout,  # noqa: E402
    is_deleted as is_deleted,  # noqa: E402
    is_ready as is_ready,  # noqa: E402
    live_arrays as live_arrays,  # noqa: E402
    put as put,  # noqa: E402
    put_whole as put_whole,
    shard as shard,  # noqa: E402
    shard_type as shard_type,  # noqa: E402
    size_on_devices as size_on_devices,  # noqa: E402
    stream_for_others as stream_for_others,  # noqa: E402
    to_dlpack as to_dlpack,  # noqa: E402
    without_shards as without_shards,  # noqa: E402
)
from meshjit.runtime._jaxlib.base import (
    CompilationError as CompilationError,  # noqa: E402
    Device as Device,  # noqa: E402
    PyTreeDef as PyTreeDef,  # noqa: E402
    ShardType as ShardType,  # noqa: E402
    XlaError as XlaError,  # noqa: E402
    version as version,  # noqa: E402
)
from meshjit.runtime._jaxlib.calls import (
    CompiledCall as CompiledCall,  # noqa: E402
    call_context as call_context,  # noqa: E402
    compiled_call as compiled_call,  # noqa: E402
    fast_function as fast_function,  # noqa: E402
    forget_calls as forget_calls,  # noqa: E402
)
from meshjit.runtime._jaxlib.clients import (
    cpu_client as cpu_client,  # noqa: E402
    devices as devices,  # noqa: E402
    is_absent as is_absent,  # noqa: E402
    local_devices as local_devices,  # noqa: E402
    plugin_client as plugin_client,  # noqa: E402
    plugin_path as plugin_path,  # noqa: E402
    topology_devices as topology_devices,  # noqa: E402
)
from meshjit.runtime._jaxlib.compiling import (
    compile as compile,  # noqa: E402
    deserialize as deserialize,  # noqa: E402
    ifrt_programs as ifrt_programs,  # noqa: E402
    parse_module as parse_module,  # noqa: E402
    serialize as serialize,  # noqa: E402
)
from meshjit.runtime._jaxlib.coordination import (
    barrier as barrier,  # noqa: E402
    connect_coordinator as connect_coordinator,
    has_mutual_tls as has_mutual_tls,
    start_coordinator as start_coordinator,  # noqa: E402
    store_delete as store_delete,  # noqa: E402
    store_get as store_get,  # noqa: E402
    store_list as store_list,  # noqa: E402
    store_set as store_set,  # noqa: E402
)
from meshjit.runtime._jaxlib.executing import (
    TOKEN as TOKEN,  # noqa: E402
    execute as execute,  # noqa: E402
    make_executor as make_executor,  # noqa: E402
    new_token as new_token,  # noqa: E402
)
from meshjit.runtime._jaxlib.guards import (
    DIRECTIONS as DIRECTIONS,  # noqa: E402
    LEVELS as LEVELS,  # noqa: E402
    asked_for as asked_for,  # noqa: E402
    guard_collection as guard_collection,
    guard_moves as guard_moves,
    guard_threads as guard_threads,
    guarding as guarding,  # noqa: E402
)
from meshjit.runtime._jaxlib.kernels import (
    CPU_KERNELS as CPU_KERNELS,  # noqa: E402
    KERNELS as KERNELS,  # noqa: E402
    cpu_kernels as cpu_kernels,  # noqa: E402
    include_folder as include_folder,  # noqa: E402
    register_kernel as register_kernel,  # noqa: E402
    register_kernel_type as register_kernel_type,  # noqa: E402
)
from meshjit.runtime._jaxlib.layouts import (
    DeviceList as DeviceList,  # noqa: E402
    Layout as Layout,  # noqa: E402
    shared_layout as shared_layout,  # noqa: E402
)
from meshjit.runtime._jaxlib.profiling import (
    ProfileData as ProfileData,  # noqa: E402
    ProfileEvent as ProfileEvent,  # noqa: E402
    ProfileOptions as ProfileOptions,  # noqa: E402
    ProfilePlane as ProfilePlane,  # noqa: E402
    TraceAnnotation as TraceAnnotation,  # noqa: E402
    begin_profile as begin_profile,  # noqa: E402
    end_profile as end_profile,  # noqa: E402
    heap_profile as heap_profile,  # noqa: E402
    instructions_of_profile as instructions_of_profile,  # noqa: E402
    profile_server as profile_server,  # noqa: E402
)
from meshjit.runtime._jaxlib.trees import (
    DictKey as DictKey,  # noqa: E402
    FlattenedIndexKey as FlattenedIndexKey,  # noqa: E402
    GetAttrKey as GetAttrKey,  # noqa: E402
    SequenceKey as SequenceKey,  # noqa: E402
    children as children,  # noqa: E402
    flatten as flatten,  # noqa: E402
    flatten_quickly as flatten_quickly,  # noqa: E402
    flatten_up_to as flatten_up_to,  # noqa: E402
    flatten_with_path as flatten_with_path,  # noqa: E402
    is_node as is_node,  # noqa: E402
    node_data as node_data,  # noqa: E402
    one_level as one_level,  # noqa: E402
    one_level_with_keys as one_level_with_keys,  # noqa: E402
    path_text as path_text,  # noqa: E402
    register_dataclass as register_dataclass,  # noqa: E402
    register_node as register_node,  # noqa: E402
    register_words as register_words,  # noqa: E402
    registry as registry,  # noqa: E402
    treedef_of as treedef_of,  # noqa: E402
    tuple_of as tuple_of,  # noqa: E402
    unflatten as unflatten,  # noqa: E402
    words_registry as words_registry,  # noqa: E402
)
from meshjit.runtime._jaxlib.without_jax import jax_is_here as jax_is_here  # noqa: E402
