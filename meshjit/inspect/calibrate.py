"""Measure the machine at hand: what its devices compute and send a second, as Figures that `meshjit/targets/files.py` writes.

All devices work at once, as they do in programs: eight devices over two cores have a quarter of a core each. Every program runs a
few times, and the quickest run counts; one that takes long runs less often. Some ten seconds; between processes, up to twenty.

    collective     chains of one kind over the devices of a process, and over one of each: 4 KiB to start it,
                   256 KiB and 1 MiB to move bytes; of two devices and of all, for larger groups take longer to start
    flops          products of square matrices, by dtype
    memory         a loop that only reads and writes 8 MiB; a chain of small products, for what a step costs at least

A quick device gets larger matrices, more memory and longer messages, until they take much longer than a call does.
"""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from meshjit import lax
from meshjit.api import jit
from meshjit.api.putting import make_mesh
from meshjit.config import config
from meshjit.lax.shard_map import shard_map
from meshjit.multihost import broadcast_one_to_all
from meshjit.numpy.creation import zeros
from meshjit.runtime import client
from meshjit.targets import DEFAULTS, family
from sharding.cost import collective_bytes
from sharding.figures import DEVICES, FOREVER, Figures, figures_of_kind
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec as P

SMALL: Final = 1 << 12  # bytes of a device
# 8 CPU devices take half as long again a byte for 1 MiB as for 256 KiB, which caches hold. The rate is between both.
LARGE: Final = (1 << 18, 1 << 20)
CHAIN: Final = 4  # collectives in a program: each waits for the one before
RUNS: Final = 5  # of each program; the quickest counts
PATIENCE: Final = 1.0  # seconds that the runs of a program may take together; one counts, however long it takes
WIDTHS: Final = {"float32": 512, "float64": 512, "bfloat16": 256, "float16": 256, "int8": 128}  # of matrices
STREAM: Final = 1 << 23  # bytes
COLUMNS: Final = 1 << 10  # of what is read: a GPU reads rows of an odd length at less than half the rate
TRIPS: Final = 8  # over it
STEPS: Final = 32
ENOUGH: Final = 2e-3  # seconds that work has to take: a call takes up to 1e-4
LARGEST: Final = {"width": 1 << 14, "stream": 1 << 32, "message": 1 << 28}  # columns; bytes
LEAST: Final = 1e-7  # seconds: of what takes none that can be measured
LEAST_SHARE: Final = 0.1  # of a time, that is left when another is taken off it: below, it is noise
BUSY: Final = 1.3  # times as long as the processors worked: others use them, too
SANE: Final = 32.0  # times as slow as another kind, or as quick: more is noise
BASE: Final = "all_gather"  # the bandwidth is that of this kind; the others are so many times slower

Local: TypeAlias = Callable[[Any], Any]  # of the shards of one device


def calibrated(devices: Sequence[Any] | None = None) -> tuple[Figures, tuple[int, ...]]:
    """The figures of these devices, or of all, and the shape of their mesh: (processes, devices of each), or one axis where there
    is one process. A process counts as a host. Processes of a job call it together; numbers differ a little between them."""
    devices = client.devices() if devices is None else devices
    return Calibration(devices).figures()


class Calibration:
    """Of some devices. `clock` is that of the wall, or what the processors worked for CPU devices where others use them, too."""

    def __init__(self, devices: Sequence[Any]) -> None:
        self.device, self.platform = devices[0], family(devices[0].platform)
        self.hosts = len({device.process_index for device in devices})
        self.each = len(devices) // self.hosts
        pair = 2 if self.each % 2 == 0 else 1
        self.mesh = make_mesh((self.hosts, self.each // pair, pair), ("hosts", "pairs", "pair"), devices=devices)
        self.cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.clock: Callable[[], float] = time.perf_counter
        if self.platform == "cpu" and self.hosts == 1 and self._is_busy():
            self.clock = self._processors

    def figures(self) -> tuple[Figures, tuple[int, ...]]:
        """All figures, and the shape of the mesh."""
        like = figures_of_kind(self.platform, self.device.device_kind) or DEVICES[DEFAULTS[self.platform]]
        count, cores = _counted(self.mesh.device_count, "device"), _counted(self.cores, "core")
        kind = cores if self.platform == "cpu" else self.device.device_kind
        busy = ", time of the processors: the machine was busy" if self.clock is not time.perf_counter else ""
        figures = dataclasses.replace(
            like,
            name=f"measured {self.platform}",
            source=f"meshjit plan --calibrate: {count}, {kind}{busy}",
            flops={dtype: self.flops(dtype) for dtype in WIDTHS},
            memory_bandwidth=self.memory_bandwidth(),
            memory=self.memory(like),
            step_latency=self.step_latency(),
            host=FOREVER if self.hosts == 1 else self.each,
            kinds=(),
        )
        if self.hosts > 1:
            latency, rates = self.links(("hosts",))
            figures = dataclasses.replace(figures, network=rates[BASE], network_latency=latency)
            figures = self._with_links(figures, latency, rates)
        if self.each > 1:
            latency, rates = self.links(("pairs", "pair"))
            figures = dataclasses.replace(self._with_links(figures, latency, rates), **self._latencies(latency))
        return figures, (self.hosts, self.each) if self.hosts > 1 < self.each else (self.mesh.device_count,)

    def _with_links(self, figures: Figures, latency: float, rates: Mapping[str, float]) -> Figures:
        kinds = [kind for kind in sorted(rates) if kind != BASE and not kind.startswith("minor")]
        slowdown = {kind: _sane(rates[BASE] / rates[kind]) for kind in kinds}
        minor = {kind: max(1.0, _sane(rates[kind] / rates[f"minor {kind}"])) for kind in ("all_gather", "reduce_scatter")}
        minor = minor if self.platform == "cpu" else {}  # others do as well along any dim
        return dataclasses.replace(
            figures, link=rates[BASE], latency=latency, slowdown=slowdown, minor_slowdown=minor, wraps=0
        )

    def _latencies(self, of_all: float) -> Mapping[str, float]:
        """Seconds to start a collective of two devices, and by how much a group of twice as many takes longer."""
        doublings = math.log2(self.each) - 1
        if self.mesh.shape["pair"] == 1 or not doublings:
            return {"latency": of_all}
        of_two = min(of_all, statistics.median(self._seconds_by_kind(("pair",), 2, SMALL).values()))
        return {"latency": of_two, "latency_growth": (of_all - of_two) / doublings}

    # -- time

    def _processors(self) -> float:
        return time.process_time() / min(self.cores, self.mesh.device_count)

    def _is_busy(self) -> bool:
        run = self._program(_product, (WIDTHS["float32"],) * 2, "float32")
        return self.seconds(run, time.perf_counter) > BUSY * self.seconds(run, self._processors)

    def seconds(self, run: Callable[[], Any], clock: Callable[[], float] | None = None) -> float:
        """Of the quickest run. The first does not count."""
        clock = clock or self.clock
        runs = self._runs(_timed(run, clock))
        return max(min(_timed(run, clock) for _ in range(runs)), LEAST)

    def _runs(self, seconds: float) -> int:
        """How often a program runs whose first run took so long. Processes run it equally often, as the first of them says."""
        runs = max(1, min(RUNS, int(PATIENCE / max(seconds, LEAST))))
        return int(broadcast_one_to_all(np.int32(runs))) if self.hosts > 1 else runs

    def _program(self, fun: Local, shape: Sequence[int], dtype: str) -> Callable[[], Any]:
        """Runs `fun` of an array of this shape on every device at once."""
        every = P(self.mesh.axis_names)
        whole = (self.mesh.device_count * shape[0], *shape[1:])
        with config.using(enable_x64=True):
            value = jit(lambda: zeros(whole, dtype), out_shardings=NamedSharding(self.mesh, every))()
            each = shard_map(fun, mesh=self.mesh, in_specs=every, out_specs=every)
            compiled = jit(each).lower(value).compile()
        return lambda: compiled(value)

    def _chain(self, link: Local, shape: Sequence[int], links: int = CHAIN) -> float:
        """Seconds of one link, whose result is the next one's operand."""

        def chain(x: Any) -> Any:
            for _ in range(links):
                x = link(x)
            return x

        return self.seconds(self._program(chain, shape, "float32")) / links

    # -- collectives

    def links(self, axes: tuple[str, ...]) -> tuple[float, Mapping[str, float]]:
        """Seconds to start a collective over axes, and bytes a second on the wire by kind; "minor …" along the second dim."""
        size = self.mesh.axes_size(axes)
        small, *large = (self._seconds_by_kind(axes, size, nbytes) for nbytes in (SMALL, *LARGE))
        sizes = LARGE
        while self._is_start(large[-1], small) and sizes[-1] < LARGEST["message"]:
            sizes = tuple(16 * nbytes for nbytes in sizes)
            large = [self._seconds_by_kind(axes, size, nbytes) for nbytes in sizes]

        def rate(name: str, nbytes: int, seconds: Mapping[str, float]) -> float:
            kind = name.removeprefix("minor ")
            operand = nbytes / size if kind == "all_gather" else nbytes  # of an all-gather the result is as large
            return collective_bytes(kind, operand, size) / _less(seconds[name], small[name])

        rates = {name: statistics.geometric_mean(map(rate, (name,) * len(sizes), sizes, large)) for name in small}
        return statistics.median(small.values()), rates

    def _is_start(self, large: Mapping[str, float], small: Mapping[str, float]) -> bool:
        """Whether long messages take hardly longer than short ones: then nothing of them is a byte's. Processes agree."""
        is_start = statistics.median(large.values()) < 2 * statistics.median(small.values())
        return bool(broadcast_one_to_all(np.bool_(is_start))) if self.hosts > 1 else is_start

    def _seconds_by_kind(self, axis: tuple[str, ...], size: int, nbytes: int) -> dict[str, float]:
        """Of one collective of each kind on arrays of `nbytes`. A link of a chain ends with an array like that at its beginning;
        the collective that brings it back is taken off."""
        block = max(1, round((nbytes / 4) ** 0.5 / size))
        side = size * block
        rows, whole = (block, side), (side, side)
        ring = [(i, (i + 1) % size) for i in range(size)]

        def gather(x: Any) -> Any:
            return lax.all_gather(x, axis, tiled=True)

        def scatter(x: Any) -> Any:
            return lax.psum_scatter(x, axis, tiled=True)

        def exchange(x: Any) -> Any:
            return lax.all_to_all(lax.all_to_all(x, axis, 1, 0, tiled=True), axis, 0, 1, tiled=True)

        def permute(x: Any) -> Any:
            return lax.ppermute(x, axis, ring)

        gathering, permuting = self._chain(lambda x: gather(x)[:block], rows), self._chain(permute, whole)
        return {
            "all_gather": gathering,
            "minor all_gather": self._chain(lambda x: gather(x.T).T[:, :block], (side, block)),
            "all_reduce": _less(self._chain(lambda x: lax.psum(permute(x), axis), whole), permuting),
            "all_to_all": self._chain(exchange, whole) / 2,
            "collective_permute": permuting,
            "reduce_scatter": _less(self._chain(lambda x: gather(scatter(x)), whole), gathering),
            "minor reduce_scatter": _less(self._chain(lambda x: gather(scatter(x.T)), whole), gathering),
        }

    # -- work

    def flops(self, dtype: str) -> float:
        width = WIDTHS[dtype]
        seconds = self.seconds(self._program(_product, (width, width), dtype))
        while self._is_short(seconds) and width < LARGEST["width"]:
            width *= 4
            seconds = self.seconds(self._program(_product, (width, width), dtype))
        return 2 * width**3 / seconds

    def memory_bandwidth(self) -> float:
        """Bytes that are read and written in a second, in memory that was touched before."""
        nbytes = STREAM
        seconds = self._streaming(nbytes)
        while self._is_short(seconds) and nbytes < min(LARGEST["stream"], self.memory(DEVICES[DEFAULTS[self.platform]]) / 8):
            nbytes *= 4
            seconds = self._streaming(nbytes)
        return 2 * nbytes * TRIPS / seconds

    def _streaming(self, nbytes: int) -> float:
        shape = (nbytes // (4 * COLUMNS), COLUMNS)
        return self.seconds(self._program(lambda x: lax.fori_loop(0, TRIPS, lambda _, y: y + 1, x), shape, "float32"))

    def _is_short(self, seconds: float) -> bool:
        """Whether a call is too much of this time. Processes agree."""
        return bool(broadcast_one_to_all(np.bool_(seconds < ENOUGH))) if self.hosts > 1 else seconds < ENOUGH

    def step_latency(self) -> float:
        return max(self._chain(_product, (8, 8), STEPS) - self._chain(lambda x: x + 1, (8, 8), 1) / STEPS, LEAST)

    def memory(self, like: Figures) -> float:
        """Bytes that a device may hold: what its allocator says, or its share of the host's."""
        if self.platform == "cpu":
            return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / self.each
        limit = (self.device.memory_stats() or {}).get("bytes_limit")
        return float(limit) if limit else like.memory


def _timed(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    run().block_until_ready()
    return clock() - start


def _product(x: Any) -> Any:
    """Sums of int8 are int32: GPUs have no quick product that rounds them to int8."""
    sums = np.int32 if x.dtype == np.int8 else x.dtype
    return lax.dot_general(x, x, (((1,), (0,)), ((), ())), preferred_element_type=sums)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _sane(ratio: float) -> float:
    return min(max(ratio, 1 / SANE), SANE)


def _less(seconds: float, others: float) -> float:
    return max(seconds - others, LEAST_SHARE * seconds)


__all__ = ["Calibration", "calibrated"]
