"""Training steps of networks: recurrent, convolutional, of graphs, experts and transformers. `models.py` says for what."""

from __future__ import annotations

from typing import Any

import numpy as np
from annotated import BOTH, F32, I32, Arg, trained
from layers import attention, attention_weights, block, block_weights, cross_entropy, norm

BF16 = "bfloat16"


def mamba(fw: Any, large: bool) -> Any:
    """Selective state spaces (Gu and Dao, 2023): states of every feature, by an associative scan over the sequence."""
    batch, length, width, state, layers = (64, 2048, 1024, 16, 24) if large else (8, 16, 16, 4, 2)
    inner, rank, vocabulary = 2 * width, max(1, width // 16), 50280 if large else 64

    def joined(first: Any, second: Any) -> Any:
        return first[0] * second[0], second[0] * first[1] + second[1]

    def mixed(p: Any, x: Any) -> Any:
        x, gate = fw.np.split(norm(fw, x) @ p["in"], 2, -1)
        padded = fw.np.pad(x, ((0, 0), (3, 0), (0, 0)))
        x = fw.nn.silu(sum(padded[:, n : n + length] * p["conv"][n] for n in range(4)))
        step, b, c = fw.np.split(x @ p["select"], [rank, rank + state], -1)
        step = fw.nn.softplus(step @ p["step"])
        decay = fw.np.exp(step[..., None] * -fw.np.exp(p["a"]))
        _, states = fw.lax.associative_scan(joined, (decay, (step * x)[..., None] * b[:, :, None]), axis=1)
        y = fw.np.einsum("btds,bts->btd", states, c) + p["skip"] * x
        return (y * fw.nn.silu(gate)) @ p["out"]

    def loss(p: Any, tokens: Any, targets: Any) -> Any:
        x = p["embedding"][tokens]
        for layer in p["layers"]:
            x = x + fw.jax.checkpoint(mixed)(layer, x)
        return cross_entropy(fw, norm(fw, x) @ p["embedding"].T, targets)

    layer = {
        "in": Arg((width, 2 * inner), BOTH), "conv": Arg((4, inner)), "select": Arg((inner, rank + 2 * state), BOTH),
        "step": Arg((rank, inner), None, BOTH), "a": Arg((inner, state), BOTH), "skip": Arg((inner,)),
        "out": Arg((inner, width), BOTH),
    }  # fmt: skip
    tokens = Arg((batch, length), BOTH, dtype=I32)
    return trained(fw, loss), ({"embedding": Arg((vocabulary, width), None, BOTH), "layers": [layer] * layers}, tokens, tokens)


def rwkv(fw: Any, large: bool) -> Any:
    """Linear attention with decay (Peng et al., 2023): every layer has a loop over the sequence, behind a checkpoint."""
    batch, length, width, layers = (128, 1024, 1024, 24) if large else (8, 16, 16, 2)
    vocabulary, names = 50304 if large else 64, ("receptance", "key", "value")

    def cell(p: Any, state: Any, row: Any) -> Any:
        above, below, most = state
        key, value = row
        now = fw.np.maximum(most, p["bonus"] + key)
        past, here = fw.np.exp(most - now), fw.np.exp(p["bonus"] + key - now)
        mixed = (past * above + here * value) / (past * below + here)
        later = fw.np.maximum(most - fw.np.exp(p["decay"]), key)
        past, here = fw.np.exp(most - fw.np.exp(p["decay"]) - later), fw.np.exp(key - later)
        return (past * above + here * value, past * below + here, later), mixed

    def layer(p: Any, x: Any) -> Any:
        h = norm(fw, x)
        before = fw.np.pad(h, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        r, k, v = ((h * p["shift"][n] + before * (1 - p["shift"][n])) @ p[name] for n, name in enumerate(names))
        zeros = fw.np.zeros((batch, width))
        rows = tuple(fw.np.swapaxes(each, 0, 1) for each in (k, v))
        _, mixed = fw.lax.scan(lambda state, row: cell(p, state, row), (zeros, zeros, zeros - 1e30), rows)
        x = x + (fw.nn.sigmoid(r) * fw.np.swapaxes(mixed, 0, 1)) @ p["out"]
        h = norm(fw, x)
        return x + fw.nn.sigmoid(h @ p["gate"]) * (fw.np.square(fw.nn.relu(h @ p["up"])) @ p["down"])

    def loss(p: Any, tokens: Any, targets: Any) -> Any:
        x = p["words"][tokens]
        for own in p["layers"]:
            x = fw.jax.checkpoint(layer)(own, x)
        return cross_entropy(fw, norm(fw, x) @ p["words"].T, targets)

    own = {name: Arg((width, width), BOTH) for name in (*names, "out", "gate")}
    own |= {"up": Arg((width, 4 * width), BOTH), "down": Arg((4 * width, width), BOTH)}
    own |= {"shift": Arg((3, width)), "decay": Arg((width,)), "bonus": Arg((width,))}
    tokens = Arg((batch, length), BOTH, dtype=I32)
    return trained(fw, loss), ({"words": Arg((vocabulary, width), None, BOTH), "layers": [own] * layers}, tokens, tokens)


def mixtral(fw: Any, large: bool) -> Any:
    """A transformer whose MLPs are the best two of eight experts, by dispatch in products."""
    batch, length, width, heads = (64, 2048, 4096, 32) if large else (8, 16, 16, 2)
    hidden, experts, layers = (14336, 8, 4) if large else (32, 4, 1)
    room = length // experts * 2

    def routed(p: Any, x: Any) -> Any:
        weights, numbers = fw.lax.top_k(fw.nn.softmax(x @ p["router"], -1), 2)
        chosen = fw.nn.one_hot(numbers, experts)
        place = fw.np.cumsum(chosen.reshape(batch, length * 2, experts), 1).reshape(chosen.shape) * chosen - 1
        seats = fw.nn.one_hot(place.astype(I32), room) * chosen[..., None]
        there, back = fw.np.sum(seats, 2), fw.np.einsum("btkec,btk->btec", seats, weights)
        h = fw.np.einsum("btec,btd->becd", there, x)
        h = fw.nn.silu(fw.np.einsum("becd,edf->becf", h, p["gate"])) * fw.np.einsum("becd,edf->becf", h, p["up"])
        return fw.np.einsum("btec,becd->btd", back, fw.np.einsum("becf,efd->becd", h, p["down"]))

    def loss(layers: Any, x: Any, y: Any) -> Any:
        mask = fw.np.tril(fw.np.ones((length, length), bool))
        for p in layers:
            normal = norm(fw, x)
            x = x + attention(fw, p, normal, normal, mask)
            x = x + routed(p, norm(fw, x))
        return fw.np.mean((x - y) ** 2)

    layer = {
        **attention_weights(width, heads), "router": Arg((width, experts)), "gate": Arg((experts, width, hidden), None, BOTH),
        "up": Arg((experts, width, hidden), None, BOTH), "down": Arg((experts, hidden, width), None, None, BOTH),
    }  # fmt: skip
    x = Arg((batch, length, width), BOTH)
    return trained(fw, loss), ([layer] * layers, x, x)


def unet(fw: Any, large: bool) -> Any:
    """A diffusion model of images: convolutions, groups normalised, attention at the lowest resolution, skips."""
    batch, extent, features, levels = (256, 64, 128, 4) if large else (8, 16, 8, 2)
    widths = [features * 2**n for n in range(levels)]

    def conv(x: Any, w: Any, stride: int = 1) -> Any:
        return fw.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def normal(x: Any) -> Any:
        parts = x.reshape(*x.shape[:3], 8, x.shape[-1] // 8)
        mean, var = parts.mean((1, 2, 4), keepdims=True), parts.var((1, 2, 4), keepdims=True)
        return ((parts - mean) * fw.lax.rsqrt(var + 1e-5)).reshape(x.shape)

    def residual(p: Any, x: Any) -> Any:
        h = conv(fw.nn.silu(normal(x)), p["first"])
        return conv(x, p["skip"]) + conv(fw.nn.silu(normal(h)), p["second"])

    def loss(p: Any, x: Any, noise: Any) -> Any:
        x = conv(x, p["in"])
        skips = []
        for level in p["down"]:
            x = residual(level, x)
            skips.append(x)
            x = conv(x, level["half"], 2)
        places = x.reshape(batch, -1, x.shape[-1])
        x = x + attention(fw, p["attention"], places, places).reshape(x.shape)
        for level, skip in zip(p["up"], skips[::-1], strict=True):
            x = fw.np.repeat(fw.np.repeat(x, 2, 1), 2, 2)
            x = residual(level, fw.np.concatenate([x, skip], -1))
        return fw.np.mean((conv(x, p["out"]) - noise) ** 2)

    def level(before: int, behind: int) -> dict[str, Arg]:
        own = {name: Arg((3, 3, behind, behind)) for name in ("second", "half")}
        return {"first": Arg((3, 3, before, behind)), "skip": Arg((1, 1, before, behind)), **own}

    down = [level(a, b) for a, b in zip([features, *widths], widths, strict=False)]
    up = [level(a + b, b) for a, b in zip([widths[-1], *widths[::-1]], widths[::-1], strict=False)]
    for each in up:
        del each["half"]
    weights = {n: Arg(a.shape) for n, a in attention_weights(widths[-1], 4).items()}
    ends = {"in": Arg((3, 3, 8, features)), "out": Arg((3, 3, features, 8))}
    images = Arg((batch, extent, extent, 8), BOTH)
    return trained(fw, loss), ({**ends, "down": down, "up": up, "attention": weights}, images, images)


def dlrm(fw: Any, large: bool) -> Any:
    """A recommendation model (Naumov et al., 2019): tables of embeddings, their products in pairs, two MLPs."""
    batch, tables, rows, width, dense = (65536, 26, 2**20, 128, 13) if large else (64, 3, 32, 8, 13)

    def mlp(weights: Any, x: Any) -> Any:
        for w in weights:
            x = fw.nn.relu(x @ w)
        return x

    def loss(p: Any, features: Any, numbers: Any, clicked: Any) -> Any:
        low = mlp(p["bottom"], features)
        found = fw.jax.vmap(lambda table, i: table[i], in_axes=(0, 1), out_axes=1)(p["tables"], numbers)
        together = fw.np.concatenate([low[:, None], found], 1)
        pairs = fw.np.einsum("bnd,bmd->bnm", together, together)
        first, second = np.tril_indices(tables + 1, -1)
        logit = (mlp(p["top"], fw.np.concatenate([low, pairs[:, first, second]], -1)) @ p["last"])[:, 0]
        return fw.np.mean(fw.nn.softplus(logit) - clicked * logit)

    pairs = tables * (tables + 1) // 2 + width
    bottom = [Arg((dense, 4 * width)), Arg((4 * width, width))]
    top = [Arg((pairs, 8 * width)), Arg((8 * width, 2 * width))]
    parameters = {"bottom": bottom, "top": top, "last": Arg((2 * width, 1)), "tables": Arg((tables, rows, width), None, BOTH)}
    batches = Arg((batch, dense), BOTH), Arg((batch, tables), BOTH, dtype=I32), Arg((batch,), BOTH)
    return trained(fw, loss), (parameters, *batches)


def attention_over_edges(fw: Any, large: bool) -> Any:
    """A graph net with attention (Veličković et al., 2018): softmax over the edges that end in a node."""
    nodes, edges, width, heads, layers = (2**20, 2**24, 256, 4, 3) if large else (64, 256, 8, 2, 2)

    def loss(parameters: Any, x: Any, sources: Any, targets: Any, y: Any) -> Any:
        for p in parameters:
            h = (x @ p["w"]).reshape(nodes, heads, width // heads)
            score = fw.nn.leaky_relu((h * p["from"]).sum(-1)[sources] + (h * p["to"]).sum(-1)[targets])
            weight = fw.np.exp(score - fw.ops.segment_max(score, targets, nodes)[targets])
            total = fw.ops.segment_sum(weight, targets, nodes)
            received = fw.ops.segment_sum(weight[..., None] * h[sources], targets, nodes) / (total[..., None] + 1e-9)
            x = fw.nn.elu(received).reshape(x.shape)
        return fw.np.mean((x - y) ** 2)

    layer = {"w": Arg((width, width)), "from": Arg((heads, width // heads)), "to": Arg((heads, width // heads))}
    ends, x = Arg((edges,), BOTH, dtype=I32), Arg((nodes, width), BOTH)
    return trained(fw, loss), ([layer] * layers, x, ends, ends, x)


def lstm(fw: Any, large: bool) -> Any:
    """A language model of recurrent layers, each a scan over the sequence."""
    batch, length, width, vocabulary, layers = (1024, 256, 2048, 32768, 3) if large else (16, 8, 16, 64, 2)

    def layer(p: Any, xs: Any) -> Any:
        def cell(state: Any, x: Any) -> Any:
            h, c = state
            i, f, g, o = fw.np.split(x + h @ p["h"], 4, -1)
            c = fw.nn.sigmoid(f) * c + fw.nn.sigmoid(i) * fw.np.tanh(g)
            h = fw.nn.sigmoid(o) * fw.np.tanh(c)
            return (h, c), h

        zero = fw.np.zeros((batch, width))
        return fw.lax.scan(cell, (zero, zero), xs @ p["x"])[1]

    def loss(p: Any, tokens: Any, targets: Any) -> Any:
        x = p["embedding"][tokens]
        for each in p["layers"]:
            x = layer(each, x)
        return cross_entropy(fw, x @ p["embedding"].T, targets)

    weights = {"x": Arg((width, 4 * width), BOTH), "h": Arg((width, 4 * width), BOTH)}
    tokens = Arg((length, batch), None, BOTH, dtype=I32)
    return trained(fw, loss), ({"embedding": Arg((vocabulary, width), BOTH), "layers": [weights] * layers}, tokens, tokens)


def clip(fw: Any, large: bool) -> Any:
    """Images and texts that belong together (Radford et al., 2021): two towers, and products of all with all."""
    batch, patches, words, vocabulary = (32768, 196, 77, 49408) if large else (16, 4, 8, 64)
    patch, width, heads, layers = (768, 768, 12, 4) if large else (48, 16, 2, 1)

    def tower(layers: Any, x: Any) -> Any:
        for p in layers:
            x = fw.jax.checkpoint(lambda p, x: block(fw, p, x))(p, x)
        x = norm(fw, x.mean(1))
        return x * fw.lax.rsqrt(fw.np.sum(x * x, -1, keepdims=True))

    def loss(p: Any, images: Any, texts: Any) -> Any:
        seen, read = tower(p["seeing"], images @ p["patch"]), tower(p["reading"], p["words"][texts])
        logits = seen @ read.T * fw.np.exp(p["scale"])
        own = fw.np.sum(seen * read, -1) * fw.np.exp(p["scale"])
        return fw.np.mean((fw.nn.logsumexp(logits, 1) + fw.nn.logsumexp(logits, 0)) / 2 - own)

    blocks = [block_weights(width, heads)] * layers
    ends = {"patch": Arg((patch, width)), "words": Arg((vocabulary, width)), "scale": Arg(())}
    inputs = Arg((batch, patches, patch), BOTH), Arg((batch, words), BOTH, dtype=I32)
    return trained(fw, loss), ({**ends, "seeing": blocks, "reading": blocks}, *inputs)


def muon(fw: Any, large: bool) -> Any:
    """A transformer whose updates are made orthogonal by iterations of products (Jordan et al., 2024)."""
    batch, length, width, heads, layers = (64, 2048, 2048, 16, 4) if large else (8, 8, 16, 2, 1)

    def loss(layers: Any, x: Any, y: Any) -> Any:
        mask = fw.np.tril(fw.np.ones((length, length), bool))
        for p in layers:
            x = block(fw, p, x, mask)
        return fw.np.mean((x - y) ** 2)

    def orthogonal(momentum: Any) -> Any:
        g = momentum.reshape(momentum.shape[0], -1)
        flat, wide = g.shape, g.shape[0] <= g.shape[1]
        g = (g if wide else g.T) / (fw.np.linalg.norm(g) + 1e-7)
        for _ in range(5):
            a = g @ g.T
            g = 3.4445 * g + (-4.7750 * a + 2.0315 * (a @ a)) @ g
        assert flat == ((g if wide else g.T).shape)
        return (g if wide else g.T).reshape(momentum.shape)

    def step(state: Any, x: Any, y: Any) -> Any:
        layers, momenta = state
        value, gradients = fw.jax.value_and_grad(loss)(layers, x, y)
        momenta = fw.jax.tree.map(lambda m, g: 0.95 * m + g, momenta, gradients)
        return (fw.jax.tree.map(lambda p, m: p - 0.02 * orthogonal(m), layers, momenta), momenta), value

    weights = [block_weights(width, heads)] * layers
    x = Arg((batch, length, width), BOTH)
    return step, ((weights, weights), x, x)


def lora(fw: Any, large: bool) -> Any:
    """Two thin factors of every weight learn (Hu et al., 2021), the weights, bfloat16, stay."""
    batch, length, width, heads, layers, rank = (64, 2048, 4096, 32, 4, 16) if large else (8, 8, 16, 2, 1, 2)

    def loss(thin: Any, fixed: Any, x: Any, y: Any) -> Any:
        mask = fw.np.tril(fw.np.ones((length, length), bool))
        for factors, p in zip(thin, fixed, strict=True):
            whole = {n: p[n] + (factors[n][0] @ factors[n][1]).reshape(p[n].shape).astype(p[n].dtype) for n in p}
            x = block(fw, whole, x, mask)
        return fw.np.mean((x - y).astype(F32) ** 2)

    weights = block_weights(width, heads)
    fixed = {n: Arg(a.shape, *a.entries, dtype=BF16) for n, a in weights.items()}
    thin = {n: (Arg((a.shape[0], rank)), Arg((rank, int(np.prod(a.shape[1:]))))) for n, a in weights.items()}
    x = Arg((batch, length, width), BOTH, dtype=BF16)
    trained_step = trained(fw, loss)
    return trained_step, ([thin] * layers, [fixed] * layers, x, x)


def translation(fw: Any, large: bool) -> Any:
    """An encoder and a decoder that reads it, with a vocabulary of both ends."""
    batch, length, width, heads, layers, vocabulary = (512, 256, 1024, 16, 6, 32128) if large else (8, 8, 16, 2, 1, 64)

    def loss(p: Any, source: Any, target: Any, following: Any) -> Any:
        mask = fw.np.tril(fw.np.ones((length, length), bool))
        memory = p["words"][source]
        for layer in p["encoder"]:
            memory = block(fw, layer, memory)
        x = p["words"][target]
        for layer, cross in p["decoder"]:
            x = x + attention(fw, cross, norm(fw, x), memory)
            x = block(fw, layer, x, mask)
        return cross_entropy(fw, norm(fw, x) @ p["words"].T, following)

    own, cross = block_weights(width, heads), attention_weights(width, heads)
    parameters = {"words": Arg((vocabulary, width), BOTH), "encoder": [own] * layers, "decoder": [(own, cross)] * layers}
    words = Arg((batch, length), BOTH, dtype=I32)
    return trained(fw, loss), (parameters, words, words, words)


def nerf(fw: Any, large: bool) -> Any:
    """A field of colours and densities (Mildenhall et al., 2020), seen along rays."""
    rays, samples, width, layers = (65536, 128, 256, 8) if large else (32, 8, 16, 3)

    def loss(p: Any, origins: Any, directions: Any, colours: Any) -> Any:
        depth = fw.np.linspace(2.0, 6.0, samples)
        x = origins[:, None] + depth[:, None] * directions[:, None]
        waves = (x[..., None] * 2.0 ** fw.np.arange(10)).reshape(rays, samples, 30)
        h = fw.np.concatenate([fw.np.sin(waves), fw.np.cos(waves)], -1) @ p["in"]
        for w in p["layers"]:
            h = fw.nn.relu(h) @ w
        out = fw.nn.relu(h) @ p["out"]
        opacity = 1 - fw.np.exp(-fw.nn.relu(out[..., 3]) * (4.0 / samples))
        left = fw.np.cumprod(1 - opacity + 1e-10, -1)
        weight = opacity * fw.np.concatenate([fw.np.ones((rays, 1)), left[:, :-1]], -1)
        seen = fw.np.einsum("rs,rsc->rc", weight, fw.nn.sigmoid(out[..., :3]))
        return fw.np.mean((seen - colours) ** 2)

    parameters = {"in": Arg((60, width)), "layers": [Arg((width, width))] * layers, "out": Arg((width, 4))}
    each = Arg((rays, 3), BOTH)
    return trained(fw, loss), (parameters, each, each, each)
