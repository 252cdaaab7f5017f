"""Ten training steps and solvers of different kinds, with the shardings that an expert gives them by hand.

    python benchmarks/automatic.py --programs benchmarks/annotated.py          beside what is planned without annotations

They are written for a framework that is handed in: this one and JAX have the same names. Sizes are those of 8 CPU devices,
(data, model) = (4, 2); each function takes a state first, which comes back as it went in, if it has one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

BOTH = ("data", "model")
SHAPES = {1: (1, 1), 2: (2, 1), 4: (2, 2), 8: (4, 2), 16: (4, 4), 64: (8, 8)}
F32, I32 = np.float32, np.int32


def load_fw(name: str) -> Any:
    """The framework's modules."""
    lax, nn, numpy, ops, sharding = (importlib.import_module(f"{name}.{n}") for n in ("lax", "nn", "numpy", "ops", "sharding"))
    jax = importlib.import_module(name)
    return SimpleNamespace(name=name, jax=jax, lax=lax, nn=nn, np=numpy, ops=ops, sharding=sharding, P=sharding.PartitionSpec)


class Arg:
    """An argument: shape, its spec's entries, dtype."""

    def __init__(self, shape: Sequence[int], *entries: Any, dtype: Any = F32) -> None:
        self.shape, self.entries, self.dtype = tuple(shape), entries, dtype


class Built:
    """A function on a mesh, with its arguments (trees of Arg) and how many of its results, from the first, are placed as the
    first argument is: None, the result as a whole; 0, the first of a tuple."""

    def __init__(self, fw: Any, mesh: Any, fn: Callable[..., Any], args: Sequence[Any], state: int | None) -> None:
        self.fw, self.mesh, self.fn, self.args, self.state = fw, mesh, fn, tuple(args), state

    def abstract(self) -> Any:
        return self._map(lambda a: self.fw.jax.ShapeDtypeStruct(a.shape, a.dtype), self.args)

    def in_shardings(self) -> Any:
        return self._map(lambda a: self.fw.sharding.NamedSharding(self.mesh, self.fw.P(*a.entries)), self.args)

    def jit(self, **options: Any) -> Any:
        """The function with its annotations: the next state lies as the state does, other results wherever they come out."""
        first = self.in_shardings()[0]
        out = first if self.state is None else (first, None)
        return self.fw.jax.jit(self.fn, in_shardings=self.in_shardings(), out_shardings=out, **options)

    def _map(self, function: Callable[[Arg], Any], tree: Any) -> Any:
        return self.fw.jax.tree.map(function, tree, is_leaf=lambda x: isinstance(x, Arg))


class Program:
    axes = BOTH

    def __init__(self, fw: Any, build: Callable[[Any], Any], state: int | None) -> None:
        self.fw, self._build, self.state = fw, build, state

    def mesh_shape(self, devices: int) -> tuple[int, int]:
        return SHAPES[devices]

    def mesh(self, devices: Sequence[Any]) -> Any:
        return self.fw.sharding.Mesh(np.array(devices).reshape(SHAPES[len(devices)]), self.axes)

    def build(self, mesh: Any) -> Built:
        fn, args = self._build(self.fw)
        return Built(self.fw, mesh, fn, args, self.state)


def programs(fw: Any, size: str = "small") -> dict[str, Program]:
    """By name."""
    steps = mlp_norm, gqa_rope, lstm, unet, messages, denoiser, factors, experts_top2
    solvers = poisson, nearest
    return {f.__name__: Program(fw, f, state) for fs, state in ((steps, 0), (solvers, None)) for f in fs}


def trained(fw: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    """A step of gradient descent: (parameters, *batch) -> (parameters, loss)."""

    def step(parameters: Any, *batch: Any) -> Any:
        value, gradient = fw.jax.value_and_grad(loss)(parameters, *batch)
        return fw.jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradient), value

    return step


def mlp_norm(fw: Any) -> Any:
    """An MLP with batch normalisation, data parallel: means go over all devices."""
    batch, width, layers = 2048, 256, 4

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        for weight, scale, shift in parameters:
            x = x @ weight
            x = (x - x.mean(0)) * fw.lax.rsqrt(x.var(0) + 1e-5) * scale + shift
            x = fw.nn.relu(x)
        return fw.np.mean((x - y) ** 2)

    layer = (Arg((width, width)), Arg((width,)), Arg((width,)))
    return trained(fw, loss), ([layer] * layers, Arg((batch, width), BOTH), Arg((batch, width), BOTH))


def gqa_rope(fw: Any) -> Any:
    """Attention of grouped queries with rotary positions and a gated MLP: heads and hidden features on `model`."""
    batch, length, width, heads, groups, hidden = 16, 128, 256, 8, 4, 512
    head = width // heads

    def turned(x: Any) -> Any:
        angle = fw.np.arange(length)[:, None] * 10000.0 ** (-fw.np.arange(head // 2) / (head // 2))
        first, second = fw.np.split(x, 2, -1)
        c, s = fw.np.cos(angle)[:, None], fw.np.sin(angle)[:, None]
        return fw.np.concatenate([first * c - second * s, second * c + first * s], -1)

    def loss(p: Any, x: Any, y: Any) -> Any:
        q, k, v = (fw.np.einsum("btd,dhk->bthk", x, p[n]) for n in "qkv")
        q = turned(q).reshape(batch, length, groups, heads // groups, head)
        scores = fw.np.einsum("btgrk,bsgk->bgrts", q, turned(k)) * head**-0.5
        scores = fw.np.where(fw.np.tril(fw.np.ones((length, length), bool)), scores, -1e9)
        mixed = fw.np.einsum("bgrts,bsgk->btgrk", fw.nn.softmax(scores, -1), v).reshape(batch, length, heads, head)
        x = x + fw.np.einsum("bthk,hkd->btd", mixed, p["o"])
        x = x + (fw.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"]
        return fw.np.mean((x - y) ** 2)

    parameters = {
        "q": Arg((width, heads, head), None, "model"), "k": Arg((width, groups, head), None, "model"),
        "v": Arg((width, groups, head), None, "model"), "o": Arg((heads, head, width), "model"),
        "gate": Arg((width, hidden), None, "model"), "up": Arg((width, hidden), None, "model"),
        "down": Arg((hidden, width), "model"),
    }  # fmt: skip
    x = Arg((batch, length, width), "data")
    return trained(fw, loss), (parameters, x, x)


def lstm(fw: Any) -> Any:
    """A recurrent net in a scan over time, data parallel: products of one step are too small to be cut further."""
    batch, length, width = 256, 32, 256

    def loss(p: Any, xs: Any, y: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = (fw.np.einsum("bd,df->bf", h, p["h"][n]) + fw.np.einsum("bd,df->bf", x, p["x"][n]) for n in range(4))
            c = fw.nn.sigmoid(f) * c + fw.nn.sigmoid(i) * fw.np.tanh(g)
            return (fw.nn.sigmoid(o) * fw.np.tanh(c), c), None

        zero = fw.np.zeros((batch, width))
        (h, _), _ = fw.lax.scan(cell, (zero, zero), xs)
        return fw.np.mean((h - y) ** 2)

    parameters = {"h": Arg((4, width, width)), "x": Arg((4, width, width))}
    return trained(fw, loss), (parameters, Arg((length, batch, width), None, BOTH), Arg((batch, width), BOTH))


def unet(fw: Any) -> Any:
    """Convolutions down and up with skips, data parallel."""
    batch, extent, features = 16, 32, 32

    def conv(x: Any, w: Any, stride: int = 1) -> Any:
        dims = ("NHWC", "HWIO", "NHWC")
        return fw.nn.silu(fw.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=dims))

    def loss(p: Any, x: Any, y: Any) -> Any:
        first = conv(x, p["in"])
        low = conv(conv(first, p["down"], 2), p["low"])
        high = fw.np.repeat(fw.np.repeat(low, 2, 1), 2, 2)
        return fw.np.mean((conv(fw.np.concatenate([first, high], -1), p["out"]) - y) ** 2)

    pairs = {"in": (8, features), "down": (features, 2 * features), "low": (2 * features,) * 2, "out": (3 * features, 8)}
    parameters = {name: Arg((3, 3, *pair)) for name, pair in pairs.items()}
    images = Arg((batch, extent, extent, 8), BOTH)
    return trained(fw, loss), (parameters, images, images)


def messages(fw: Any) -> Any:
    """A graph net: edges and nodes on all devices."""
    nodes, edges, width = 2048, 16384, 64

    def loss(p: Any, x: Any, sources: Any, targets: Any, y: Any) -> Any:
        for own, sent in p:
            received = fw.ops.segment_sum(fw.nn.relu((x @ sent)[sources]), targets, num_segments=nodes)
            x = fw.nn.relu(x @ own + received)
        return fw.np.mean((x - y) ** 2)

    ends = Arg((edges,), BOTH, dtype=I32)
    x = Arg((nodes, width), BOTH)
    return trained(fw, loss), ([(Arg((width, width)), Arg((width, width)))] * 2, x, ends, ends, x)


def denoiser(fw: Any) -> Any:
    """A block of a diffusion transformer, scaled and shifted by the time: heads and hidden features on `model`."""
    batch, length, width, heads, hidden = 16, 64, 256, 8, 1024

    def normal(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) * fw.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)

    def loss(p: Any, x: Any, time: Any, noise: Any) -> Any:
        speed = 100.0 ** (-fw.np.arange(width // 2) / width)
        angle = time[:, None] * speed
        condition = fw.nn.silu(fw.np.concatenate([fw.np.sin(angle), fw.np.cos(angle)], -1) @ p["time"])
        a, b, c, d = fw.np.split((condition @ p["shift"])[:, None], 4, -1)
        h = normal(x) * (1 + a) + b
        q, k, v = (fw.np.einsum("btd,dhk->bthk", h, p[n]) for n in "qkv")
        scores = fw.np.einsum("bthk,bshk->bhts", q, k) * (width // heads) ** -0.5
        x = x + fw.np.einsum("bthk,hkd->btd", fw.np.einsum("bhts,bshk->bthk", fw.nn.softmax(scores, -1), v), p["o"])
        x = x + fw.nn.gelu((normal(x) * (1 + c) + d) @ p["up"]) @ p["down"]
        return fw.np.mean((x - noise) ** 2)

    head = {n: Arg((width, heads, width // heads), None, "model") for n in "qkv"}
    parameters = {
        **head, "o": Arg((heads, width // heads, width), "model"), "up": Arg((width, hidden), None, "model"),
        "down": Arg((hidden, width), "model"), "time": Arg((width, width)), "shift": Arg((width, 4 * width)),
    }  # fmt: skip
    x = Arg((batch, length, width), "data")
    return trained(fw, loss), (parameters, x, Arg((batch,), "data"), x)


def factors(fw: Any) -> Any:
    """A table of ratings as the product of two thin ones: users on `data`, items on `model`."""
    users, items, rank = 4096, 2048, 64

    def loss(p: Any, ratings: Any, known: Any) -> Any:
        error = fw.np.where(known, p["users"] @ p["items"].T - ratings, 0.0)
        return fw.np.sum(error**2) / users + 0.1 * (fw.np.sum(p["users"] ** 2) + fw.np.sum(p["items"] ** 2)) / users

    parameters = {"users": Arg((users, rank), "data"), "items": Arg((items, rank), "model")}
    table = Arg((users, items), "data", "model")
    return trained(fw, loss), (parameters, table, Arg((users, items), "data", "model", dtype=np.bool_))


def experts_top2(fw: Any) -> Any:
    """The best two of eight experts for each token, by dispatch in products: experts on `model`."""
    batch, length, width, hidden, experts, room = 8, 64, 128, 256, 8, 32

    def loss(p: Any, x: Any, y: Any) -> Any:
        scores = fw.nn.softmax(x @ p["router"], -1)
        weights, numbers = fw.lax.top_k(scores, 2)
        chosen = fw.nn.one_hot(numbers, experts)  # batch, token, choice, expert
        place = fw.np.cumsum(chosen.reshape(batch, length * 2, experts), 1).reshape(chosen.shape) * chosen - 1
        seats = fw.nn.one_hot(place.astype(I32), room) * chosen[..., None]
        there = fw.np.einsum("btkec->btec", seats)
        back = fw.np.einsum("btkec,btk->btec", seats, weights)
        h = fw.np.einsum("btec,btd->becd", there, x)
        h = fw.nn.gelu(fw.np.einsum("becd,edf->becf", h, p["up"]))
        out = fw.np.einsum("btec,becd->btd", back, fw.np.einsum("becf,efd->becd", h, p["down"]))
        return fw.np.mean((x + out - y) ** 2)

    parameters = {
        "router": Arg((width, experts)), "up": Arg((experts, width, hidden), "model"),
        "down": Arg((experts, hidden, width), "model"),
    }  # fmt: skip
    x = Arg((batch, length, width), "data")
    return trained(fw, loss), (parameters, x, x)


def poisson(fw: Any) -> Any:
    """Steps of a reaction and its diffusion, done by transforms over the grid: rows on all devices."""
    n, steps = 512, 4

    def solve(u: Any) -> Any:
        k = fw.np.fft.fftfreq(n) * n
        decay = fw.np.exp(-1e-4 * (k[:, None] ** 2 + k[None] ** 2))

        def step(_: Any, u: Any) -> Any:
            return fw.np.fft.ifft2(fw.np.fft.fft2(u + 0.1 * u * (1 - u * u)) * decay).real

        return fw.lax.fori_loop(0, steps, step, u)

    return solve, (Arg((n, n), BOTH),)


def nearest(fw: Any) -> Any:
    """One iteration of k-means: points on all devices, centers everywhere."""
    points, centers, dims = 16384, 64, 32

    def step(middle: Any, x: Any) -> Any:
        distance = fw.np.sum(middle**2, -1) - 2 * x @ middle.T
        own = fw.nn.one_hot(fw.np.argmin(distance, -1), centers)
        return (own.T @ x) / fw.np.maximum(own.sum(0)[:, None], 1.0)

    return step, (Arg((centers, dims)), Arg((points, dims), BOTH))
