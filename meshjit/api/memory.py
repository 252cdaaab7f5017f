"""What a compiled program needs of one device's memory, under the names that JAX's `memory_analysis` uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes of one device, as XLA counts them: shards with their padding, not logical arrays.

    `alias` are arguments whose memory results take (donated): they count in arguments and in outputs. `temp` is what
    lives only while the program runs. `peak_memory_in_bytes` is everything that lives at the worst moment; -1 where
    the backend does not say. `host_*` is what the program keeps in the host's memory.

    Source: `jax.stages.Compiled.memory_analysis`.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int
    peak_memory_in_bytes: int = -1
    host_argument_size_in_bytes: int = 0
    host_output_size_in_bytes: int = 0
    host_alias_size_in_bytes: int = 0
    host_temp_size_in_bytes: int = 0
    host_generated_code_size_in_bytes: int = 0

    @staticmethod
    def of(stats: Mapping[str, int]) -> MemoryAnalysis:
        """From the numbers that the runtime gives."""
        names = ("arguments", "outputs", "alias", "temp", "generated_code")
        host = [stats.get(f"host_{name}", 0) for name in names]
        arguments = [*[stats[name] for name in names], stats.get("peak", -1), *host]
        return MemoryAnalysis(*arguments)

    def rows(self) -> Iterator[tuple[str, int]]:
        """(what, bytes) for a table, without what the backend does not say and without a host that holds nothing."""
        for name, count in vars(self).items():
            if count > 0 or (count == 0 and not name.startswith("host_")):
                yield name.removesuffix("_in_bytes").removesuffix("_size").replace("_", " "), count
