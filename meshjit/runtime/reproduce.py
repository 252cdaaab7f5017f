"""When something inside breaks: an error that names a file with everything needed to see it again.

An error of the user's is raised as such and never gets here; what gets here is a bug of meshjit's or of XLA's.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from meshjit.core.printer import print_program
from meshjit.core.program import Program
from meshjit.core.region import USERS
from meshjit.core.target import Target
from meshjit.errors import InternalError
from meshjit.ops.control.check import UnaskedCheck
from meshjit.plan.make import Annotations
from meshjit.runtime import _jaxlib
from meshjit.runtime.exhausted import too_large_to_compile
from meshjit.version import __version__
from sharding.spec import PartitionSpec, ShardingError

if TYPE_CHECKING:
    from meshjit.runtime.lowering import Lowering

_HEAD = """\
What meshjit needs to see an internal error again. This file holds the whole program, with the values of its constants:
if they are data that others must not see, do not send it."""
_NOT_OURS = (ShardingError, NotImplementedError, MemoryError, RecursionError, UnaskedCheck)


@contextlib.contextmanager
def lowering(program: Program, mesh: Any, annotations: Annotations, target: Target | None = None) -> Iterator[None]:
    """Inside, a failure of planning, partitioning or emitting becomes an InternalError with a file."""
    try:
        yield
    except _NOT_OURS:
        raise
    except Exception as error:
        if USERS in error.__dict__:
            raise
        sections = {
            "what failed": "".join(traceback.format_exception(error)).rstrip(),
            "mesh": str(mesh),
            "target": str(target or "cpu"),
            "input specs": _lines(annotations.inputs),
            "output specs": _lines(annotations.outputs),
            "program": print_program(program),
        }
        path = _write(program.name, sections)
        raise InternalError(
            f"{program.name}: meshjit could not partition this program: {type(error).__name__}: {error}\n"
            f"  this is a bug in meshjit, not in your function; the program and its placements are in {path}\n{_report(path)}"
        ) from error


@contextlib.contextmanager
def compiling(title: str, lowering: Lowering, options: Mapping[str, Any]) -> Iterator[None]:
    """Inside, XLA's refusal becomes a ValueError for an option that it does not know, a RuntimeError for a function that nobody
    has registered, else an InternalError with a file."""
    try:
        yield
    except _jaxlib.CompilationError as error:
        os.remove(error.path)  # the file below says more
        if (message := _option_problem(error.reason, options)) is not None:
            raise ValueError(f"{title}: {message}") from None
        if (absent := _absent_function(error.reason)) is not None:
            raise RuntimeError(f"{title}: {absent}") from None
        if (exhausted := too_large_to_compile(error.reason, title, lowering.mesh, lowering.local)) is not None:
            raise exhausted from None
        sections = {
            "what failed": f"XLA: {error.reason}",
            "options": "\n".join(f"{k} = {v!r}" for k, v in options.items()) or "none",
            "mesh": str(lowering.mesh),
            "program and plan": print_program(lowering.plan.program, lowering.plan.placements),
            "per-device program": print_program(lowering.local),
            "stablehlo": error.text,
        }
        path = _write(lowering.plan.program.name, sections)
        raise InternalError(
            f"{title}: XLA could not compile the per-device program: {error.reason.splitlines()[0]}\n"
            f"  the program, its plan and what XLA was given are in {path}\n{_report(path)}"
        ) from None


def _report(path: str) -> str:
    return (
        "  the file holds the values of the program's constants, so look whether they may be sent\n"
        f"  fix: please report it with that file; `meshjit reproduce {path}` shows it again"
    )


def _option_problem(reason: str, options: Mapping[str, Any]) -> str | None:
    """What is wrong with compiler_options, if it is they that XLA refused."""
    if match := re.search(r"No such compile option: '(.*?)'", reason):
        return (
            f"compiler_options has {match[1]!r}, which this XLA does not know\n"
            "  fix: spell it as in XLA_FLAGS, without the dashes; or leave it out"
        )
    if match := re.search(r"While setting option (\w+),? (.*)", reason):
        return (
            f"compiler_options[{match[1]!r}] = {options.get(match[1])!r}: {match[2].rstrip('.')}\n"
            "  fix: give it a value of the option's type"
        )
    return None


def _absent_function(reason: str) -> str | None:
    """What is wrong with an `ffi_call`, if XLA has no such function."""
    match = re.search(r"No FFI handler registered for (\S+) on a platform (\w+)", reason)
    if match is None:
        return None
    platform = {"Host": "cpu"}.get(match[2], match[2])
    return (
        f"ffi_call({match[1]!r}): no function of this name is registered for {platform} in this process\n"
        f"  fix: ffi.register_ffi_target({match[1]!r}, function, platform={platform!r}) before, in every process"
    )


def _lines(specs: Any) -> str:
    return "\n".join("free" if spec is None else _spec_text(spec) for spec in specs) or "none"


def _spec_text(spec: PartitionSpec) -> str:
    return f"P({', '.join('UNCONSTRAINED' if e is PartitionSpec.UNCONSTRAINED else repr(e) for e in spec)})"


def _write(name: str, sections: Mapping[str, str]) -> str:
    """A new file of titled sections; its first lines say what is in it, and which versions made it."""
    versions = f"meshjit {__version__}, jaxlib {_jaxlib.version}, Python {platform.python_version()}"
    body = "\n\n".join(f"=== {title} ===\n{text}" for title, text in {"versions": versions, **sections}.items())
    descriptor, path = tempfile.mkstemp(prefix=f"meshjit_{name}_", suffix=".txt")
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{_HEAD}\n\n{body}\n")
    return path
