"""One call of each public function, whose operands come in two sizes: extents of 8, and some 2**31 elements.

Single letters are the arrays of `operands`; N is the extent of a vector, M that of a dim of a matrix, k a key. Every function of
the public modules is called here, or stands in `NOT_CALLED` with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

SMALL, LARGE = 0, 1
EXTENTS = {"A": (8, 2**16), "B": (6, 3 * 2**14), "N": (8, 2**31 + 1024), "T": (4, 1300)}

_SHAPES = {
    "f": ("AB", np.float32), "g": ("AB", np.float32), "h": ("AB", ml_dtypes.bfloat16), "c": ("AB", np.complex64),
    "i": ("AB", np.int32), "j": ("AB", np.int32), "b": ("AB", np.bool_), "v": ("N", np.float32), "w": ("N", np.int32),
    "q": ("BB", np.float32), "t": ("TTT", np.float32), "s": ("", np.float32), "o": ("A", np.int32),
}  # fmt: skip


def types(size: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """The shape and dtype of every operand."""
    return {name: (tuple(EXTENTS[d][size] for d in dims), np.dtype(kind)) for name, (dims, kind) in _SHAPES.items()}


def numbers(size: int) -> dict[str, int]:
    return {"N": EXTENTS["N"][size], "M": EXTENTS["A"][size], "K": (8, 2**15)[size]}


def _names(prefix: str, names: str, operands: str) -> Iterator[str]:
    yield from (f"{prefix}.{name}({operands})" for name in names.split())


def _calls(text: str) -> list[str]:
    """Separated by `;`."""
    return [" ".join(call.split()) for call in text.split(";") if call.strip()]


def elementwise() -> Iterator[str]:
    yield from _names("np", """angle around deg2rad degrees exp2 fabs fix iscomplex isneginf isposinf isreal log2 log10 modf
        nan_to_num rad2deg radians reciprocal round signbit sinc abs absolute acos acosh arccos arccosh arcsin arcsinh
        arctan arctanh asin asinh atan atanh cbrt ceil conj conjugate cos cosh exp expm1 floor imag isfinite isinf isnan log
        log1p logical_not negative positive real rint sign sin sinh sqrt square tan tanh trunc copy ascontiguousarray""", "f")  # fmt: skip
    yield from _names("np", "bitwise_count bitwise_not bitwise_invert invert", "i")
    yield from _names("np", """copysign float_power fmax fmin heaviside hypot isclose logaddexp logaddexp2 nextafter add arctan2
        atan2 divide divmod equal floor_divide fmod greater greater_equal less less_equal logical_and logical_or logical_xor
        maximum minimum mod multiply not_equal pow power remainder subtract true_divide allclose array_equal array_equiv
        append""", "f, g")  # fmt: skip
    yield from _names("np", """bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift left_shift right_shift
        ldexp gcd lcm""", "i, j")  # fmt: skip
    yield from _calls("""np.frexp(f); np.i0(f); np.blackman(M); np.hamming(M); np.hanning(M); np.bartlett(M); np.kaiser(M, s); np.isin(f, g[0, :3]); np.spacing(f);
        np.packbits(b, axis=0); np.unpackbits(b.astype(np.uint8), axis=1); lax.split(f, (2, f.shape[0] - 2)); lax.stack([f, g]); lax.tile(f, (2, 1));
        np.where(b, f, g); np.clip(f, -1, 1); np.astype(f, np.int32); np.select([b, f > 0], [f, g], 7);
        np.piecewise(f, [f > 0], [1.0, 2.0]); np.choose(i, [f, g], mode='clip')""")  # fmt: skip
    yield from _names("lax", """abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf erf_inv erfc exp exp2 expm1
        floor is_finite lgamma log log1p logistic neg optimization_barrier reciprocal round rsqrt sign sin sinh sqrt square
        stop_gradient tan tanh""", "f")  # fmt: skip
    yield from _names("scipy.special", """digamma entr erf erfc erfinv expit factorial gamma gammaln gammasgn log_ndtr logit
        i0 i0e i1 i1e log_softmax loggamma logsumexp ndtr ndtri softmax""", "f")  # fmt: skip
    yield from _names("scipy.special", """beta betaln boxcox boxcox1p comb gammainc gammaincc kl_div poch rel_entr xlog1py
        xlogy zeta""", "f, g")  # fmt: skip
    yield from _names("scipy.special", "dawsn erfcx exp1 expi fresnel sici spence wofz", "f")
    yield from _names("scipy.special", "owens_t", "f, g")
    yield from _names("scipy.special", "polygamma", "i, f")
    yield from _calls("""scipy.special.expn(2, f); scipy.special.bessel_jn(f, v=2); scipy.special.hyp1f1(f, 2.0, g);
        scipy.special.hyp2f1(f, 2.0, 3.0, g); scipy.special.sph_harm_y(i, i, f, f, n_max=4)""")
    yield from _calls("scipy.special.betainc(f, g, f); lax.betainc(f, g, f)")
    yield from _calls("scipy.special.multigammaln(f, 3); scipy.special.lpmn(2, 2, v); scipy.special.lpmn_values(2, 2, v, True)")
    yield from _names("lax", """add atan2 complex div eq ge gt igamma igamma_grad_a igammac le lt max min mul ne nextafter polygamma
        pow random_gamma_grad rem sub zeta""", "f, g")  # fmt: skip
    yield from _names("lax", "bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic shift_right_logical", "i, j")
    yield from _names("lax", "bitwise_not clz population_count", "i")
    yield from _calls("lax.mulhi(i, j); lax.broadcast_like(f[0], f); lax.unstack(f[:2]); lax.index_take(f, (o[:2],), (0,))")
    yield from _calls("""lax.clz(i.astype("int4")); lax.scaled_dot(f, f.T, lhs_scale=f[:, :2], rhs_scale=f.T[:2]); f.astype("uint2") + 1; lax.empty((M, M), np.int8); lax.scatter_sub(f, o[:1, None], f[:1], lax.ScatterDimensionNumbers((1,), (0,), (0,)));
        lax.ragged_dot_general(f, q, o[:2], lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), (1,), ()))""")
    yield from _calls("lax.ragged_dot(f[:, :4], f[:8, :4].reshape(2, 4, 4), o[:2]); lax.composite(lambda x: x + 1, 'my.op')(f)")
    yield from _names("lax", "conj imag real", "c")
    yield from _calls("""lax.clamp(-1.0, f, 1.0); lax.convert_element_type(f, np.int32); lax.integer_pow(f, 3);
        lax.reduce_precision(f, 5, 2); lax.select(b, f, g); lax.select_n(b, f, g); lax.bitcast_convert_type(f, np.int32);
        lax.full_like(i, 2)""")  # fmt: skip
    yield from _names("nn", """identity relu relu6 leaky_relu elu selu celu sigmoid silu swish mish softplus log_sigmoid soft_sign
        hard_tanh hard_sigmoid hard_silu hard_swish squareplus sparse_plus sparse_sigmoid log1mexp gelu glu logsumexp
        logmeanexp softmax log_softmax standardize tanh""", "f")  # fmt: skip
    yield from _calls("""nn.one_hot(o, M); nn.standardize(f, where=b); nn.scaled_matmul(f[None], g[None], f[None, :, :2], g[None, :, :2]);
        nn.scaled_dot_general(f[:, :2], f[:, :2], (((), ()), ((0, 1), (0, 1))))""")


def reductions() -> Iterator[str]:
    for x in ("f", "v"):
        yield from _names("np", """all any argmax argmin average count_nonzero max mean median min nanargmax nanargmin nanmax
            nanmean nanmedian nanmin nanprod nanstd nansum nanvar prod ptp std sum var amax amin""", x)  # fmt: skip
    yield from _calls("""np.mean(f, where=b); np.var(f, where=b, ddof=1); np.std(f, axis=1, ddof=1); np.mean(h); np.mean(i);
        np.average(f, axis=0, weights=g); np.average(v, weights=v, returned=True); np.average(v, returned=True);
        np.nanpercentile(f, 40.0); np.nanquantile(f, 0.4); np.percentile(v, 40); np.quantile(f, 0.3, axis=1); np.quantile(v, 0.3);
        np.cov(f); np.cov(v); np.corrcoef(f); np.trapezoid(f); np.trapezoid(v); np.apply_over_axes(np.sum, f, [0]);
        np.apply_along_axis(np.sum, 0, f); np.trace(q)""")  # fmt: skip
    yield from _calls("""lax.argmax(f, 1, np.int32); lax.argmin(f, 0, np.int32); lax.reduce(f, 0.0, lax.add, (0,));
        lax.reduce_and(b, (0,)); lax.reduce_max(i, (1,)); lax.reduce_min(i, (0,)); lax.reduce_or(b, (1,));
        lax.reduce_prod(f, (0, 1)); lax.reduce_sum(f, (0,)); lax.reduce_window(v, 0.0, lax.add, (2,), (1,), "VALID")""")  # fmt: skip


def shapes() -> Iterator[str]:
    yield from _calls("""np.diff(f); np.ediff1d(v); np.gradient(v); np.insert(v, 1, 9.0); np.insert(v, [1, -1], 9.0); np.delete(v, 1);
        np.delete(v, slice(2, 5)); np.delete(f, [0, 3], axis=1); np.append(v, w); np.array_split(v, 3); np.atleast_1d(s);
        np.atleast_2d(v); np.atleast_3d(v); np.block([[f, g], [g, f]]); np.broadcast_arrays(f, s); np.broadcast_to(o[0], (M, M));
        np.column_stack([v, w]); np.concat([f, i]); np.concatenate([f, i]); np.diag(o); np.diag(q, 1); np.diagflat(f[:, :1]);
        np.diagonal(q); np.diag_indices_from(q); np.dsplit(t, 2); np.dstack([v, w]); np.expand_dims(f, 0);
        np.fill_diagonal(q, 1.0, inplace=False); np.flip(f); np.fliplr(f); np.flipud(f); np.hsplit(w, 2); np.hstack([v, w]);
        np.matrix_transpose(f); np.moveaxis(t, 0, -1); np.pad(v, 1); np.pad(v, 3, mode='wrap'); np.pad(v, 3, mode='reflect');
        np.pad(f, 2, mode='edge'); np.pad(v, 3, mode='symmetric'); np.pad(f, 2, mode='mean'); np.permute_dims(f, (1, 0)); np.ravel(t);
        np.repeat(v, 2); np.reshape(f, (-1, 2)); np.resize(v, (M, M)); np.roll(v, 1);
        np.roll(v, s.astype(np.int32)); np.rollaxis(t, 2); np.rot90(f); np.split(w, 2); np.squeeze(f[None, :, None]);
        np.stack([f, i]); np.swapaxes(t, 0, -1); np.tile(v, 2); np.transpose(t, (-1, 0, 1)); np.tril(q); np.triu(q, 1);
        np.unstack(f[:3]); np.vsplit(f, 2); np.vstack([v, w]); np.array([v, v]); np.asarray(f); np.kron(o, o[:3])""")  # fmt: skip
    yield from _calls("""lax.broadcast(v, (2, 1)); lax.broadcast_in_dim(s, (M, M), ()); lax.broadcast_to_rank(f, 3); lax.collapse(t, 1);
        lax.concatenate([f, g], 1); lax.expand_dims(v, (0, 2)); lax.pad(f, 9.0, ((1, 0, 0), (0, 2, 1))); lax.reshape(f, (f.size,));
        lax.rev(f, (0,)); lax.slice(f, (0, 1), (2, 3)); lax.slice_in_dim(v, 1, None); lax.squeeze(f[:1], (0,));
        lax.transpose(t, (2, 0, 1)); lax.index_in_dim(v, -1)""")  # fmt: skip


def makers() -> Iterator[str]:
    yield from _calls("""np.arange(N); np.arange(0, 2 * M, 2); np.arange(N * 1.0); np.arange(0.5, N, 0.5); np.arange(M, dtype=np.bfloat16);
        np.empty((M, M)); np.empty_like(f); np.eye(M); np.eye(2, N, 1); np.fromfunction(np.add, (M, M)); np.full((M, M), 3);
        np.full_like(i, 2.7); np.geomspace(1.0, 8.0, M); np.identity(M); np.indices((2, M, M)); np.linspace(0, s, N);
        np.linspace(0, 1, N, retstep=True); np.logspace(0, 2, M); np.meshgrid(v[:M], w[:M]); np.ones((M, M)); np.ones_like(f);
        np.tri(M); np.vander(o * 1.0, M); np.zeros((M, M)); np.zeros_like(i); np.diag_indices(N); lax.iota(np.int32, N);
        lax.broadcasted_iota(np.float32, (M, M), 1); lax.full((M, M), 3.0); np.fft.fftfreq(N); np.fft.rfftfreq(M);
        scipy.linalg.circulant(o); scipy.linalg.companion(o); scipy.linalg.convolution_matrix(o, M); scipy.linalg.fiedler(o);
        scipy.linalg.fiedler_companion(o); scipy.linalg.hadamard(M); scipy.linalg.helmert(M); scipy.linalg.hilbert(M);
        scipy.linalg.leslie(o, o[1:]);
        scipy.linalg.hankel(o, o[:3]); scipy.linalg.toeplitz(o); scipy.linalg.block_diag(f, 3, v[:5])""")  # fmt: skip


def products() -> Iterator[str]:
    yield from _calls("""np.dot(f, q); np.matvec(f, f[0]); np.vecmat(f[:, 0], f); np.einsum('ab,bc->ac', f, q); np.inner(f, g); np.matmul(f, q); np.outer(o, o); np.tensordot(f, g);
        np.vdot(f, g); np.vecdot(f, g); np.cross(f[:, :3], g[:, :3]); np.convolve(v, w[:3]); np.correlate(v, w[:2]);
        np.polyval(o[:5] * 1.0, v); np.interp(v, o[:4] * 1.0, o[:4] * 2.0);
        lax.dot(f, q); lax.dot_general(f, q, (((1,), (0,)), ((), ()))); lax.batch_matmul(t, t);
        lax.conv(v[None, None], v[None, None, :2], (1,), "SAME");
        lax.conv_general_dilated(f[None, None], f[None, None, :3, :3], (1, 1), "SAME");
        lax.conv_general_dilated_local(o[None, None] * 1.0, np.ones((2, 2, M - 1)), (1,), "VALID", (2,));
        lax.conv_general_dilated_patches(f[None, None], (2, 3), (1, 1), "VALID");
        lax.conv_transpose(v[None, :, None], v[:2, None, None], (2,), "SAME");
        lax.conv_with_general_padding(v[None, None], v[None, None, :2], (1,), ((0, 1),), None, None);
        nn.avg_pool(f[None, ..., None], (2, 2)); nn.max_pool(f[None, ..., None], (2, 2)); nn.min_pool(f[None, ..., None], (2, 2));
        nn.pool(f[None, ..., None], 0.0, lax.add, (2, 2), (1, 1), "SAME");
        nn.dot_product_attention(t[None], t[None], t[None]); nn.dot_product_attention(t[None], t[None], t[None], is_causal=True)""")  # fmt: skip
    yield from _names("np.fft", "fft ifft rfft irfft hfft ihfft fftn ifftn rfftn irfftn fft2 ifft2 rfft2 irfft2 fftshift ifftshift", "f")
    yield from _calls("lax.fft(f, 'FFT', (f.shape[1],))")


def polynomials() -> Iterator[str]:
    yield from _calls("""np.polyadd(v, v[:3]); np.polysub(v, v); np.polyder(v); np.polyder(v, 3); np.polyint(v); np.polymul(v, v[:3]);
        np.polydiv(f[0], v[:3]); np.roots(f[0], strip_zeros=False); np.poly(f[0]); np.polyfit(f[0], f[1], 2)""")


def places() -> Iterator[str]:
    yield from _calls("""np.argpartition(f, 1); np.argsort(v); np.bincount(w, length=8); np.digitize(v, np.arange(3)); np.histogram(v, 3);
        np.histogram2d(v, v); np.histogramdd(f[:, :2]); np.sort_complex(v);
        np.histogram_bin_edges(v); np.lexsort((w, v)); np.partition(v, 1); np.sort(f); np.searchsorted(np.sort(v[:M]), v);
        np.take(v, o); np.take(f, o, axis=1, mode='wrap'); np.take(v, o, mode='clip'); np.take_along_axis(f, i[:, :1], axis=1);
        np.put(v, o, 1.0, inplace=False); np.put_along_axis(f, i[:, :1], 1.0, axis=1, inplace=False);
        np.ravel_multi_index((o, o), (M, 4), mode='clip'); np.unravel_index(o, (M, M)); np.compress([True, False], f, axis=0);
        v[o]; v[o[0]]; v[-1]; v[::2]; f[o[0], 1:]; v.at[o].set(1.0); v.at[o[0]].add(1.0); v.at[1:-1].add(2.0); v.at[::3].set(1.0);
        f.at[o[0], ::2].mul(2.0)""")  # fmt: skip
    yield from _calls("""lax.approx_max_k(f, 2); lax.approx_min_k(f, 2); lax.sort(v); lax.sort_key_val(w, v); lax.top_k(f, 2);
        lax.dynamic_index_in_dim(v, w[0]); lax.dynamic_slice(v, (w[0],), (4,)); lax.dynamic_slice_in_dim(f, w[0], 2);
        lax.dynamic_update_index_in_dim(f, f[0], w[0], 0); lax.dynamic_update_slice(v, v[:3], (w[0],));
        lax.dynamic_update_slice_in_dim(v, v[:3], w[0], 0)""")  # fmt: skip
    for kind in ("scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max"):
        yield f"lax.{kind}(v, o[:, None], o * 1.0, lax.ScatterDimensionNumbers((), (0,), (0,)))"
    yield "lax.scatter_apply(v, o[:, None], np.sin, lax.ScatterDimensionNumbers((), (0,), (0,)), update_shape=o.shape)"
    yield from _calls("v.at[o].apply(np.sin); f.at[o[0], ::2].apply(np.sin)")
    yield "lax.gather(v, o[:, None], lax.GatherDimensionNumbers((), (0,), (0,)), (1,))"


def loops() -> Iterator[str]:
    yield from _calls("""lax.scan(lambda c, x: (c + x, c * x), f[0], f); lax.scan(lambda c, _: (c, np.ones((M, M))), s, None, length=M);
        lax.map(np.sin, f); lax.fori_loop(0, 9, lambda i, c: c * 2 + f, f); lax.while_loop(lambda c: c[0, 0] < 1, np.exp, f);
        lax.cond(s > 0, np.sin, np.cos, f); lax.switch(o[0], [np.sin, np.cos], v)""")  # fmt: skip


def draws() -> Iterator[str]:
    yield from (f"random.{name}(k, (M, M))" for name in "bits cauchy exponential gumbel laplace logistic normal rademacher uniform".split())
    yield from _calls("""random.bernoulli(k, 0.3, (M, M)); random.truncated_normal(k, -1.0, 1.0, (M, M)); random.randint(k, (M, M), 0, 9);
        random.categorical(k, f); random.categorical(k, f[0], shape=(M,)); random.choice(k, f[0], (8,)); random.split(k, M);
        lax.rng_bit_generator(np.arange(4, dtype=np.uint32), (M, M)); lax.stage(f);
        random.fold_in(k, o[0]); random.key_data(k); random.clone(k); random.key(o[0]); random.PRNGKey(o[0]);
        random.wrap_key_data(np.ones((M, 2), np.uint32)); random.bits(k, (M, M), np.uint8); random.orthogonal(k, M);
        random.gamma(k, f); random.loggamma(k, f); random.beta(k, f, g); random.chisquare(k, f); random.f(k, f, g); random.t(k, 3.0, (M, M));
        random.dirichlet(k, f); random.generalized_normal(k, 3.0, (M, M)); random.ball(k, 3, 2.0, (M,)); random.poisson(k, f);
        random.binomial(k, f, 0.3); random.multinomial(k, f[:, 0], f[0]); random.geometric(k, f); random.pareto(k, f);
        random.rayleigh(k, f); random.wald(k, f); random.weibull_min(k, f, g, (M, f.shape[1])); random.maxwell(k, (M, M));
        random.double_sided_maxwell(k, 0.0, 1.0, (M, M)); random.triangular(k, 0.0, 0.5, f); random.lognormal(k, f);
        random.multivariate_normal(k, f[0, :3], np.eye(3), (M,))""")  # fmt: skip
    yield from (f"nn.initializers.{name}(k, (M, M))" for name in "zeros ones".split())
    yield from (f"nn.initializers.{name}()(k, (M, M))" for name in """normal uniform truncated_normal lecun_normal lecun_uniform glorot_normal
        glorot_uniform he_normal he_uniform xavier_normal xavier_uniform kaiming_normal kaiming_uniform""".split())  # fmt: skip
    yield from _calls("nn.initializers.delta_orthogonal()(k, (1, 2, 2)); nn.initializers.orthogonal()(k, (M, M))")
    yield from _calls("nn.initializers.constant(2.0)(k, (M, M)); nn.initializers.variance_scaling(1.0, 'fan_in', 'normal')(k, (M, M))")


def matrices() -> Iterator[str]:
    yield from _names("np.linalg", "cholesky eigh eigvalsh", "q @ q.T")
    yield from _names("np.linalg", "norm trace diagonal matrix_norm matrix_rank cond svdvals pinv svd qr", "f")
    yield from _calls("""np.linalg.vector_norm(v); np.linalg.lstsq(f, f[:, :1]); np.linalg.matmul(f, q); np.linalg.matrix_transpose(t);
        np.linalg.outer(o, o); np.linalg.tensordot(f, q, axes=1); np.linalg.vecdot(f, g); np.linalg.multi_dot([f, q, f.T]);
        np.linalg.matrix_power(q, 3); np.linalg.cross(f[:, :3], g[:, :3]); np.linalg.pinv(v[None]); np.linalg.eig(q); np.linalg.eigvals(q);
        lax.linalg.cholesky(q); lax.linalg.eigh(q); lax.linalg.eig(q); lax.linalg.svd(f, full_matrices=False);
        lax.linalg.qr(f, full_matrices=False); lax.linalg.triangular_solve(q, q, left_side=True);
        lax.linalg.lu_pivots_to_permutation(np.array([1, 1, 2]), 4);
        scipy.linalg.cholesky(q); scipy.linalg.cho_factor(q); scipy.linalg.cho_solve((q, True), q[0]); scipy.linalg.eigh(q);
        scipy.linalg.qr(f, mode='economic'); scipy.linalg.svd(f, full_matrices=False); scipy.linalg.solve_triangular(q, q);
        lax.linalg.schur(q); lax.linalg.hessenberg(q); lax.linalg.tridiagonal(q); lax.linalg.householder_product(q, q[0]);
        lax.linalg.ormqr(q, q[0], q); lax.linalg.tridiagonal_solve(q[0], q[1], q[2], q); lax.linalg.cholesky_update(q, q[0]);
        lax.linalg.qdwh(q); lax.linalg.symmetric_product(q, q); scipy.linalg.schur(q); scipy.linalg.hessenberg(q, calc_q=True);
        scipy.linalg.sqrtm(q); scipy.linalg.funm(q, np.exp);
        scipy.linalg.polar(q); scipy.linalg.qr_multiply(q, q); scipy.linalg.rsf2csf(q, q); scipy.linalg.solve_sylvester(q, q, q);
        scipy.linalg.eigh_tridiagonal(q[0], q[1, 1:], eigvals_only=True)""")  # fmt: skip


def collectives() -> Iterator[str]:
    """Among the members of a batch."""
    inside = ("psum(x, 'i')", "pmax(x, 'i')", "pmin(x, 'i')", "pmean(x, 'i')", "all_gather(x[:8], 'i')", "pbroadcast(x, 'i', 0)",
              "axis_index('i')")  # fmt: skip
    yield from (f"vmap(lambda x: lax.{call}, axis_name='i')(f)" for call in inside)
    for call in ("all_to_all(x, 'i', 0, 0)", "pswapaxes(x, 'i', 0)", "psum_scatter(x, 'i')"):
        yield f"vmap(lambda x: lax.{call}, axis_name='i')(q)"


def growing() -> Iterator[str]:
    """Programs of some log2(extent) parts, as JAX's are: prefix scans by doubling, blocks of blocks."""
    yield from _names("np", "cumsum cumprod nancumsum nancumprod", "f")
    yield from _names("np", "cumulative_sum cumulative_prod cumsum", "v")
    yield from _names("lax", "cumsum cumprod cummax cummin cumlogsumexp", "f")
    yield from _names("np.linalg", "inv det slogdet", "q")
    yield from _names("lax.linalg", "lu", "f")
    yield from _names("scipy.linalg", "lu lu_factor det inv expm", "q")
    yield from _calls("scipy.linalg.expm_frechet(q, q)")
    yield from _calls("""lax.associative_scan(lax.add, v); lax.reduce_xor(i, (0,)); np.linalg.solve(q, q[..., :1]);
        np.linalg.tensorinv(q[None], 2); np.linalg.tensorsolve(q, q[0]); np.polyval(v[:M], s); np.repeat(o, o, total_repeat_length=M); np.nonzero(f[0], size=8);
        np.flatnonzero(f[0], size=8); np.ix_(o, o); np.argwhere(f[0], size=8); np.unique(f[0], size=8); np.unwrap(f); np.union1d(f[0], v[:5], size=8); np.setdiff1d(f[0], v[:5], size=8);
        np.unique_all(f[0], size=8); np.unique_counts(f[0], size=8); np.unique_inverse(f[0], size=8); np.unique_values(f[0], size=8);
        np.setxor1d(f[0], v[:5], size=8); np.intersect1d(f[0], v[:5], size=8); scipy.linalg.solve(q, q); scipy.linalg.lu_solve(scipy.linalg.lu_factor(q), q); random.permutation(k, f[0])""")


def computed() -> Iterator[str]:
    """A table where it is small, a few equations where it is large."""
    yield from _calls("np.tril_indices(K); np.triu_indices(K, 1); np.tril_indices_from(q[:K, :K]); np.triu_indices_from(q[:K, :K])")


GROUPS = (elementwise, reductions, shapes, makers, products, polynomials, places, loops, draws, matrices, collectives)

_NO_ARRAYS = "takes no arrays, or makes nothing of their elements"
NOT_CALLED = {
    **dict.fromkeys("""np.can_cast np.complex_ np.float_ np.int_ np.uint np.isdtype np.isscalar np.issubdtype np.promote_types
        np.result_type np.broadcast_shapes np.iscomplexobj np.isrealobj np.iterable np.ndim np.shape np.size np.from_dlpack
        np.install_methods lax.conv_dimension_numbers lax.broadcast_shapes lax.padtype_to_pads random.key_impl random.key_dtype
        lax.DotDimensionNumbers lax.conv_general_permutations lax.conv_general_shape_tuple lax.conv_shape_tuple lax.shape_as_value
        lax.DotAlgorithm lax.Tolerance nn.get_scaled_dot_general_config lax.conv_transpose_shape_tuple lax.reduce_window_shape_tuple lax.axis_size lax.dtype lax.create_token lax.after_all np.vectorize""".split(), _NO_ARRAYS),
    **dict.fromkeys(["np.save", "np.savez", "np.load"], "reads or writes a file"),
    **dict.fromkeys(["lax.custom_linear_solve", "lax.custom_root", "lax.platform_dependent"], "calls the user's functions"),
    **dict.fromkeys(["lax.pcast", "lax.pvary", "lax.ragged_all_to_all"], "is for code of single devices: test_shard_map"),
    **dict.fromkeys(["np.trim_zeros", "np.extract", "np.place", "np.mask_indices"], "needs the elements"),
    **dict.fromkeys("""np.array_repr np.array_str np.einsum_path np.get_printoptions np.printoptions np.set_printoptions""".split(), _NO_ARRAYS),
    **dict.fromkeys("np.frombuffer np.fromfile np.fromiter np.fromstring".split(), "reads what is on the host"),
    **dict.fromkeys(["lax.ppermute", "lax.pshuffle"], "is given a list as long as the axis"),
    **dict.fromkeys(["lax.with_sharding_constraint"], "every call on a mesh has some"),
    **dict.fromkeys(["scipy.linalg.invhilbert", "scipy.linalg.pascal", "scipy.linalg.invpascal"], "exceeds floats beyond a hundred rows"),
    "np.frompyfunc": "is given a function",
    "scipy.special.bernoulli": "has a result of the size of its number, and exceeds floats beyond 258",
    "scipy.linalg.dft": "of the large size does not fit a device, for which planning looks for another plan",
}  # fmt: skip
