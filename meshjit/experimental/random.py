"""`jax.experimental.random`: random numbers as NumPy's Generator draws them, each call another one.

    rng = stateful_rng(42)
    rng.normal(size=3)      # three numbers
    rng.normal(size=3)      # three others, also in functions under jit: the count of draws is a Ref

A generator is a key and a Ref that counts the draws; draw number n is made from `fold_in(key, n)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshjit import numpy as mnp, random
from meshjit.core.keys import PRNGKeyArray
from meshjit.missing import explain as _explain
from meshjit.ref import new_ref
from meshjit.trace import active_trace, line_of, user_source
from meshjit.tree_util import register_dataclass

Size = int | Sequence[int] | None


@dataclass
class StatefulPRNG:
    """A generator: draws change its count. Arguments and closures of functions, of jit too, may be one; results may not, as Refs
    may not. `_base_key`: a key, or keys for `vmap`, of which each has a count in `_counter`."""

    _base_key: Any
    _counter: Any

    def __post_init__(self) -> None:
        if not isinstance(self._base_key, PRNGKeyArray) and isinstance(self._base_key, int | np.ndarray | mnp.ndarray):
            raise ValueError(f"StatefulPRNG needs a key, was given {self._base_key!r:.60}\n  fix: stateful_rng(seed)")

    def key(self, shape: int | Sequence[int] = ()) -> Any:
        """A new key, or keys of this shape. ValueError on a generator that was split: its parts draw, under vmap."""
        if self._base_key.shape:
            raise ValueError(
                f"a generator split into {self._base_key.shape} draws nothing itself\n  at {line_of(user_source())}\n"
                "  fix: jax.vmap(f)(rng), in which each part draws; or rng.spawn(n), a list of generators"
            )
        new = random.fold_in(self._base_key, self._counter[...])
        self._counter.addupdate(1)
        return new if shape == () else random.split(new, shape if isinstance(shape, int) else tuple(shape))

    def random(self, size: Size = None, dtype: Any = float) -> Any:
        """Numbers of [0, 1), evenly spread."""
        return random.uniform(self.key(), _shape(size), dtype)

    def uniform(self, low: Any = 0, high: Any = 1, size: Size = None, *, dtype: Any = float) -> Any:
        """Numbers of [low, high), evenly spread. Without `size` of the shape to which `low` and `high` are broadcast."""
        return random.uniform(self.key(), _shape(size, low, high), dtype, low, high)

    def normal(self, loc: Any = 0, scale: Any = 1, size: Size = None, *, dtype: Any = float) -> Any:
        """Numbers of the normal distribution with mean `loc` and standard deviation `scale`."""
        return loc + random.normal(self.key(), _shape(size, loc, scale), dtype) * scale

    def integers(self, low: Any, high: Any = None, size: Size = None, *, dtype: Any = int) -> Any:
        """Integers of [low, high), or of [0, low) without `high`."""
        low, high = (0, low) if high is None else (low, high)
        return random.randint(self.key(), _shape(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """As many generators in one, whose parts draw under vmap."""
        keys = self.key(num)
        return StatefulPRNG(keys, new_ref(mnp.zeros(keys.shape, int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """A list of generators that have nothing to do with one another."""
        return [StatefulPRNG(key, new_ref(0)) for key in self.key(n_children)]


register_dataclass(StatefulPRNG, data_fields=["_base_key", "_counter"], meta_fields=[])


def stateful_rng(seed: Any = None, *, impl: Any = None) -> StatefulPRNG:
    """A generator. seed: an integer; without one, outside of traced functions only, NumPy chooses. impl: how its key draws.

    TypeError without a seed in a function that is traced."""
    if seed is None:
        if active_trace() is not None:
            raise TypeError(
                "stateful_rng without a seed in a traced function: each call of the compiled program would draw the same\n"
                f"  at {line_of(user_source())}\n  fix: stateful_rng(seed), or a generator that is made outside and passed in"
            )
        seed = np.random.default_rng().integers(2**32, dtype=np.uint32)
    return StatefulPRNG(random.key(seed, impl=impl), new_ref(0))


def _shape(size: Size, *operands: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*(np.shape(x) if not hasattr(x, "shape") else x.shape for x in operands))
    return (size,) if isinstance(size, int | np.integer) else tuple(size)


_explain(__name__)
