"""Options from a command line: `config.parse_flags_with_absl()` and `config.config_with_absl()` of JAX.

    python train.py --jax_enable_x64 --jax_num_cpu_devices=8 --nojax_debug_nans
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from meshjit.options.kinds import Option, boolean

Update = Callable[[str, Any], None]


def flag_names(option: Option) -> list[str]:
    """How the option is spelled on a command line, without dashes: as JAX spells it, and by our name."""
    return list(dict.fromkeys([f"jax_{option.jax_name or option.name}", f"jax_{option.name}"]))


def read_flags(options: Sequence[Option], arguments: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(name, value) of every option that is set between the program's name and `--`. What is no option of ours is skipped:
    it belongs to the program."""
    named = {name: option for option in options for name in flag_names(option)}
    rest = takewhile(lambda word: word != "--", arguments)
    for word in rest:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            continue
        if equals and name in named:
            yield named[name].name, value
        elif name in named:
            yield named[name].name, True if named[name].parse is boolean else next(rest, "")
        elif name.startswith("no") and (off := named.get(name[2:])) and off.parse is boolean:
            yield off.name, False


def register_with_absl(options: Sequence[Option], update: Update) -> None:
    """Define a flag of absl for every option; those that the command line sets are set when `absl.app.run` has read it. The
    program calls for absl, so it is installed; ImportError otherwise."""
    flags, app = (importlib.import_module(f"absl.{name}") for name in ("flags", "app"))
    names = [(name, option) for option in options for name in flag_names(option) if name not in flags.FLAGS]
    for name, option in names:
        define = flags.DEFINE_bool if option.parse is boolean else flags.DEFINE_string
        define(name, None, option.doc, module_name="meshjit")

    def take() -> None:
        for name, option in names:
            if flags.FLAGS[name].present:
                update(option.name, flags.FLAGS[name].value)

    app.call_after_init(take)
