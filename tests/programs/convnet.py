"""A small convolutional net with batch norm and dropout, momentum SGD, data parallel over all devices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("batch",))
data_sharding, replicated = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())


def init(key):
    keys = random.split(key, 4)
    he = jax.nn.initializers.he_normal()
    params = {
        "conv1": {"w": he(keys[0], (3, 3, 3, 8)), "b": jnp.zeros(8)},
        "conv2": {"w": he(keys[1], (3, 3, 8, 16)), "b": jnp.zeros(16)},
        "norm": {"scale": jnp.ones(16), "bias": jnp.zeros(16)},
        "dense": {"w": jax.nn.initializers.glorot_uniform()(keys[2], (4 * 4 * 16, 10)), "b": jnp.zeros((10,))},
    }
    return params, {"mean": jnp.zeros(16), "var": jnp.ones(16)}


def conv(p, x, stride):
    y = lax.conv_general_dilated(x, p["w"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + p["b"]


def batch_norm(p, state, x, training, momentum=0.9, eps=1e-5):
    if training:
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        state = {"mean": momentum * state["mean"] + (1 - momentum) * mean, "var": momentum * state["var"] + (1 - momentum) * var}
    else:
        mean, var = state["mean"], state["var"]
    return p["scale"] * (x - mean) * lax.rsqrt(var + eps) + p["bias"], state


def forward(params, state, x, key=None, *, training):
    x = jax.nn.relu(conv(params["conv1"], x, 2))
    x, state = batch_norm(params["norm"], state, conv(params["conv2"], x, 1), training)
    x = lax.reduce_window(jax.nn.gelu(x), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    if training:
        keep = random.bernoulli(key, 0.9, x.shape)
        x = jnp.where(keep, x / 0.9, 0)
    return x @ params["dense"]["w"] + params["dense"]["b"], state


def loss_fn(params, state, batch, key):
    logits, state = forward(params, state, batch["image"], key, training=True)
    labels = jax.nn.one_hot(batch["label"], 10)
    loss = -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(logits), axis=-1))
    l2 = sum(jnp.vdot(p, p) for p in jax.tree.leaves(params))
    return loss + 1e-4 * l2, (state, {"loss": loss, "accuracy": (logits.argmax(-1) == batch["label"]).mean()})


@partial(jax.jit, donate_argnames=("params", "momentum"))
def train_step(params, momentum, state, batch, key, lr=0.05):
    (_, (state, metrics)), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, state, batch, key)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = jax.tree.map(lambda p, m: p - lr * m, params, momentum)
    return params, momentum, state, metrics


def main():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(64, 16, 16, 3)).astype(np.float32)
    labels = (images.mean((1, 2))[:, 0] * 200).astype(np.int32) % 10
    key = random.key(42)
    params, state = init(random.fold_in(key, 0))
    params, state = jax.device_put((params, state), replicated)
    momentum = jax.tree.map(jnp.zeros_like, params)
    for step in range(6):
        batch = jax.device_put({"image": images, "label": labels}, data_sharding)
        key, sub = random.split(key)
        params, momentum, state, metrics = train_step(params, momentum, state, batch, sub)
        print(f"step {step}:", *(f"{k} {float(v):.5f}" for k, v in metrics.items()))
    logits, _ = jax.jit(partial(forward, training=False))(params, state, batch["image"])
    print("eval", np.asarray(jax.nn.softmax(logits)[:2]).round(4).tolist())
    print("running", float(state["mean"].sum()), float(state["var"].sum()))
    print("params", jax.tree.map(lambda x: x.sharding.is_fully_replicated, params)["dense"])


main()
