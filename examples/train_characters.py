"""Data of several processes: each reads its own rows of every batch, ahead of the step, and a job goes on where it ended.

    python examples/train_characters.py                                      one process, its devices
    meshjit run -n 4 --restarts 3 examples/train_characters.py --folder run  four; on from the last checkpoint after a failure

What comes next in the text of Python's language reference, from the 16 characters before. An epoch takes every place of the
text once, in an order that depends on the seed and the epoch alone: so the losses are the same for any number of processes, and
after a restart in the middle of an epoch.
"""

from __future__ import annotations

import argparse
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from pydoc_data import topics
from typing import Any

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import checkpoints, nn
from meshjit.sharding import NamedSharding, PartitionSpec as P

CONTEXT, WIDTH, HIDDEN = 16, 16, 128


class Text:
    """The characters as numbers; example i is the CONTEXT characters from i, and the one after them."""

    def __init__(self, most: int | None = None) -> None:
        text = "".join(topics.topics[name] for name in sorted(topics.topics))[:most]
        letters, self.characters = np.unique(np.frombuffer(text.encode("latin-1", "replace"), np.uint8), return_inverse=True)
        self.vocabulary = len(letters)
        self.count = len(self.characters) - CONTEXT

    def __getitem__(self, examples: np.ndarray) -> np.ndarray:
        return self.characters[examples[:, None] + np.arange(CONTEXT + 1)].astype(np.int32)


def batches(text: Text, size: int, seed: int, first: int) -> Iterator[np.ndarray]:
    """This process's rows of every batch from number `first` on, epoch after epoch; what fills no batch is left out."""
    per_epoch, mine = text.count // size, size // mj.process_count()
    start = mj.process_index() * mine
    number = first
    while True:
        order = np.random.default_rng((seed, number // per_epoch)).permutation(text.count)
        for i in range(number % per_epoch, per_epoch):
            yield text[order[i * size + start : i * size + start + mine]]
            number += 1


def prefetched(rows: Iterable[np.ndarray], sharding: NamedSharding, ahead: int = 2) -> Iterator[Any]:
    """Global arrays of what the processes read, made and copied to their devices while the step before runs."""
    ready: queue.Queue[Any] = queue.Queue(ahead)

    def read() -> None:
        for part in rows:
            ready.put(mj.make_array_from_process_local_data(sharding, part))

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield ready.get()


def first_parameters(vocabulary: int, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    shapes = {"embedding": (vocabulary, WIDTH), "up": (CONTEXT * WIDTH, HIDDEN), "down": (HIDDEN, vocabulary)}
    return {name: generator.normal(0, shape[0] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def loss(parameters: Any, rows: Any) -> Any:
    x = parameters["embedding"][rows[:, :-1]].reshape(rows.shape[0], -1)
    scores = nn.log_softmax(nn.relu(x @ parameters["up"]) @ parameters["down"])
    return -mnp.mean(mnp.take_along_axis(scores, rows[:, -1:], axis=-1))


@mj.jit(donate_argnums=0)
def step(state: Any, rows: Any) -> Any:
    value, slopes = mj.value_and_grad(loss)(state["parameters"], rows)
    speed = mj.tree.map(lambda v, g: 0.9 * v - 0.3 * g, state["speed"], slopes)
    return {"parameters": mj.tree.map(mnp.add, state["parameters"], speed), "speed": speed}, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--characters", type=int, help="of the text, so many (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="of checkpoints, which all processes see")
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--fail-at", type=int, help="fail at this step, but not when started again")
    arguments = parser.parse_args()

    mesh = mj.make_mesh((len(mj.devices()),), ("data",))
    whole, by_rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    text = Text(arguments.characters)
    parameters = mj.tree.map(lambda a: mj.device_put(a, whole), first_parameters(text.vocabulary, arguments.seed))
    state = {"parameters": parameters, "speed": mj.tree.map(mnp.zeros_like, parameters)}
    begun = checkpoints.latest(arguments.folder) if arguments.folder else None
    if begun is not None:
        state = checkpoints.restore(arguments.folder, like=state, step=begun)
    rows = prefetched(batches(text, arguments.batch, arguments.seed, begun or 0), by_rows)
    for number in range(begun or 0, arguments.steps):
        if number == arguments.fail_at and not int(os.environ.get("MESHJIT_RESTART", 0)):
            raise RuntimeError(f"fails at step {number}, as it was told")
        state, value = step(state, next(rows))
        if mj.process_index() == 0:
            print(f"step {number} loss {float(value):.6f}", flush=True)
        if arguments.folder and (number + 1) % arguments.save_every == 0:
            checkpoints.save(arguments.folder, state, number + 1, keep=2)


if __name__ == "__main__":
    main()
