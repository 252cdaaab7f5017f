"""Calls of functions that are wide rather than deep, as text, for the comparison with JAX: with jax installed

    python -m tests.tools.breadth_cases > tests/goldens/breadth_surface.txt

writes what it gives; tests/test_breadth.py holds ours against it. Names as in `numpy_cases`; `jax` is the package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy

from tests.tools.numpy_cases import operands as common, print_call


def operands(wrap: Any) -> dict[str, Any]:
    """Those of numpy_cases, with longer ones: a signal x, its kernel y, a positive definite matrix p, another matrix r."""
    rng = numpy.random.default_rng(0)
    square = rng.normal(size=(4, 4))
    more = {
        "x": rng.normal(size=37).astype(numpy.float32),
        "y": numpy.array([1, -2, 0.5], numpy.float32),
        "z": (rng.normal(size=(2, 40)) + numpy.linspace(0, 3, 40)).astype(numpy.float32),
        "p": (square @ square.T + 2 * numpy.eye(4)).astype(numpy.float32),
        "r": square.astype(numpy.float32),
        "m": rng.integers(-30, 30, (3, 4)).astype(numpy.int32),
        "l": numpy.array([4, -6, 12, 0], numpy.int32),
    }
    return common(wrap) | {name: wrap(array) for name, array in more.items()}


def _split(text: str) -> Iterator[str]:
    """Calls separated by `;`."""
    yield from (" ".join(call.split()) for call in text.split(";") if call.strip())


def calls() -> Iterator[str]:
    yield from _split("""
        scipy.fft.dct(x); scipy.fft.dct(f, axis=0); scipy.fft.dct(f, n=5, norm='ortho'); scipy.fft.dct(i, n=2); scipy.fft.idct(x);
        scipy.fft.idct(f, axis=0, norm='ortho'); scipy.fft.dctn(f); scipy.fft.dctn(t, axes=(0, 2), norm='ortho');
        scipy.fft.dctn(f, s=(3, 4)); scipy.fft.idctn(f); scipy.fft.idctn(t, axes=(1,), norm='ortho');
        scipy.integrate.trapezoid(f); scipy.integrate.trapezoid(f, v[:3]); scipy.integrate.trapezoid(i, dx=0.5, axis=0);
        scipy.cluster.vq.vq(q, f); scipy.cluster.vq.vq(v, x)
    """)
    yield from _split("""
        lax.ragged_dot(f, np.stack([q, q * 2]), np.array([1, 1])); lax.ragged_dot(f, np.stack([q, q * 2]), np.array([1, 0]));
        lax.ragged_dot(q, np.stack([q, q * 2, -q]), np.array([2, 0, 1])); lax.ragged_dot(q[:0], np.stack([q, q]), np.array([0, 0]));
        lax.ragged_dot(i, np.stack([i.T, j.T]), np.array([1, 1])); lax.mulhi(i * 1000000000, i * 3); lax.mulhi(l, l * 900000000);
        lax.mulhi((i * 40).astype('int8'), (j * 30).astype('int8')); lax.mulhi((i * 40).astype('uint16'), (i * 977).astype('uint16'));
        lax.unstack(f); lax.unstack(f, 1); lax.unstack(t, -1); lax.broadcast_like(f[0], q); lax.broadcast_like(2, f); lax.empty((2, 0), 'int8');
        lax.index_take(q, (np.array([0, -1]),), (0,)); lax.index_take(q, (np.array([0, 4]), np.array([-1, 1])), (0, 1));
        lax.shape_as_value((2, 3)); lax.shape_as_value(()); lax.composite(lambda x: x + 1, 'my.op')(f);
        lax.scatter_sub(v, np.array([[1], [3]]), np.array([1., 2.], 'float32'), lax.ScatterDimensionNumbers((), (0,), (0,)));
        np.array(lax.conv_general_permutations(('NHWC', 'HWIO', 'CNHW'))); np.array(lax.conv_shape_tuple((4, 3, 8, 9), (4, 3, 3, 2), (1, 2), 'SAME'));
        np.array(lax.conv_shape_tuple((4, 3, 8, 9), (4, 3, 3, 2), (1, 2), ((1, 1), (0, 0)), 2));
        np.array(lax.conv_general_shape_tuple((1, 3, 8, 9), (4, 3, 3, 2), (2, 1), 'VALID', ('NCHW', 'OIHW', 'NHWC')));
        np.array(lax.reduce_window_shape_tuple((8, 9), (2, 3), (2, 1), ((0, 0), (1, 1)), (2, 1), (1, 2)))
    """)
    for ragged, contract, group in (((0,), ((1,), (1,)), (0,)), ((1,), ((1,), (0,)), ())):
        rhs = "np.stack([q, q * 2])" if group else "q"
        numbers = f"lax.RaggedDotDimensionNumbers(({contract}, ((), ())), {ragged}, {group})"
        yield f"lax.ragged_dot_general(f, {rhs}, np.array([1, 1]), {numbers})"
    batched = "lax.RaggedDotDimensionNumbers((((2,), (1,)), ((0,), (0,))), (2,), ())"
    yield from (f"lax.ragged_dot_general(t, t * 2, np.array({sizes}), {batched})" for sizes in ("[1, 1]", "[[1, 1], [0, 2]]"))
    free = "lax.RaggedDotDimensionNumbers((((2,), (2,)), ((0,), (0,))), (1,), (1,))"
    yield f"lax.ragged_dot_general(t, np.stack([t, t + 1], 1), np.array([[1, 1], [2, 0]]), {free})"
    for padding in ("'SAME'", "'VALID'", "((1, 2), (0, 1))"):
        yield f"np.array(lax.conv_transpose_shape_tuple((1, 8, 9, 3), (3, 2, 4, 3), (2, 3), {padding}, ('NHWC', 'HWOI', 'NHWC')))"
    for mode in ("constant", "nearest", "wrap", "mirror", "reflect"):
        for order in (0, 1):
            yield f"scipy.ndimage.map_coordinates(q, [f * 1.3, f[::-1] - 1], {order}, mode='{mode}', cval=7)"
            yield f"scipy.ndimage.map_coordinates(i, [v / 4, v - 1.6], {order}, '{mode}')"
    grid = "scipy.interpolate.RegularGridInterpolator((np.arange(3.), np.array([0., 1., 3.])), q"
    yield from (f"{grid}{rest}" for rest in ("*1)(f.T)" * 0 or ")(f.reshape(3, 2))", ", fill_value=None)(f.reshape(3, 2))",
                ", method='nearest')((v / 4, v / 3))", ", 'nearest', fill_value=2.)(f.reshape(3, 2))"))  # fmt: skip
    for mode in ("full", "same", "valid"):
        yield from _split(f"""
            scipy.signal.convolve(x, y, '{mode}'); scipy.signal.convolve(i, j[:, :2], '{mode}'); scipy.signal.correlate(x, y, '{mode}');
            scipy.signal.fftconvolve(x, y, '{mode}'); scipy.signal.convolve(x, y, '{mode}', 'fft'); scipy.signal.correlate(c, f, '{mode}');
            scipy.signal.fftconvolve(f, g[:, :2], '{mode}', axes=1); scipy.signal.convolve2d(f, i[:, 1:], '{mode}');
            scipy.signal.correlate2d(q, f, '{mode}'); scipy.signal.fftconvolve(c, f, '{mode}'); scipy.signal.convolve(y, x, '{mode}')
        """)
    yield from _split("""
        scipy.signal.detrend(x); scipy.signal.detrend(z, axis=0); scipy.signal.detrend(z, type='constant');
        scipy.signal.detrend(z, bp=(7, 20)); scipy.signal.detrend(i);
        scipy.signal.stft(x, nperseg=8); scipy.signal.stft(z, 2.0, nperseg=10, noverlap=7, nfft=16);
        scipy.signal.stft(z.T, nperseg=8, axis=0, boundary=None, padded=False); scipy.signal.stft(x, nperseg=8, boundary='even');
        scipy.signal.stft(x, nperseg=8, return_onesided=False, detrend='constant'); scipy.signal.stft(x, nperseg=8, window='boxcar');
        scipy.signal.istft(np.fft.rfft(z.reshape(8, 10)[:, :8]).T); scipy.signal.istft(scipy.signal.stft(z, nperseg=10)[2], nperseg=10);
        scipy.signal.istft(scipy.signal.stft(x, nperseg=8, return_onesided=False)[2], input_onesided=False, fs=2.);
        scipy.signal.welch(x, nperseg=8); scipy.signal.welch(z, 3.0, nperseg=9, scaling='spectrum', average='median');
        scipy.signal.csd(z, z[::-1], nperseg=8); scipy.signal.csd(x, x[:20], nperseg=8, detrend=False, return_onesided=False)
    """)
    for method in ("cg", "bicgstab", "gmres"):
        yield from _split(f"""
            scipy.sparse.linalg.{method}(p, v, tol=1e-6)[0]; scipy.sparse.linalg.{method}(lambda x: p @ x, v, x0=v * 2, tol=1e-6)[0];
            scipy.sparse.linalg.{method}(p, v, tol=1e-6, M=np.diag(1 / np.diag(p)))[0];
            scipy.sparse.linalg.{method}(lambda x: {{'a': 2 * x['a'], 'b': 3 * x['b']}}, {{'a': f, 'b': v}}, tol=1e-6)[0]['b']
        """)
    yield "scipy.sparse.linalg.gmres(p + r, v, tol=1e-6, restart=2, maxiter=60)[0]"
    yield "scipy.sparse.linalg.gmres(p + r, v, tol=1e-6, solve_method='incremental')[0]"
    yield from _split("""
        scipy.linalg.circulant(v); scipy.linalg.circulant(m); scipy.linalg.companion(v); scipy.linalg.companion(m + 40);
        scipy.linalg.convolution_matrix(v, 3); scipy.linalg.convolution_matrix(l, 2, 'same'); scipy.linalg.convolution_matrix(l, 2, 'valid');
        scipy.linalg.convolution_matrix(y, 5, 'same'); scipy.linalg.dft(4); scipy.linalg.dft(3, 'sqrtn'); scipy.linalg.dft(3, 'n');
        scipy.linalg.fiedler(v); scipy.linalg.fiedler(l); scipy.linalg.fiedler_companion(v); scipy.linalg.fiedler_companion(x[:8]);
        scipy.linalg.fiedler_companion(l); scipy.linalg.fiedler_companion(v[:2]); scipy.linalg.hadamard(4); scipy.linalg.hadamard(2, np.float32);
        scipy.linalg.helmert(4); scipy.linalg.helmert(3, full=True); scipy.linalg.hilbert(4); scipy.linalg.invhilbert(4);
        scipy.linalg.leslie(v, y); scipy.linalg.leslie(l, l[:3]); scipy.linalg.pascal(4); scipy.linalg.pascal(4, 'lower');
        scipy.linalg.pascal(3, 'upper'); scipy.linalg.invpascal(4); scipy.linalg.invpascal(4, 'lower'); scipy.linalg.invpascal(3, 'upper')
    """)
    yield from _numpy()
    yield from _statistics()
    yield from _edges()


def _numpy() -> Iterator[str]:
    yield from _split("""
        np.gcd(m, l); np.gcd(12, m); np.gcd(u, u[::-1]); np.lcm(m, l); np.lcm(6, m); np.lcm(i, j); np.gcd(m[:0], l);
        np.poly(v); np.poly(q); np.poly(l); np.poly(c[0]); np.polyadd(v, y); np.polyadd(l, 1); np.polysub(y, v); np.polymul(v, y);
        np.polymul(l, l[:2]); np.polymul(c[0], y); np.polydiv(v, y); np.polydiv(y, v); np.polydiv(l + 1, l[:2]);
        np.polyder(v); np.polyder(l, 2); np.polyder(v, 0); np.polyint(v); np.polyint(l, 2); np.polyint(v, 2, np.array([1., 2.]));
        np.polyint(y, 3, 5); np.polyval(v, f); np.polyval(x, g); np.roots(y); np.roots(np.array([0., 1., -3., 2., 0.]));
        np.roots(l); np.roots(y[:1]); np.polyfit(np.arange(37.), x, 3); np.polyfit(v, np.stack([v, y[0] * v ** 2], 1), 1);
        np.polyfit(np.arange(37.), x, 2, w=np.abs(x)); np.polyfit(np.arange(37.), x, 2, cov=True);
        np.polyfit(np.arange(37.), x, 1, cov='unscaled'); np.polyfit(np.arange(37.), x, 1, full=True);
        np.histogram2d(x, x[::-1], 4); np.histogram2d(x, x ** 2, (3, 2), ((-1, 1), (0, 2)), x); np.histogramdd(q, 3);
        np.histogramdd(q, (2, 3, 4), density=True); np.histogramdd(z.T, [np.array([0., 1., 4.]), 3]);
        np.histogram2d(x, x[::-1], np.array([-1., 0., 2.]), density=True); np.matvec(q, f[0]); np.matvec(t, i[0, :2]); np.vecmat(c[0], q); np.vecmat(f, q);
        np.unique_all(w); np.unique_counts(n); np.unique_inverse(i); np.unique_values(m); np.unique_all(n, size=8);
        np.sort_complex(c); np.sort_complex(v); np.sort_complex(m); np.spacing(f); np.spacing(n); np.spacing(m); np.spacing(h);
        np.place(f, b, v, inplace=False); np.place(m, m > 0, l[:2], inplace=False); np.mask_indices(4, np.triu); np.mask_indices(3, np.tril, -1);
        np.diag_indices_from(q); np.diag_indices_from(t); np.frombuffer(b'abcdefgh', np.int16); np.fromstring('1 2.5 3', sep=' ');
        np.fromiter(range(4), np.int32); np.frombuffer(b'abcdefgh', np.uint8, 3, 2)
    """)
    for width in ("2", "((1, 3), (0, 2))", "{-1: (0, 4)}"):
        for how in ("'linear_ramp'", "'linear_ramp', end_values=((1, 2), (3, -4))", "'median'", "'mean', stat_length=2", "'maximum', stat_length=((1, 2), (2, 1))",
                    "'reflect', reflect_type='odd'", "'symmetric', reflect_type='odd'", "'minimum', stat_length=1"):  # fmt: skip
            yield f"np.pad(f, {width}, {how})"
    yield from _split("""
        np.pad(m, 3, 'median'); np.pad(m, 2, 'linear_ramp', end_values=9); np.pad(x[:5], (0, 11), 'reflect', reflect_type='odd');
        np.pad(v, 2, lambda row, width, axis, how: row.at[:width[0]].set(how['low']), low=7);
        np.pad(f, 1, lambda row, width, axis, how: row * (axis + 2));
        np.quantile(f, 0.3, method='inverted_cdf'); np.quantile(f, g[0], 1, method='inverted_cdf', keepdims=True);
        np.quantile(z, 0.7, axis=1, weights=np.arange(40.), method='inverted_cdf'); np.nanquantile(n, 0.5, 1, method='inverted_cdf');
        np.percentile(f, 40, weights=g, method='inverted_cdf'); np.nanpercentile(n, g[0] * 100, weights=g, method='inverted_cdf');
        np.cov(z, fweights=np.arange(40)); np.cov(z, aweights=np.arange(40.), ddof=0); np.cov(z, dtype=np.float32); np.corrcoef(z, dtype=np.float32);
        np.cross(q, q.T, axisb=0); np.cross(q, q[::-1], axisa=0, axisc=0); np.digitize(f, np.array([-1., 0., 2.]), method='sort');
        np.gradient(v); np.interp(x[:6] * 9, v[1:3], v[:2], period=4); np.interp(f, v[1:3], v[:2], left='extrapolate', right='extrapolate');
        np.linspace(0, 1, 5, device=None); np.logspace(v, v + 1, 3, axis=1); np.meshgrid(v, y, copy=True); np.nan_to_num(n, True, 5.0);
        np.var(f, 1, mean=np.ones((2, 1))); np.std(f, mean=0.5); np.nanvar(n, 1, mean=np.zeros((2, 1))); np.nanstd(n, 0, mean=np.zeros((1, 3)));
        np.ravel_multi_index((w % 2, w % 3), (2, 3), order='F'); np.ravel_multi_index((w, w), (3, 4), 'wrap', dtype=np.int16);
        np.reshape(f, shape=(3, 2), copy=True); np.reshape(f, (3, 2), 'F'); np.stack([v, v], 0, None, np.int32); np.hstack([v, w], dtype=np.int32);
        np.vstack([v, w], np.float16); np.dstack([v, w], np.int8); np.take_along_axis(f, w[None, :2] - 1, 1, wrap_negative_indices=False);
        np.tensordot(f, q, 1, preferred_element_type=np.float32); np.vecdot(c, c[::-1]); np.vecdot(f, v[:3]); np.vecdot(i, j, axis=0);
        np.trim_zeros(np.array([0, 1, 0, 2, 0])); np.trim_zeros(np.pad(m, 1), axis=0); np.trim_zeros(np.pad(q, 2), 'f'); np.unique(n, equal_nan=False);
        np.compress(v > 1, m, 1, size=3); np.compress(v > 1, x, size=5, fill_value=-1); np.extract(f > 0, f, size=7); np.delete(x, w[:2], assume_unique_indices=True);
        np.argsort(f, dtype=np.int8); np.sort(f, kind='stable'); np.arange(4, device=None); np.eye(3, M=2, device=None); np.polyval(v, f, unroll=2);
        np.outer(v, w, None); np.einsum('ij->i', f, out=None); np.isposinf(n, None); np.modf(f, None)
    """)
    for name in "add multiply subtract maximum minimum logical_and logical_or logical_xor logaddexp".split():
        yield from _split(f"""
            np.{name}.reduce(f); np.{name}.reduce(m, 1, keepdims=True); np.{name}.reduce(f, None); np.{name}.accumulate(f, 1);
            np.{name}.reduceat(v, np.array([0, 2, 1])); np.{name}.outer(v, f[0]); np.{name}.at(v, w[:2], y[:2], inplace=False);
            np.{name}.reduce(f, 0, initial=2.0); np.{name}.reduce(f, 1, where=b, initial=1.0)
        """)
    for name in "bitwise_and bitwise_or bitwise_xor".split():
        yield from _split(f"np.{name}.reduce(m); np.{name}.accumulate(m, 1); np.{name}.outer(l, l); np.{name}.reduceat(l, np.array([0, 2, 1]))")
    yield from _split("""
        np.negative.at(f, (0, 1), inplace=False); np.frompyfunc(lambda a, b: a * b + 1, 2, 1)(f, 2); np.add.reduce(f, where=b);
        np.frompyfunc(lambda a, b: a * b + 1, 2, 1).reduce(m, 1); np.frompyfunc(lambda a, b: a * b + 1, 2, 1).accumulate(m);
        np.frompyfunc(lambda a, b: a * b + 1, 2, 1).outer(l, l); np.frompyfunc(lambda a: a + 1, 1, 1)(f); np.add.reduce(f[:0])
    """)


def _edges() -> Iterator[str]:
    """Arguments at the edges of what functions take: complex numbers, floats for counts, nothing, places beyond the ends."""
    yield from _split("""
        np.rint(c); np.arctan2(c, f); np.arctan2(c, c[::-1] + 1); np.blackman(4.7); np.hamming(3.0); np.hanning(2.0); np.bartlett(5.5); np.kaiser(4.2, 2.0);
        np.fft.fft(e[:, :0]); np.fft.ifft2(e); np.fft.irfft(f[:, :1]); np.fft.irfft(f[:, :0]); np.fft.hfft(c[:, :1]); np.fft.rfft2(e); np.fft.irfftn(e[:, :1]);
        np.fft.fft(f, axis=None); np.fft.hfft(c, 4, None); np.linalg.det(q.astype('float16')); np.linalg.det(q[:2, :2].astype('bfloat16'));
        np.quantile(f, np.array([-0.5, 1.5])); np.nanquantile(n, -0.1, 1); np.percentile(i, np.array([-3, 140]), 1);
        np.unravel_index(np.array([-1, -7, 7, 2]), (2, 3)); np.unravel_index(u, (2, 4)); np.searchsorted(np.array([1+1j, 1+2j, 3]), np.array([1+1.5j, 1j, 9]));
        np.searchsorted(np.array([1+1j, 1+2j, 1+2j]), np.array([1+2j, 1+2j]), 'right'); np.searchsorted(v[:0], c); np.take(v, b);
        np.full_like(2.5, np.ones(3, 'float16'), shape=(3,)); np.full_like(2.5, 1); np.ravel_multi_index((0, 1), (2, 3)); np.ravel_multi_index((u, u), (9, 9), 'clip');
        np.setdiff1d(-1, w, size=2); np.setdiff1d(w, -1); np.union1d(-1, 2); np.intersect1d(-1, -1); np.setxor1d(-1, 3, size=4); np.unique(2.5, size=2);
        np.setxor1d(w, v, fill_value=v); np.nonzero(m, size=14, fill_value=(2.5, 1)); np.nonzero(m, size=14, fill_value=7); np.argwhere(2.5); np.argwhere(0.0, size=2);
        np.flatnonzero(w, size=0, fill_value=(7, 8)); np.isclose(f, f, rtol=-1.0); np.isclose(i, i, -1.0); np.polyint(3, m=0); np.polyint(w, m=0); np.poly(3.0);
        np.histogram(f, weights=h); np.histogram(f.astype('float16'), 3, weights=np.ones((2, 3), 'int8')); np.roll(w, np.array([1.0]), 0);
        np.unique(t, axis=0); np.unique(i % 2, axis=1); np.unique(m % 2, axis=0, size=4, fill_value=9); np.unique(e, axis=0);
        np.unique(i % 2, True, True, True, axis=-1); np.unique(w, True, True, True, axis=0); np.unique(np.stack([n, n]), True, True, True, axis=0);
        np.unique(np.stack([n, n]), axis=0, equal_nan=False); np.unique(np.stack([c, c[::-1]]), axis=1, return_index=True); np.unique(b, axis=1, size=5)
    """)


def _statistics() -> Iterator[str]:
    for name, shape in {"beta": "2.0, 0.5", "chi2": "3.0", "gamma": "2.5"}.items():
        for key in ("cdf", "sf", "logcdf", "logsf"):
            yield f"scipy.stats.{name}.{key}(np.array([-1., 0., 0.2, 0.9, 1.]), {shape})"
            yield f"scipy.stats.{name}.{key}(g, {shape}, -0.1, 2.0)"
    yield from _split("""
        scipy.stats.gennorm.cdf(f, 1.5); scipy.stats.poisson.cdf(m, 2.5); scipy.stats.poisson.cdf(w, v, 1);
        scipy.stats.poisson.entropy(np.array([0.1, 2.5, 50., 99., 101., 1000.])); scipy.stats.vonmises.logpdf(f, 2.0);
        scipy.stats.vonmises.pdf(f, v[:3]); scipy.stats.vonmises.pdf(f, -1.)
    """)
    for method in ("average", "min", "max", "dense", "ordinal"):
        yield f"scipy.stats.rankdata(i % 4, '{method}')"
        yield f"scipy.stats.rankdata(n, '{method}', axis=0)"
        yield f"scipy.stats.rankdata(m // 9, '{method}', axis=1)"


def main() -> None:
    """Write the goldens with JAX, of the calls that begin with an argument if there are any; refused ones are left out."""
    import importlib
    import warnings

    warnings.simplefilter("ignore")
    jax = importlib.import_module("jax")
    names = operands(jax.numpy.asarray)
    for call in dict.fromkeys(calls()):
        if call.startswith(tuple(sys.argv[1:]) or ""):
            print_call(call, {**scope(jax), **names}, {})


def scope(package: Any) -> dict[str, Any]:
    """The modules of jax, or of what stands for it."""
    import importlib

    names = "scipy.fft scipy.signal scipy.ndimage scipy.sparse.linalg scipy.interpolate scipy.integrate scipy.cluster.vq scipy.stats".split()
    for name in names:
        importlib.import_module(f"{package.__name__}.{name}")
    return {"np": package.numpy, "lax": package.lax, "scipy": package.scipy, "nn": package.nn, "random": package.random, "jax": package}


if __name__ == "__main__":
    main()
