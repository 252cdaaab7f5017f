"""Names of JAX's that meshjit does not have, and what asking for one says. docs/migration.md lists them, with the reasons.

    meshjit.debug_key_reuse              AttributeError: meshjit has no debug_key_reuse: ...; hasattr is False
    from meshjit import debug_key_reuse  ImportError with the same text
    meshjit.devicse                      AttributeError: meshjit has no devicse; did you mean devices?

A name that arrives must leave `FAMILIES`: tests hold it to what is really missing.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping
from opcode import opmap
from types import FrameType
from typing import Any, NamedTuple, NoReturn


class Family(NamedTuple):
    """Names that are missing for one reason, by module; of a module that is missing as a whole its name in the package above."""

    why: str
    names: dict[str, str]
    instead: str = ""


FAMILIES = (
    Family(
        "rules and text of XLA's own partitioner and lowering, which meshjit does not use",
        {
            "meshjit.ffi": "build_ffi_lowering_function ffi_lowering register_ffi_target_as_batch_partitionable",
        },
        "ffi.ffi_call, with vmap_method or in shard_map",
    ),
    Family(
        "recordings with jaxlib 0.10.2 hold nothing of a process that is registered, JAX's neither",
        {"meshjit.profiler": "register_subprocess"},
        "profiler.start_server",
    ),
    Family(
        "a key is words, of which nobody keeps what was drawn from them: to tell, every use of a key, in programs and outside of"
        " them, would have to mark an array that it only reads",
        {
            "meshjit": "debug_key_reuse",
            "meshjit.errors": "KeyReuseError",
        },
        "random.split, and a key for each use",
    ),
    Family(
        "JAX's documentation does not name them: they are inner workings of its modules",
        {
            "meshjit.core": "ParamDict Trace Value eval_context",
            "meshjit.debug": "DebugEffect OrderedDebugEffect",
            "meshjit.experimental.mesh_utils": "device_kind_handler_dict",
            "meshjit.experimental.multihost_utils": "global_array_to_host_local_array_impl gtl_abstract_eval"
            " host_local_array_to_global_array_impl ltg_abstract_eval ltg_batcher",
            "meshjit.experimental.jet": "JetTrace JetTracer ZeroSeries ZeroTerm call_param_updaters def_comp def_deriv deflinear"
            " defzero deriv_prop fact jet_rules linear_prop zero_prop zero_series zero_term",
            "meshjit.experimental": "EArray cur_qdd primal_tangent_dtype",
            "meshjit.experimental.ode": "abs2 fit_4th_order_polynomial initial_step_size interp_fit_dopri mean_error_ratio"
            " optimal_step_size ravel_first_arg runge_kutta_step",
        },
    ),
    Family(
        "a job whose process dies ends, and says whose; none goes on with the devices that are left",
        {"meshjit.experimental.multihost_utils": "ProcessFailureError live_devices"},
        "multihost_utils.reached_preemption_sync_point, and a checkpoint",
    ),
    Family(
        "a slice of a Ref, made for kernels of Pallas",
        {"meshjit": "ds"},
        "lax.dynamic_slice_in_dim of ref[...]",
    ),
    Family(
        "in which order XLA runs what does not depend on one another is its own choice, and an experiment of JAX's that it does"
        " not document",
        {"meshjit.experimental": "control_deps scheduling_groups"},
        "lax.optimization_barrier",
    ),
    Family(
        "a program runs on its devices as a whole, whose compiler decides what a part of it is for and where its results lie",
        {"meshjit.experimental.compute_on": "compute_on2"},
        "pure_callback for NumPy on the host; device_put(x, memory.Space.Host) for where arrays lie",
    ),
    Family(
        "recurrent layers of cuDNN's, with weights in its order, which JAX runs on GPUs alone",
        {"meshjit.experimental": "rnn"},
        "lax.scan over a cell, whose loop XLA compiles for any device",
    ),
    Family(
        "buffers of a device in the hands of Python, while a program runs: an experiment of JAX's for CPUs and GPUs",
        {"meshjit.experimental": "buffer_callback"},
        "pure_callback and io_callback with NumPy arrays; ffi.ffi_call for functions that read the device's memory",
    ),
    Family(
        "attributes for passes of XLA's, which the text that planning writes does not carry",
        {"meshjit.experimental": "xla_metadata"},
        "jit(f, compiler_options=...) for all of a program; named_scope for names in profiles",
    ),
    Family(
        "a server that lends arrays to other jobs, by a service of jaxlib's that has no use here yet",
        {"meshjit.experimental": "transfer"},
        "device_put between devices of one job, also of other processes; checkpoints between jobs",
    ),
    Family(
        "programs take and give arrays in rows, and in between XLA chooses the layouts",
        {"meshjit.experimental.layout": "with_layout_constraint"},
        "a transposed array",
    ),
    Family(
        "it keeps an unused value in a jaxpr, and nothing of it in what is compiled; here what no result needs is never kept",
        {"meshjit.lax": "dce_sink"},
        "debug.callback",
    ),
    Family(
        "devices exchange values by collectives, which all of them make",
        {"meshjit.lax": "precv psend"},
        "lax.ppermute",
    ),
    Family(
        "its numbers come from a state of XLA's own: nobody can have them again, and devices that should hold one value would"
        " draw different ones",
        {"meshjit.lax": "rng_uniform"},
        "random.uniform",
    ),
    Family(
        "XLA takes integers of one bit for booleans in one place and not in another: jaxlib 0.10.2 computes with no array of"
        " them, for JAX neither (RuntimeProgramInputMismatch)",
        {
            "meshjit.numpy": "int1 uint1",
        },
        "bool, int2",
    ),
    Family(
        "jaxlib 0.10.2 makes no array of floats of 6 bits, for JAX neither (Invalid XLA PrimitiveType)",
        {"meshjit.numpy": "float6_e2m3fn float6_e3m2fn"},
        "float8_e4m3fn",
    ),
)

NOT_THERE: dict[str, dict[str, Family]] = {}  # module → name → the family
for _family in FAMILIES:
    for _module, _names in _family.names.items():
        NOT_THERE.setdefault(_module, {}).update(dict.fromkeys(_names.split(), _family))


def explain(module: str, later: Mapping[str, str] = {}) -> None:  # noqa: B006 - nobody changes it
    """Let a module say of a name that it does not have what is known about it.

    later: names that come from a module which is imported when one of them is asked for: name → that module; a submodule is
    its own."""
    here = vars(sys.modules[module])

    def attribute(name: str) -> Any:
        if name not in later:
            refuse(module, name, sys._getframe(1))
        source = importlib.import_module(later[name])
        here[name] = source if later[name] == f"{module}.{name}" else getattr(source, name)
        return here[name]

    here["__getattr__"] = attribute
    if later:
        here["__dir__"] = lambda: sorted({*here, *later})


def refuse(module: str, name: str, caller: FrameType, prefix: str = "") -> NoReturn:
    """Raise the error that this frame gets for a name that the module does not have."""
    text = prefix + text_of(module, name)
    if _is_import(caller) and not name.startswith("__"):
        raise ImportError(text, name=name, path=getattr(sys.modules[module], "__file__", None))
    raise AttributeError(text)


def _is_import(frame: FrameType) -> bool:
    """Whether the frame is in the middle of `from module import name`, which drops the text of an AttributeError."""
    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def text_of(module: str, name: str) -> str:
    family = NOT_THERE.get(module, {}).get(name)
    if family is not None:
        instead = f"\n  instead: {family.instead}" if family.instead else ""
        return f"{module} has no {name} (docs/migration.md): {family.why}{instead}"
    if name.startswith("_"):
        return f"module {module!r} has no attribute {name!r}"
    close = difflib.get_close_matches(name, _public(sys.modules[module]), 1, cutoff=0.75)
    return f"{module} has no {name}" + (f"; did you mean {close[0]}?" if close and close[0] != name else "")


def _public(module: Any) -> list[str]:
    return [name for name in dir(module) if not name.startswith("_")]
