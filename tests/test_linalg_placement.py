"""Matrices on meshes: no communication over dims before the matrices and over right-hand sides; whole matrices otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.inspect.collectives import collective_rows
from meshjit.scipy import linalg as scipy_linalg
from meshjit.sharding import NamedSharding, PartitionSpec as P
from meshjit.transform.pipeline import simplify
from sharding.mesh import AbstractMesh
from tests.tools.laws import MESHES, check_law, normals, random_spec
from tests.tools.wire import traced

X = AbstractMesh((4,), ("x",))
BATCH = P("x", None, None)
linalg = mnp.linalg


def positive(a: Any) -> Any:
    return a @ mnp.swapaxes(a, -1, -2) + 6 * mnp.eye(a.shape[-1])


def log_det(a: Any) -> Any:
    return mnp.sum(linalg.slogdet(a + 9 * mnp.eye(a.shape[-1]))[1])


FREE: dict[str, tuple[Callable[..., Any], tuple[str, ...], tuple[P, ...]]] = {
    "cholesky": (lambda a: linalg.cholesky(positive(a)), ("f32[8,3,3]",), (BATCH,)),
    "cholesky, uneven": (lambda a: linalg.cholesky(positive(a)), ("f32[7,3,3]",), (BATCH,)),
    "its gradient": (mj.grad(lambda a: mnp.sum(linalg.cholesky(positive(a)))), ("f32[8,3,3]",), (BATCH,)),
    "solve": (lambda a, b: linalg.solve(positive(a), b), ("f32[8,3,3]", "f32[8,3,2]"), (BATCH, BATCH)),
    "solve's gradient": (
        mj.grad(lambda a, b: mnp.sum(linalg.solve(positive(a), b)), argnums=(0, 1)),
        ("f32[8,3,3]", "f32[8,3,2]"), (BATCH, BATCH)),
    "inv, uneven": (lambda a: linalg.inv(positive(a)), ("f32[5,3,3]",), (BATCH,)),
    "slogdet's gradient": (mj.grad(log_det), ("f32[8,4,4]",), (BATCH,)),
    "qr": (linalg.qr, ("f32[8,4,3]",), (BATCH,)),
    "eigh": (lambda a: linalg.eigh(positive(a)).eigenvalues, ("f32[6,3,3]",), (BATCH,)),
    "two batch dims": (lambda a: linalg.det(positive(a)), ("f32[2,4,4,4]",), (P(None, "x"),)),
    "columns": (
        lambda a, b: lax.linalg.triangular_solve(positive(a), b, left_side=True), ("f32[3,3]", "f32[3,8]"), (P(), P(None, "x"))),
    "rows": (lambda a, b: lax.linalg.triangular_solve(positive(a), b), ("f32[3,3]", "f32[8,3]"), (P(), P("x"))),
    "columns of a general system": (
        lambda a, b: linalg.solve(positive(a), b), ("f32[3,3]", "f32[3,6]"), (P(), P(None, "x"))),
    "a batch of right-hand sides": (
        lambda a, b: linalg.solve(positive(a), b), ("f32[3,3]", "f32[8,3,2]"), (P(), P("x"))),
    "vmap": (mj.vmap(lambda a, b: linalg.solve(positive(a), b)), ("f32[8,3,3]", "f32[8,3]"), (BATCH, P("x"))),
    "vmap of right-hand sides": (
        mj.vmap(lambda a, b: scipy_linalg.solve_triangular(positive(a), b), in_axes=(None, 0)),
        ("f32[3,3]", "f32[8,3]"), (P(), P("x"))),
}  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_nothing_moves(name: str) -> None:
    fun, types, specs = FREE[name]
    program = traced(fun, types)
    arrays = [normals(np.random.default_rng(0), t) for t in program.input_types]
    plan, local = check_law(program, X, specs, [None] * len(program.outputs), arrays, exact=False)
    assert not collective_rows(simplify(local), plan.mesh)
    assert all(any(p.dims) for p in plan.outputs)


def test_a_sharded_matrix_is_gathered_once() -> None:
    """Every element of the factor depends on a whole triangle."""
    program = traced(lambda a: lax.linalg.cholesky(a, symmetrize_input=False), ["f32[8,8]"])
    a = np.tri(8, dtype=np.float32) + 8 * np.eye(8, dtype=np.float32)
    plan, local = check_law(program, X, [P("x")], [P()], [a], exact=False)
    assert [(row.kind, row.count) for row in collective_rows(simplify(local), plan.mesh)] == [("all_gather", 1)]


def test_rows_of_a_batch_are_exchanged_for_members() -> None:
    """[members, rows@x, columns]: each device gets whole matrices of its own."""
    program = traced(lambda a: lax.linalg.cholesky(a, symmetrize_input=False), ["f32[64,32,32]"])
    a = np.broadcast_to(np.tri(32, dtype=np.float32) + 32 * np.eye(32, dtype=np.float32), (64, 32, 32))
    plan, local = check_law(program, X, [P(None, "x")], [None], [a], exact=False)
    assert [(row.kind, row.count) for row in collective_rows(simplify(local), plan.mesh)] == [("all_to_all", 1)]
    assert str(plan.outputs[0]) == "[x, -, -]"


ANYWHERE: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
    (mj.grad(lambda a: mnp.sum(linalg.cholesky(positive(a)))), ("f32[5,3,3]",)),
    (mj.grad(lambda a, b: mnp.sum(linalg.solve(positive(a), b) ** 2), argnums=(0, 1)), ("f32[3,3]", "f32[5,3,2]")),
    (lambda a: linalg.qr(a), ("c64[3,5,3]",)),
    (lambda a: linalg.svdvals(a), ("f32[3,5,3]",)),
    (lambda a: linalg.pinv(a), ("f32[3,3,5]",)),
    (lambda a: linalg.eigvalsh(a + mnp.swapaxes(a, 1, 2)), ("f32[5,4,4]",)),
    (lambda a: linalg.det(positive(a)), ("f32[2,3,4,4]",)),
    (lambda a, b: scipy_linalg.cho_solve(scipy_linalg.cho_factor(positive(a)), b), ("f32[4,4]", "f32[4,9]")),
    (lambda a: lax.linalg.lu(a), ("f32[3,4,5]",)),
    (lambda a: linalg.norm(a, 2, axis=(0, 2)), ("f32[5,3,4]",)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ANYWHERE)))
def test_any_placement(number: int) -> None:
    fun, types = ANYWHERE[number]
    generator = np.random.default_rng(number)
    program = traced(fun, types)
    for _ in range(4):
        mesh = MESHES[int(generator.integers(len(MESHES)))]
        given, wanted = ([random_spec(generator, v.rank, mesh) for v in side] for side in (program.inputs, program.outputs))
        check_law(program, mesh, given, wanted, [normals(generator, t) for t in program.input_types], exact=False)


@pytest.mark.device
def test_devices_agree_with_numpy() -> None:
    mesh = mj.make_mesh((8,), ("x",))
    a = np.random.default_rng(0).normal(size=(11, 5, 5)).astype(np.float32)
    a = a @ np.swapaxes(a, 1, 2) + 5 * np.eye(5, dtype=np.float32)
    b = a[..., :2] + 1
    fun = mj.jit(
        lambda a, b: (linalg.cholesky(a), linalg.solve(a, b), linalg.eigh(a).eigenvalues, linalg.slogdet(a).logabsdet),
        in_shardings=NamedSharding(mesh, P("x")),
    )
    wanted = (np.linalg.cholesky(a), np.linalg.solve(a, b), np.linalg.eigvalsh(a), np.linalg.slogdet(a).logabsdet)
    for got, want in zip(fun(a, b), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-4, atol=2e-5)


@pytest.mark.device
def test_transforms_on_devices_agree_with_numpy() -> None:
    mesh = mj.make_mesh((8,), ("x",))
    generator = np.random.default_rng(0)
    u = (generator.normal(size=(24, 20)) + 1j * generator.normal(size=(24, 20))).astype(np.complex64)
    rows = NamedSharding(mesh, P("x"))
    fun = mj.jit(lambda u: mnp.fft.ifft2(mnp.fft.fft2(u) * 2), in_shardings=rows, out_shardings=rows)
    result = fun(mj.device_put(u, rows))
    assert result.dtype == np.complex64 and result.sharding == rows
    np.testing.assert_allclose(np.asarray(result), 2 * u, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.asarray(mj.jit(mnp.fft.rfftn)(u.real)), np.fft.rfftn(u.real), rtol=1e-4, atol=1e-4)
