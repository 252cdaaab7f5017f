"""Parts of networks that `learning.py` and `models.py` are made of, for a framework that is handed in."""

from __future__ import annotations

from typing import Any

from annotated import BOTH, Arg


def norm(fw: Any, x: Any) -> Any:
    return x * fw.lax.rsqrt(fw.np.mean(x * x, -1, keepdims=True) + 1e-6)


def attention(fw: Any, p: Any, x: Any, memory: Any, mask: Any = None) -> Any:
    """Of x over memory, with weights q, k, v of (width, heads, head) and o of (heads, head, width)."""
    q = fw.np.einsum("btd,dhk->bthk", x, p["q"])
    k, v = (fw.np.einsum("bsd,dhk->bshk", memory, p[n]) for n in "kv")
    scores = fw.np.einsum("bthk,bshk->bhts", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = fw.np.where(mask, scores, -1e9)
    mixed = fw.np.einsum("bhts,bshk->bthk", fw.nn.softmax(scores, -1), v)
    return fw.np.einsum("bthk,hkd->btd", mixed, p["o"])


def attention_weights(width: int, heads: int) -> dict[str, Arg]:
    weights = {n: Arg((width, heads, width // heads), BOTH) for n in "qkv"}
    return {**weights, "o": Arg((heads, width // heads, width), None, None, BOTH)}


def block(fw: Any, p: Any, x: Any, mask: Any = None) -> Any:
    """A layer of a transformer."""
    normal = norm(fw, x)
    x = x + attention(fw, p, normal, normal, mask)
    return x + fw.nn.gelu(norm(fw, x) @ p["up"]) @ p["down"]


def block_weights(width: int, heads: int) -> dict[str, Arg]:
    mlp = {"up": Arg((width, 4 * width), BOTH), "down": Arg((4 * width, width), None, BOTH)}
    return {**attention_weights(width, heads), **mlp}


def cross_entropy(fw: Any, logits: Any, targets: Any) -> Any:
    picked = fw.np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return fw.np.mean(fw.nn.logsumexp(logits, -1) - picked)
