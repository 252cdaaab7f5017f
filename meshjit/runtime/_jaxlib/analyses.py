"""What is known of an executable, or of a module before it is compiled: memory, cost, text, layouts."""

from __future__ import annotations

from typing import Any

from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]


def memory_stats(executable: Any) -> dict[str, int]:
    """Bytes per device: arguments, outputs, alias (of both, where donated), temp, generated_code; the same as `host_…`;
    peak if known."""
    stats = executable.get_compiled_memory_stats()
    names = {"arguments": "argument", "outputs": "output", "alias": "alias", "temp": "temp"}
    names["generated_code"] = "generated_code"
    result = {ours: int(getattr(stats, f"{theirs}_size_in_bytes")) for ours, theirs in names.items()}
    result.update({f"host_{ours}": int(getattr(stats, f"host_{theirs}_size_in_bytes", 0)) for ours, theirs in names.items()})
    if hasattr(stats, "peak_memory_in_bytes"):
        result["peak"] = int(stats.peak_memory_in_bytes)
    return result


def cost_analysis(executable: Any) -> dict[str, float]:
    """XLA's own estimate for one device: "flops", "bytes accessed", "transcendentals", …"""
    costs = executable.cost_analysis()
    return dict(costs[0] if isinstance(costs, list) else costs)


def hlo_text(executable: Any) -> str:
    """The optimised HLO of one device."""
    return "\n\n".join(module.to_string() for module in executable.hlo_modules())


def computation(text: str) -> Any:
    """StableHLO text as XLA's HLO, not optimised: an XlaComputation."""
    return _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False, return_tuple=False)


def hlo_text_of_module(text: str) -> str:
    return computation(text).as_hlo_text()


def cost_of_module(client: Any, text: str) -> dict[str, float]:
    """`cost_analysis` of StableHLO text that is not compiled."""
    return dict(_jax.hlo_module_cost_analysis(client, computation(text).as_hlo_module()))


def parameter_layouts(executable: Any) -> list[tuple[int, ...]]:
    """Per argument its dims from major to minor in memory."""
    return [_major_to_minor(layout) for layout in executable.get_parameter_layouts()]


def result_layouts(executable: Any) -> list[tuple[int, ...]]:
    return [_major_to_minor(layout) for layout in executable.get_output_layouts()]


def array_layout(array: Any) -> tuple[int, ...]:
    """In which order the dims of its shards lie in memory, from the slowest varying."""
    return _major_to_minor(array._pjrt_layout)


def _major_to_minor(layout: Any) -> tuple[int, ...]:
    return tuple(reversed(layout._xla_layout().minor_to_major()))
