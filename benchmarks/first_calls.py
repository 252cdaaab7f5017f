"""Seconds until a program runs for the first time: tracing alone, and the whole first call, beside JAX's by turns.

    python benchmarks/first_calls.py --jax /path/of/a/python/with/jax          [--rounds 5] [--only hmc fft]

Each package has a process of its own, which is warm: it has run another program. A round asks one after the other to do each
program anew, with functions that it has not seen. Times are CPU seconds of all threads, which other jobs disturb less; of the
rounds the least counts. Both have one CPU device.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(make: Callable[..., Any]) -> Callable[..., Any]:
    """make(jax, jnp) -> (function, arguments)."""
    PROGRAMS[make.__name__] = make
    return make


def floats(*shape: int, scale: float = 0.1) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(sum(shape)).normal(size=shape) * scale).astype(np.float32)


def mlp_loss(jnp: Any, params: Any, x: Any, y: Any) -> Any:
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return jnp.mean((x @ w + b - y) ** 2)


def mlp_params(sizes: tuple[int, ...], *batch: int) -> Any:
    return [(floats(*batch, m, n), floats(*batch, n)) for m, n in zip(sizes, sizes[1:], strict=False)]


@program
def mlp_step(jax: Any, jnp: Any) -> Any:
    def step(params, state, x, y):
        loss, grads = jax.value_and_grad(lambda p: mlp_loss(jnp, p, x, y))(params)
        state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, state), state, loss

    params = mlp_params((64, 128, 128, 128, 10))
    return step, (params, params, floats(32, 64), floats(32, 10))


@program
def convnet_step(jax: Any, jnp: Any) -> Any:
    def layer(x, w, scale, stride):
        x = jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return jax.nn.relu((x - mean) / jnp.sqrt(var + 1e-5) * scale)

    def loss(params, x, labels):
        for i, (w, scale) in enumerate(params["convs"]):
            x = layer(x, w, scale, 2 if i % 2 else 1)
        logits = x.mean((1, 2)) @ params["head"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))

    def step(params, x, labels):
        value, grads = jax.value_and_grad(loss)(params, x, labels)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    channels = (3, 8, 8, 16, 16)
    convs = [(floats(3, 3, m, n), np.ones(n, np.float32)) for m, n in zip(channels, channels[1:], strict=False)]
    return step, ({"convs": convs, "head": floats(16, 10)}, floats(4, 16, 16, 3), np.arange(4, dtype=np.int32))


@program
def llama_step(jax: Any, jnp: Any) -> Any:
    heads, width, length = 4, 64, 16

    def norm(x, scale):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale

    def rotated(x):
        angles = jnp.arange(length)[:, None] / 10000 ** (jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.concatenate([a * jnp.cos(angles) - b * jnp.sin(angles), a * jnp.sin(angles) + b * jnp.cos(angles)], -1)

    def block(x, p):
        h = norm(x, p["n1"])
        q, k, v = (jnp.einsum("bsd,dhk->bhsk", h, p[name]) for name in "qkv")
        scores = jnp.einsum("bhsk,bhtk->bhst", rotated(q), rotated(k)) / np.sqrt(width // heads)
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        x = x + jnp.einsum("bhsk,hkd->bsd", jnp.einsum("bhst,bhtk->bhsk", jax.nn.softmax(scores), v), p["o"])
        h = norm(x, p["n2"])
        return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"], None

    def loss(params, tokens):
        x, _ = jax.lax.scan(jax.checkpoint(block), params["embed"][tokens], params["layers"])
        logits = x @ params["embed"].T
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), tokens[:, 1:, None], -1))

    def step(params, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    qkv = {name: floats(4, width, heads, width // heads) for name in "qkv"}
    layers = {
        **qkv, "o": floats(4, heads, width // heads, width), "gate": floats(4, width, 128), "up": floats(4, width, 128),
        "down": floats(4, 128, width), "n1": np.ones((4, width), np.float32), "n2": np.ones((4, width), np.float32),
    }  # fmt: skip
    return step, ({"embed": floats(100, width), "layers": layers}, np.arange(32, dtype=np.int32).reshape(2, length))


@program
def ensemble_scan(jax: Any, jnp: Any) -> Any:
    def train(params, x, y):
        def step(params, _):
            loss, grads = jax.value_and_grad(lambda p: mlp_loss(jnp, p, x, y))(params)
            return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

        return jax.lax.scan(step, params, None, length=20)

    def all_members(params, x, y):
        params, losses = jax.vmap(train, (0, None, None))(params, x, y)
        return params, losses[:, -1].mean()

    return all_members, (mlp_params((4, 16, 16, 1), 8), floats(32, 4), floats(32, 1))


@program
def fft_solver(jax: Any, jnp: Any) -> Any:
    n = 32

    def velocity(w_hat):
        k = jnp.fft.fftfreq(n, 1 / n)
        kx, ky = jnp.meshgrid(k, k, indexing="ij")
        k2 = jnp.where(kx**2 + ky**2 == 0, 1.0, kx**2 + ky**2)
        psi = w_hat / k2
        return jnp.fft.ifft2(1j * ky * psi).real, jnp.fft.ifft2(-1j * kx * psi).real, kx, ky, k2

    def step(w, _):
        w_hat = jnp.fft.fft2(w)
        u, v, kx, ky, k2 = velocity(w_hat)
        wx, wy = jnp.fft.ifft2(1j * kx * w_hat).real, jnp.fft.ifft2(1j * ky * w_hat).real
        forcing = jnp.fft.fft2(u * wx + v * wy)
        keep = (jnp.abs(kx) < n / 3) & (jnp.abs(ky) < n / 3)
        w_hat = (w_hat - 0.01 * forcing * keep) * jnp.exp(-1e-3 * k2)
        return jnp.fft.ifft2(w_hat).real, jnp.sum(w * w)

    return lambda w: jax.lax.scan(step, w, None, length=10), (floats(n, n),)


@program
def hmc(jax: Any, jnp: Any) -> Any:
    def log_density(q, x, y):
        return -jnp.sum(jnp.logaddexp(0, -y * (x @ q))) - 0.5 * jnp.sum(q * q)

    def sample(key, q, x, y):
        gradient = jax.grad(log_density)

        def leapfrog(_, state):
            q, p = state
            p = p + 0.05 * gradient(q, x, y)
            q = q + 0.1 * p
            return q, p + 0.05 * gradient(q, x, y)

        def transition(carry, key):
            q = carry
            k1, k2 = jax.random.split(key)
            p = jax.random.normal(k1, q.shape)
            new, moved = jax.lax.fori_loop(0, 8, leapfrog, (q, p))
            energy = log_density(new, x, y) - 0.5 * jnp.sum(moved**2) - log_density(q, x, y) + 0.5 * jnp.sum(p**2)
            accept = jnp.log(jax.random.uniform(k2)) < energy
            return jnp.where(accept, new, q), (q, accept)

        return jax.lax.scan(transition, q, jax.random.split(key, 20))

    key = np.array([0, 1], np.uint32)
    return sample, (key, floats(8), floats(64, 8), np.sign(floats(64)))


@program
def gaussian_process(jax: Any, jnp: Any) -> Any:
    def kernel(theta, a, b):
        d2 = jnp.sum((a[:, None] - b[None]) ** 2, -1)
        return jnp.exp(theta["amplitude"]) * jnp.exp(-d2 / (2 * jnp.exp(theta["scale"]) ** 2))

    def loss(theta, x, y):
        factor = jnp.linalg.cholesky(kernel(theta, x, x) + jnp.exp(theta["noise"]) * jnp.eye(len(x)))
        alpha = jax.scipy.linalg.cho_solve((factor, True), y)
        return 0.5 * y @ alpha + jnp.sum(jnp.log(jnp.diag(factor)))

    def fit(theta, x, y, new):
        theta = jax.lax.fori_loop(0, 5, lambda _, t: jax.tree.map(lambda p, g: p - 0.01 * g, t, jax.grad(loss)(t, x, y)), theta)
        k = kernel(theta, x, x) + 0.1 * jnp.eye(len(x))
        return kernel(theta, new, x) @ jnp.linalg.solve(k, y), loss(theta, x, y)

    theta = {name: np.float32(0.1) for name in ("amplitude", "scale", "noise")}
    return fit, (theta, floats(24, 2, scale=1), floats(24), floats(8, 2))


@program
def lstm_step(jax: Any, jnp: Any) -> Any:
    def cell(p, carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ p["wx"] + h @ p["wh"] + p["b"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def loss(params, xs, ys):
        zeros = jnp.zeros((xs.shape[1], 32))
        _, hs = jax.lax.scan(lambda c, x: cell(params, c, x), (zeros, zeros), xs)
        return jnp.mean((hs @ params["out"] - ys) ** 2)

    def step(params, m, v, t, xs, ys):
        value, grads = jax.value_and_grad(loss)(params, xs, ys)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        new = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), params, m, v)
        return value, new, m, v

    params = {"wx": floats(8, 128), "wh": floats(32, 128), "b": floats(128), "out": floats(32, 4)}
    return step, (params, params, params, np.float32(1), floats(12, 4, 8), floats(12, 4, 4))


@program
def k_means(jax: Any, jnp: Any) -> Any:
    def fit(points, centers):
        def distances(centers):
            return jnp.sum((points[:, None] - centers[None]) ** 2, -1)

        def improve(state):
            centers, _, count = state
            member = jax.nn.one_hot(jnp.argmin(distances(centers), 1), len(centers))
            new = (member.T @ points) / jnp.maximum(member.sum(0), 1)[:, None]
            return new, jnp.max(jnp.abs(new - centers)), count + 1

        start = (centers, jnp.inf, 0)
        centers, _, count = jax.lax.while_loop(lambda s: (s[1] > 1e-4) & (s[2] < 50), improve, start)
        order = jnp.argsort(centers[:, 0])
        return centers[order], count, jnp.min(distances(centers), 1).sum()

    return fit, (floats(200, 2, scale=1), floats(5, 2, scale=1))


@program
def diffusion_sampler(jax: Any, jnp: Any) -> Any:
    def denoise(params, x, t):
        half = 8
        angles = t * jnp.exp(-jnp.log(1000.0) * jnp.arange(half) / half)
        emb = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)])
        h = x
        for w, we, b in params:
            h = jax.nn.gelu(h @ w + emb @ we + b)
        return h

    def sample(params, key):
        betas = jnp.linspace(1e-4, 0.02, 50)
        alphas = jnp.cumprod(1 - betas)

        def step(x, inputs):
            t, key = inputs
            eps = denoise(params, x, t.astype(jnp.float32))
            mean = (x - betas[t] / jnp.sqrt(1 - alphas[t]) * eps) / jnp.sqrt(1 - betas[t])
            return mean + jnp.where(t > 0, jnp.sqrt(betas[t]), 0) * jax.random.normal(key, x.shape), None

        first, rest = jax.random.split(key)
        x = jax.random.normal(first, (16, 32))
        return jax.lax.scan(step, x, (jnp.arange(50)[::-1], jax.random.split(rest, 50)))[0]

    params = [(floats(32, 32), floats(16, 32), floats(32)) for _ in range(3)]
    return sample, (params, np.array([0, 1], np.uint32))


# -- measuring


def work(package: str) -> None:
    """Answer each name of a program on standard input with its times, as a line of JSON."""
    jax = importlib.import_module(package)
    jax.jit(lambda x: jax.lax.scan(lambda c, _: (c * 2, None), x, None, length=2))(np.ones(3, np.float32))
    for line in sys.stdin:
        make = PROGRAMS[line.strip()]
        print(json.dumps([_traced(jax, make), _called(jax, make)]), flush=True)


def _traced(jax: Any, make: Callable[..., Any]) -> float:
    function, arguments = make(jax, jax.numpy)
    jitted = jax.jit(function)
    start = time.process_time()
    jitted.trace(*arguments)
    return time.process_time() - start


def _called(jax: Any, make: Callable[..., Any]) -> float:
    function, arguments = make(jax, jax.numpy)
    jitted = jax.jit(function)
    start = time.process_time()
    jax.block_until_ready(jitted(*arguments))
    return time.process_time() - start


class Worker:
    def __init__(self, python: str, package: str) -> None:
        environment = {**os.environ, "XLA_FLAGS": "", "MESHJIT_NUM_CPU_DEVICES": "1"}
        self.process = subprocess.Popen(
            [python, __file__, "--worker", package], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def times(self, name: str) -> list[float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jax", default=sys.executable, help="the Python that has jax")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        return work(options.worker)
    workers = [Worker(sys.executable, "meshjit"), Worker(options.jax, "jax")]
    print("ms of CPU            trace: ours   JAX's  ratio    first call: ours   JAX's  ratio")
    ratios = []
    for name in options.only:
        rounds = [[worker.times(name) for worker in workers] for _ in range(options.rounds)]
        ours, theirs = (np.min([r[i] for r in rounds], axis=0) * 1e3 for i in range(2))
        ratios.append(ours / theirs)
        columns = zip(ours, theirs, ratios[-1], (12, 20), strict=True)
        print(f"{name:20}", *(f"{a:{width}.1f} {b:7.1f} {ratio:6.2f}" for a, b, ratio, width in columns))
    mean = np.exp(np.mean(np.log(ratios), axis=0))
    print(f"{'geometric mean':20} {'':20} {mean[0]:6.2f} {'':28} {mean[1]:6.2f}")
    return None


if __name__ == "__main__":
    main()
