"""Matrix ops on CPU call LAPACK: the same values as NumPy's for all dtypes and shapes; elsewhere the text is XLA's alone."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, scipy
from meshjit.core.op import REGISTRY
from meshjit.core.types import TensorType
from meshjit.emit.module import emit
from meshjit.runtime.targets import target_for
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P
from sharding import AbstractMesh
from tests.tools.op_harness import (
    NEEDS_LAPACK,
    assert_close,
    build,
    called,
    describe,
    evaluated,
    module,
    out_types,
    run_xla,
    samples,
)

NAMES = """cholesky triangular_solve lu lu_solve qr geqrf eigh svd pinv eig qr_pivoted hessenberg householder_product ormqr schur
tridiagonal tridiagonal_solve"""
OPS = [REGISTRY[name] for name in NAMES.split()]
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


@pytest.mark.device
@pytest.mark.parametrize("op", OPS, ids=str)
def test_lapack_agrees_with_numpy(op: Any) -> None:
    """The samples of test_ops_meaning, where devices have no kernels, once more."""
    generator = np.random.default_rng(1)
    arrays = [(sample, sample.arrays(generator)) for sample in samples(op)]
    calls = [(op, sample.types, out_types(op, sample), sample.params) for sample, _ in arrays]
    outputs = tuple(t for _, _, outs, _ in calls for t in outs)
    text = module(calls, lapack=True)
    assert 'call_target_name = "lapack_' in text
    got = iter(run_xla(text, [[a] for _, each in arrays for a in each], outputs))
    for sample, each in arrays:
        for want in evaluated(op, each, sample.params):
            assert_close(next(got)[0], want, describe(op, sample))


def mesh_of(count: int) -> Mesh:
    return Mesh(np.array(mj.devices()[:count]), ("x",))


def random(dtype: Any, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    parts = np.random.default_rng(seed).normal(size=(2, *shape))
    return (parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]).astype(dtype)


@pytest.mark.device
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sharded_batch_needs_no_communication(dtype: Any) -> None:
    """Five matrices on four devices: also where the batch does not fit the devices."""
    mesh = mesh_of(4)
    a = random(dtype, (5, 3, 3))

    def f(a: Any) -> Any:
        positive = a @ mnp.conj(mnp.swapaxes(a, -1, -2)) + mnp.eye(3, dtype=a.dtype)
        values, vectors = mnp.linalg.eigh(positive)
        rebuilt = (vectors * values[:, None, :].astype(a.dtype)) @ mnp.conj(mnp.swapaxes(vectors, -1, -2))
        u, s, vh = mnp.linalg.svd(a)
        q, r = mnp.linalg.qr(a)
        factor = mnp.linalg.cholesky(positive)
        solved = mnp.linalg.solve(a, a @ positive)
        return rebuilt, (u * s[:, None, :].astype(a.dtype)) @ vh, q @ r, factor @ mnp.conj(mnp.swapaxes(factor, -1, -2)), solved

    with mj.config.using(enable_x64=True):
        compiled = mj.jit(f).lower(mj.device_put(a, NamedSharding(mesh, P("x")))).compile()
        results = [np.asarray(x) for x in compiled(mj.device_put(a, NamedSharding(mesh, P("x"))))]
    text = compiled.as_text()
    assert "lapack_" in text
    assert not [word for word in ("all-gather", "all-reduce", "all-to-all", "collective-permute") if word in text]
    positive = a @ a.conj().swapaxes(-1, -2) + np.eye(3, dtype=dtype)
    tolerance = 2e-3 if np.finfo(dtype).bits == 32 else 1e-10
    for got, want in zip(results, (positive, a, a, positive, positive), strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.device
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["eigh", "svd", "pinv"])
def test_one_bad_matrix_leaves_the_others_alone_and_ends(name: str, bad: float) -> None:
    """gesdd never returns from a matrix of 5 by 5 that holds an inf."""
    a = random(np.float32, (3, 5, 5))
    a = a @ a.swapaxes(-1, -2) + np.eye(5, dtype=np.float32)
    a[1, 0, 0] = bad
    results = getattr(mnp.linalg, name)(a)
    for result in results if isinstance(results, tuple) else (results,):
        assert np.isnan(np.asarray(result)[1]).all() and np.isfinite(np.asarray(result)[[0, 2]]).all()


@pytest.mark.device
def test_eigh_of_one_triangle_reads_no_other() -> None:
    a = random(np.float32, (4, 4))
    a = a + a.T
    for uplo, keep in (("L", np.tril), ("U", np.triu)):
        values, _ = mnp.linalg.eigh(np.where(keep(np.ones((4, 4))) > 0, a, np.nan).astype(np.float32), UPLO=uplo)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(a), rtol=1e-4, atol=1e-5)


@pytest.mark.device
def test_what_has_no_factor_is_nan() -> None:
    a = np.stack([np.eye(3), -np.eye(3)]).astype(np.float32)
    factor = np.asarray(mnp.linalg.cholesky(a))
    np.testing.assert_array_equal(factor[0], np.eye(3, dtype=np.float32))
    assert np.isnan(factor[1, 0, 0]) and not np.triu(np.nan_to_num(factor[1], nan=0.0), 1).any()


def test_the_order_of_many_exchanges() -> None:
    """More than are undone at a time, in a loop; held against LAPACK's own meaning."""
    from meshjit.ops.linalg.lu import order_of
    from meshjit.simulate.evaluate import evaluate

    generator = np.random.default_rng(0)
    for rows, steps in ((1, 1), (40, 7), (70, 32), (70, 70), (100, 96)):
        pivots = np.stack([[generator.integers(k, rows) for k in range(steps)] for _ in range(3)]).astype(np.int32)
        program = build([TensorType(pivots.shape, pivots.dtype)], lambda x, rows=rows: [order_of(x[0], rows)])
        want = np.tile(np.arange(rows, dtype=np.int32), (3, 1))
        for line, exchanges in zip(want, pivots, strict=True):
            for k, other in enumerate(exchanges):
                line[[k, other]] = line[[other, k]]
        np.testing.assert_array_equal(evaluate(program, [pivots])[0], want)


# -- eig


@pytest.mark.device
@pytest.mark.parametrize("dtype", DTYPES)
def test_eig_on_a_sharded_batch(dtype: Any) -> None:
    a = random(dtype, (5, 4, 4))
    with mj.config.using(enable_x64=True):
        placed = mj.device_put(a, NamedSharding(mesh_of(4), P("x")))
        compiled = mj.jit(lambda a: (*mnp.linalg.eig(a), mnp.linalg.eigvals(a), *mj.lax.linalg.eig(a))).lower(placed).compile()
        values, vectors, alone, again, left, right = (np.asarray(x) for x in compiled(placed))
    assert "all-" not in compiled.as_text()
    tolerance = 2e-4 if np.finfo(dtype).bits == 32 else 1e-10
    assert values.dtype == vectors.dtype == np.result_type(dtype, np.complex64)
    np.testing.assert_allclose(a @ vectors, vectors * values[:, None], rtol=tolerance, atol=tolerance)
    conjugate = left.conj().swapaxes(-1, -2)
    np.testing.assert_allclose(conjugate @ a, conjugate * values[..., None], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(np.sort_complex(alone), np.sort_complex(np.linalg.eigvals(a)), rtol=10 * tolerance)
    np.testing.assert_array_equal(again, values)
    for found in (vectors, left, right):
        np.testing.assert_allclose(np.linalg.norm(found, axis=-2), 1, rtol=tolerance)
        top = np.take_along_axis(found, np.argmax(np.abs(found), -2)[:, None], -2)
        np.testing.assert_allclose(top, np.abs(top), atol=tolerance)


@pytest.mark.device
def test_eig_of_what_is_empty_or_bad() -> None:
    for shape in ((0, 0), (2, 0, 0), (0, 3, 3)):
        values, vectors = mnp.linalg.eig(np.zeros(shape, np.float32))
        assert (values.shape, vectors.shape, values.dtype) == (shape[:-1], shape, np.complex64)
    a = random(np.float32, (3, 5, 5))
    a[1, 2, 3] = np.inf
    for result in mnp.linalg.eig(a):
        assert np.isnan(np.asarray(result)[1]).all() and np.isfinite(np.asarray(result)[[0, 2]]).all()
    with pytest.raises(TypeError, match="eig takes float32, float64 or complex arrays, got float16"):
        mnp.linalg.eig(np.eye(2, dtype=np.float16))


@pytest.mark.device
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 4, 4), (5, 6, 3), (5, 3, 6)])
def test_pivoted_qr(dtype: Any, shape: tuple[int, ...]) -> None:
    a = random(dtype, shape)
    with mj.config.using(enable_x64=True):
        q, r, order = (np.asarray(x) for x in mj.lax.linalg.qr(a, pivoting=True, full_matrices=False))
        full = scipy.linalg.qr(a, pivoting=True)
    tolerance = 2e-5 if np.finfo(dtype).bits == 32 else 1e-12
    np.testing.assert_allclose(q @ r, np.take_along_axis(a, order[:, None, :], -1), rtol=tolerance, atol=tolerance)
    sizes = np.abs(np.diagonal(r, 0, -2, -1))
    assert order.dtype == np.int32 and (np.sort(order) == np.arange(shape[-1])).all() and (np.diff(sizes) <= tolerance).all()
    assert [x.shape for x in full] == [(5, shape[1], shape[1]), shape, (5, shape[2])]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("kind", [1, 2, 3])
def test_generalised_eigenvalues(kind: int, dtype: Any, lower: bool) -> None:
    """Only one triangle of both is read."""
    a, b = random(dtype, (4, 4)), random(dtype, (4, 4), 1)
    a, b = a + a.conj().T, b @ b.conj().T + np.eye(4)
    keep = np.tril if lower else np.triu
    with mj.config.using(enable_x64=True):
        values, v = (np.asarray(x) for x in scipy.linalg.eigh(keep(a), keep(b), lower=lower, type=kind))
    left, right = {1: (a @ v, b @ v), 2: (a @ b @ v, v), 3: (b @ a @ v, v)}[kind]
    np.testing.assert_allclose(left, right * values, atol=1e-10)
    metric = np.linalg.inv(b) if kind == 3 else b
    np.testing.assert_allclose(v.conj().T @ metric @ v, np.eye(4), atol=1e-10)
    assert (np.diff(values) > 0).all()


def test_the_derivative_of_eigenvalues() -> None:
    """Of a sum of all of them: the identity; of the trace of A³, which is the sum of their cubes: 3 (A²)ᵀ."""
    a = random(np.float32, (4, 4))
    found = mj.grad(lambda a: mnp.real(mnp.sum(mnp.linalg.eigvals(a) ** 3)))(a)
    np.testing.assert_allclose(found, 3 * (a @ a).T, rtol=1e-3, atol=1e-3)


# -- which platforms


def one_device(platform: str) -> Mesh:
    return Mesh([types.SimpleNamespace(id=0, process_index=0, platform=platform)], ("x",))


@pytest.mark.parametrize("op", [op for op in OPS if op.name not in NEEDS_LAPACK], ids=str)
def test_only_text_for_cpu_alone_calls_lapack(op: Any) -> None:
    sample = next(s for s in samples(op) if all(n for t in s.types for n in t.shape))
    program = build(sample.types, lambda inputs: called(op, inputs, sample.params))
    abstract = AbstractMesh((1,), ("x",))

    def text(mesh: Any, platforms: Any = ()) -> str:
        return emit(program, mesh, target=target_for(mesh, platforms))

    assert "lapack_" in text(one_device("cpu"))
    assert "lapack_" in text(abstract, ("cpu",))
    for mesh, platforms in (
        (abstract, ()), (one_device("tpu"), ()), (one_device("cuda"), ()),
        (one_device("cpu"), ("tpu",)), (one_device("cpu"), ("cpu", "tpu")),
    ):  # fmt: skip
        assert "lapack_" not in text(mesh, platforms)


def test_text_that_calls_lapack_is_refused_for_other_devices() -> None:
    found = mj.jit(mnp.linalg.inv).lower(np.eye(3, dtype=np.float32))
    with pytest.raises(ValueError, match=r"was lowered for CPU, whose LAPACK it calls; its devices are of platform tpu"):
        found._check_platform(one_device("tpu"))


def test_what_lapack_alone_has_says_so() -> None:
    abstract = AbstractMesh((1,), ("x",))

    def f(a: Any) -> Any:
        return mnp.linalg.eigvals(a)

    argument = mj.ShapeDtypeStruct((3, 3), np.float32, sharding=NamedSharding(abstract, P()))
    line = f.__code__.co_firstlineno + 1
    with pytest.raises(NotImplementedError, match=rf"eig: only CPU and CUDA devices have it\n  at .*test_ops_lapack.py:{line}\n  fix: "):
        mj.jit(f).lower(argument)
    with pytest.raises(NotImplementedError, match="eig: CUDA's libraries have it, but text for several platforms, or without"):
        mj.jit(f).trace(argument).lower(lowering_platforms=("cuda", "cpu"))
    with pytest.raises(NotImplementedError, match="schur: only CPU devices have it\n"):
        mj.jit(lambda a: lax.linalg.schur(a)).trace(argument).lower(lowering_platforms=("cuda",))
    assert "lapack_sgeev" in mj.jit(f).trace(argument).lower(lowering_platforms=("cpu",)).as_text()


SCRIPT = """
import sys
import numpy as np
{before}
import meshjit as mj, meshjit.numpy as mnp
assert "scipy" not in sys.modules or {loaded}
a = np.array([[2., 1.], [1., 3.]], np.float32)
lowered = mj.jit(lambda a: (mnp.linalg.inv(a), *mnp.linalg.eigh(a), mnp.linalg.svd(a)[1])).lower(a)
print("lapack_" in lowered.as_text(), *(np.round(np.asarray(x), 3).tolist() for x in lowered.compile()(a)))
"""


def run_script(before: str = "", loaded: bool = False, **environ: str) -> str:
    text = SCRIPT.format(before=before, loaded=loaded)
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.device
def test_without_scipy_there_are_the_expansions() -> None:
    usual = run_script()
    assert usual.startswith("True ")
    assert run_script(before="sys.modules['scipy'] = None", loaded=True) == usual.replace("True ", "False ", 1)


@pytest.mark.device
def test_programs_that_call_lapack_are_kept_on_disk(tmp_path: Any) -> None:
    environ = {"MESHJIT_COMPILATION_CACHE_DIR": str(tmp_path), "MESHJIT_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    first = run_script(**environ)
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert kept and run_script(**environ) == first
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == kept
