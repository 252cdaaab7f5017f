"""stax's layers and the small optimizers: shapes, values, and that both train under jit and on a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.example_libraries import optimizers, stax
from meshjit.sharding import AxisType, NamedSharding, PartitionSpec as P

KEY = mj.random.key(0)


def run(layer: Any, shape: tuple[int, ...], batch: int = 2) -> tuple[Any, Any, np.ndarray[Any, Any]]:
    """(what init says of the outputs, parameters, outputs) for a batch of random inputs."""
    init, apply = layer
    out, parameters = init(KEY, (-1, *shape))
    x = mj.random.normal(KEY, (batch, *shape))
    result = np.asarray(mj.jit(lambda p, x: apply(p, x, rng=KEY))(parameters, x))
    assert (-1, *result.shape[1:]) == tuple(out)
    return parameters, np.asarray(x), result


def test_dense_and_elementwise_layers() -> None:
    parameters, x, y = run(stax.serial(stax.Dense(3), stax.Relu), (5,))
    (W, b), _ = parameters
    np.testing.assert_allclose(y, np.maximum(x @ np.asarray(W) + np.asarray(b), 0), rtol=1e-5)
    np.testing.assert_allclose(run(stax.LogSoftmax, (5,))[2].sum(), np.log(run(stax.Softmax, (5,))[2]).sum(), rtol=1e-4)
    assert run(stax.Flatten, (2, 3, 4))[2].shape == (2, 24) and run(stax.Identity, (3,))[0] == ()


@pytest.mark.parametrize(
    ("layer", "shape", "out"),
    [
        (stax.Conv(4, (3, 3)), (8, 8, 2), (6, 6, 4)),
        (stax.Conv(4, (3, 3), (2, 2), "SAME"), (7, 8, 2), (4, 4, 4)),
        (stax.ConvTranspose(4, (3, 3), (2, 2), "SAME"), (5, 5, 2), (10, 10, 4)),
        (stax.Conv1DTranspose(3, (4,), (2,)), (6, 2), (14, 3)),
        (stax.GeneralConv(("NCHW", "OIHW", "NCHW"), 5, (3, 1)), (2, 8, 8), (5, 6, 8)),
        (stax.MaxPool((2, 2), (2, 2)), (6, 8, 3), (3, 4, 3)),
        (stax.SumPool((3, 3), padding="SAME"), (6, 8, 3), (6, 8, 3)),
        (stax.AvgPool((2, 2), spec="NCHW"), (3, 6, 8), (3, 5, 7)),
    ],
)
def test_layers_over_images(layer: Any, shape: tuple[int, ...], out: tuple[int, ...]) -> None:
    assert run(layer, shape)[2].shape == (2, *out)


def test_pools_and_norms() -> None:
    _, x, y = run(stax.AvgPool((2, 2), (2, 2)), (4, 4, 1))
    np.testing.assert_allclose(y, x.reshape(2, 2, 2, 2, 2, 1).mean((2, 4)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(stax.AvgPool((3, 3), padding="SAME"), (4, 4, 1))[2].shape, (2, 4, 4, 1))
    normed = run(stax.BatchNorm(), (4, 4, 3), batch=8)[2]
    np.testing.assert_allclose([normed.mean((0, 1, 2)), normed.std((0, 1, 2))], [[0] * 3, [1] * 3], atol=1e-3)
    assert run(stax.BatchNorm(0, center=False), (3,))[0][0] == ()


def test_layers_of_layers() -> None:
    branches = stax.parallel(stax.Identity, stax.Dense(3))
    parameters, x, y = run(stax.serial(stax.FanOut(2), branches, stax.FanInSum), (3,))
    (_, W_b), x = parameters[1], np.asarray(x)
    np.testing.assert_allclose(y, x + x @ np.asarray(W_b[0]) + np.asarray(W_b[1]), rtol=1e-5)
    assert run(stax.serial(stax.FanOut(2), stax.parallel(stax.Tanh, stax.Dense(4)), stax.FanInConcat()), (3,))[2].shape == (2, 7)
    assert run(stax.shape_dependent(lambda shape: stax.Dense(2 * shape[-1])), (3,))[2].shape == (2, 6)
    assert run(stax.serial(), (3,))[0] == []


def test_dropout_keeps_a_share() -> None:
    _, x, y = run(stax.Dropout(0.75), (1000,))
    kept = y != 0
    np.testing.assert_allclose(y[kept], (x / 0.75)[kept], rtol=1e-6)
    assert 0.7 < kept.mean() < 0.8
    assert (run(stax.Dropout(0.75, mode="test"), (10,))[2] != 0).all()
    with pytest.raises(ValueError, match="Dropout: it draws, and has no key\n  fix: apply"):
        stax.Dropout(0.5)[1]((), x)


G = np.array([0.5, -2.0, 0.0], np.float32)
STEPS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "sgd": (optimizers.sgd(0.1), lambda: -2 * 0.1 * G),
    "momentum": (optimizers.momentum(0.1, 0.9), lambda: -0.1 * G * (1 + 1.9)),
    "nesterov": (optimizers.nesterov(0.1, 0.9), lambda: -0.1 * G * (1.9 + 0.9 * 1.9 + 1)),
    "adagrad": (optimizers.adagrad(0.1), lambda: -0.1 * np.sign(G) * (0.1 + 0.09 + 0.1 / np.sqrt(2))),
    "rmsprop": (optimizers.rmsprop(0.1), lambda: -0.1 * np.sign(G) * (1 / np.sqrt(0.1) + 1 / np.sqrt(0.19))),
    "rmsprop_momentum": (
        optimizers.rmsprop_momentum(0.1),
        lambda: -0.1 * np.sign(G) * (1.9 / np.sqrt(0.1) + 1 / np.sqrt(0.19)),
    ),
    "adam": (optimizers.adam(0.1), lambda: -2 * 0.1 * np.sign(G)),
    "adamax": (optimizers.adamax(0.1), lambda: -0.1 * np.sign(G) * (1 + 1)),
    "sm3": (optimizers.sm3(0.1), lambda: -0.1 * np.sign(G) * (0.1 + 0.09 + 0.1 / np.sqrt(2))),
}


@pytest.mark.parametrize("name", STEPS)
def test_two_steps_are_those_of_the_formula(name: str) -> None:
    (init, update, get_params), moved = STEPS[name]
    state = init({"w": mnp.zeros(3)})
    for i in range(2):
        state = mj.jit(update)(i, {"w": G}, state)
    np.testing.assert_allclose(get_params(state)["w"], moved(), rtol=1e-4, atol=1e-6)
    again = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state))
    assert mj.tree.structure(again) == mj.tree.structure(state)


def test_wrong_gradients_and_schedules() -> None:
    init, update, _ = optimizers.adam(1e-3)
    with pytest.raises(TypeError, match="the gradient has not the structure of the parameters"):
        update(0, [G], init({"w": G}))
    with pytest.raises(ValueError, match="2 boundaries need 3 values, and 2 were given"):
        optimizers.piecewise_constant([1, 2], [0.1, 0.2])
    with pytest.raises(TypeError, match="expected a number or a function of the step, got list"):
        optimizers.make_schedule([1.0])  # pyright: ignore[reportArgumentType]


def test_schedules() -> None:
    table = {
        optimizers.exponential_decay(1.0, 10, 0.5): 0.5,
        optimizers.inverse_time_decay(1.0, 4, 1.0, staircase=True): 1 / 3,
        optimizers.polynomial_decay(1.0, 20, 0.0, 2.0): 0.25,
        optimizers.piecewise_constant([5, 20], [1.0, 0.1, 0.01]): 0.1,
        optimizers.constant(3.0): 3.0,
    }
    for schedule, size in table.items():
        np.testing.assert_allclose(schedule(10), size, rtol=1e-6)


def test_training_on_a_mesh() -> None:
    mesh = mj.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    init, apply = stax.serial(stax.Dense(8), stax.Tanh, stax.Dense(1))
    begin, update, get_params = optimizers.adam(1e-2)
    x = np.asarray(mj.random.normal(KEY, (30, 4)))  # 30 rows do not divide over 4

    def train(x: Any, parameters: Any) -> list[float]:
        def step(i: Any, state: Any) -> Any:
            loss, gradient = mj.value_and_grad(lambda p: mnp.mean((apply(p, x) - x.sum(1, keepdims=True)) ** 2))(
                get_params(state)
            )
            return loss, update(i, optimizers.clip_grads(gradient, 1.0), state)

        state, losses = begin(parameters), []
        for i in range(5):
            loss, state = mj.jit(step)(i, state)
            losses.append(float(loss))
        return losses

    _, parameters = init(KEY, (-1, 4))
    sharded = mj.device_put(x, NamedSharding(mesh, P("data")))
    losses = train(sharded, parameters)
    np.testing.assert_allclose(losses, train(x, parameters), rtol=1e-4)
    assert losses[-1] < losses[0]
