"""Random lives of arrays: made, copied, moved, computed with, donated, deleted. What is alive holds what it held. Runs in CI, and for as long as you like:

    python -m tests.tools.fuzz_arrays --minutes 10 [--seed N]

Next to every array goes a NumPy array of its own. Arrays that may share memory by contract (`asarray`, `device_put` to the
same place) form a group, which dies together; copies have a group of their own.
"""

from __future__ import annotations

import argparse
import copy
import math
import pickle
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import meshjit as mj
import meshjit.numpy as mnp
from meshjit.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

DTYPES = (np.float32, np.int32, np.bool_, np.complex64, np.uint8, np.float16)


@dataclass
class Live:
    array: Any
    value: np.ndarray[Any, Any]
    group: list[Live]


class Life:
    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.live: list[Live] = []
        self.sources: list[np.ndarray[Any, Any]] = []  # NumPy arrays that were given away, and may change afterwards
        self.steps: list[str] = []

    def number(self, low: int, high: int) -> int:
        return int(self.generator.integers(low, high))

    def pick(self) -> Live:
        return self.live[self.number(0, len(self.live))]

    def add(self, array: Any, value: np.ndarray[Any, Any], shares: Live | None = None) -> None:
        group = shares.group if shares else []
        one = Live(array, value.copy(), group)
        group.append(one)
        self.live.append(one)

    def end(self, one: Live) -> None:
        """Its memory is given away: neither it nor what may share with it is looked at again."""
        self.live = [other for other in self.live if other.group is not one.group]

    def check(self) -> None:
        for one in self.live:
            np.testing.assert_array_equal(np.asarray(one.array), one.value, err_msg="; ".join(self.steps))

    def step(self) -> None:
        names = list(STEPS)
        name = names[self.number(0, len(names))] if len(self.live) > 1 else "made"
        self.steps.append(name)
        STEPS[name](self)
        self.check()

    def sharding(self, rank: int) -> Any:
        """One of eight devices, or a placement on a mesh of some."""
        if self.number(0, 3) == 0:
            return SingleDeviceSharding(mj.devices()[self.number(0, 8)])
        shape = ((8,), (4, 2), (2,), (3,))[self.number(0, 4)]
        mesh = Mesh(np.array(mj.devices()[: math.prod(shape)]).reshape(shape), ("x", "y")[: len(shape)])
        dims: list[Any] = [None] * rank
        for axis in mesh.axis_names:
            if rank and self.number(0, 2) and dims[place := self.number(0, rank)] is None:
                dims[place] = axis
        return NamedSharding(mesh, PartitionSpec(*dims))


def made(life: Life) -> None:
    shape = tuple(life.number(0, 9) if life.number(0, 8) == 0 else life.number(1, 9) for _ in range(life.number(0, 3)))
    value = life.generator.integers(0, 2 if life.number(0, 2) else 5, shape).astype(DTYPES[life.number(0, len(DTYPES))])
    source = np.ascontiguousarray(value).reshape(shape)
    array = mnp.array(source) if life.number(0, 2) else mj.device_put(source.copy(), life.sharding(len(shape)))
    life.add(array, value)
    source[...] = 1  # what was copied does not change with it


COPIES: tuple[Callable[[Any], Any], ...] = (
    mnp.copy, lambda x: mnp.array(x), lambda x: mnp.array(x, copy=True), lambda x: x.astype(x.dtype, copy=True),
    lambda x: x.copy(), copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)),
    lambda x: mj.device_put(x, x.sharding, may_alias=False), lambda x: mj.tree.map(mnp.copy, {"x": x})["x"],
    lambda x: x + np.zeros((), x.dtype) if x.dtype != np.bool_ else x | False, lambda x: mj.jit(mnp.copy)(x),
)  # fmt: skip


def copied(life: Life) -> None:
    one, kind = life.pick(), life.number(0, len(COPIES))
    life.steps[-1] += f" {kind}"
    life.add(COPIES[kind](one.array), one.value)


def aliased(life: Life) -> None:
    one = life.pick()
    same = (mnp.asarray, lambda x: mj.device_put(x, x.sharding), lambda x: x.astype(x.dtype, copy=False))
    life.add(same[life.number(0, 3)](one.array), one.value, one)


def moved(life: Life) -> None:
    """Elsewhere, or perhaps to where it lies."""
    one = life.pick()
    life.add(mj.device_put(one.array, life.sharding(one.value.ndim)), one.value, one)


def computed(life: Life) -> None:
    one = life.pick()
    life.add(mj.jit(lambda x: mnp.flip(x))(one.array), np.flip(one.value))


def donated(life: Life) -> None:
    one = life.pick()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where no result can take the memory
        result = mj.jit(lambda x: mnp.flip(x), donate_argnums=0)(one.array)
    assert one.array.is_deleted(), "; ".join(life.steps)
    value = np.flip(one.value)
    life.end(one)
    life.add(result, value)


def donated_by_moving(life: Life) -> None:
    """One of two in a tree; the other one stays."""
    one, other = life.pick(), life.pick()
    if one.group is other.group:
        return
    target = life.sharding(min(one.value.ndim, other.value.ndim))
    results = mj.device_put((one.array, other.array), target, donate=(True, False))
    values = one.value, other.value
    life.end(one)
    life.add(results[0], values[0])
    life.add(results[1], values[1], other)


def deleted(life: Life) -> None:
    one = life.pick()
    one.array.delete()
    life.end(one)


STEPS: dict[str, Callable[[Life], None]] = {
    f.__name__: f for f in (made, copied, aliased, moved, computed, donated, donated_by_moving, deleted)
}


def live(seed: int, steps: int = 12) -> None:
    life = Life(seed)
    for _ in range(steps):
        life.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    end, seed = time.time() + 60 * args.minutes, args.seed
    while time.time() < end:
        try:
            live(seed)
        except Exception:
            print(f"seed {seed}")
            raise
        seed += 1
    print(f"{seed - args.seed} lives passed")


if __name__ == "__main__":
    main()
