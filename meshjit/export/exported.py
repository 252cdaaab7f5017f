"""A function that was traced to be called elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshjit.api import jit
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.stages import Traced
from meshjit.api.tracebacks import hide_own_frames
from meshjit.api.wrapped import Wrapped
from meshjit.autodiff import vjp
from meshjit.core.effects import Effect, effect_of
from meshjit.core.keys import PRNGKeyArray
from meshjit.core.types import TensorType, is_inexact
from meshjit.custom_derivatives import custom_vjp
from meshjit.export.blob import read, write
from meshjit.export.checks import DisabledSafetyCheck, check_platform, checked_platforms
from meshjit.export.code import Code, code_of
from meshjit.export.version import maximum_supported_calling_convention_version
from meshjit.trace import argument_of
from meshjit.trace.float0 import FLOAT0, without_float0
from meshjit.trace.types import ShapedArray
from meshjit.tree_views import about_leaves, hidden_dims, key_types, users_treedef
from meshjit.trees import WORDS as tree
from sharding.named import NamedSharding


@dataclass(frozen=True, eq=False)
class Exported:
    """A function with the types of its arguments, as `jax.export.Exported`.

    in_tree, out_tree: the structures of `(args, kwargs)`, without static arguments, and of the result. in_avals, out_avals: their
    leaves' types. nr_devices: of the mesh of its shardings, else 1. Call it by `.call`, write it by `.serialize()`."""

    fun_name: str
    platforms: tuple[str, ...]
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...]
    code: Code = field(repr=False)
    calling_convention_version: int = maximum_supported_calling_convention_version
    get_vjp: Callable[[Exported], Exported] | None = field(default=None, repr=False)  # None: it was written without derivatives
    made: dict[Any, Any] = field(default_factory=dict, repr=False)  # what was made of it, by mesh

    @property
    def in_tree(self) -> Any:
        return users_treedef(self.code.in_tree)

    @property
    def out_tree(self) -> Any:
        return users_treedef(self.code.out_tree)

    @property
    def in_avals(self) -> tuple[ShapedArray, ...]:
        return tuple(ShapedArray(i.shape, i.dtype, i.weak_type) for i in self.code.inputs())

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        return tuple(ShapedArray(i.shape, i.dtype, i.weak_type) for i in self.code.outputs())

    @property
    def nr_devices(self) -> int:
        return self.code.device_count

    @property
    def module_kept_var_idx(self) -> tuple[int, ...]:
        """Positions of the leaves that the results depend on."""
        used = {v for eqn in self.code.program.eqns for v in eqn.inputs} | set(self.code.program.outputs)
        return tuple(i for i, v in enumerate(self.code.program.inputs[: len(self.in_avals)]) if v in used)

    @property
    def ordered_effects(self) -> tuple[Effect, ...]:
        """Kinds of what the function does in the order of its equations, beside computing; it cannot be written then."""
        return tuple(sorted((e for e in self._effects if e & Effect.ORDERED), key=lambda e: e.value))

    @property
    def unordered_effects(self) -> tuple[Effect, ...]:
        """Kinds of what it does in any order."""
        return tuple(sorted((e for e in self._effects if not e & Effect.ORDERED), key=lambda e: e.value))

    @property
    def _effects(self) -> set[Effect]:
        return {effect_of(eqn) for eqn in self.code.program.eqns} - {Effect.NONE}

    @property
    def uses_global_constants(self) -> bool:
        """False: who calls it passes arguments and nothing else."""
        return False

    @property
    def in_shardings_hlo(self) -> tuple[None, ...]:
        """None for each argument, as in JAX where Shardy is in use, and here: `in_shardings_jax` says it in specs."""
        return (None,) * len(self.in_avals)

    @property
    def out_shardings_hlo(self) -> tuple[None, ...]:
        """None for each result; see `out_shardings_jax`."""
        return (None,) * len(self.out_avals)

    def in_shardings_jax(self, mesh: Any) -> tuple[NamedSharding | None, ...]:
        """Where the arguments' leaves are to be, on a mesh of `nr_devices` devices; None where nothing was said."""
        return self._on(mesh, self.code.inputs())

    def out_shardings_jax(self, mesh: Any) -> tuple[NamedSharding | None, ...]:
        """Where the results' leaves will be, on a mesh of `nr_devices` devices; None where nothing was said."""
        return self._on(mesh, self.code.outputs())

    def _on(self, mesh: Any, infos: Sequence[ShapeDtypeStruct]) -> tuple[NamedSharding | None, ...]:
        if mesh.size != self.nr_devices:
            raise ValueError(f"{self.fun_name} was exported for {self.nr_devices} devices, {mesh} has {mesh.size}")
        if self.code.mesh is None:
            return (None,) * len(infos)
        there = self.code.on(mesh)
        return tuple(None if i.sharding is None else NamedSharding(there, i.sharding.spec) for i in infos)

    def mlir_module(self) -> str:
        """What each device would compute, in StableHLO, planned for the first of the platforms."""
        return self._traced().lower(lowering_platforms=self.platforms).as_text()

    @property
    def mlir_module_serialized(self) -> bytes:
        return self.mlir_module().encode()

    def _traced(self) -> Traced:
        code = self.code

        def run(*leaves: Any) -> Any:
            return tuple(code.run(leaves, None))

        run.__name__ = self.fun_name
        placed: dict[str, Any] = {"in_shardings": tuple(i.sharding for i in code.inputs())} if code.mesh else {}
        types = zip(code.program.input_types[: len(code.in_weak)], code.in_weak, strict=True)
        return jit(run, **placed).trace(*(ShapedArray(t.shape, t.dtype, weak) for t, weak in types))

    def has_vjp(self) -> bool:
        """Whether there are derivatives: of what was exported here, and of what was written with them."""
        return self.get_vjp is not None

    def vjp(self) -> Exported:
        """The derivative: a function of the arguments' leaves, then of a cotangent for each leaf of the result, that gives a
        tuple of cotangents of the arguments' leaves. ValueError where there is none (`serialize(vjp_order=...)`)."""
        if self.get_vjp is None:
            raise ValueError(
                f"{self.fun_name} was written without derivatives\n  fix: serialize(vjp_order=1), or 2 for second derivatives"
            )
        if "vjp" not in self.made:
            self.made["vjp"] = self.get_vjp(self)
        return self.made["vjp"]

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """Bytes that `deserialize` reads, in any process and with any number of devices that is enough.

        `vjp_order`: how many derivatives are written with it. ValueError for functions that call Python, which a file cannot
        hold, and for containers that have not said how they are written."""
        if vjp_order < 0:
            raise ValueError(f"serialize: vjp_order must not be negative, it is {vjp_order}")
        below = bytes(self.vjp().serialize(vjp_order - 1)) if vjp_order else None
        return write(self.fun_name, self.platforms, self.disabled_safety_checks, self.code, below)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives for arguments of its types; inside of jit as a part of the outer function, which is planned as
        a whole. ValueError for other structures, shapes and dtypes, for another platform, and for too few devices."""
        try:
            leaves = self._leaves(*without_float0((args, kwargs)))
            check_platform(self.fun_name, self.platforms, self.disabled_safety_checks)
            mesh = self.code.mesh_for(leaves, self.fun_name)
        except ValueError as error:
            hide_own_frames(error)
            raise
        if mesh not in self.made:
            self.made[mesh] = self._differentiable(mesh)
        return tree.unflatten(self.code.out_tree, self.made[mesh](*leaves))

    def _leaves(self, args: Any, kwargs: Any) -> list[Any]:
        leaves, structure = tree.flatten((args, kwargs))
        if structure != self.code.in_tree:
            expected = about_leaves(self.code.in_tree, [str(i) for i in self.in_avals])
            raise ValueError(
                f"{self.fun_name} was exported for arguments of another structure\n  here: {users_treedef(structure)}\n"
                f"  exported: {self.in_tree}\n  fix: call it with {expected}"
            )
        types = self.code.program.input_types[: len(leaves)]
        for path, leaf, type in zip(tree.path_names((args, kwargs), ""), leaves, types, strict=True):
            _check_type(self.fun_name, path, argument_of(leaf).type, type)
        return leaves

    def _differentiable(self, mesh: Any) -> Callable[..., Any]:
        """The function of leaves, whose derivative is the one that was exported with it."""

        @jit
        def run(*leaves: Any) -> Any:
            return tuple(self.code.run(leaves, mesh))

        run.__wrapped__.__name__ = self.fun_name
        function = custom_vjp(run)

        def forward(*leaves: Any) -> Any:
            return run(*leaves), leaves

        def backward(leaves: Any, cotangents: Any) -> Any:
            hidden = hidden_dims(self.code.out_tree)  # derivatives of keys, which have none, are of the shape of the keys
            results = [x[..., 0] if dims else x for x, dims in zip(cotangents, hidden, strict=True)]
            given = self.vjp().call(*_with_keys(self.code.in_tree, leaves), *results)
            return tuple(x if is_inexact(np.dtype(leaf.dtype)) else None for x, leaf in zip(given, leaves, strict=True))

        function.defvjp(forward, backward)
        return function


def _check_type(name: str, path: str, here: TensorType, exported: TensorType) -> None:
    if here != exported:
        what = "shape" if here.shape != exported.shape else "dtype"
        raise ValueError(f"{name} was exported for another {what} of argument {path}: {exported}, here it is {here}")


def export(
    fun_jit: Any,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
) -> Callable[..., Exported]:
    """A function that traces `fun_jit` for its arguments, arrays or anything with shape and dtype, and gives an Exported.

    `platforms`: where it may be called, by default the one here. `disabled_checks`: what is not to be checked. Where shardings of
    `fun_jit` or of arguments name a mesh, the Exported is for as many devices, in any order. ValueError for what is no result of
    jit, and for unknown platforms.  Source: jax.export.export."""
    if not isinstance(fun_jit, Wrapped):
        raise ValueError(f"export: the function must be a result of jit, got {fun_jit!r}\n  fix: export(jit(f))")
    checked = checked_platforms(platforms)

    def export_for(*args: Any, **kwargs: Any) -> Exported:
        traced = fun_jit.trace(*args, **kwargs)
        name = "<lambda>" if getattr(fun_jit, "__name__", "") == "<lambda>" else traced.fun_name
        return Exported(name, checked, tuple(disabled_checks), code_of(traced), get_vjp=derivative)

    return export_for


def derivative(exported: Exported) -> Exported:
    """The Exported of an Exported's derivative."""
    code = exported.code
    inputs, outputs = code.inputs(), code.outputs()

    def backward(*args: Any) -> Any:
        def run(*primals: Any) -> Any:
            return tuple(_with_keys(code.out_tree, code.run(tree.leaves(primals), None)))

        return vjp(run, *args[: len(inputs)])[1](tuple(args[len(inputs) :]))

    backward.__name__ = f"vjp_{exported.fun_name}"
    shardings = [info.sharding for info in (*inputs, *outputs)]
    placed: dict[str, Any] = {"in_shardings": tuple(shardings), "out_shardings": tuple(shardings[: len(inputs)])}
    made = jit(backward) if code.mesh is None else jit(backward, **placed)
    result = export(made, platforms=exported.platforms, disabled_checks=exported.disabled_safety_checks)
    types = [ShapeDtypeStruct(info.shape, info.dtype) for info in inputs]  # where they are, jit says
    return result(*types, *map(_cotangent, outputs))


def _with_keys(treedef: Any, leaves: Sequence[Any]) -> list[Any]:
    """What users see of leaves of a treedef of WORDS."""
    return [x if kind is None else PRNGKeyArray(kind, x) for x, kind in zip(leaves, key_types(treedef), strict=True)]


def _cotangent(info: ShapeDtypeStruct) -> Any:
    """Of a result: its type, or for integers and keys an array of float0."""
    has = isinstance(info.dtype, np.dtype) and is_inexact(info.dtype)
    return ShapeDtypeStruct(info.shape, info.dtype) if has else np.zeros(info.shape, FLOAT0)


def deserialize(blob: bytes | bytearray) -> Exported:
    """The Exported that `Exported.serialize` wrote. Nothing in the bytes runs when they are read. ValueError for bytes of other
    origin, of other versions, and with containers that are not registered here."""
    name, platforms, checks, code, below = read(blob)
    return Exported(name, platforms, checks, code, get_vjp=None if below is None else lambda _: deserialize(below))
