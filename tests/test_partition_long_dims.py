"""Dims of more places than an int32 counts, such as all parameters in one vector: places are int64 there.

A device multiplied its number by the length of its shard in int32: of 64 devices that share 2**33 elements every 32nd took itself for
the first, so that `x[i]` was the sum of two elements.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.op import REGISTRY
from meshjit.core.program import Builder
from meshjit.ops.base import constants
from meshjit.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from tests.tools.laws import MESHES, check_law, random_spec
from tests.tools.wire import traced

OPS = (
    "argmax concatenate cumsum dynamic_roll dynamic_slice dynamic_update_slice gather iota pad reduce_max reduce_window reshape"
    " reverse roll scatter slice sort update_slice"
).split()
CASES = [pytest.param(name, i, id=f"{name}-{i}") for name in OPS for i, _ in enumerate(REGISTRY[name].samples())]
TRIALS = 3


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if an int32 counted 4 places."""
    monkeypatch.setattr(constants, "LONGEST", 4)


@pytest.mark.usefixtures("few_places")
@pytest.mark.parametrize(("name", "index"), CASES)
def test_an_op_counts_places_in_int64(name: str, index: int) -> None:
    sample = list(REGISTRY[name].samples())[index]
    generator = np.random.default_rng(zlib.crc32(f"long-{name}-{index}".encode()))
    with Builder(name) as builder:
        inputs = [builder.input(t) for t in sample.types]
        program = builder.build(builder.emit(REGISTRY[name], inputs, sample.params))
    arrays = sample.arrays(generator)
    for _ in range(TRIALS):
        mesh = MESHES[int(generator.integers(len(MESHES)))]
        given, results = ([random_spec(generator, v.rank, mesh) for v in side] for side in (program.inputs, program.outputs))
        check_law(program, mesh, given, results, arrays, exact=False)


def heat(u: Any) -> Any:
    return lax.fori_loop(0, 4, lambda _, v: v.at[1:-1].add(0.1 * (v[2:] - 2 * v[1:-1] + v[:-2])), u)


@pytest.mark.usefixtures("few_places")
@pytest.mark.parametrize("extent", [64, 61])
def test_stencils_count_places_in_int64(extent: int) -> None:
    generator = np.random.default_rng(extent)
    program = traced(heat, [f"f32[{extent}]"])
    for mesh in [m for m in MESHES if "x" in m.axis_names]:
        check_law(program, mesh, [P("x")], [P("x")], [generator.standard_normal(extent).astype(np.float32)], exact=False)


FFTS = [(mnp.fft.fft, "c64"), (mnp.fft.ifft, "c64"), (mnp.fft.rfft, "f32"), (mnp.fft.irfft, "c64")]


@pytest.mark.usefixtures("few_places")
@pytest.mark.parametrize(("fun", "dtype"), FFTS, ids=["fft", "ifft", "rfft", "irfft"])
def test_transforms_count_points_in_int64(fun: Any, dtype: str) -> None:
    generator = np.random.default_rng(0)
    count = 33 if fun is mnp.fft.irfft else 64
    values = generator.standard_normal(count) + (1j * generator.standard_normal(count) if dtype == "c64" else 0)
    program = traced(fun, [f"{dtype}[{count}]"])
    for mesh in [m for m in MESHES if "x" in m.axis_names]:
        check_law(program, mesh, [P("x")], [P("x")], [values.astype(program.inputs[0].type.dtype)], exact=False)


MESH = AbstractMesh((8, 8), ("a", "b"))
LONG = mj.ShapeDtypeStruct((2**33,), np.uint8, sharding=NamedSharding(MESH, P(("a", "b"))))
UNEVEN = mj.ShapeDtypeStruct((2**33 - 5,), np.uint8, sharding=NamedSharding(MESH, P(("a", "b"))))
POINTS = mj.ShapeDtypeStruct((2**33,), np.complex64, sharding=NamedSharding(MESH, P(("a", "b"))))
ONE, SEVERAL = (mj.ShapeDtypeStruct(shape, np.int32, sharding=NamedSharding(MESH, P())) for shape in ((), (16,)))


@pytest.mark.parametrize(
    ("fun", "types"),
    [
        (lambda x, i: x[i], [LONG, ONE]),
        (lambda x, i: x[i], [LONG, SEVERAL]),
        (lambda x, i: x.at[i].add(1), [LONG, SEVERAL]),
        (lambda x, i: lax.dynamic_slice(x, (i,), (1024,)), [LONG, ONE]),
        (lambda x, i: lax.dynamic_slice(x, (i,), (2**33 - 64,)), [LONG, ONE]),
        (lambda x, i: lax.dynamic_update_slice(x, mnp.ones(1024, np.uint8), (i,)), [LONG, ONE]),
        (lambda x, i: mnp.concatenate([x, x[: 2**20]]), [LONG, ONE]),
        (lambda x, i: mnp.max(x), [UNEVEN, ONE]),
        (lambda x, i: mnp.fft.fft(x), [POINTS, ONE]),
    ],
    ids=["element", "elements", "scatter", "part", "nearly all", "update", "concatenation", "padding", "fft"],
)
def test_no_product_with_the_number_of_a_device_is_too_large(fun: Any, types: Any) -> None:
    text = mj.jit(fun).trace(*types).lower().as_text()
    constants = re.findall(r'%(\d+) = "stablehlo.constant"\(\) <{value = dense<"0x(\w{8})"> : tensor<i32>}>', text)
    values = {name: np.frombuffer(bytes.fromhex(digits), np.int32)[0] for name, digits in constants}
    factors = re.findall(r'"stablehlo.multiply"\(%\d+, %(\d+)\) : \(tensor<i32>, tensor<i32>\)', text)
    assert '"stablehlo.multiply"' in text and all(abs(int(values[name])) * MESH.size < 2**31 for name in factors)
