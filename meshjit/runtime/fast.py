"""Calls that never enter Python: jaxlib's C++ looks the arguments up, runs the program and makes the results.

A compiled function is called through `fast_function`. Its first call of a kind comes to `miss`, in Python; if that says
how (`fast_call`), later calls that look alike run without it. Two calls look alike if their trees are equal and each
Array in one has the same `LeafKey` as its counterpart: keys are told apart by their layouts, which are never equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshjit.runtime import _jaxlib, contexts
from meshjit.runtime.array import Array
from meshjit.runtime.executable import Executable

fast_function, forget_calls = _jaxlib.fast_function, _jaxlib.forget_calls
apart, flatten = contexts.apart, _jaxlib.flatten_quickly


def fast_call(
    executable: Executable, out_tree: Any, kept: Sequence[bool], captured: Sequence[Array] = ()
) -> _jaxlib.CompiledCall:
    """How to run calls that look like one for which this executable was compiled, and whose Arrays lie as it wants them.

    `kept` says of each argument whether the program takes it. `captured` arrays are arguments at each call."""
    types = [(v.shape, v.dtype) for v in executable.lowering.local.outputs]
    outputs = [(shard, key.layout) for shard, key in zip(types, executable.out_keys, strict=True)]
    layouts = [_jaxlib.shared_layout(executable.devices)] * len(executable.in_shardings)
    return _jaxlib.compiled_call(executable.compiled, list(kept), layouts, outputs, out_tree, list(captured))


def is_consumed(value: Any) -> bool:
    """Whether it is an Array whose memory is gone, although nobody has noted that it was deleted."""
    return isinstance(value, Array) and value.is_deleted() and not vars(value).get("_deleted_by")
