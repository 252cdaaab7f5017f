"""compute_on: nothing else is computed on CPUs, and elsewhere it says what the host is asked by."""

from __future__ import annotations

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.experimental import compute_on as module
from meshjit.experimental.compute_on import compute_on
from meshjit.sharding import Mesh

X = np.arange(3.0, dtype=np.float32)


@pytest.mark.skipif(mj.default_backend() != "cpu", reason="there is an accelerator")
@pytest.mark.parametrize("kind", ["device", "device_host", "tpu_sparsecore", "gpu_stream:1"])
def test_cpus_compute_as_ever(kind: str) -> None:
    def inside(x):
        with compute_on(kind):
            y = mnp.sin(x)
        return y * 2

    for f in (inside, mj.jit(inside), mj.jit(compute_on(kind)(mj.jit(lambda x: mnp.sin(x) * 2))), mj.vmap(inside)):
        np.testing.assert_allclose(f(X), np.sin(X) * 2, rtol=1e-6)
    assert compute_on(kind)(inside).__name__ == "inside"
    np.testing.assert_allclose(mj.grad(lambda x: inside(x).sum())(X), 2 * np.cos(X), rtol=1e-6)


def test_elsewhere_the_host_is_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_platform", lambda: "tpu")
    text = r"compute_on..device_host..: a program runs as a whole on its devices, which are of platform tpu\n  at .*compute_on.py"
    with pytest.raises(NotImplementedError, match=text), compute_on("device_host"):
        pass
    with pytest.raises(NotImplementedError, match="fix: pure_callback for NumPy on the host; device_put"):
        mj.jit(compute_on("tpu_sparsecore")(lambda x: x))(X)
    with compute_on("device"):
        assert mnp.sum(X) == 3


def test_the_mesh_says_which_devices() -> None:
    with Mesh(mj.devices()[1:3], ("x",)):
        assert module._platform() == mj.devices()[1].platform


def test_wrong_names() -> None:
    with pytest.raises(ValueError, match="compute_on: 'host' is none of device_host, device, tpu_sparsecore and gpu_stream:NUMBER"):
        compute_on("host")
    with pytest.raises(TypeError, match="compute_type must be a str, got 3"):
        compute_on(3)  # pyright: ignore[reportArgumentType]
