"""Activations, softmax and their kin against the numbers of JAX 0.10, values and derivatives."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import nn
from tests.tools.numpy_eager import host

pytestmark = pytest.mark.usefixtures("eager")

INF = float("inf")
POINTS = [-1e4, -100.0, -3.5, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 100.0, 1e4]

# Values and derivatives at POINTS: jax.nn in float32.
ACTIVATIONS = {
    "relu": (
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 100.0, 10000.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ),
    "relu6": (
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 6.0, 6.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
    ),
    "leaky_relu": (
        [-100.0, -1.0, -0.035, -0.03, -0.01, -0.005, 0.0, 0.5, 1.0, 3.0, 6.0, 100.0, 10000.0],
        [0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ),
    "elu": (
        [-1.0, -1.0, -0.9698026, -0.950213, -0.6321205, -0.3934693, 0.0, 0.5, 1.0, 3.0, 6.0, 100.0, 10000.0],
        [0.0, 0.0, 0.03019738, 0.04978704, 0.3678795, 0.6065307, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ),
    "selu": (
        [-1.758099, -1.758099, -1.705009, -1.670569, -1.111331, -0.6917582, 0.0, 0.5253505, 1.050701, 3.152103, 6.304206, 105.0701, 10507.01],
        [0.0, 0.0, 0.05308999, 0.08753057, 0.6467686, 1.066341, 1.758099, 1.050701, 1.050701, 1.050701, 1.050701, 1.050701, 1.050701],
    ),
    "celu": (
        [-1.0, -1.0, -0.9698026, -0.950213, -0.6321205, -0.3934693, 0.0, 0.5, 1.0, 3.0, 6.0, 100.0, 10000.0],
        [0.0, 0.0, 0.03019738, 0.04978704, 0.3678795, 0.6065307, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ),
    "sigmoid": (
        [0.0, 0.0, 0.02931223, 0.04742587, 0.2689414, 0.3775407, 0.5, 0.6224594, 0.7310586, 0.9525741, 0.9975274, 1.0, 1.0],
        [0.0, 0.0, 0.02845302, 0.04517666, 0.1966119, 0.2350037, 0.25, 0.2350037, 0.1966119, 0.04517666, 0.002466466, 0.0, 0.0],
    ),
    "silu": (
        [-0.0, -0.0, -0.1025928, -0.1422776, -0.2689414, -0.1887703, 0.0, 0.3112297, 0.7310586, 2.857722, 5.985165, 100.0, 10000.0],
        [0.0, 0.0, -0.07027335, -0.08810411, 0.07232949, 0.2600388, 0.5, 0.7399612, 0.9276705, 1.088104, 1.012326, 1.0, 1.0],
    ),
    "mish": (
        [-0.0, -0.0, -0.1040957, -0.1456475, -0.3034014, -0.2207438, 0.0, 0.3752452, 0.8650985, 2.986536, 5.999927, 100.0, 10000.0],
        [0.0, 0.0, -0.07276043, -0.09339312, 0.05921675, 0.2895107, 0.6, 0.8864244, 1.049036, 1.021106, 1.000133, 1.0, 1.0],
    ),
    "softplus": (
        [0.0, 0.0, 0.02975042, 0.04858735, 0.3132617, 0.474077, 0.6931472, 0.974077, 1.313262, 3.048587, 6.002476, 100.0, 10000.0],
        [0.0, 0.0, 0.02931223, 0.04742587, 0.2689414, 0.3775407, 0.5, 0.6224594, 0.7310585, 0.9525741, 0.9975273, 1.0, 1.0],
    ),
    "log_sigmoid": (
        [-10000.0, -100.0, -3.52975, -3.048587, -1.313262, -0.974077, -0.6931472, -0.474077, -0.3132617, -0.04858735, -0.002475685, -0.0, -0.0],
        [1.0, 1.0, 0.9706879, 0.9525741, 0.7310585, 0.6224594, 0.5, 0.3775407, 0.2689414, 0.04742587, 0.002472623, 0.0, 0.0],
    ),
    "soft_sign": (
        [-0.9999, -0.990099, -0.7777778, -0.75, -0.5, -0.3333333, 0.0, 0.3333333, 0.5, 0.75, 0.8571429, 0.990099, 0.9999],
        [9.997166e-09, 9.803008e-05, 0.04938272, 0.0625, 0.25, 0.4444445, 1.0, 0.4444445, 0.25, 0.0625, 0.02040817, 9.803008e-05, 9.997166e-09],
    ),
    "hard_tanh": (
        [-1.0, -1.0, -1.0, -1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    ),
    "hard_sigmoid": (
        [0.0, 0.0, 0.0, 0.0, 0.3333333, 0.4166667, 0.5, 0.5833334, 0.6666667, 1.0, 1.0, 1.0, 1.0],
        [0.0, 0.0, 0.0, 0.0, 0.1666667, 0.1666667, 0.1666667, 0.1666667, 0.1666667, 0.0, 0.0, 0.0, 0.0],
    ),
    "hard_swish": (
        [-0.0, -0.0, -0.0, -0.0, -0.3333333, -0.2083333, 0.0, 0.2916667, 0.6666667, 3.0, 6.0, 100.0, 10000.0],
        [0.0, 0.0, 0.0, 0.0, 0.1666667, 0.3333333, 0.5, 0.6666667, 0.8333334, 1.0, 1.0, 1.0, 1.0],
    ),
    "gelu": (
        [-0.0, -0.0, -0.0006161481, -0.003637344, -0.158808, -0.154286, 0.0, 0.345714, 0.841192, 2.996363, 6.0, 100.0, 10000.0],
        [0.0, 0.0, -0.002422592, -0.01158391, -0.08296407, 0.1326301, 0.5, 0.8673699, 1.082964, 1.011584, 1.0, 1.0, 1.0],
    ),
    "gelu_exact": (
        [-0.0, -0.0, -0.0008142018, -0.004049696, -0.1586553, -0.1542688, 0.0, 0.3457312, 0.8413447, 2.99595, 6.0, 100.0, 10000.0],
        [0.0, 0.0, -0.002821761, -0.01194565, -0.08331548, 0.1325049, 0.5, 0.8674951, 1.083315, 1.011946, 1.0, 1.0, 1.0],
    ),
    "tanh": (
        [-1.0, -1.0, -0.9981779, -0.9950547, -0.7615942, -0.4621172, 0.0, 0.4621172, 0.7615942, 0.9950547, 0.9999876, 1.0, 1.0],
        [0.0, 0.0, 0.003640771, 0.009866118, 0.4199743, 0.7864478, 1.0, 0.7864477, 0.4199743, 0.009866101, 2.479538e-05, 0.0, 0.0],
    ),
    "squareplus": (
        [0.0, 0.009998322, 0.2655644, 0.3027756, 0.618034, 0.7807764, 1.0, 1.280776, 1.618034, 3.302776, 6.162278, 100.01, 10000.0],
        [1.263106e-08, 9.994209e-05, 0.06587844, 0.08397485, 0.2763932, 0.3787322, 0.5, 0.6212678, 0.7236068, 0.9160252, 0.9743416, 0.9999, 1.0],
    ),
    "sparse_plus": (
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0625, 0.25, 0.5625, 1.0, 3.0, 6.0, 100.0, 10000.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0],
    ),
    "sparse_sigmoid": (
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0],
        [0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 0.5, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0],
    ),
    "log1mexp": (
        [-0.0, -0.0, -0.03066272, -0.05106918, -0.4586751, -0.9327521, -np.inf, -0.9327521, -0.4586751, -0.05106918, -0.002481829, -0.0, -0.0],
        [0.0, 0.0, -0.03113766, -0.0523957, -0.5819767, -1.541494, np.inf, 1.541494, 0.5819767, 0.0523957, 0.002484912, 0.0, 0.0],
    ),
    "identity": (
        [-10000.0, -100.0, -3.5, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 100.0, 10000.0],
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ),
}
FUNCTIONS: dict[str, Any] = {name: getattr(nn, name, None) for name in ACTIVATIONS} | {
    "gelu_exact": functools.partial(nn.gelu, approximate=False),
    "log1mexp": lambda x: nn.log1mexp(mnp.where(x < 0, -x, x)),
}


def _close(found: Any, expected: Any, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    found = np.asarray(found)
    np.testing.assert_allclose(found.astype(np.float64), np.asarray(expected, np.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_values(name: str):
    found = FUNCTIONS[name](host(POINTS, np.float32))
    assert found.dtype == np.float32
    _close(found, ACTIVATIONS[name][0])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_derivatives(name: str):
    found = mj.grad(lambda x: mnp.sum(FUNCTIONS[name](x)))(host(POINTS, np.float32))
    _close(found, ACTIVATIONS[name][1])


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_activations_keep_small_floats(name: str, dtype: str):
    x = mnp.asarray(host([-2.0, -0.5, 0.5, 3.0], np.float32)).astype(getattr(mnp, dtype))
    found = FUNCTIONS[name](x)
    assert found.dtype == x.dtype
    wide = np.asarray(FUNCTIONS[name](host([-2.0, -0.5, 0.5, 3.0], np.float32)))
    _close(found, wide, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("name", sorted(set(ACTIVATIONS) - {"relu", "identity", "hard_tanh"}))
def test_activations_of_integers_are_floats(name: str):
    found = FUNCTIONS[name](host([1, 2], np.int32))
    assert found.dtype == np.float32
    _close(found, FUNCTIONS[name](host([1, 2], np.float32)))


def test_relu_of_integers_and_nan():
    assert nn.relu(host([-1, 2], np.int32)).dtype == np.int32
    assert np.isnan(np.asarray(nn.relu(host([np.nan], np.float32)))).all()
    assert np.isnan(np.asarray(nn.relu6(host([np.nan], np.float32)))).all()


def test_softmax():
    x = host([1.0, 2.0, 3.0], np.float32)
    _close(nn.softmax(x), [0.09003057, 0.24472847, 0.66524096])
    _close(nn.softmax(host([1, 2])), [0.26894143, 0.7310586])
    _close(nn.softmax(host([[1.0, 2], [3, 5]], np.float32), axis=(0, 1)), [[0.01521943, 0.04137069], [0.11245721, 0.83095264]])
    _close(nn.log_softmax(x), [-2.407606, -1.407606, -0.407606])
    _close(nn.softmax(host([1e4, 1e4], np.float32)), [0.5, 0.5])
    _close(nn.softmax(host([-INF, 0.0], np.float32)), [0, 1])
    assert np.asarray(nn.softmax(host(np.zeros((0,), np.float32)))).shape == (0,)
    assert nn.softmax(host(np.zeros((3, 0), np.float32))).shape == (3, 0)


def test_softmax_of_some():
    x, some = host([1.0, 2.0, 3.0], np.float32), host([True, False, True])
    _close(nn.softmax(x, where=some), [0.11920291, 0, 0.88079703])
    _close(nn.log_softmax(x, where=some), [-2.126928, -INF, -0.126928])
    none = host([False] * 3)
    _close(nn.softmax(x, where=none), [0, 0, 0])
    _close(nn.log_softmax(x, where=none), [-INF] * 3)


def test_softmax_derivatives():
    x, some = host([1.0, 2.0, 3.0], np.float32), host([True, False, True])
    first = mj.grad(lambda x: nn.softmax(x, where=some)[0])(x)
    _close(first, [0.10499357, 0, -0.10499357])
    _close(mj.grad(lambda x: nn.log_softmax(x)[2])(x), [-0.09003057, -0.24472847, 0.33475904])
    _close(mj.grad(lambda x: mnp.sum(nn.softmax(x)))(host([1e4, -1e4, 0.0], np.float32)), [0, 0, 0])


def test_logsumexp():
    _close(nn.logsumexp(host([-INF, -INF], np.float32)), -INF)
    _close(nn.logsumexp(host([INF, 1.0], np.float32)), INF)
    _close(nn.logsumexp(host([1e4, 1e4], np.float32)), 10000.6931)
    _close(nn.logsumexp(host(np.zeros((0,), np.float32))), -INF)
    _close(nn.logsumexp(host([[1.0, 2], [3, 4]], np.float32), axis=1, keepdims=True), [[2.3132615], [4.3132615]])
    _close(nn.logsumexp(host([[1.0, 2], [3, 4]], np.float32), axis=-2), [3.126928, 4.126928])
    _close(nn.logsumexp(host([1.0, 2.0], np.float32), b=host([1.0, 3.0], np.float32)), 3.2142703)
    assert nn.logsumexp(host([1, 2])).dtype == np.float32
    _close(mj.grad(nn.logsumexp)(host([-INF, 0.0], np.float32)), [0, 1])


def test_one_hot():
    _close(nn.one_hot(host([0, 2, -1, 3]), 3), [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    found = nn.one_hot(host([0, 2]), 3, axis=0, dtype=np.int8)
    assert found.dtype == np.int8
    _close(found, [[1, 0], [0, 0], [0, 1]])
    _close(nn.one_hot(1, 3), [0, 1, 0])
    _close(nn.one_hot(host([0.0, 1.0], np.float32), 3), [[1, 0, 0], [0, 1, 0]])
    assert nn.one_hot(host([0, 1]), 0).shape == (2, 0) and nn.one_hot(host([[0, 1]]), 3, axis=1).shape == (1, 3, 2)
    with pytest.raises(IndexError, match="axis 3 is out of range for an array of 2 dims"):
        nn.one_hot(host([0, 1]), 3, axis=3)


def test_standardize_and_glu():
    _close(nn.standardize(host([[1.0, 2, 3], [2, 2, 2]], np.float32)), [[-1.2247355, 0, 1.2247355], [0, 0, 0]], rtol=1e-4)
    _close(nn.standardize(host([1.0, 2, 9], np.float32), where=host([True, True, False])), [-0.99998, 0.99998, 14.9997], rtol=1e-4)
    _close(nn.standardize(host([0, 1, 2])), [-1.2247356, 0, 1.2247356], rtol=1e-4)
    _close(nn.glu(host([1.0, 2, 3, 4], np.float32)), [0.95257413, 1.9640275])
    far = host([1.0, 2, 3], np.float32)
    _close(nn.standardize(far, mean=1.0, algorithm="stable"), [0, 0.7745954, 1.5491908], rtol=1e-4)  # of the mean of (0, 1, 4)
    _close(nn.standardize(far, mean=1.0), [0, 0.52223, 1.04446], rtol=1e-4)  # of 14/3 - 1
    with pytest.raises(ValueError, match="algorithm 'other' is neither 'fast' nor 'stable'"):
        nn.standardize(far, algorithm="other")


def test_causal_attention():
    q = host(np.arange(24, dtype=np.float32).reshape(1, 3, 2, 4) / 10)
    expected = [
        [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
        [0.65643084, 0.75643086, 0.8564308, 0.9564309, 1.1172798, 1.2172798, 1.3172797, 1.4172797],
        [1.548742, 1.648742, 1.748742, 1.848742, 1.9735776, 2.0735776, 2.1735775, 2.2735775],
    ]
    _close(nn.dot_product_attention(q, q, q, is_causal=True), np.reshape(expected, (1, 3, 2, 4)), rtol=1e-5)


def test_attention_of_sequences_of_their_own_lengths():
    """Queries beyond theirs give zeros; the residual is the logarithm of what each softmax divides by."""
    rng = np.random.default_rng(0)
    q, k, v = (host(rng.normal(size=shape), np.float32) for shape in ((2, 5, 4, 3), (2, 6, 2, 3), (2, 6, 2, 3)))
    result, residual = nn.dot_product_attention(
        q, k, v, query_seq_lengths=[2, 5], key_value_seq_lengths=[6, 4], return_residual=True
    )
    for b, (queries, keys) in enumerate([(2, 6), (5, 4)]):
        for head in range(4):
            logits = np.asarray(q)[b, :, head] @ np.asarray(k)[b, :keys, head // 2].T / np.sqrt(3)
            weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
            expected = np.where(np.arange(5)[:, None] < queries, weights @ np.asarray(v)[b, :keys, head // 2], 0)
            _close(result[b, :, head], expected, rtol=1e-5, atol=1e-6)
            _close(residual[b, :queries, head], np.log(np.exp(logits).sum(-1))[:queries], rtol=1e-5, atol=1e-6)
    alone = nn.dot_product_attention(q[0], k[0], v[0], query_seq_lengths=[2], return_residual=True)
    assert alone[0].shape == (5, 4, 3) and alone[1].shape == (5, 4)
    _close(alone[0], result[0], rtol=1e-5, atol=1e-6)
    none = mj.grad(lambda q: mnp.sum(nn.dot_product_attention(q, k, v, return_residual=True)[1]))(q)
    assert not np.asarray(none).any()


def test_attention_refuses():
    q, half = host(np.ones((2, 3, 2, 4)), np.float32), host(np.ones((2, 3, 2, 4)), np.float16)
    with pytest.raises(ValueError, match=r"the mask is float32, not bool\n  at test_nn.py:\d+ .*\n  fix: mask != 0, or give what"):
        nn.dot_product_attention(q, q, q, mask=mnp.ones((1, 1, 3, 3)))
    with pytest.raises(ValueError, match=r"different dtypes: float32, float16, float32\n.*\n  fix: convert them to one"):
        nn.dot_product_attention(q, half, q)
    with pytest.raises(ValueError, match=r"query_seq_lengths is int32\[1\], not int32\[2\]"):
        nn.dot_product_attention(q, q, q, query_seq_lengths=[3])
    with pytest.raises(ValueError, match=r"implementation 'flash' is none of 'xla', 'cudnn' and None"):
        nn.dot_product_attention(q, q, q, implementation="flash")  # pyright: ignore[reportArgumentType]


@pytest.mark.device
@pytest.mark.parametrize("name", ["gelu", "gelu_exact", "softplus", "elu", "sigmoid", "log1mexp"])
def test_activations_on_a_device(name: str):
    x = np.asarray(POINTS, np.float32)
    _close(mj.jit(FUNCTIONS[name])(x), ACTIVATIONS[name][0], rtol=1e-4, atol=1e-5)
    found = mj.jit(mj.grad(lambda x: mnp.sum(FUNCTIONS[name](x))))(x)
    _close(found, ACTIVATIONS[name][1], rtol=1e-4, atol=1e-5)


def test_logmeanexp_keeps_its_dtype() -> None:
    x = mnp.asarray(np.zeros((2, 3), np.float16))
    assert nn.logmeanexp(x, axis=0).dtype == np.float16 and float(nn.logmeanexp(x)) == 0
