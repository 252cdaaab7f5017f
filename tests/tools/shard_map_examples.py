"""The examples with shard_map, run by JAX to record their values and what they send; and how either is found out.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/tools/shard_map_examples.py      (where JAX is installed)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/goldens/shard_map_examples.json"
EXAMPLES = ["ring_attention", "expert_parallel", "pipeline", "fsdp_by_hand"]


def example(name: str, package: str) -> ModuleType:
    """The example, with meshjit's names or JAX's."""
    text = (ROOT / f"examples/{name}.py").read_text().replace("import meshjit as jax", f"import {package} as jax")
    text = re.sub(r"^(from|import) meshjit\b", rf"\1 {package}", text, flags=re.MULTILINE)
    if package == "jax":
        text = re.sub(r"make_mesh\((.*)\)$", r"make_mesh(\1, axis_types=jax.sharding.AxisType.Auto)", text, flags=re.MULTILINE)
        text = re.sub(r"make_mesh\((\(\d+, \d+\)|\(\d+,\)), (.*), axis_types=(.*)\)$",
            r"make_mesh(\1, \2, axis_types=(\3,) * len(\2))", text, flags=re.MULTILINE)  # fmt: skip
    module = ModuleType(f"{name}_{package}")
    exec(compile(text, str(ROOT / f"examples/{name}.py"), "exec"), vars(module))
    return module


def values(jax: Any, module: ModuleType) -> list[Any]:
    function, arguments, _, _ = module.program()
    return [np.asarray(x, np.float64).ravel().tolist() for x in jax.tree.leaves(jax.jit(function)(*arguments))]


_SIZES = {"f32": 4, "s32": 4, "pred": 1, "f64": 8}
_SENT = {
    "all-reduce": lambda out, n: 2 * out * (n - 1) / n, "all-gather": lambda out, n: out * (n - 1) / n,
    "reduce-scatter": lambda out, n: out * (n - 1), "all-to-all": lambda out, n: out * (n - 1) / n,
    "collective-permute": lambda out, n: out,
}  # fmt: skip


def wire_bytes(text: str, trips: float) -> float:
    """What one device sends by ring formulas, of a module's HLO; what stands in a loop's body, `trips` times."""
    total, inside = 0.0, False
    for line in text.splitlines():
        if line.startswith(("%", "ENTRY")):
            inside = not line.startswith("ENTRY")
        match = re.search(r"= \(?(.*?)\)? (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\(", line)
        if match:
            shapes = re.findall(r"(f32|s32|pred|f64)\[([\d,]*)\]", match[1])
            size = sum(_SIZES[d] * int(np.prod([int(n) for n in s.split(",") if n])) for d, s in shapes)
            total += _SENT[match[2]](size, _group_size(line)) * (trips if inside else 1)
    return total


def _group_size(line: str) -> int:
    """Of `{{0,1},{2,3}}`, of `[4,2]` and of `mesh['x'=4,'y'=2] {'y'}`; permutes have no groups."""
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", line):
        return len(listed[1].split(","))
    if counted := re.search(r"replica_groups=\[\d+,(\d+)\]", line):
        return int(counted[1])
    if named := re.search(r"replica_groups=mesh\[(.*?)\] \{(.*?)\}", line):
        sizes = dict(axis.split("=") for axis in named[1].split(","))
        return int(np.prod([int(sizes[name]) for name in named[2].split(",")]))
    assert "collective-permute" in line, line
    return 2


def trips(name: str) -> int:
    """Of the only loop."""
    return {"ring_attention": 4, "pipeline": 11}.get(name, 1)


def compiled_text(jax: Any, module: ModuleType) -> str:
    function, arguments, mesh, specs = module.program()
    is_spec = lambda s: isinstance(s, jax.sharding.PartitionSpec)  # noqa: E731
    placed = jax.tree.map(lambda s: jax.sharding.NamedSharding(mesh, s), specs, is_leaf=is_spec)
    return jax.jit(function).lower(*jax.device_put(arguments, placed)).compile().as_text()


def record() -> None:
    import jax  # where it is installed

    recorded: dict[str, Any] = {}
    for name in EXAMPLES:
        module = example(name, "jax")
        recorded[name] = {"values": values(jax, module), "bytes": wire_bytes(compiled_text(jax, module), trips(name))}
    GOLDEN.write_text(json.dumps(recorded) + "\n")
    print({name: r["bytes"] for name, r in recorded.items()}, file=sys.stderr)


if __name__ == "__main__":
    record()
