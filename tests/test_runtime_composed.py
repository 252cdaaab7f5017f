"""debug_nans and debug_infs outside of jit: functions of several ops are looked at where they end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import nn
from meshjit.scipy import linalg, special, stats

X = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
POSITIVE, BELOW_1 = np.abs(X) + 0.5, np.abs(X) / (1 + np.abs(X))
FINE: dict[str, Callable[[], Any]] = {
    "var": lambda: mnp.var(X, 0),
    "std of sharded": lambda: mnp.std(mj.device_put(X, mj.NamedSharding(mj.make_mesh((4,), ("x",)), mj.P("x")))),
    "method": lambda: mnp.asarray(X).var(),
    "max where": lambda: mnp.max(X, axis=1, initial=-1, where=X > 0),
    "nanmax": lambda: mnp.nanmax(X),
    "nanargmax": lambda: mnp.nanargmax(X),
    "logsumexp": lambda: nn.logsumexp(X, axis=1),
    "softmax where": lambda: nn.softmax(X, where=X > -1),
    "attention": lambda: nn.dot_product_attention(*(np.ones((1, 4, 2, 8), np.float32),) * 3, is_causal=True),
    "softplus": lambda: nn.softplus(X),
    "mish": lambda: nn.mish(X),
    "logaddexp": lambda: mnp.logaddexp(X, X),
    "hypot": lambda: mnp.hypot(X, X),
    "nan_to_num": lambda: mnp.nan_to_num(X),
    "expm": lambda: linalg.expm(np.zeros((3, 3), np.float32)),
    "hyp2f1": lambda: special.hyp2f1(POSITIVE, POSITIVE, POSITIVE + 1, BELOW_1),
    "spence": lambda: special.spence(POSITIVE),
    "xlogy": lambda: special.xlogy(np.zeros(3), np.zeros(3)),
    "kl_div": lambda: special.kl_div(POSITIVE, POSITIVE),
    "beta": lambda: stats.beta.logpdf(BELOW_1, 2.0, 3.0),
    "truncnorm": lambda: stats.truncnorm.logpdf(BELOW_1, -1.0, 2.0),
    "rankdata": lambda: stats.rankdata(X[0]),
}


@pytest.mark.parametrize("name", FINE)
def test_what_nobody_sees_is_not_looked_at(name: str) -> None:
    with mj.debug_nans(), mj.debug_infs():
        FINE[name]()


def test_results_are() -> None:
    with mj.debug_nans():
        for f in (lambda: mnp.var(X[:1], 0, ddof=1), lambda: nn.softmax(np.full(3, -np.inf)), lambda: special.spence(-POSITIVE)):
            with pytest.raises(FloatingPointError, match=r"test_runtime_composed\.py:\d+.* holds NaN"):
                f()
        with pytest.raises(FloatingPointError, match=r"made by log\n"):
            mnp.log(-POSITIVE)
        with pytest.raises(FloatingPointError, match=r"made by log at "):
            mj.jit(lambda x: mnp.var(mnp.log(x)))(X)
    with mj.debug_infs(), pytest.raises(FloatingPointError, match="holds infinity"):
        mnp.max(np.array([np.inf, 1.0]))
    assert np.isnan(mnp.var(X[:1], 0, ddof=1)).all()


def test_names_the_first_op_that_makes_one() -> None:
    def f() -> Any:
        return mnp.std(np.array([np.inf, 1.0], np.float32))

    with mj.debug_nans(), pytest.raises(FloatingPointError) as raised:
        f()
    assert re.match(r"subtract at test_runtime_composed\.py:\d+ \(.*f\): the result f32\[2\] holds NaN", str(raised.value))
