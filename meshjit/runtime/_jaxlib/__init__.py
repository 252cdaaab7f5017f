"""The one room that knows jaxlib: plain functions over opaque handles.

Handles, none of which is ever looked into outside this package:

    client       an XLA client: all devices of one platform, of every process
    device       jaxlib's Device: `.id`, `.process_index`, `.platform`, `.device_kind`
    executable   a compiled program, loaded on a row of devices
    handle       the shards of one array, one per device of a row; only this process's shards can be read

A handle whose layout has a key is an Array, as users see it: jaxlib's class has our attributes (array_class.py).
Another says nothing about the logical array: shards may be anything of equal shape. jaxlib wants a global shape
and a sharding with every array; we tell it the *shard's* shape under a MANUAL sharding, which is true for scalars,
empty arrays and any number of devices. (REPLICATED must not be claimed: jaxlib then copies shard 0 to every device.)

jaxlib's private surface differs between versions; what differs is asked for by feature, once, at import.
"""

import os as _os

_os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when jaxlib loads: else one line per device

from meshjit.runtime._jaxlib.analyses import computation as computation  # noqa: E402
from meshjit.runtime._jaxlib.analyses import cost_analysis as cost_analysis  # noqa: E402
from meshjit.runtime._jaxlib.analyses import cost_of_module as cost_of_module  # noqa: E402
from meshjit.runtime._jaxlib.analyses import hlo_text as hlo_text  # noqa: E402
from meshjit.runtime._jaxlib.analyses import hlo_text_of_module as hlo_text_of_module  # noqa: E402
from meshjit.runtime._jaxlib.analyses import memory_stats as memory_stats  # noqa: E402
from meshjit.runtime._jaxlib.analyses import parameter_layouts as parameter_layouts  # noqa: E402
from meshjit.runtime._jaxlib.analyses import result_layouts as result_layouts  # noqa: E402
from meshjit.runtime._jaxlib.array_class import ArrayImpl as ArrayImpl  # noqa: E402
from meshjit.runtime._jaxlib.array_class import ArrayMeta as ArrayMeta  # noqa: E402
from meshjit.runtime._jaxlib.array_class import attach as attach  # noqa: E402
from meshjit.runtime._jaxlib.array_class import raw_delete as raw_delete  # noqa: E402
from meshjit.runtime._jaxlib.array_class import refuse_jax as refuse_jax  # noqa: E402
from meshjit.runtime._jaxlib.arrays import block as block  # noqa: E402
from meshjit.runtime._jaxlib.arrays import buffer_address as buffer_address  # noqa: E402
from meshjit.runtime._jaxlib.arrays import copy_to_devices as copy_to_devices  # noqa: E402
from meshjit.runtime._jaxlib.arrays import copy_to_host_async as copy_to_host_async  # noqa: E402
from meshjit.runtime._jaxlib.arrays import delete as delete  # noqa: E402
from meshjit.runtime._jaxlib.arrays import fetch as fetch  # noqa: E402
from meshjit.runtime._jaxlib.arrays import from_dlpack as from_dlpack  # noqa: E402
from meshjit.runtime._jaxlib.arrays import from_single_device_handles as from_single_device_handles  # noqa: E402
from meshjit.runtime._jaxlib.arrays import handle_devices as handle_devices  # noqa: E402
from meshjit.runtime._jaxlib.arrays import in_layout as in_layout  # noqa: E402
from meshjit.runtime._jaxlib.arrays import is_deleted as is_deleted  # noqa: E402
from meshjit.runtime._jaxlib.arrays import is_ready as is_ready  # noqa: E402
from meshjit.runtime._jaxlib.arrays import live_arrays as live_arrays  # noqa: E402
from meshjit.runtime._jaxlib.arrays import put as put  # noqa: E402
from meshjit.runtime._jaxlib.arrays import shard as shard  # noqa: E402
from meshjit.runtime._jaxlib.arrays import shard_type as shard_type  # noqa: E402
from meshjit.runtime._jaxlib.arrays import size_on_devices as size_on_devices  # noqa: E402
from meshjit.runtime._jaxlib.arrays import to_dlpack as to_dlpack  # noqa: E402
from meshjit.runtime._jaxlib.base import CompilationError as CompilationError  # noqa: E402
from meshjit.runtime._jaxlib.base import Device as Device  # noqa: E402
from meshjit.runtime._jaxlib.base import PyTreeDef as PyTreeDef  # noqa: E402
from meshjit.runtime._jaxlib.base import ShardType as ShardType  # noqa: E402
from meshjit.runtime._jaxlib.base import XlaError as XlaError  # noqa: E402
from meshjit.runtime._jaxlib.base import version as version  # noqa: E402
from meshjit.runtime._jaxlib.calls import CompiledCall as CompiledCall  # noqa: E402
from meshjit.runtime._jaxlib.calls import call_context as call_context  # noqa: E402
from meshjit.runtime._jaxlib.calls import compiled_call as compiled_call  # noqa: E402
from meshjit.runtime._jaxlib.calls import fast_function as fast_function  # noqa: E402
from meshjit.runtime._jaxlib.calls import forget_calls as forget_calls  # noqa: E402
from meshjit.runtime._jaxlib.clients import cpu_client as cpu_client  # noqa: E402
from meshjit.runtime._jaxlib.clients import devices as devices  # noqa: E402
from meshjit.runtime._jaxlib.clients import is_absent as is_absent  # noqa: E402
from meshjit.runtime._jaxlib.clients import local_devices as local_devices  # noqa: E402
from meshjit.runtime._jaxlib.clients import plugin_client as plugin_client  # noqa: E402
from meshjit.runtime._jaxlib.clients import plugin_path as plugin_path  # noqa: E402
from meshjit.runtime._jaxlib.clients import topology_devices as topology_devices  # noqa: E402
from meshjit.runtime._jaxlib.compiling import compile as compile  # noqa: E402
from meshjit.runtime._jaxlib.compiling import deserialize as deserialize  # noqa: E402
from meshjit.runtime._jaxlib.compiling import parse_module as parse_module  # noqa: E402
from meshjit.runtime._jaxlib.compiling import serialize as serialize  # noqa: E402
from meshjit.runtime._jaxlib.coordination import barrier as barrier  # noqa: E402
from meshjit.runtime._jaxlib.coordination import connect_coordinator as connect_coordinator  # noqa: E402
from meshjit.runtime._jaxlib.coordination import start_coordinator as start_coordinator  # noqa: E402
from meshjit.runtime._jaxlib.coordination import store_delete as store_delete  # noqa: E402
from meshjit.runtime._jaxlib.coordination import store_get as store_get  # noqa: E402
from meshjit.runtime._jaxlib.coordination import store_list as store_list  # noqa: E402
from meshjit.runtime._jaxlib.coordination import store_set as store_set  # noqa: E402
from meshjit.runtime._jaxlib.executing import execute as execute  # noqa: E402
from meshjit.runtime._jaxlib.executing import make_executor as make_executor  # noqa: E402
from meshjit.runtime._jaxlib.kernels import cpu_kernels as cpu_kernels  # noqa: E402
from meshjit.runtime._jaxlib.layouts import Layout as Layout  # noqa: E402
from meshjit.runtime._jaxlib.layouts import shared_layout as shared_layout  # noqa: E402
from meshjit.runtime._jaxlib.trees import DictKey as DictKey  # noqa: E402
from meshjit.runtime._jaxlib.trees import FlattenedIndexKey as FlattenedIndexKey  # noqa: E402
from meshjit.runtime._jaxlib.trees import GetAttrKey as GetAttrKey  # noqa: E402
from meshjit.runtime._jaxlib.trees import SequenceKey as SequenceKey  # noqa: E402
from meshjit.runtime._jaxlib.trees import children as children  # noqa: E402
from meshjit.runtime._jaxlib.trees import flatten as flatten  # noqa: E402
from meshjit.runtime._jaxlib.trees import flatten_quickly as flatten_quickly  # noqa: E402
from meshjit.runtime._jaxlib.trees import flatten_up_to as flatten_up_to  # noqa: E402
from meshjit.runtime._jaxlib.trees import flatten_with_path as flatten_with_path  # noqa: E402
from meshjit.runtime._jaxlib.trees import is_node as is_node  # noqa: E402
from meshjit.runtime._jaxlib.trees import path_text as path_text  # noqa: E402
from meshjit.runtime._jaxlib.trees import register_dataclass as register_dataclass  # noqa: E402
from meshjit.runtime._jaxlib.trees import register_node as register_node  # noqa: E402
from meshjit.runtime._jaxlib.trees import unflatten as unflatten  # noqa: E402
