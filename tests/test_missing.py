"""Names that are not there say so; the list of them is what is really missing."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.missing import NOT_THERE

NAMES = [(module, name) for module, names in NOT_THERE.items() for name in names if module != "meshjit.Array"]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_what_is_listed_is_missing(module: str, name: str) -> None:
    found = importlib.import_module(module)
    assert not hasattr(found, name), f"{module}.{name} has arrived: take it out of meshjit/missing.py"
    with pytest.raises(AttributeError) as caught:
        getattr(found, name)
    assert str(caught.value).startswith(f"{module} has no {name} (docs/migration.md): {NOT_THERE[module][name].why}")
    with pytest.raises(ImportError) as refused:
        exec(f"from {module} import {name}")
    assert str(refused.value) == str(caught.value) and refused.value.name == name


def test_a_misspelt_name_is_told_the_right_one() -> None:
    for module, wrong, right in [
        ("meshjit", "devicse", "devices"), ("meshjit.numpy", "zeroes", "zeros"), ("meshjit.lax", "scann", "scan"),
        ("meshjit.random", "nromal", "normal"), ("meshjit.tree", "flaten", "flatten"), ("meshjit.sharding", "Nmaedsharding", ""),
        ("meshjit.errors", "InternalErorr", "InternalError"), ("meshjit.nn", "softmaxx", "softmax"), ("meshjit", "zzz", ""),
    ]:  # fmt: skip
        with pytest.raises(AttributeError) as caught:
            getattr(importlib.import_module(module), wrong)
        if right:
            assert str(caught.value) == f"{module} has no {wrong}; did you mean {right}?"
        else:
            assert str(caught.value).startswith(f"{module} has no {wrong}")
        with pytest.raises(ImportError, match=f"{module} has no {wrong}"):
            exec(f"from {module} import {wrong}")
    with pytest.raises(AttributeError, match="^module 'meshjit' has no attribute '__nothing__'$"):
        mj.__nothing__  # type: ignore[attr-defined]  # noqa: B018


def test_submodules_are_found_as_ever() -> None:
    code = "from meshjit import scipy, experimental; from meshjit.scipy import linalg; from meshjit import *; import meshjit.cli"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.device
def test_what_is_proposed_instead_does_the_same() -> None:
    x = mnp.arange(3.0)
    rounded = lambda x: mnp.sum(x + lax.stop_gradient(mnp.round(x * 2) - x))  # noqa: E731 - custom_vjp, custom_jvp
    assert float(rounded(x)) == 6 and np.array_equal(mj.grad(rounded)(x), np.ones(3))
    (transposed,) = mj.vjp(lambda x: x[:2] * 3, mnp.zeros(3))[1](mnp.array([1.0, 2.0]))  # linear_transpose
    assert np.array_equal(transposed, [3, 6, 0])
    flat = mnp.concatenate([x.ravel() for x in mj.tree.leaves({"a": x, "b": x[None]})])  # flatten_util
    assert flat.shape == (6,)
    with mj.disable_jit():  # pure_callback, debug
        seen: list[float] = []
        mj.jit(lambda x: seen.append(float(x.sum())) or x)(x)
        assert seen == [3.0]
    for name in ("erf", "lgamma", "digamma"):  # scipy.special
        assert np.isfinite(getattr(lax, name)(mnp.array(1.5)))
    for function in (mnp.trapezoid, mnp.interp, mnp.convolve, mnp.correlate, mnp.meshgrid):
        assert callable(function)
    for function in (mj.nn.logsumexp, mj.nn.sigmoid, mj.named_scope, mj.random.bits, mnp.linalg.svd, mnp.linalg.qr):
        assert callable(function)
