"""docs/migration.md: every name of JAX's beside meshjit's (`tests/tools/jax_names.py` writes it)."""

from __future__ import annotations

from pathlib import Path

from meshjit.missing import FAMILIES, NOT_THERE
from tests.tools.differences import DIFFERENT
from tests.tools.jax_names import Known, compared

# Parameters of JAX's that ours do not have, by reason: "module.name parameter ..." each. `*` is every name that has the parameter.
LACKING: dict[str, list[str]] = {
    "withdrawn by JAX, or tools of its own": [
        "jax.vmap sum_match",
        "jax.core.eval_jaxpr propagate_source_info", "jax.experimental.topologies.make_mesh contiguous_submeshes",
        "jax.profiler.start_server requires_backend",
    ],  # fmt: skip
    "processes find one another by other ways here (docs/hosts.md)": [
        "jax.distributed.initialize cluster_detection_method shutdown_timeout_seconds slice_index partition_index",
    ],
    "positions of one name in all distributions; in JAX they differ from one to the next": [
        "jax.scipy.stats.gumbel_l.ppf p", "jax.scipy.stats.gumbel_r.ppf p", "jax.scipy.stats.logistic.isf x",
        "jax.scipy.stats.logistic.ppf x",
    ],  # fmt: skip
    "NumPy's own function, which says itself what it takes": ["jax.numpy.set_printoptions **"],
    "one function for jax.numpy and jax.dtypes, of which JAX names the parameters differently": ["jax.dtypes.issubdtype a b"],
}

_HEAD = """# From JAX to meshjit, name by name

`import meshjit as jax, meshjit.numpy as jnp`, or `import meshjit.as_jax` before what imports jax. What follows is generated from a record of
JAX 0.10.2's public names (`docs/jax_names.txt`) and of what functions take by name, beside what is here: `python -m tests.tools.jax_names`.
Left out are primitives (`*_p`), `jax.extend`, `jax.interpreters`, `jax.lib`, `jax.tools`, and of `jax.experimental` jax2tf, pallas, mosaic,
sparse and tools of JAX's own. What behaves differently on purpose stands in `docs/jit.md`.
"""


def write(page: Path) -> None:
    page.write_text(text())


def absent(item: Known) -> bool:
    """Whether the name, or a module above it, is in the list of what is not there."""
    path = f"{item.mine}.{item.name}"
    return any(path == at or path.startswith(at + ".") for at in _ABSENT)


_ABSENT = {f"{module}.{name}" for module, names in NOT_THERE.items() for name in names}


def excused(item: Known, parameter: str) -> bool:
    """Whether a reason for the missing parameter is listed."""
    entries = [entry.split() for names in LACKING.values() for entry in names]
    return any(name in ("*", f"{item.module}.{item.name}") and parameter in rest for name, *rest in entries)


def text() -> str:
    found = compared()
    return "\n".join([_HEAD, *_shares(found), "", *_absences(), "", *_differences(), "", *_parameters(found), "", *_every_name(found)]) + "\n"


def _by_module(found: dict[Known, list[str] | None]) -> dict[str, dict[Known, list[str] | None]]:
    groups: dict[str, dict[Known, list[str] | None]] = {}
    for item, lack in found.items():
        groups.setdefault(item.module, {})[item] = lack
    return groups


def _shares(found: dict[Known, list[str] | None]) -> list[str]:
    lines = ["## Shares", "", "| module | names | of | parameters | of |", "|---|--:|--:|--:|--:|"]
    for module, items in [("all", found), *_by_module(found).items()]:
        there = [item for item, lack in items.items() if lack is not None]
        parameters = sum(len(item.parameters) for item in there)
        missing = sum(len(lack) for lack in items.values() if lack)
        lines.append(f"| `{module}` | {len(there)} | {len(items)} | {parameters - missing} | {parameters} |")
    return lines


def _absences() -> list[str]:
    lines = ["## Absent, and why", ""]
    for family in FAMILIES:
        lines.append(f"- {family.why[0].upper()}{family.why[1:]}." + (f" Instead: {family.instead}." if family.instead else ""))
        lines += [f"  `{module}`: {' '.join(f'`{n}`' for n in names.split())}" for module, names in family.names.items()]
    return lines


def _differences() -> list[str]:
    lines = ["## Different in scipy, lax and random, and why", ""]
    for family, texts in DIFFERENT.items():
        lines += [f"{family}:", "", *(f"- {text[0].upper()}{text[1:]}" for text in texts), ""]
    return lines[:-1]


def _parameters(found: dict[Known, list[str] | None]) -> list[str]:
    lines = ["## Parameters that are missing, and why", ""]
    for why, entries in LACKING.items():
        lines.append(f"- {why[0].upper()}{why[1:]}:")
        for entry in entries:
            name, *parameters = entry.split()
            if name == "*":
                lines += [f"  `{parameters[0]}` of {', '.join(_taking(found, parameters[0]))}"]
            else:
                lines += [f"  `{name}`: {' '.join(f'`{p}`' for p in parameters)}"]
    return lines


def _taking(found: dict[Known, list[str] | None], parameter: str) -> list[str]:
    return [f"`{item.module}.{item.name}`" for item, lack in found.items() if lack and parameter in lack]


def _every_name(found: dict[Known, list[str] | None]) -> list[str]:
    lines = ["## Every name", "", "Under one name in both; struck through what is absent; in brackets parameters that are missing."]
    for module, items in _by_module(found).items():
        lines += ["", f"**{module}**", "", " ".join(_shown(item, lack) for item, lack in items.items())]
    return lines


def _shown(item: Known, lack: list[str] | None) -> str:
    if lack is None:
        return f"~~{item.name}~~"
    return f"`{item.name}`" + (f" ({', '.join(lack)})" if lack else "")
