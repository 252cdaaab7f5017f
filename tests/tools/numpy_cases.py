"""Calls of the numpy and lax surfaces as text, for the comparison with JAX: with jax installed

    python -m tests.tools.numpy_cases > tests/goldens/numpy_surface.txt

writes what it gives; tests/test_numpy_surface.py holds ours against it. In a call `np` and `lax` are the modules and
single letters the arrays of `operands`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy

_F = [[-1.5, 0.0, 2.0], [0.5, 3.0, -2.25]]


def operands(wrap: Callable[[Any], Any]) -> dict[str, Any]:
    """The arrays that the calls name, each wrapped."""
    arrays = {
        "f": numpy.array(_F, numpy.float32),
        "h": numpy.array(_F, ml_dtypes.bfloat16),
        "i": numpy.array([[-3, 0, 2], [1, 7, -2]], numpy.int32),
        "j": numpy.array([[2, 3, -2], [1, 4, 3]], numpy.int32),
        "u": numpy.array([[0, 1, 2], [250, 7, 3]], numpy.uint8),
        "b": numpy.array([[True, False, True], [False, False, True]]),
        "c": numpy.array([[1 + 2j, -1j, 0], [3, -2 + 0.5j, 1j]], numpy.complex64),
        "g": numpy.array([[0.1, 0.5, 0.9], [0.3, 0.25, 0.7]], numpy.float32),
        "n": numpy.array([[numpy.nan, 1, -numpy.inf], [numpy.inf, -0.0, 2]], numpy.float32),
        "e": numpy.zeros((0, 3), numpy.float32),
        "v": numpy.array([3, 1, 2, 1], numpy.float32),
        "w": numpy.array([2, 0, 3, 0], numpy.int32),
        "q": numpy.array([[2, -1, 0], [1, 3, 5], [4, 0, -2]], numpy.float32),
        "t": numpy.arange(8, dtype=numpy.int32).reshape(2, 2, 2),
        "s": numpy.array(2.5, numpy.float32),
    }
    return {name: wrap(array) for name, array in arrays.items()}


_UNARY = """negative absolute sign square positive floor ceil rint trunc round isnan isinf isfinite logical_not real imag
conjugate reciprocal signbit angle nan_to_num iscomplex isreal fabs exp2 log2 log10""".split()
_FLOAT = "exp expm1 sin cos tan sinh cosh tanh arctan arcsinh cbrt deg2rad rad2deg sinc".split()
_UNIT = "log log1p sqrt arcsin arccos arccosh arctanh".split()
_BINARY = """add subtract multiply true_divide floor_divide remainder maximum minimum equal less greater_equal not_equal
logical_and logical_xor power fmod""".split()
_BITS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
_TWO_FLOATS = "arctan2 logaddexp logaddexp2 hypot copysign heaviside float_power fmax fmin nextafter".split()
_REDUCTIONS = "sum prod max min mean var std all any ptp argmax argmin cumsum cumprod count_nonzero median".split()


def _split(text: str) -> list[str]:
    """Calls separated by `;`."""
    return [call.strip() for call in text.split(";")]


def calls() -> Iterator[str]:
    """Every call, in the order of the goldens."""
    yield from (f"np.{name}({x})" for name in _UNARY for x in "fhiubn")
    yield from (f"np.{name}(c)" for name in "negative absolute square real imag conjugate reciprocal isnan exp sqrt angle round".split())
    yield from (f"np.{name}({x})" for name in _FLOAT for x in "fhiun")
    yield from (f"np.{name}({x})" for name in _UNIT for x in ("g", "n", "i", "u", "g.astype(np.bfloat16)"))
    yield from (f"np.bitwise_{name}({x})" for name in ("not", "count") for x in "iub" if x != "b" or name == "not")
    for name in _BINARY:
        pairs = ["f,f[::-1]", "f,s", "i,j", "u,u[::-1]", "b,b[::-1]", "f,i", "h,i", "h,f", "u,i", "b,i", "f,2", "i,2", "u,2",
                 "i,2.5", "h,2.5", "2,f", "3,i", "b,1", "b,True", "2.5,u", "n,f", "f,v[:3]", "c,f", "c,c", "f,1j"]  # fmt: skip
        for pair in pairs:
            if name in ("remainder", "fmod", "floor_divide", "less", "greater_equal") and ("c" in pair or "1j" in pair):
                continue
            yield f"np.{name}({pair})"
    yield from (f"np.{name}({pair})" for name in _BITS for pair in ("i,j[0]", "u,u", "i,3", "u,2", "b,b[::-1]", "i,b", "u,i"))
    yield from (f"np.{name}({pair})" for name in _TWO_FLOATS for pair in ("f,g", "f,2", "i,j", "h,h[::-1]", "n,f", "f,n", "f,0.0"))
    yield from _operators()
    for name, x, how in itertools.product(_REDUCTIONS, "fhiubn", ("", ", axis=0", ", axis=-1, keepdims=True", ", axis=(0, 1)")):
        if name.startswith("cum") and how not in ("", ", axis=0"):
            continue
        if name.startswith("arg") and "(0" in how:
            continue
        yield f"np.{name}({x}{how})"
    yield from _reduction_options()
    yield from _shapes()
    yield from _makers()
    yield from _orders()
    yield from _lax()
    yield from _corners()
    yield from _sets()
    yield from _signals()


def _operators() -> Iterator[str]:
    for x in "fhiub":
        yield from (f"{x} ** 2", f"2 ** {x}", f"{x} / 2", f"1 - {x}", f"{x} // 2", f"{x} % 3", f"{x} * 2.0", f"{x} + True", f"{x} == 1")
        yield from (f"abs({x})", f"({x} > 0) & ({x} < 3)", f"{x} @ {x}.T", f"7 // np.where({x} == 0, 1, {x})", f"divmod({x}, 2)")
    yield from _split("""
        f ** -1; f ** 0.5; i << 2; i >> 1; 2 << j[1]; ~i; ~b; i & 1; i | u; i ^ i[0]; b & True; -u; +f
    """)
    yield from _split("""
        round(f); round(f, 1); np.round(i, -1); np.round(f, 2); b + b; b * b; b * 2; b ** 2; c ** 2; c * 2; c / f
    """)
    yield from _split("""
        np.power(i, 3); np.power(2, j * j); np.power(u, u[::-1]); np.power(f, 3); np.power(f, np.asarray(2));
        i * 100000 * 100000
    """)
    yield from _split("""
        np.asarray(1) + 1; np.asarray(1.0) * f; np.asarray(2) / 3; np.asarray(1.0) + h; np.float32(1) + h;
        np.asarray(3) * u
    """)


def _reduction_options() -> Iterator[str]:
    for x in "fiub":
        yield from (f"np.sum({x}, dtype=np.float32)", f"np.sum({x}, axis=(), keepdims=True)", f"np.mean({x}, axis=1, dtype=np.bfloat16)")
    yield from _split("""
        np.sum(e); np.sum(e, axis=0); np.sum(e, 1); np.prod(e); np.all(e); np.any(e); np.max(e, axis=1); np.cumsum(e)
    """)
    yield from _split("""
        np.sum(f, initial=5); np.max(f, initial=9.0); np.min(f, axis=0, initial=-1.0); np.prod(f, axis=1, initial=2.0)
    """)
    yield from _split("""
        np.sum(f, where=b); np.mean(f, where=b, axis=1); np.max(f, where=b, initial=-9.0); np.any(b, where=b);
        np.prod(f, where=b)
    """)
    yield from _split("""
        np.var(f, ddof=1); np.std(f, axis=0, ddof=1); np.var(c); np.mean(c); np.sum(c, axis=0); np.prod(c);
        np.cumprod(c)
    """)
    yield from _split("""
        np.var(f, where=b); np.average(f, axis=0, weights=g); np.average(f, axis=1, weights=v[:3]); np.average(i)
    """)
    yield from (f"np.{name}(n{how})" for name in "nansum nanmax nanmin nanmean nanprod nanstd nanvar nanargmax nancumsum".split()
                for how in ("", ", axis=1"))  # fmt: skip
    yield from _split("""
        np.argmax(n, axis=1); np.argmin(n); np.argmax(f, axis=0, keepdims=True); np.argmax(s); np.sum(s);
        np.max(s, keepdims=True)
    """)
    yield from _split("""
        np.diff(f); np.diff(f, axis=0); np.diff(v, n=2); np.diff(b); np.diff(v, n=9); np.ediff1d(v); np.trapezoid(f)
    """)
    yield from _split("""
        np.allclose(f, f); np.array_equal(f, i); np.array_equal(f, v); np.isclose(f, f + 1e-9); np.gradient(v);
        np.cov(f)
    """)
    yield from _split("""
        np.clip(f, -1, 1); np.clip(i, 0, 3.5); np.clip(f, max=1); np.clip(u, 1, 5); np.clip(f, f[0], 2);
        np.clip(i, -1, None)
    """)
    yield from _split("""
        np.cross(q, q[::-1]); np.interp(g, v[1:3], v[:2]); np.polyval(v, f); np.trace(q); np.trace(i, 1); np.trace(b)
    """)


def _shapes() -> Iterator[str]:
    yield from (f"np.reshape({x}, {shape})" for x in "fb" for shape in ("6", "(3, 2)", "(-1, 2)", "(1, 6, 1)", "-1"))
    yield from _split("""
        f.reshape(3, 2); f.reshape(3, -1); f.T; t.transpose(1, 2, 0); t.transpose((2, 0, 1)); f.mT;
        np.transpose(t, (-1, 0, 1))
    """)
    yield from _split("""
        np.swapaxes(t, 0, -1); np.moveaxis(t, 0, -1); np.moveaxis(t, (0, 1), (-1, 0)); np.rollaxis(t, 2);
        np.rollaxis(t, 0, 3)
    """)
    yield from _split("""
        np.expand_dims(f, 0); np.expand_dims(f, (0, -1)); np.squeeze(f[None, :, None]); np.squeeze(f[None], 0);
        np.ravel(t)
    """)
    yield from _split("""
        np.concatenate([f, i]); np.concatenate([f, h], axis=1); np.concatenate([f, g], axis=None);
        np.concatenate([b, u], -1)
    """)
    yield from _split("""
        np.stack([f, i]); np.stack([v, w], -1); np.stack([s, 1]); np.hstack([v, w]); np.hstack([f, i]);
        np.vstack([v, w])
    """)
    yield from _split("""
        np.column_stack([v, w]); np.dstack([v, w]); np.append(v, w); np.append(f, g, axis=0); np.block([[f, g], [g, f]])
    """)
    yield from _split("""
        np.split(w, 2); np.split(f, [1], axis=1); np.split(w, [1, 9]); np.split(w, [3, 1]); np.array_split(v, 3);
        np.array_split(f, 2, -1)
    """)
    yield from _split("""
        np.hsplit(w, 2); np.vsplit(f, 2); np.repeat(v, 2); np.repeat(f, 2, axis=1); np.repeat(f, 0, axis=0);
        np.repeat(s, 3)
    """)
    yield from _split("""
        np.tile(v, 2); np.tile(f, (2, 1, 2)); np.tile(s, (2,)); np.tile(f, ()); np.flip(f); np.flip(f, -1);
        np.flipud(f); np.fliplr(f)
    """)
    yield from _split("""
        np.roll(v, 1); np.roll(f, 1); np.roll(f, (1, -1), (0, 1)); np.roll(f, 5, axis=1); np.roll(f, (1, 2), axis=1);
        np.rot90(f); np.rot90(t, 2)
    """)
    yield from (f"np.pad({x}, {how})" for x in ("v", "w", "b[0]") for how in ("1", "(2, 0)", "(0, 3), constant_values=1"))
    yield from (f"np.pad(v, (3, 5), mode='{mode}')" for mode in ("edge", "reflect", "symmetric", "wrap"))
    yield from (f"np.pad(f, ((0, 2), (1, 1)), mode='{mode}')" for mode in ("constant", "edge", "symmetric", "wrap"))
    yield from _split("""
        np.pad(f, ((1, 0), (0, 2)), constant_values=((1, 2), (3, 4))); np.pad(v[:1], 2, mode='edge');
        np.pad(f, ((1,), (2,)))
    """)
    yield from _split("""
        np.diagonal(q); np.diagonal(f, 1); np.diagonal(q, -1); np.diagonal(t, 0, 1, 2); np.diagonal(b);
        np.diagonal(f, 9); np.diagonal(c)
    """)
    yield from _split("""
        np.diag(v); np.diag(w, 1); np.diag(w, -2); np.diag(q, 1); np.diag(b[0]); np.diagflat(f[:, :1]); np.tril(q);
        np.triu(q, 1); np.tril(b[:, :2], -1)
    """)
    yield from _split("""
        np.broadcast_to(v, (2, 4)); np.broadcast_arrays(f, v[:3], s); np.atleast_1d(s); np.atleast_2d(v);
        np.atleast_3d(v); np.atleast_1d(s, v)
    """)
    yield from _split("""
        np.where(b, f, i); np.where(b, 1, 0); np.where(f > 0, f, 0); np.where(i, 1.5, u); np.where(b, h, 2.0);
        np.select([b, f > 0], [f, g], 7)
    """)
    yield from _split("""
        np.delete(v, 1); np.insert(v, 1, 9.0); np.resize(v, (2, 3)); np.unstack(f); np.trim_zeros(v);
        np.compress(b[0], f, axis=1)
    """)


def _makers() -> Iterator[str]:
    yield from _split("""
        np.arange(5); np.arange(2, 9, 3); np.arange(9, 2, -3); np.arange(1.5); np.arange(0, 1, 0.25);
        np.arange(3, dtype=np.float32)
    """)
    yield from _split("""
        np.arange(5, 2); np.arange(0, -1, -0.5); np.arange(3.0, dtype=np.int32); np.arange(4, dtype=np.uint8);
        np.arange(2, 6, dtype=np.bfloat16)
    """)
    yield from _split("""
        np.linspace(0, 1, 5); np.linspace(0, 10, 4, endpoint=False); np.linspace(0, 7, 5, dtype=np.int32);
        np.linspace(v[:2], 5, 3)
    """)
    yield from _split("""
        np.linspace(0, 1, 1); np.linspace(0, 1, 0); np.linspace(v[:2], 5, 3, axis=1);
        np.linspace(0, 4, 5, retstep=True); np.linspace(1, -3, 4)
    """)
    yield from _split("""
        np.logspace(0, 2, 3); np.geomspace(1, 8, 4); np.eye(3); np.eye(2, 4, 1, dtype=np.int32); np.eye(3, k=-1);
        np.identity(2); np.tri(3, 4, 1)
    """)
    yield from _split("""
        np.zeros(3); np.zeros((2, 0)); np.ones((1, 2), np.int8); np.full((2,), 3); np.full(2, 1.5);
        np.full((2, 2), v[:2]); np.full((), 1j)
    """)
    yield from _split("""
        np.full(3, 2, np.float32); np.full(2, True); np.zeros_like(i); np.ones_like(f, dtype=bool);
        np.full_like(i, 2.7); np.full_like(f, 1, shape=(2,))
    """)
    yield from _split("""
        np.array([1, 2]); np.array([1.0, 2]); np.array([[True], [False]]); np.array([1, 2j]); np.array(3);
        np.array(2.5); np.array([]); np.array([s, 1.0])
    """)
    yield from _split("""
        np.array([v, w]); np.array(f, dtype=np.int32); np.asarray([1, 2], dtype=np.uint8); np.array(1, ndmin=2);
        np.array(True); np.asarray(1j); np.array([[s, s]])
    """)
    yield from _split("""
        np.meshgrid(v, w[:2]); np.meshgrid(v[:2], w[:3], indexing='ij'); np.meshgrid(v[:2], v[:1], v[:3], sparse=True);
        np.indices((2, 3)); np.vander(v[:3])
    """)
    yield from (f"{x}.astype(np.{d})" for x in "fiubn" for d in ("int32", "uint8", "bool_", "bfloat16", "float16", "complex64") if x != "n" or d[0] != "b")


def _orders() -> Iterator[str]:
    for x in ("f", "i", "u", "b", "n", "h"):
        yield from (f"np.sort({x})", f"np.sort({x}, axis=0)", f"np.sort({x}, axis=None)", f"np.argsort({x}, axis=0)", f"np.sort({x}, descending=True)")
    yield from _split("""
        np.argsort(w); np.argsort(-w, stable=True); np.argsort(w, descending=True); np.lexsort((w, v)); np.median(v);
        np.median(f, axis=1)
    """)
    yield from _split("""
        np.quantile(f, 0.3); np.quantile(f, v[:2] / 4, axis=1); np.percentile(v, 40);
        np.quantile(v, 0.4, method='lower'); np.quantile(i, 0.5)
    """)
    yield from _split("""
        np.searchsorted(np.sort(v), s); np.searchsorted(np.sort(v), v, side='right');
        np.searchsorted(np.arange(5), 2.5); np.digitize(v, np.arange(3))
    """)
    yield from _split("""
        np.bincount(w); np.bincount(w, minlength=6); np.bincount(w, weights=v); np.bincount(w, length=2);
        np.histogram(v, 3); np.nonzero(w); np.flatnonzero(i)
    """)
    yield from _split("""
        np.unique(w); np.unique(v, return_counts=True); np.argwhere(b); np.nonzero(b, size=5); np.where(b);
        np.partition(v, 1)[1]; np.unique(i, size=3)
    """)
    yield from _split("""
        np.convolve(v, w); np.convolve(v, w[:2], 'same'); np.convolve(w[:2], v, 'valid'); np.correlate(v, w[:2]);
        np.correlate(v[:2], w, 'full'); np.correlate(v, w, 'same')
    """)
    yield from _split("""
        np.convolve(np.arange(8.0), np.array([0.5, 1, 0.5]), 'same'); np.correlate(v[:3], w, 'same'); np.convolve(w, w);
        np.correlate(w, w[:3], 'full')
    """)


_LAX_UNARY = """neg abs sign exp expm1 log1p sin cos tanh floor ceil round is_finite square rsqrt logistic erf erfc lgamma
cbrt sqrt reciprocal""".split()


def _lax() -> Iterator[str]:
    yield from (f"lax.{name}({x})" for name in _LAX_UNARY for x in ("f", "g", "h"))
    yield from (f"lax.{name}({x})" for name in ("population_count", "clz", "bitwise_not", "sign", "abs") for x in "ui")
    yield from (f"lax.{name}({pair})" for name in ("add", "sub", "mul", "div", "rem", "max", "min", "pow", "eq", "lt", "ge", "ne")
                for pair in ("f, g", "f, 2.0", "i, j") if (name, pair[0]) != ("pow", "i"))  # fmt: skip
    yield from (f"lax.{name}(i, j)" for name in ("bitwise_and", "bitwise_or", "bitwise_xor"))
    yield from (f"lax.shift_{name}({x}, {x} % 4)" for name in ("left", "right_logical", "right_arithmetic") for x in "iu")
    yield from _split("""
        lax.digamma(g); lax.erf_inv(f / 4); lax.integer_pow(f, 3); lax.integer_pow(f, -2); lax.atan2(f, g); lax.nextafter(f, g);
        lax.convert_element_type(f, np.int32); lax.convert_element_type(i, np.bfloat16); lax.bitcast_convert_type(f, np.int32);
        lax.bitcast_convert_type(i, np.uint8); lax.bitcast_convert_type(np.arange(8, dtype=np.uint8).reshape(2, 4), np.int32);
        lax.reduce_precision(f, 5, 2); lax.select(b, f, g); lax.select_n(b, f, g); lax.clamp(-1.0, f, 1.0); lax.clamp(f - 1, g, f);
        lax.complex(f, g); lax.real(c); lax.imag(c); lax.conj(c); lax.stop_gradient(f); lax.round(f, lax.RoundingMethod.TO_NEAREST_EVEN);
        lax.broadcast(v, (2, 1)); lax.broadcast_in_dim(v, (2, 4, 1), (1,)); lax.reshape(f, (3, 2)); lax.reshape(f, (6,), (1, 0));
        lax.transpose(t, (2, 0, 1)); lax.rev(f, (0,)); lax.concatenate([f, g], 1); lax.squeeze(f[:1], (0,)); lax.expand_dims(v, (0, 2));
        lax.collapse(t, 1); lax.collapse(t, 0, 2);
        lax.pad(f, 9.0, ((1, 0, 0), (0, 2, 1))); lax.pad(v, 0.0, ((-1, 2, 0),)); lax.pad(v, 1.0, ((2, -3, 2),)); lax.pad(w, 7, ((0, 0, 1),));
        lax.slice(f, (0, 1), (2, 3)); lax.slice(v, (0,), (4,), (3,)); lax.slice_in_dim(v, 1, None); lax.slice_in_dim(v, -3, -1);
        lax.slice_in_dim(f, 0, 3, 2, axis=1); lax.iota(np.int32, 3); lax.broadcasted_iota(np.float32, (2, 3), 1); lax.full((2,), 3.0);
        lax.full_like(i, 2); lax.index_in_dim(f, -1); lax.index_in_dim(f, 1, axis=1, keepdims=False);
        lax.dynamic_slice(f, (1, 1), (1, 2)); lax.dynamic_slice(f, (5, -1), (1, 2)); lax.dynamic_slice(v, (w[1],), (2,));
        lax.dynamic_slice_in_dim(v, 3, 2); lax.dynamic_slice_in_dim(f, w[0], 1, axis=1); lax.dynamic_index_in_dim(f, 1, axis=1);
        lax.dynamic_index_in_dim(f, w[2], 0, keepdims=False); lax.dynamic_update_slice(f, np.ones((1, 2)), (1, 2));
        lax.dynamic_update_slice_in_dim(v, np.zeros(2), 1, 0); lax.dynamic_update_index_in_dim(f, v[:3], 1, 0);
        lax.dynamic_update_index_in_dim(f, 7.0 + v[:2], w[1], 1); lax.dot(f, q); lax.batch_matmul(t, t);
        lax.dot_general(f, q, (((1,), (0,)), ((), ()))); lax.dot_general(t, t, (((1,), (2,)), ((0,), (0,))));
        lax.reduce_sum(f, (0,)); lax.reduce_prod(f, (0, 1)); lax.reduce_max(i, (1,)); lax.reduce_min(i, (0,)); lax.reduce_and(b, (0,));
        lax.reduce_or(b, (1,)); lax.reduce_xor(i, (0,)); lax.argmax(f, 1, np.int32); lax.argmin(f, 0, np.int32);
        lax.cumsum(f, 1); lax.cumsum(v, reverse=True); lax.cumprod(v); lax.cummax(f, 1); lax.cummin(f, 1, reverse=True); lax.cumlogsumexp(v);
        lax.sort(v); lax.sort(f, dimension=0); lax.sort((w, v), num_keys=1); lax.sort((w, v), num_keys=2); lax.sort_key_val(w, v);
        lax.top_k(v, 2); lax.top_k(f, 2); lax.top_k(i, 3); lax.reduce(f, 0.0, lax.add, (0,)); lax.reduce(i, -9, lax.max, (1,));
        lax.reduce_window(v, 0.0, lax.add, (2,), (1,), "VALID"); lax.reduce_window(v, -np.inf, lax.max, (3,), (2,), "SAME");
        lax.associative_scan(lax.add, v); lax.associative_scan(lax.mul, v, reverse=True); lax.associative_scan(lax.add, f, axis=1);
        lax.conv(v[None, None], w[None, None, :2].astype(np.float32), (1,), "SAME");
        lax.conv_general_dilated(q[None, None], f[None, None], (1, 2), "SAME"); lax.conv_transpose(v[None, :, None], v[:2, None, None], (2,), "SAME");
        lax.conv_general_dilated(q[None, None], f[None, None], (1, 1), ((1, 0), (0, 2)), (2, 1), (1, 2));
        lax.conv_general_dilated(q[None, ..., None], f[..., None, None], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"));
        lax.conv_general_dilated(f[None, :, None], f[:, None, None], (1, 1), "VALID", feature_group_count=2)
    """)


def _corners() -> Iterator[str]:
    """Axes out of order, NaN, nothing at all, dtypes that are asked for, the ends of a dtype's range."""
    yield from _split("""
        np.average(t, (2, 0), np.arange(2.0 * t.shape[2]).reshape(-1, 2)); np.average(t, (0, 2), np.arange(2.0 * t.shape[2]).reshape(2, -1));
        np.average(t, (-1, 0), np.arange(2.0 * t.shape[2]).reshape(-1, 2), keepdims=True); np.average(t, (1, 0), np.arange(2.0 * t.shape[1]).reshape(-1, 2), True);
        np.average(t, (2, 0, 1), np.arange(t.size * 1.0).reshape(t.shape[2], t.shape[0], t.shape[1])); np.average(v, 0, w + 1)
    """)
    for dtype in ("np.bfloat16", "np.float16", "np.float32"):
        yield f"np.unique(np.array([1, np.nan, 2, np.nan, 5, np.nan], {dtype}))"
        yield f"np.unique(np.array([np.nan, 1, np.nan, 1, -1], {dtype}), return_index=True, return_inverse=True, return_counts=True)"
        yield f"np.ldexp(np.array([np.inf, -np.inf, np.nan, 0, -0.0, 1, 1, 3, 1], {dtype}), np.array([-1000, -500, 3, 5000, -5000, 2000, -2000, -3, 12]))"
    yield from _split("""
        np.unique(np.array([1+1j, complex(0, np.nan), 1], np.complex64)); np.unique(np.array([np.nan, np.nan])); np.unique(np.array([-0.0, 0.0]));
        np.unique(np.array([1+1j, complex(0, np.nan), 1, complex(np.nan, 0), complex(np.nan, np.nan)], np.complex64), return_counts=True)
    """)
    yield from (f"np.{name}({x})" for name in ("real", "imag") for x in ("4", "2.5", "4j", "np.uint8(4)", "s"))
    yield from _split("""
        np.argmin(3); np.argmax(3, keepdims=True); np.nanargmax(3); np.cumsum(3, 0); np.cumprod(2.5, -1); np.nancumsum(2.5, -1); np.nancumprod(3, 0);
        np.bincount(i[1:, :2].astype(np.uint32)[0]); np.bincount(w - 5); np.bincount(b[0]); np.bincount(b[0, :0]); np.bincount(w[:0]); np.bincount(w[:0], minlength=2);
        np.array_split(v, np.int32(3)); np.split(w, np.array(2)); np.vsplit(f, np.array(2, np.uint8)); np.average(f, returned=True); np.average(f, 0, returned=True);
        np.logspace(h[0], 2.0, 4); np.logspace(h[0], 2.0, 4, dtype=np.float32); np.logspace(0, 1, 4, dtype=np.int32); np.logspace(1j, 2, 3);
        np.logspace(np.float16(1), s, 3); np.logspace(h[0, 0], 1, 3, dtype=np.complex64); np.logspace(1, 2, 3, base=h[1, 0]); np.logspace(i[0], 2, 3);
        np.geomspace(h[1, 0], 100, 4, dtype=np.float32); np.geomspace(1, h[1, 1], 4, dtype=np.complex64); lax.reduce_max(c, (0,)); lax.reduce_min(c, (0, 1));
        lax.reduce_max(c[:0], (0,)); lax.reduce_min(c[:0], (0,)); np.max(c[:0], 0, initial=1); lax.argmax(w, 0, np.int32); np.repeat(3, 4, 0); np.repeat(s, 2, -1);
        i.at[0].add(2.7); i.at[0, :2].min(np.array([-3.5, 300.0])); i.at[np.array([0, 1]), 1].multiply(f[:, 2]); u.at[np.array([0, 1])].subtract(2.5);
        u.at[0].max(i[0]); h.at[0].add(g[0]); b.at[0].subtract(0.5); b[0].at[np.array([0, 0, 1])].add(0.5); i.at[::2].set(2.7); i.at[i > 0].add(0.5);
        lax.bitcast_convert_type(b, bool); lax.bitcast_convert_type(c, np.complex64); lax.bitcast_convert_type(3, np.int32);
        np.fft.fftfreq(w[2], s); np.fft.rfftfreq(np.int32(4), f[0, 2] - f[0, 1]); np.fft.fftfreq(5, i[1, 1], dtype=np.float16)
    """)
    yield from (f"np.rollaxis(t, {axis}, {start})" for axis in (0, 1, -1) for start in (-3, -2, -1, 0, 1, 2, 3))
    yield from _split("""
        np.cov(v[None], rowvar=False); np.cov(v, rowvar=False); np.cov(v, v + w, rowvar=False); np.cov(np.zeros((3, 0))); np.cov(np.zeros((0, 3)));
        np.corrcoef(v[None], rowvar=False); np.corrcoef(np.zeros((3, 0))); np.cov(f, rowvar=False); np.cov(v[None], ddof=5); np.cov(v[:, None]); np.cov(s)
    """)
    yield from _split("""
        np.geomspace(-1.0, -8.0, 4); np.geomspace(-1.0, -8.0, 4, endpoint=False); np.geomspace(np.array([1.0, -1.0]), np.array([8.0, -27.0]), 4);
        np.geomspace(np.array([1.0, -1.0]), np.array([8.0, -27.0]), 4, axis=1); np.geomspace(-1, -1000, 4, dtype=int); np.geomspace(1, 1000, 4, dtype=int);
        np.geomspace(1j, 8j, 4); np.geomspace(1.0, -8.0, 4); np.geomspace(0.0, 8.0, 4); np.geomspace(2, 8, 1); np.geomspace(2, 8, 0);
        np.geomspace(-2.0, -8.0, 3, dtype=np.complex64)
    """)
    for name in ("logaddexp", "logaddexp2"):
        yield f"np.{name}(np.array([1+3.1j, 1+3.1j, -1-9j]), np.array([1+3.2j, 1-3.2j, 2+7j]))"
    for dtype in ("np.int32", "np.int8", "np.complex64", "np.float16"):
        yield from (f"np.mean({x}, dtype={dtype})" for x in "fib")
        yield f"np.nanmean(n[:, 1:2], dtype={dtype})"
    for name in ("cumulative_sum", "cumulative_prod", "cumsum", "cumprod"):
        yield from (f"np.{name}({x}, axis=-1, dtype=bool)" for x in "fiub")
        yield f"np.{name}(v, dtype=bool, include_initial=True)" if name.startswith("cumul") else f"np.nan{name}(f, dtype=bool)"
    yield from (f"np.{name}({x}, axis=0, dtype=bool)" for name in ("sum", "prod") for x in "fiub")
    for name in ("var", "std", "nanvar", "nanstd"):
        yield from (f"np.{name}({x}, dtype=np.complex64)" for x in "fic")
        yield from (f"np.{name}(c)", f"np.{name}(f, dtype=np.float16)")
    yield from _split("""
        np.fft.fftshift(f, axes=[]); np.fft.ifftshift(f, axes=()); np.roll(v, (), ()); np.roll(f, [], []); np.hypot(n, np.nan); np.hypot(n, n[::-1]);
        np.hypot(np.array([1e30, 1e-30, 3, 0]), np.array([1e30, -1e-30, -4, 0])); np.floor_divide(n, np.inf); np.floor_divide(f, -np.inf); np.divmod(f, np.inf);
        np.floor_divide(f, 0.0); np.var(v, ddof=0, correction=1); np.linalg.norm(np.zeros(0), np.inf); np.linalg.norm(np.zeros((0, 3)), 2); np.pad(1.0, 0); np.pad(s, 0);
        lax.reduce_precision(1.0, 8, 7); lax.reduce_precision(f, 4, 2)
    """)


def _sets() -> Iterator[str]:
    """Sets of elements, with and without a given extent."""
    pairs = ("f,g", "f,f[0]", "i,j", "u,u[:1]", "b,b[:, 0]", "h,h[0]", "f,i", "i,f", "n,n[0]", "e,f", "f,e", "e,e", "v,w", "s,f", "c,c[0]")
    for pair in pairs:
        yield from (f"np.isin({pair}{how})" for how in ("", ", invert=True", ", method='sort'", ", method='binary_search'", ", assume_unique=True"))
        for name in ("union1d", "setdiff1d", "setxor1d", "intersect1d"):
            yield f"np.{name}({pair})"
            if pair not in ("n,n[0]", "e,e", "b,b[:, 0]", "c,c[0]"):
                yield from (f"np.{name}({pair}, size={size}, fill_value=9)" for size in (2, 14))
                yield f"np.{name}({pair}, size=9)"
    for pair in ("f,f[0]", "i,j", "v,w", "e,f", "u,u[:1]"):
        yield from (f"np.intersect1d({pair}, return_indices=True{how})" for how in ("", ", size=2", ", size=7", ", size=3, fill_value=-1"))
    yield from _split("""
        np.setdiff1d(v[:3], w, True); np.setdiff1d(v[:3], w, True, size=4); np.setxor1d(v[:3], w[:2], True); np.intersect1d(v[:3], w[:3], True);
        np.isin(np.arange(200) % 70, np.arange(3, 201, 2)); np.isin(np.arange(200.0) / 2, np.arange(100)); np.unique(e); np.unique(e, return_counts=True);
        np.unique(e, return_index=True, return_inverse=True, return_counts=True); np.unique(e, size=2, fill_value=3)
    """)


def _signals() -> Iterator[str]:
    """Windows, phases, bits, exponents, parts of arrays."""
    yield from (f"np.{name}({m})" for name in ("blackman", "hamming", "hanning", "bartlett") for m in (0, 1, 2, 3, 8, 51))
    yield from (f"np.kaiser({m}, {beta})" for m in (0, 1, 2, 7, 20) for beta in (0, 8.6, "s", "-3"))
    yield from (f"np.{name}({x})" for name in ("i0", "frexp") for x in "fhiubnegs")
    yield from (f"np.unwrap({x}{how})" for x in "fhvwien" for how in ("", ", period=3", ", axis=0", ", discont=2.0, period=1.5") if x != "n" or not how)
    for x, axis, order in itertools.product("iubet", ("", ", axis=0", ", axis=-1"), ("", ", bitorder='little'")):
        yield f"np.packbits({x}{axis}{order})"
    for axis, more in itertools.product(("", ", axis=0", ", axis=-1"), ("", ", bitorder='little'", ", count=3", ", count=60", ", count=-2", ", count=0")):
        yield f"np.unpackbits(u{axis}{more})"
    yield from _split("""
        np.packbits(np.arange(3)[2]); np.packbits(np.arange(21) % 3, bitorder='big'); np.unpackbits(u[0, 0]); np.unpackbits(u[:0]); np.unpackbits(u[:0], axis=0, count=3);
        np.frexp(np.array([1e-30, 3e38, -1e-5, -0.0, 0.5, 1])); np.frexp(np.array([6e-5, 65504, -1], np.float16)); np.unwrap(f, discont=5); np.unwrap(w * 3, period=5);
        lax.split(f, (1, 2), 1); lax.split(f, (1, 0, 1)); lax.split(t, (2,), axis=-1); lax.split(e, (0, 0)); lax.stack([f, g]); lax.stack([f, g], 2); lax.stack([f, g], -1);
        lax.stack([s]); lax.tile(f, (2, 1)); lax.tile(v, (3,)); lax.tile(f, (0, 2)); lax.tile(s, ())
    """)


def describe(value: Any) -> str:
    """A result as text: `f32*[2,3] 1 2 3 …` (a star where it is weak), several joined by ` ; `."""
    if isinstance(value, tuple | list):
        return " ; ".join(map(describe, value))
    array = numpy.asarray(value)
    star = "*" if getattr(value, "weak_type", False) else ""
    numbers = [_number(x) for x in array.ravel().tolist()]
    return " ".join([f"{array.dtype}{star}[{','.join(map(str, array.shape))}]", *numbers])


def _number(x: Any) -> str:
    if isinstance(x, complex):
        return f"{x.real:.6g}|{x.imag:.6g}"
    return f"{x:.6g}" if isinstance(x, float) else str(int(x))


def parsed(text: str) -> list[tuple[str, list[complex]]]:
    """What `describe` printed: per array its head (dtype and shape) and its elements."""
    parts = (part.split() for part in text.split(" ; "))
    # A boolean is never weak here; in JAX the result of a comparison can be, which changes nothing.
    return [(head.replace("bool*", "bool"), [_parsed_number(n) for n in numbers]) for head, *numbers in parts]


def unlike(found: str, expected: str) -> str | None:
    """How a described result differs from the recorded one; None where dtypes, weakness, shapes and, rounding aside, elements agree."""
    ours, theirs = parsed(found), parsed(expected)
    equal = [head for head, _ in ours] == [head for head, _ in theirs] and all(
        numpy.allclose(mine, other, rtol=2e-4, atol=3e-5, equal_nan=True) for (_, mine), (_, other) in zip(ours, theirs, strict=True)
    )
    return None if equal else f"gave {found[:200]}, JAX {expected[:200]}"


def _parsed_number(text: str) -> complex:
    real, _, imaginary = text.partition("|")
    return complex(float(real), float(imaginary or 0))


def main() -> None:
    """Write the goldens with JAX, of the calls that begin with an argument if there are any; refused ones are left out."""
    import warnings

    import jax.lax
    import jax.numpy as jnp

    warnings.simplefilter("ignore")
    names = operands(jnp.asarray)
    for call in dict.fromkeys(calls()):
        if call.startswith(tuple(sys.argv[1:]) or ""):
            print_call(call, {"np": jnp, "lax": jax.lax}, names)


def print_call(call: str, modules: dict[str, Any], names: dict[str, Any]) -> None:
    try:
        print(f"{call}  ->  {describe(eval(call, modules, names))}")
    except Exception as error:  # noqa: BLE001
        print(f"{call}: {str(error).splitlines()[0]}", file=sys.stderr)


if __name__ == "__main__":
    main()
