"""Devices that are nothing but numbers, for meshes without a backend."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Client:
    process: int

    def process_index(self) -> int:
        return self.process


@dataclasses.dataclass(frozen=True)
class Device:
    id: int
    process_index: int = 0
    client: Client | None = None


def devices(*shape: int) -> np.ndarray:
    found = np.empty(int(np.prod(shape)), dtype=object)
    found[:] = [Device(i) for i in range(found.size)]
    return found.reshape(shape)
