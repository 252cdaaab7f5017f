"""What equations take that read windows, rows or batches in an order that is not best: beside reading and writing values once."""

from __future__ import annotations

import itertools
import math
from typing import Final, NamedTuple

from meshjit.core.op import Image, Search
from meshjit.core.program import Eqn
from meshjit.core.target import Target


class Windows(NamedTuple):
    """What reading windows takes: multiplications and additions, and bytes of memory, beside the contraction's own; the bytes
    that images fill in registers, read and written while it multiplies; seconds in which rows are fetched one by one; and how
    often operands and results could be read while they are brought into another order: positions, and times."""

    flops: float = 0.0
    bytes: float = 0.0
    filled: float = 0.0
    seconds: float = 0.0
    reorders: tuple[tuple[int, float], ...] = ()


NO_WINDOWS: Final = Windows()


def windows_of(eqn: Eqn, target: Target) -> Windows:
    """Of a local equation, for what the machine copies or reorders before."""
    op = eqn.op
    if target.row_seconds and op.search is not None:
        return Windows(seconds=target.row_seconds * _looked_up(op.search(eqn.input_types, eqn.params), target))
    if op.fetches is not None and target.row_seconds:
        rows, width = op.fetches(eqn.input_types, eqn.params)
        return Windows(seconds=target.row_seconds * rows * math.ceil(width / target.lanes))
    if op.best_orders is None:
        return NO_WINDOWS
    times = target.batch_reordering if op.window_reads is None else target.reordering
    reorders = tuple([(i, times) for i in _reordered(eqn)]) if times else ()
    if op.window_reads is None or op.images is None:
        return Windows(reorders=reorders) if reorders else NO_WINDOWS
    reads, features = op.window_reads(eqn.input_types, eqn.params)
    flops = target.window_flops * reads if features <= target.narrow_windows else 0.0
    if op.in_groups is not None:  # its rule sums no features, so they are counted here
        places, width = op.in_groups(eqn.input_types, eqn.params)
        flops += 2 * places * max(width, target.group_width)
    images = op.images(eqn.input_types, eqn.params) if target.lanes > 1 else ()
    filled = sum(_filled(image, target) * image.itemsize for image in images)
    return Windows(flops, sum(_cut(image, target) for image in images), filled, 0.0, reorders)


def compares(search: Search, target: Target) -> bool:
    """Whether a value is compared with all entries of its line, as emission does; else lines are halved."""
    return target.compares(search.entries, search.values) if search.compares is None else search.compares


def search_passes(search: Search, target: Target) -> float:
    """How often the operands could be read meanwhile."""
    rounds = search.entries / target.search_comparisons if compares(search, target) else search.entries.bit_length()
    return target.search_reads * rounds * search.share


def _looked_up(search: Search, target: Target) -> int:
    """Entries that are fetched one by one: one for every value in each round of a halving."""
    return 0 if compares(search, target) else search.entries.bit_length() * search.values


def _filled(image: Image, target: Target) -> float:
    """Elements of an image whose features, or batch, fill registers' lanes: whichever leaves fewer of these empty."""
    lanes = target.lanes
    fewest = min(math.ceil(a / lanes) * lanes * b for a, b in itertools.permutations((image.features, image.batch)))
    return fewest * math.prod(image.places)


def _cut(image: Image, target: Target) -> float:
    """Bytes that could be read while the rows of a few images are cut into more images."""
    is_cut = image.batch < target.small_batch and image.places and image.places[-1] >= target.cut_rows
    return target.cut_passes * _filled(image, target) * min(image.itemsize, 2) if is_cut else 0.0


def _reordered(eqn: Eqn) -> list[int]:
    """Which of an equation's operands and results have their dims in another order than is best."""
    assert eqn.op.best_orders is not None
    orders = eqn.op.best_orders(eqn.input_types, eqn.params)
    return [i for i, order in enumerate(orders) if tuple(order) != tuple(range(len(order)))]
