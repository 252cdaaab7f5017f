"""Training steps, decoding and solvers of many fields, at the sizes that they have there and at sizes for 8 CPU devices.

    python benchmarks/automatic.py --programs benchmarks/models.py --size large --device "TPU v5p" --devices 64

They are written for a framework that is handed in, as those of `annotated.py` are, with the shardings that are usual by hand:
batches on all devices, and parameters with them (FSDP) where there are many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from annotated import I32, Arg, Program, load_fw
from layers import norm
from learning import attention_over_edges, clip, dlrm, lora, lstm, mamba, mixtral, muon, nerf, rwkv, translation, unet
from simulating import multigrid, particles, qubits, sinkhorn, turbulence

__all__ = ["load_fw", "programs"]
BF16 = "bfloat16"


def programs(fw: Any, size: str = "small") -> dict[str, Program]:
    """By name, of size "small" or "large"."""
    steps = mamba, rwkv, mixtral, unet, dlrm, attention_over_edges, lstm, clip, muon, lora, translation, nerf
    others = decoding, turbulence, multigrid, qubits, particles, sinkhorn
    whole = turbulence, multigrid, qubits  # whose result is the next state alone
    return {f.__name__: Program(fw, _sized(f, size == "large"), None if f in whole else 0) for f in (*steps, *others)}


def _sized(build: Callable[[Any, bool], Any], large: bool) -> Callable[[Any], Any]:
    return lambda fw: build(fw, large)


def decoding(fw: Any, large: bool) -> Any:
    """One token for each of many sequences, from caches of keys and values: heads on `model`, sequences on `data`."""
    batch, length, width, heads, groups, layers = (128, 8192, 4096, 32, 8, 8) if large else (8, 16, 16, 4, 2, 1)
    head = width // heads

    def step(caches: Any, p: Any, x: Any, place: Any) -> Any:
        kept = []
        for (keys, values), w in zip(caches, p, strict=True):
            h = norm(fw, x)
            q = fw.np.einsum("bd,dhk->bhk", h, w["q"]).reshape(batch, groups, heads // groups, head)
            k, v = (fw.np.einsum("bd,dgk->bgk", h, w[n])[:, None] for n in "kv")
            keys, values = (fw.lax.dynamic_update_slice(c, n, (0, place, 0, 0)) for c, n in ((keys, k), (values, v)))
            scores = fw.np.einsum("bgrk,bsgk->bgrs", q, keys) * head**-0.5
            scores = fw.np.where(fw.np.arange(length) <= place, scores, -1e9)
            mixed = fw.np.einsum("bgrs,bsgk->bgrk", fw.nn.softmax(scores, -1), values).reshape(batch, heads, head)
            x = x + fw.np.einsum("bhk,hkd->bd", mixed, w["o"])
            x = x + (fw.nn.silu(norm(fw, x) @ w["gate"]) * (norm(fw, x) @ w["up"])) @ w["down"]
            kept.append((keys, values))
        return kept, x

    hidden = 7 * width // 2
    layer = {
        "q": Arg((width, heads, head), None, "model"), "k": Arg((width, groups, head), None, "model"),
        "v": Arg((width, groups, head), None, "model"), "o": Arg((heads, head, width), "model"),
        "gate": Arg((width, hidden), None, "model"), "up": Arg((width, hidden), None, "model"),
        "down": Arg((hidden, width), "model"),
    }  # fmt: skip
    layer = {n: Arg(a.shape, *a.entries, dtype=BF16) for n, a in layer.items()}
    cache = Arg((batch, length, groups, head), "data", None, "model", dtype=BF16)
    x, place = Arg((batch, width), "data", dtype=BF16), Arg((), dtype=I32)
    return step, ([(cache, cache)] * layers, [layer] * layers, x, place)
