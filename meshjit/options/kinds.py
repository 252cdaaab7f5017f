"""What an option is, and how its values are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sharding.figures import DEVICES


@dataclass(frozen=True)
class Option:
    """One option: how its text is read, its default, where the environment sets it, what JAX calls it."""

    name: str
    parse: Callable[[Any], Any]  # a value of the user's, or the text of an environment variable, to the option's type
    default: Any
    doc: str
    variables: tuple[str, ...]  # the first that is set counts
    jax_name: str = ""  # where it is not the same


def boolean(value: Any) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    try:
        return words[str(value).strip().lower()]
    except KeyError:
        raise ValueError("expected true or false") from None


def integer_from(low: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, (bool, float)) or int(value) < low:
            raise ValueError(f"expected an integer of at least {low}")
        return int(value)

    return parse


def integer(value: Any) -> int:
    if isinstance(value, (bool, float)):
        raise ValueError("expected an integer")
    return int(value)


def seconds(value: Any) -> float:
    if isinstance(value, bool) or not float(value) > 0:
        raise ValueError("expected a number of seconds above 0")
    return float(value)


def number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return float(value)


def folder(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str | os.PathLike):
        raise ValueError("expected a path")
    return os.path.abspath(os.path.expanduser(value))


def word(value: Any) -> str | None:
    return str(value) if value else None


def one_of(*choices: str | None) -> Callable[[Any], str | None]:
    spelt = {"" if choice is None else choice.lower(): choice for choice in choices}

    def parse(value: Any) -> str | None:
        word = "" if value is None else str(value).lower()
        if word not in spelt:
            raise ValueError(f"expected one of {', '.join(map(repr, choices))}")
        return spelt[word]

    return parse


def model(value: Any) -> str | None:
    """A name of DEVICES, or the full path of a file."""
    if value in (None, ""):
        return None
    if isinstance(value, str | os.PathLike) and os.fspath(value).endswith(".toml"):
        return folder(value)
    if str(value).lower() not in DEVICES:
        raise ValueError(f"expected one of {', '.join(map(repr, DEVICES))}, or a file that ends in .toml")
    return str(value).lower()


def platform_list(value: Any) -> str | None:
    """ "cuda,cpu" or None; "gpu" means "cuda"."""
    if value in (None, ""):
        return None
    names = [{"gpu": "cuda"}.get(name, name) for name in str(value).lower().replace(" ", "").split(",")]
    unknown = [name for name in names if name not in ("cpu", "cuda", "tpu")]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no platform: expected a comma-separated list of cpu, cuda, tpu")
    return ",".join(names)


def device(value: Any) -> Any:
    """A device of `meshjit.devices()`, or None."""
    if value is not None and not hasattr(value, "process_index"):
        raise ValueError("expected one of meshjit.devices(), or None")
    return value
