"""Calls at the edges of what functions of scipy, lax and random take, as text, for the comparison with JAX: with jax installed

    python -m tests.tools.edge_cases > tests/goldens/edge_surface.txt

writes what it gives, or the kinds of error that it raises; tests/test_breadth_edges.py holds ours against it. Names as in
`breadth_cases`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.tools.breadth_cases import operands, scope
from tests.tools.numpy_cases import describe

KINDS = "ValueError TypeError IndexError NotImplementedError OverflowError RuntimeError".split()


def _split(text: str) -> Iterator[str]:
    yield from (" ".join(call.split()) for call in text.split(";") if call.strip())


def calls() -> Iterator[str]:
    yield from _distributions()
    yield from _special()
    yield from _lax()
    yield from _matrices()


def _distributions() -> Iterator[str]:
    """Scales of 0 and below, shapes out of range, infinities; results of Python numbers and of integers; what is refused."""
    scales = "np.array([-1., 0., 2.], 'float32')"
    for name, shapes in {"norm": "", "cauchy": "", "expon": "", "laplace": "", "logistic": "", "gumbel_l": "", "gumbel_r": "",
                         "t": "3., ", "beta": "2., 3., "}.items():  # fmt: skip
        yield f"scipy.stats.{name}.logpdf(0.25, {shapes}0., {scales})"
        yield f"scipy.stats.{name}.pdf(0.25, {shapes}0., {scales})"
    for name in "expon gumbel_l gumbel_r logistic".split():
        yield from (f"scipy.stats.{name}.{key}(f, 0.5, {scales})" for key in ("cdf", "sf"))
    yield from _split("""
        scipy.stats.pareto.logcdf(f, 2., 0., 0.5); scipy.stats.uniform.logpdf(f, -1., 2.); scipy.stats.uniform.cdf(f, -1., 2.);
        scipy.stats.gamma.logpdf(f, 2., 0., 2.); scipy.stats.beta.logpdf(g, np.array([-1., 0., 2.]), 3.); scipy.stats.bernoulli.pmf(w % 2, -v);
        scipy.stats.truncnorm.logpdf(g, -1., 2., 0., -1.5); scipy.stats.mode(e); scipy.stats.mode(f, None); scipy.stats.norm.ppf(g, h, 2);
        scipy.stats.cauchy.cdf(0.5); scipy.stats.cauchy.cdf(m); scipy.stats.laplace.cdf(b); scipy.stats.expon.cdf(2); scipy.stats.expon.cdf(b);
        scipy.stats.norm.logcdf(0); scipy.stats.geom.pmf(w, 0.5); scipy.stats.t.pdf(b, 2); scipy.stats.gumbel_l.pdf(0); scipy.stats.poisson.pmf(1, 2);
        scipy.stats.expon.cdf(c); scipy.stats.laplace.cdf(c); scipy.stats.gumbel_l.ppf([0.5, 0.2]); scipy.stats.norm.logpdf([0.5]);
        scipy.stats.beta.cdf(c, 1., 2.); scipy.stats.expon.logpdf(v, v[:3]); scipy.stats.wrapcauchy.logpdf(f, [0.5]);
        scipy.stats.multinomial.logpmf(v, 2, v); scipy.stats.rankdata(f, nan_policy='x'); scipy.stats.mode(f, nan_policy=None)
    """)


def _special() -> Iterator[str]:
    yield from _split("""
        scipy.special.gamma(c); scipy.special.loggamma(c + 0.5); scipy.special.loggamma(-c - 2.5); scipy.special.loggamma(f);
        scipy.special.gammainc(np.array([0., 0., 1., 1., -1.]), np.array([2., 0., np.inf, 0., 1.]));
        scipy.special.gammaincc(np.array([0., 0., 1., 1., -1.]), np.array([2., 0., np.inf, 0., 1.]));
        scipy.special.betainc(np.array([0., 1., 0., np.inf, 1., 1.]), np.array([1., 0., 0., 1., np.inf, np.inf]), np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.]));
        scipy.special.betainc(np.array([0., 1., -1.]), np.array([1., 0., 1.]), np.array([0., 1., 0.5])); scipy.special.expn(0.5, 0.5);
        scipy.special.ndtr(0.5); scipy.special.beta(c, f); scipy.special.kl_div(c, f); scipy.special.betaln([1.], f); scipy.special.i0e([1.]);
        scipy.special.polygamma(1., f); scipy.special.fresnel(c); scipy.special.log_ndtr(f, 31); scipy.special.log_ndtr(f, 1.5); scipy.special.zeta(v, f[0])
    """)


def _lax() -> Iterator[str]:
    yield from _split("""
        lax.cummax(c[::-1], 1); lax.cummin(c, 0, reverse=True); lax.atan2(c, c[::-1] + 1); lax.shape_as_value((2, 3)); lax.broadcast_like(-1, f);
        lax.argmax(f, 1, int); lax.dot(v, w.astype('float32')); random.permutation(random.key(3), np.asarray(4)); random.choice(random.key(3), np.asarray(4));
        lax.argmax(f, -1, np.int32); lax.argmin(f, 0, None); lax.cumsum(f, -1); lax.cumlogsumexp(f, -1); lax.rev(f, (-1,)); lax.rev(f, (0, 0));
        lax.transpose(f, (0, -1)); lax.transpose(f, (0,)); lax.reduce_sum(f, (-1,)); lax.reduce_and(f, (0,)); lax.sort(f, num_keys=2);
        lax.approx_max_k(i, 2); lax.approx_min_k(b, 2); lax.approx_max_k(s, 1); lax.dynamic_update_slice(f, i, (0,)); lax.dynamic_slice(f, (0,), (1, 1));
        lax.pad(f, w, ((0, 0, 0), (0, 0, 0))); lax.concatenate([f, f], None); lax.mul(i, True, out_dtype='int32'); lax.dot(f, 2.);
        lax.shape_as_value((2.,)); lax.bitcast_convert_type(f, 'complex64'); lax.padtype_to_pads((4,), (2,), (1,), 'x'); lax.padtype_to_pads((4,), (2,), (1,), ((1, 0),));
        lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), ('NHWC', 'HWIO', 'NHWC')); random.ball(random.key(0), 2.5); random.gamma(random.key(0), c);
        random.categorical(random.key(0), i); random.key(0, impl=3); random.geometric(random.key(0), c)
    """)


def _matrices() -> Iterator[str]:
    yield from _split("""
        scipy.linalg.toeplitz(f); scipy.linalg.toeplitz(f, v); scipy.linalg.toeplitz(2.); scipy.linalg.toeplitz(e); scipy.linalg.hankel(f);
        scipy.linalg.hankel(q, f[:1]); scipy.linalg.fiedler(2.); scipy.linalg.fiedler_companion(v[:1]); np.abs(scipy.linalg.qr_multiply(q, np.stack([q, q]))[1]);
        scipy.fft.idctn(f, axes=1); scipy.fft.idctn(0); scipy.signal.stft(v[:0]); scipy.signal.csd(v[:0], v[:0]); scipy.signal.welch(v[:0]);
        scipy.signal.istft(np.stack([q, q]), window='boxcar', freq_axis=0)[1]; lax.linalg.cholesky(i[:, :2] * 0 + np.eye(2, dtype='int32'));
        scipy.linalg.toeplitz([1., 2.]); scipy.linalg.hankel([1., 2.]); scipy.linalg.hankel(2.); scipy.linalg.block_diag([f, f]); scipy.cluster.vq.vq(v, [1., 2.]);
        scipy.linalg.lu_solve((q, v[:3]), v[:3]); lax.linalg.lu(i); lax.linalg.svd(i); lax.linalg.qr(i); lax.linalg.lu_pivots_to_permutation(1, 2);
        scipy.signal.welch(v, window=x)
    """)


def outcome(call: str, names: dict[str, Any]) -> str:
    """What a call gives, or `! ` and the kinds of error that it raises."""
    try:
        return describe(eval(call, names))
    except Exception as error:  # noqa: BLE001
        return "! " + " ".join(t.__name__ for t in type(error).__mro__ if t.__name__ in KINDS)


def main() -> None:
    import importlib
    import warnings

    warnings.simplefilter("ignore")
    jax = importlib.import_module("jax")
    names = {**scope(jax), **operands(jax.numpy.asarray)}
    for call in dict.fromkeys(calls()):
        print(f"{call}  ->  {outcome(call, names)}", flush=True)


if __name__ == "__main__":
    main()
