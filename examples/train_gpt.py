"""Train a character-level GPT on real English prose, on a mesh of devices.

    python examples/train_gpt.py                          8 virtual CPU devices as data=4, model=2
    python examples/train_gpt.py --mesh data=8            the same losses, another mesh
    python examples/train_gpt.py --inspect                what goes where, and what it costs; then stop
    mpirun -n 2 python examples/train_gpt.py              two processes with four devices each

The text is what `pydoc_data.topics` of Python's standard library holds: the language reference. Only the parameters and
the batch are annotated (Megatron: columns, then rows, over `model`; the batch over `data`); meshjit fills in the rest.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax, nn
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec as P


def eight_devices() -> None:
    """Ask for 8 virtual CPU devices in all processes together, unless the environment says how many."""
    processes = int(os.environ.get("PMI_SIZE") or os.environ.get("OMPI_COMM_WORLD_SIZE") or 1)
    said = "MESHJIT_NUM_CPU_DEVICES" in os.environ or "device_count" in os.environ.get("XLA_FLAGS", "")
    if not said:
        mj.config.update("num_cpu_devices", max(1, 8 // processes))


def read_text() -> str:
    """The prose on every machine that has Python."""
    from pydoc_data import topics

    return "\n".join(topics.topics[name] for name in sorted(topics.topics))


class Characters:
    """The text as numbers, and back."""

    def __init__(self, text: str) -> None:
        common = sorted(c for c in set(text) if text.count(c) >= 20)
        self.alphabet = ["?", *common]
        numbers = {c: i for i, c in enumerate(self.alphabet)}
        self.data = np.array([numbers.get(c, 0) for c in text], np.int32)

    def unigram_entropy(self) -> float:
        """Nats per character for a model that knows only how frequent each character is."""
        counts = np.bincount(self.data)
        p = counts[counts > 0] / counts.sum()
        return float(-(p * np.log(p)).sum())

    def batch(self, generator: np.random.Generator, size: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        starts = generator.integers(0, len(self.data) - length - 1, size)
        rows = np.stack([self.data[s : s + length + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]

    def decode(self, numbers: np.ndarray) -> str:
        return "".join(self.alphabet[i] for i in numbers)


# --- the model ---------------------------------------------------------------------------------------------------------


def parameters(vocabulary: int, args: argparse.Namespace) -> tuple[dict, dict]:
    """The parameters (NumPy, from a fixed seed) and, in the same tree, how they are placed."""
    generator = np.random.default_rng(args.seed)
    d, heads, hidden = args.width, args.heads, 4 * args.width

    def normal(*shape: int, scale: float) -> np.ndarray:
        return (generator.standard_normal(shape) * scale).astype(np.float32)

    def block() -> dict:
        return {
            "norm1": np.ones(d, np.float32),
            "qkv": normal(d, 3, heads, d // heads, scale=d**-0.5),
            "out": normal(heads, d // heads, d, scale=0.3 * d**-0.5),
            "norm2": np.ones(d, np.float32),
            "up": normal(d, hidden, scale=d**-0.5),
            "up_bias": np.zeros(hidden, np.float32),
            "down": normal(hidden, d, scale=0.3 * hidden**-0.5),
        }

    values = {
        "embed": normal(vocabulary, d, scale=0.02),
        "position": normal(args.length, d, scale=0.02),
        "blocks": [block() for _ in range(args.layers)],
        "norm": np.ones(d, np.float32),
    }
    if not args.tied:
        values["head"] = normal(d, vocabulary, scale=d**-0.5)
    placed = {
        "embed": P(),
        "position": P(),
        "blocks": [
            {
                "norm1": P(), "qkv": P(None, None, "model", None), "out": P("model", None, None),
                "norm2": P(), "up": P(None, "model"), "up_bias": P("model"), "down": P("model", None),
            }
        ] * args.layers,
        "norm": P(),
    }  # fmt: skip
    if not args.tied:
        placed["head"] = P(None, "model")
    return values, placed


def layer_norm(x, scale):
    centred = x - mnp.mean(x, axis=-1, keepdims=True)
    return centred * lax.rsqrt(mnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * scale


def attention(x, block):
    qkv = mnp.einsum("btd,dchk->cbthk", x, block["qkv"])
    q, k, v = qkv[0], qkv[1], qkv[2]
    scores = mnp.einsum("bthk,bshk->bhts", q, k) * q.shape[-1] ** -0.5
    length = x.shape[1]
    causal = mnp.tril(mnp.ones((length, length), dtype=bool))
    weights = nn.softmax(mnp.where(causal, scores, -1e9), axis=-1)
    return mnp.einsum("bthk,hkd->btd", mnp.einsum("bhts,bshk->bthk", weights, v), block["out"])


def mlp(x, block):
    return mnp.dot(nn.gelu(mnp.dot(x, block["up"]) + block["up_bias"]), block["down"])


def logits(params, tokens):
    x = params["embed"][tokens] + params["position"][: tokens.shape[1]]
    for block in params["blocks"]:
        x = x + attention(layer_norm(x, block["norm1"]), block)
        x = x + mlp(layer_norm(x, block["norm2"]), block)
    x = layer_norm(x, params["norm"])
    head = params["head"] if "head" in params else params["embed"].T
    return mnp.dot(x, head)


def loss_of(params, tokens, targets):
    """Mean cross-entropy in nats per character."""
    log_p = nn.log_softmax(logits(params, tokens), axis=-1)
    return -mnp.mean(mnp.take_along_axis(log_p, targets[..., None], axis=-1))


def train_step(state, tokens, targets, rate):
    """One step of Adam, written with tree maps."""
    loss, gradient = mj.value_and_grad(loss_of)(state["params"], tokens, targets)
    step = state["step"] + 1
    mean = mj.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradient)
    square = mj.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["square"], gradient)
    fix1, fix2 = 1 - 0.9**step, 1 - 0.99**step

    def update(p, m, v):
        return p - rate * (m / fix1) / (mnp.sqrt(v / fix2) + 1e-8)

    params = mj.tree.map(update, state["params"], mean, square)
    return {"params": params, "mean": mean, "square": square, "step": step}, loss


# --- the run -----------------------------------------------------------------------------------------------------------


def make_mesh(text: str) -> Mesh:
    """`data=4,model=2` as a mesh of the first devices; every mesh has both axes."""
    sizes = {"data": 1, "model": 1}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if name not in sizes or not size.isdigit():
            raise SystemExit(f"--mesh {text!r}: write for example data=4,model=2 (axes: data, model)")
        sizes[name] = int(size)
    count = sizes["data"] * sizes["model"]
    devices = mj.devices()
    if count > len(devices):
        fix = f"MESHJIT_PLATFORMS=cpu MESHJIT_NUM_CPU_DEVICES={count} in the environment"
        raise SystemExit(f"--mesh {text!r} needs {count} devices, there are {len(devices)}\n  fix: {fix}")
    return Mesh(np.array(devices[:count]).reshape(sizes["data"], sizes["model"]), ("data", "model"))


def sample(params, characters: Characters, args: argparse.Namespace, mesh: Mesh) -> str:
    """`args.sample` characters, each drawn from what the model says comes next."""
    window = np.full((1, args.length), 0, np.int32)
    prompt = [characters.alphabet.index(c) for c in "The "]
    tokens = list(prompt)
    replicated = NamedSharding(mesh, P())
    next_logits = mj.jit(lambda p, w, at: logits(p, w)[0, at], out_shardings=replicated)
    generator = np.random.default_rng(args.seed)
    for _ in range(args.sample):
        context = tokens[-args.length :]
        window[0, : len(context)] = context
        scores = np.asarray(next_logits(params, window, len(context) - 1)) / 0.8
        p = np.exp(scores - scores.max())
        tokens.append(int(generator.choice(len(p), p=p / p.sum())))
    return characters.decode(np.array(tokens))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mesh", default="data=4,model=2", help="axes and sizes (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2e-3, help="Adam's learning rate")
    parser.add_argument("--tied", action="store_true", help="use the embedding as the output head, too")
    parser.add_argument("--sample", type=int, default=200, help="characters to print at the end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print-losses", action="store_true", help="print every loss in full precision")
    parser.add_argument("--inspect", action="store_true", help="print placements and collectives, and stop")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    eight_devices()
    characters = Characters(read_text())
    mesh = make_mesh(args.mesh)
    first = mj.process_index() == 0
    console = Console(quiet=not first)
    console.print(f"{len(characters.data):,} characters, {len(characters.alphabet)} different; {mesh}")

    values, specs = parameters(len(characters.alphabet), args)
    zeros = mj.tree.map(np.zeros_like, values)
    state = {"params": values, "mean": zeros, "square": zeros, "step": np.zeros((), np.float32)}
    placed = {"params": specs, "mean": specs, "square": specs, "step": P()}
    shardings = mj.tree.map(lambda s: NamedSharding(mesh, s), placed, is_leaf=lambda x: isinstance(x, P))
    batch = NamedSharding(mesh, P("data", None))
    step = mj.jit(
        train_step,
        in_shardings=(shardings, batch, batch, None),
        out_shardings=(shardings, NamedSharding(mesh, P())),
        donate_argnums=0,
    )
    state = mj.device_put(state, shardings)
    generator = np.random.default_rng(args.seed)
    if args.inspect:
        tokens, targets = characters.batch(generator, args.batch, args.length)
        if first:
            print(step.lower(state, tokens, targets, args.rate).report())
        return

    start = time.time()
    columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not first) as progress:
        task = progress.add_task("compiling", total=args.steps)
        for i in range(args.steps):
            tokens, targets = characters.batch(generator, args.batch, args.length)
            rate = args.rate * min(1.0, (i + 1) / 20) * (1 - 0.9 * i / args.steps)
            state, loss = step(state, tokens, targets, rate)
            if i == 0:
                loss.block_until_ready()
                start = time.time()
            loss = float(loss)
            speed = i * args.batch * args.length / max(time.time() - start, 1e-9)
            progress.update(task, advance=1, description=f"loss {loss:.3f}  {speed:,.0f} tokens/s")
            if args.print_losses:
                console.print(f"step {i} loss {loss!r}", highlight=False)
    console.print(f"loss {loss:.3f}; knowing only how frequent each character is gives {characters.unigram_entropy():.3f}")
    if args.sample:
        console.print(sample(state["params"], characters, args, mesh), markup=False, highlight=False)


if __name__ == "__main__":
    main()
