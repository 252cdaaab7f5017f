"""`jax.experimental.colocated_python`: Python functions that run on the hosts of the devices that their arguments lie on.

    @colocated_python
    def normalize(x):                                   # NumPy, files, whatever Python can do
        return meshjit.device_put(np.asarray(x) / 255, x.sharding)

    y = normalize(x)

Here every process of a cluster runs the same script and owns devices, so a function is called where it stands: in each
process, with the arguments as they are. Nothing is serialized, and what a closure changes stays changed. Arguments and results
lie on CPU devices; `colocated_cpu_devices` finds those beside others.
"""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from meshjit.api.kinds import TracedArray
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.missing import explain as _explain
from meshjit.runtime.array import Array
from meshjit.runtime.client import devices
from meshjit.tree_util import tree_leaves, tree_map, tree_structure
from sharding.mesh import Mesh


@overload
def colocated_cpu_devices(devices_or_mesh: Mesh) -> Mesh: ...
@overload
def colocated_cpu_devices(devices_or_mesh: Sequence[Any]) -> Sequence[Any]: ...
def colocated_cpu_devices(devices_or_mesh: Mesh | Sequence[Any]) -> Mesh | Sequence[Any]:
    """The CPU devices of the same processes, in the same order; of a mesh, one of the same shape. CPU devices stay.

    Raises ValueError where a process has fewer CPU devices than others; MESHJIT_NUM_CPU_DEVICES says how many it has.
    """
    if isinstance(devices_or_mesh, Mesh):
        mesh = devices_or_mesh
        beside = np.array(colocated_cpu_devices(list(mesh.devices.flat)), object).reshape(mesh.devices.shape)
        return Mesh(beside, mesh.axis_names, axis_types=mesh.axis_types)
    if all(device.platform == "cpu" for device in devices_or_mesh):
        return tuple(devices_or_mesh)
    free: dict[int, list[Any]] = defaultdict(list)
    for device in devices("cpu"):
        free[device.process_index].append(device)
    return tuple(_next_device(free[device.process_index], device) for device in devices_or_mesh)


def _next_device(free: list[Any], device: Any) -> Any:
    if free:
        return free.pop(0)
    raise ValueError(
        f"process {device.process_index} has no CPU device left for {device}\n"
        "  fix: MESHJIT_NUM_CPU_DEVICES=N, as many as it has others"
    )


def colocated_python(fun: Callable[..., Any]) -> ColocatedFunction:
    """`fun`, called in each process that runs this line, with arrays on CPU devices. `specialize` says more of it."""
    return ColocatedFunction(fun)


@dataclass(eq=False)
class ColocatedFunction:
    """A function that runs beside its arguments. `in_specs`: the arguments' and keywords' types, if only these will do."""

    fun: Callable[..., Any]
    in_specs: Any = None  # of (args, kwargs), ShapeDtypeStructs
    out_specs_fn: Callable[..., Any] | None = None
    devices: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.fun)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = tree_leaves((args, kwargs))
        if any(isinstance(leaf, TracedArray) for leaf in leaves):
            raise TypeError(
                f"{self._name}, a colocated_python function, was called in a trace: it takes arrays, and runs once for each"
                " call\n"
                "  fix: call it outside of jit, or use meshjit.pure_callback"
            )
        if not leaves and not self.devices:
            raise ValueError(
                f"No devices found. {self._name}, a colocated_python function without input arguments, must be first specialized"
                f" with devices\n  fix: {self._name}.specialize(devices=meshjit.local_devices()[:1])()"
            )
        given = tree_map(_spec_of, (args, kwargs))
        if self.in_specs is not None:
            self._compare("was specialized for arguments", self.in_specs, given)
        result = self.fun(*args, **kwargs)
        if self.out_specs_fn is not None:
            self._compare("was specialized for results", self.out_specs_fn(*given[0], **given[1]), tree_map(_spec_of, result))
        return result

    def specialize(
        self,
        in_specs: Any = None,
        out_specs_fn: Callable[..., Any] | None = None,
        devices: Sequence[Any] | None = None,
    ) -> ColocatedFunction:
        """This function for arguments of these types, with results of the types that `out_specs_fn` makes of theirs.

        in_specs: ShapeDtypeStructs in the tree of `(args, kwargs)`. devices: where it runs if it has no arguments. What is not
        given stays. Raises ValueError at the call where a type is another one.
        """
        settings = {"in_specs": in_specs, "out_specs_fn": out_specs_fn, "devices": devices}
        return replace(self, **{name: value for name, value in settings.items() if value is not None})

    @property
    def _name(self) -> str:
        return getattr(self.fun, "__name__", repr(self.fun))

    def _compare(self, what: str, specs: Any, given: Any) -> None:
        if tree_structure(specs) != tree_structure(given) or _types(specs) != _types(given):
            raise ValueError(f"{self._name} {what} {specs}, and has {given}")


def _types(specs: Any) -> list[tuple[Any, Any]]:
    return [(leaf.shape, leaf.dtype) for leaf in tree_leaves(specs)]


def _spec_of(leaf: Any) -> ShapeDtypeStruct:
    array = leaf if isinstance(leaf, Array) else np.asarray(leaf)
    return ShapeDtypeStruct(array.shape, array.dtype, sharding=getattr(array, "sharding", None))


def colocated_python_class(cls: type[Any]) -> type[Any]:
    """A class whose objects are made by the first call of one of their methods, in each process; its methods are colocated."""

    class Colocated:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._make = _Once(functools.partial(cls, *args, **kwargs))

        def __getattr__(self, name: str) -> Any:
            method = getattr(cls, name)  # the class says so if it has none
            if not callable(method):
                raise AttributeError(f"an object of the colocated class {cls.__name__} has its methods alone, and {name} is none")

            @functools.wraps(method)
            def call(*args: Any, **kwargs: Any) -> Any:
                return getattr(self._make(), name)(*args, **kwargs)

            return ColocatedFunction(call)

    functools.update_wrapper(Colocated, cls, updated=())
    return Colocated


class _Once:
    """What `make` returns, made by the first call; the others wait for it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._lock = make, threading.Lock()

    def __call__(self) -> Any:
        with self._lock:
            if not hasattr(self, "_made"):
                self._made = self._make()
            return self._made


_explain(__name__)
