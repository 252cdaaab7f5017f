"""What the tests of ops have in common: every op of the registry with every sample, small programs of one op, and one
XLA module per op. Ops that are added later are covered without a line."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import meshjit.ops  # noqa: F401 - fills the registry
from meshjit.core.op import REGISTRY, Absent, MissingRule, Op, Params, Sample, Types
from meshjit.core.program import Builder, Program, Var
from meshjit.core.types import DTYPES, TensorType, is_float, is_inexact
from meshjit.emit.emitter import Emitter, tensor
from meshjit.simulate.evaluate import evaluate
from meshjit.targets import target_of
from sharding.mesh import AbstractMesh

Array = np.ndarray[Any, Any]

# Of an op without a meaning (custom_tangent) there is nothing to test by itself.
GLOBAL_OPS = [op for op in REGISTRY.values() if not op.is_local and not isinstance(op.evaluate, Absent)]
# Ops that only LAPACK computes: their text calls it, that of the others is legal on all platforms.
NEEDS_LAPACK = ("eig", "hessenberg", "qr_pivoted", "schur", "tridiagonal")
LOCAL_OPS = [op for op in REGISTRY.values() if op.is_local]


def samples(op: Op) -> list[Sample]:
    return list(op.samples())


def has_two_bits(sample: Sample) -> bool:
    """Whether elements of 2 bits go in or come out, which are refused on GPUs."""
    return any(str(dtype) in ("int2", "uint2") for dtype in (*(t.dtype for t in sample.types), *sample.params.values()))


def describe(op: Op, sample: Sample) -> str:
    return f"{op.name}({', '.join(map(str, sample.types))}) {dict(sample.params)}"


def out_types(op: Op, sample: Sample) -> Types:
    return op.type_rule(sample.types, sample.params)


def evaluated(op: Op, arrays: Sequence[Array], params: Params) -> list[Array]:
    """The op's NumPy meaning, always as a list."""
    results = op.evaluate(*map(np.asarray, arrays), **params)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def called(op: Op, operands: Sequence[Var], params: Params) -> list[Var]:
    """The op's results in the current builder, always as a list."""
    results = op(*operands, **params)
    return list(results) if isinstance(results, tuple) else [results]


def build(types: Sequence[TensorType], body: Callable[[list[Var]], Sequence[Var]]) -> Program:
    with Builder("test") as builder:
        return builder.build(body([builder.input(t) for t in types]))


def run(program: Program, arrays: Sequence[Array]) -> list[Array]:
    return evaluate(program, arrays)


# -- comparing

# (relative, absolute) error allowed per dtype; integers and bools are exact.
TOLERANCES = {
    "f64": (1e-11, 1e-12),
    "c128": (1e-11, 1e-12),
    "f32": (2e-5, 2e-6),
    "c64": (4e-5, 4e-6),
    "f16": (4e-3, 4e-3),
    "bf16": (2e-2, 2e-2),
    "f8e4m3fn": (0.15, 0.02),
    "f8e5m2": (0.3, 0.02),
}
_TOLERANCES = {DTYPES[name]: bounds for name, bounds in TOLERANCES.items()}


def wide(array: Array) -> Array:
    return array.astype(np.float32) if is_float(array.dtype) and array.dtype.itemsize < 4 else array


def assert_close(got: Array, want: Array, message: str = "", scale: float = 1.0) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype, (
        f"{message}: {got.dtype}{got.shape} for {want.dtype}{want.shape}"
    )
    if want.dtype not in _TOLERANCES:
        np.testing.assert_array_equal(wide(got), wide(want), err_msg=message)
        return
    rtol, atol = (bound * scale for bound in _TOLERANCES[want.dtype])
    np.testing.assert_allclose(wide(got), wide(want), rtol=rtol, atol=atol, err_msg=message)


# -- double precision, in which derivatives are compared

_DOUBLE = {DTYPES["f32"]: DTYPES["f64"], DTYPES["c64"]: DTYPES["c128"]}


def doubled(op: Op, sample: Sample) -> Sample | None:
    """The sample in double precision; None where it has no inexact operand or other floats than f32 and c64, or where
    the op does not take the wider operands (a bitcast to a 32-bit integer)."""
    found = [*(t.dtype for t in sample.types), *(p for p in sample.params.values() if isinstance(p, np.dtype))]
    if not any(t.dtype in _DOUBLE for t in sample.types) or any(is_inexact(d) and d not in _DOUBLE for d in found):
        return None
    types = tuple(t.with_dtype(_DOUBLE.get(t.dtype, t.dtype)) for t in sample.types)
    params = {k: _DOUBLE.get(v, v) if isinstance(v, np.dtype) else v for k, v in sample.params.items()}
    try:
        op.type_rule(types, params)
    except TypeError:
        return None
    return Sample(types, params, sample.fill)


def generic_point(sample: Sample, generator: np.random.Generator) -> list[Array]:
    """Operands away from ties and kinks: not quite the small integers that samples are filled with."""
    arrays = sample.arrays(generator)
    low, high = (0.2, 0.4) if sample.fill in ("small", "positive") else (0.01, 0.04)
    return [a + generator.uniform(low, high, a.shape).astype(a.dtype) if is_inexact(a.dtype) else a for a in arrays]


def random_like(array: Array, generator: np.random.Generator) -> Array:
    out = generator.normal(size=array.shape)
    if array.dtype.kind == "c":
        out = out + 1j * generator.normal(size=array.shape)
    return np.asarray(out).astype(array.dtype)


# -- derivatives


def jvp(op: Op, primals: Sequence[Var], tangents: Sequence[Var | None], params: Params) -> list[Var | None]:
    """The op's own rule, or what linearity says."""
    if op.stops:
        return [None for _ in range(len(called(op, primals, params)))]
    if op.jvp:
        return op.jvp(primals, tangents, called(op, primals, params), params)
    groups = op.linear_groups(tuple(v.type for v in primals), params)
    loose = [i for i, t in enumerate(tangents) if t is not None and not any(i in g for g in groups)]
    if loose:
        op.jvp(primals, tangents, None, params)  # raises with the reason
    totals: list[Var | None] = []
    for group in groups:
        if any(tangents[i] is not None for i in group):
            totals = _sums(totals, called(op, _replaced(primals, tangents, group), params))
    return totals or [None]


def _replaced(primals: Sequence[Var], tangents: Sequence[Var | None], group: Sequence[int]) -> list[Var]:
    from meshjit.ops.base.constants import zeros_like

    out = list(primals)
    for i in group:
        tangent = tangents[i]
        out[i] = zeros_like(primals[i]) if tangent is None else tangent
    return out


def _sums(left: Sequence[Var | None], right: Sequence[Var]) -> list[Var | None]:
    from meshjit.ops.base.arithmetic import add_tangents

    return [add_tangents(a, b) for a, b in zip(left, right, strict=True)] if left else list(right)


# -- XLA


@functools.cache
def cpu_devices() -> tuple[Any, Any]:
    from meshjit.runtime import _jaxlib

    client = _jaxlib.cpu_client(8)
    return client, tuple(_jaxlib.devices(client))


def emitter(mesh: Any = None, lapack: bool = False) -> Emitter:
    """For a mesh, or one CPU device."""
    from meshjit.runtime import _jaxlib

    mesh = mesh or AbstractMesh((1,), ("_",))
    target = target_of(mesh)
    return Emitter(mesh, dataclasses.replace(target, kernels=_jaxlib.CPU_KERNELS) if lapack else target)


def module(
    calls: Sequence[tuple[Op, Types, Types, Params]], mesh: Any = None, replicas: int = 1, lapack: bool = False
) -> str:
    """A module whose main has the operands of all calls, one after another, and gives all their results. It calls LAPACK where
    an op needs it, and wherever ops can with `lapack`."""
    lapack = lapack or any(op.name in NEEDS_LAPACK for op, *_ in calls)
    e = emitter(mesh, lapack)
    arguments: list[str] = []
    returned: list[str] = []
    for op, ins, outs, params in calls:
        names = [f"%a{len(arguments) + i}" for i in range(len(ins))]
        e.types.update(zip(names, ins, strict=True))
        arguments += names
        returned += op.emit(e, names, ins, outs, params)
    head = ", ".join(f"{a}: {tensor(e.types[a])}" for a in arguments)
    types = [tensor(e.types[r]) for r in returned]
    lines = "\n".join(e.lines)
    return (
        f"{e.declarations}module @m attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {replicas} : i32}} {{\n"
        f"func.func public @main({head}) -> ({', '.join(types)}) {{\n{lines}\n"
        f"return {', '.join(returned)} : {', '.join(types)}\n}}\n{''.join(e.functions.values())}}}"
    )


def run_xla(text: str, shards: Sequence[Sequence[Array]], outputs: Types, count: int = 1) -> list[list[Array]]:
    """Compile for the first `count` CPU devices and run; `shards[i]` are argument i's arrays, one per device."""
    from meshjit.runtime import _jaxlib

    client, devices = cpu_devices()
    row = devices[:count]
    executable = _jaxlib.compile(client, text, row)
    handles = [_jaxlib.put([np.ascontiguousarray(a).reshape(a.shape) for a in each], row) for each in shards]
    results = _jaxlib.execute(executable, handles, [(t.shape, t.dtype) for t in outputs], row)
    return [[array for _, array in _jaxlib.fetch(result)] for result in results]


__all__ = ["MissingRule"]
