"""float0, the dtype of derivatives with respect to integers: as arguments and results of everything that traces, beside JAX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, tree
from meshjit.dtypes import float0
from meshjit.trace.float0 import with_float0_shapes, without_float0
from tests.tools.float0_cases import cases, line

pytestmark = pytest.mark.device

RECORDED = dict(
    text.split(" | ") for text in (Path(__file__).parent / "goldens" / "float0.txt").read_text().splitlines()
)  # of JAX 0.10.2
# What differs on purpose.
OTHER = {
    "typeof": "types are those of arrays of devices",
    "make_jaxpr": "a Program has no float0 outputs",
}


@pytest.mark.parametrize("name", sorted(RECORDED.keys() - OTHER.keys()))
def test_as_in_jax(name: str) -> None:
    assert line(name, cases(mj)[name], mj) == f"{name} | {RECORDED[name]}"


def test_every_case_is_recorded() -> None:
    assert list(RECORDED) == list(cases(mj))


def test_a_tangent_of_an_integer_that_is_no_float0() -> None:
    with pytest.raises(TypeError, match=r"tangent dtype must be float0\. Got primal dtype int32 of n .* got tangent f32\[\]"):
        mj.jvp(lambda n: n * 2.0, (3,), (1.0,))


def test_arithmetic() -> None:
    with pytest.raises(TypeError, match="float0 arrays, derivatives with respect to integers, have no elements"):
        mnp.add(np.zeros((), float0), 1.0)


def test_calls_again_and_with_other_shapes() -> None:
    f = mj.jit(lambda a, x: (a, x + a.ndim))
    for shape in ((), (2,), (2,), (2, 0)):
        for x in (1.0, 2.0):
            a, y = f(np.zeros(shape, float0), x)
            assert (a.shape, a.dtype, float(y)) == (shape, float0, x + len(shape))


def test_static_and_donated_arguments_beside() -> None:
    f = mj.jit(lambda n, a, x: (a, x * n), static_argnums=0, donate_argnums=2)
    for n in (2, 3, 2):
        a, y = f(n, np.zeros(3, float0), mnp.float32(2))
        assert (a.shape, float(y)) == ((3,), 2 * n)


def test_on_a_mesh_and_with_out_shardings() -> None:
    mesh = mj.make_mesh((4,), ("x",))
    rows = mj.sharding.NamedSharding(mesh, mj.P("x"))
    f = mj.jit(mj.grad(lambda p: (p["w"] * p["n"]).sum(), allow_int=True), out_shardings=rows)
    result = f({"w": mnp.arange(8.0), "n": mnp.arange(8)})
    assert result["n"].dtype == float0
    assert result["w"].sharding == rows


def test_a_scan_that_stacks_them() -> None:
    def body(c: mj.Array, x: tuple[mj.Array, np.ndarray]) -> tuple[mj.Array, np.ndarray]:
        return c + x[0], x[1]

    c, ys = mj.jit(lambda xs: lax.scan(body, 0.0, xs))((mnp.arange(3.0), np.zeros((3, 2), float0)))
    assert (float(c), ys.shape, ys.dtype) == (3, (3, 2), float0)


def test_structures() -> None:
    value = {"a": np.zeros((2, 3), float0), "b": 1.0}
    structure = tree.structure(without_float0(value))
    assert structure.num_leaves == 1
    assert tree.unflatten(with_float0_shapes(structure, lambda shape: shape[1:]), [2.0])["a"].shape == (3,)
    assert without_float0([1.0, None]) == [1.0, None]
