"""Running an executable: a Python function from handles to handles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

from meshjit.runtime._jaxlib.array_class import raw_delete
from meshjit.runtime._jaxlib.arrays import put
from meshjit.runtime._jaxlib.base import ShardType
from meshjit.runtime._jaxlib.layouts import Aval, Layout, shared_layout


def make_executor(
    executable: Any,
    outputs: Sequence[ShardType],
    devices: Sequence[Any],
    donated: Sequence[int] = (),
    layouts: Sequence[Layout] | None = None,
    note: Callable[[Any], None] | None = None,
) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from argument handles to output handles; asynchronous.

    `outputs` are the shard types of the results, `layouts` their layouts where they have some of their own, `devices`
    the row that the program was compiled for. `donated` are the positions of the arguments marked
    `tf.aliasing_output` in the text: their handles are deleted by the call, even if XLA had to copy because NumPy still
    looks at the memory. `note` is told of each run, by what is ready when it has ended (`block_until_ready`). Raises
    ValueError for an argument on other devices and RuntimeError for a deleted one."""
    layout = shared_layout(tuple(devices))
    result_layouts = [layout] * len(outputs) if layouts is None else layouts
    handlers = [_result_handler(Aval(*output), place) for output, place in zip(outputs, result_layouts, strict=True)]
    run = getattr(executable, "execute_sharded", None)
    if run is None:
        return _refuse_absent

    def execute(handles: Sequence[Any]) -> list[Any]:
        for handle in handles:  # some versions crash, rather than raise, on shards of other devices and deleted ones
            row = handle._sharding.row
            if (row is not layout.row and row != layout.row) or handle.is_deleted():
                _refuse(handles, layout)
        if note is None:
            results = run(handles).consume_with_handlers(handlers)
        else:
            started = run(handles, with_tokens=True)
            results = started.consume_with_handlers(handlers)
            note(started.consume_token())
        for position in donated:
            raw_delete(handles[position])
        return results

    return execute


TOKEN: ShardType = ((0,), np.dtype(np.bool_))  # what a program is given for a token, and gives for one


def new_token(devices: Sequence[Any]) -> Any:
    """The handle of a token that nothing has to wait for."""
    layout = shared_layout(tuple(devices))
    return put([np.zeros(*TOKEN)] * len(layout.local), list(layout.local), row=layout)


def _refuse_absent(handles: Sequence[Any]) -> list[Any]:
    raise RuntimeError("the program is compiled for devices that are not here, so it cannot run")


def _refuse(handles: Sequence[Any], layout: Layout) -> None:
    for position, handle in enumerate(handles):
        if handle.is_deleted():
            raise RuntimeError(f"argument {position} was deleted, or donated to an earlier call")
        if handle._sharding.row != layout.row:
            ids = [[device.id for device in row] for row in (handle._sharding.row, layout.row)]
            raise ValueError(
                f"argument {position} lies on devices {ids[0]}, the program runs on {ids[1]}; copy it there"
            )


def execute(executable: Any, handles: Sequence[Any], outputs: Sequence[ShardType], devices: Sequence[Any]) -> list[Any]:
    """Run once; `make_executor` is the fast way for more than that."""
    return make_executor(executable, outputs, devices)(handles)


def _result_handler_flags() -> dict[str, Any]:
    """0.10 can check a result's shape against its sharding by calling jax; it takes a flag not to."""
    return {"_skip_checks": True} if "_skip_checks" in (_jax.array_result_handler.__doc__ or "") else {}


_RESULT_FLAGS = _result_handler_flags()


def _result_handler(aval: Aval, layout: Layout) -> Any:
    return _jax.array_result_handler(aval, layout, True, **_RESULT_FLAGS)
