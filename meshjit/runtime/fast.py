"""Calls that never enter Python: jaxlib's C++ looks the arguments up, runs the program and makes the results' handles.

A compiled function is called through `fast_function`. Its first call of a kind comes to `miss`, in Python; if that says
how (`fast_call`), later calls that look alike run without it. Two calls look alike if their trees are equal and each
Array in one has the same `LeafKey` as its counterpart: keys are told apart by their layouts, which are never equal.
What an Array is made of here, C++ has made but for the Array itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshjit.runtime import _jaxlib
from meshjit.runtime.array import Array, LeafKey
from meshjit.runtime.executable import Executable

_jaxlib.register_array(Array, "_handle")

fast_function = _jaxlib.fast_function
_new = object.__new__


def fast_call(executable: Executable, out_tree: Any, kept: Sequence[bool]) -> _jaxlib.CompiledCall:
    """How to run calls that look like one for which this executable was compiled, and whose Arrays lie as it wants them.

    `kept` says of each argument whether the program takes it; captured arrays are arguments like any other, the last ones.
    Not for donating functions: donated Arrays have to be told that they are gone."""
    types = [(v.shape, v.dtype) for v in executable.lowering.local.outputs]
    outputs = [(shard, key.layout) for shard, key in zip(types, executable.out_keys, strict=True)]
    layouts = [_jaxlib.shared_layout(executable.devices)] * len(executable.in_shardings)
    return _jaxlib.compiled_call(
        executable.compiled, list(kept), layouts, outputs, _result_tree(executable.out_keys, out_tree)
    )


def _result_tree(keys: Sequence[LeafKey], out_tree: Any) -> Any:
    """What makes the tree of Arrays of the outputs' handles: one function for all of them, which is quicker than one each."""
    if len(keys) == 1:
        return _jaxlib.compose(out_tree, _jaxlib.result_tree(_maker_of_one(keys[0]), 1))
    return _jaxlib.result_tree(_maker(tuple(keys), out_tree.unflatten), len(keys))


def _maker(keys: tuple[LeafKey, ...], unflatten: Callable[[list[Array]], Any]) -> Callable[[tuple[Any, ...]], Any]:
    """`arrays_of` and `unflatten` in one function: what stands in it runs at every call, and a frame more is felt."""

    def make(handles: tuple[Any, ...], new: Any = _new, kind: type = Array) -> Any:
        arrays: list[Any] = []
        append = arrays.append
        for key, handle in zip(keys, handles):  # noqa: B905 - as many as the program has outputs
            append(array := new(kind))
            array._key = key
            array._handle = handle
        return unflatten(arrays)

    return make


def _maker_of_one(key: LeafKey) -> Callable[[tuple[Any, ...]], Array]:
    def make(handles: tuple[Any, ...]) -> Array:
        array = _new(Array)
        array._key = key
        (array._handle,) = handles
        return array

    return make
