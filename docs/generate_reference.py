"""Writes what the documentation repeats of the code: options.md, command_line.md, and a page for each example with its output.

    python docs/generate_reference.py                  writes options and command line
    python docs/generate_reference.py --examples       also runs the examples (a minute), and writes what they print
    python docs/generate_reference.py --check          writes nothing; says what is out of date, and fails
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["COLUMNS"] = "100"  # argparse

from meshjit.cli import parser
from meshjit.options import ACCEPTED, OPTIONS

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
RUN = ("mlp", "llama", "vision", "diffusion", "hmc", "shallow_water", "what_jax_gets_wrong")
OTHERS = ("train_gpt", "train_characters", "language_model", "fsdp_by_hand", "pipeline", "ring_attention", "expert_parallel")
TITLES = {
    "hmc": "Hamiltonian Monte Carlo", "mlp": "MLP", "train_gpt": "A GPT", "what_jax_gets_wrong": "What JAX gets wrong: the lines",
}  # fmt: skip

# Variables that are no options: (name, what it says).
PROCESSES = (
    ("MESHJIT_COORDINATOR", "`host:port` where the processes meet; with the next two says by hand who a process is"),
    ("MESHJIT_NUM_PROCESSES", "how many processes there are"),
    ("MESHJIT_PROCESS_ID", "which of them this is, from 0"),
    ("MESHJIT_LOCAL_RANK", "which of the processes of its host this is; `meshjit run` sets it"),
    ("MESHJIT_LOCAL_SIZE", "how many processes its host has; `meshjit run` sets it"),
    ("MESHJIT_JOB_TOKEN", "a secret word, the same on all processes, which keeps strangers out of their meeting"),
    ("MESHJIT_RESTART", "how often `meshjit run --restarts` has started the job again; set by it"),
    ("JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID", "as the first three; all or none"),
    ("XLA_FLAGS", "flags of XLA; of `--xla_force_host_platform_device_count` the number of CPU devices is taken"),
    ("CUDA_VISIBLE_DEVICES", "which GPUs a process sees; without it processes of one host take one each"),
)  # fmt: skip


def options() -> str:
    """The page of all options and variables."""
    lines = [
        "# Options and environment variables", "",
        "An option is set by the environment, read when meshjit is imported; by `meshjit.config.update(name, value)`; or for a",
        "block and a thread by `with meshjit.config.using(name=value)`. JAX's spelling `jax_NAME` means the same. Of several",
        "variables the first that is set counts. `config.parse_flags_with_absl()` takes `--jax_NAME=value` off the program's",
        "command line, `config.config_with_absl()` makes the options flags of absl. The page is generated from",
        "`meshjit/options`.", "",
        "| option | default | variables | what it does |", "|---|---|---|---|",
    ]  # fmt: skip
    for option in OPTIONS:
        variables = "<br>".join(f"`{name}`" for name in option.variables) or "none"
        lines.append(f"| `{option.name}` | `{option.default!r}` | {variables} | {_cell(option.doc)} |")
    lines += ["", "## Accepted without effect", "", *_ACCEPTED, "", "| option | default | why |", "|---|---|---|"]
    lines += [f"| `{o.name}` | `{o.default!r}` | {_cell(o.doc.removeprefix('Without effect: '))} |" for o in ACCEPTED]
    lines += ["", "## Variables that are no options", "", "| variable | what it says |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {_cell(text)} |" for names, text in PROCESSES]
    return "\n".join([*lines, ""])


_ACCEPTED = (
    "These options say how JAX works inside. Programs that set them run; they can be set and read, and change nothing.",
)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("--", "\\--")


def command_line() -> str:
    """The page of the command, with what --help prints."""
    top = parser()
    lines = ["# The command line", "", "`meshjit COMMAND --help` prints what stands here. Examples stand in [](inspect.md).", ""]
    lines += ["```text", top.format_help().rstrip(), "```", ""]
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        lines += [f"## meshjit {name}", "", "```text", command.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


def example(name: str, output: str) -> str:
    """A page: what the example says of itself, what it prints, its text."""
    doc = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or ""
    first, _, rest = doc.partition("\n")
    title = TITLES.get(name, name.replace("_", " ").capitalize())
    printed = ["It prints:", "", "```text", output.rstrip(), "```", ""] if output else []
    text = [f"```{{literalinclude}} ../../examples/{name}.py", ":language: python", "```", ""]
    parts = [f"# {title}", "", first, rest, "", *printed, *text]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def printed_by(name: str) -> str:
    """What an example prints on 8 CPU devices."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MESHJIT_", "JAX_", "XLA_"))}
    environ = {**kept, "PYTHONPATH": str(DOCS.parent)}
    command = [sys.executable, EXAMPLES / f"{name}.py"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=600, check=True).stdout


def recorded(name: str) -> str:
    """What the example's page says that it prints."""
    page = DOCS / "examples" / f"{name}.md"
    match = re.search(r"It prints:\n\n```text\n(.*?)\n```\n", page.read_text(), re.DOTALL) if page.exists() else None
    return match[1] if match else ""


def alike(here: str, there: str) -> bool:
    """The same words, and numbers that differ as sums in another order do."""
    number = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
    one, other = (re.findall(number, text) for text in (here, there))
    words = [re.sub(number, "0", text).split() for text in (here, there)]
    close = (abs(float(x) - float(y)) <= 0.02 + 0.05 * abs(float(y)) for x, y in zip(one, other, strict=False))
    return words[0] == words[1] and len(one) == len(other) and all(close)


def pages(run: bool) -> Iterator[tuple[Path, str]]:
    yield DOCS / "options.md", options()
    if sys.version_info < (3, 13):  # whose argparse writes options otherwise
        yield DOCS / "command_line.md", command_line()
    for name in (*RUN, *OTHERS):
        old = recorded(name)
        new = printed_by(name) if run and name in RUN else old
        yield DOCS / "examples" / f"{name}.md", example(name, old if alike(new, old) else new)


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--examples", action="store_true")
    arguments.add_argument("--check", action="store_true")
    given = arguments.parse_args()
    stale = [(path, text) for path, text in pages(given.examples) if not path.exists() or path.read_text() != text]
    for path, text in stale:
        print(f"{path.relative_to(DOCS.parent)} is out of date" if given.check else f"writes {path.relative_to(DOCS.parent)}")
        if not given.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return int(given.check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
