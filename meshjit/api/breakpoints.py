"""`debug.breakpoint`: stop where values are computed, and look at them from a prompt ("Compiled prints and breakpoints")."""

from __future__ import annotations

import cmd
import inspect
import linecache
import pprint
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import IO, Any

from meshjit.api.callbacks import call_for_debugging, pure_callback
from meshjit.core.op import REGISTRY
from meshjit.trace import Tracer, bind
from meshjit.trace.source import is_own
from meshjit.trees import WORDS as tree

_lock = threading.Lock()


@dataclass(frozen=True)
class Frame:
    """One function in the middle of its work: where, and the values of its variables (those of the module are `outer`)."""

    file: str
    line: int
    function: str
    values: Mapping[str, Any]
    outer: Mapping[str, Any]


def breakpoint(  # noqa: A001 - JAX's name
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    **kwargs: Any,
) -> Any:
    """Stop when the program gets here, and read commands from standard input (`jax.debug.breakpoint`): `help` lists them.

    Args:
      backend: None or "cli": the one debugger that there is.
      filter_frames: leave our own frames out. num_frames: how many of the innermost frames are seen.
      ordered: in order with other ordered breakpoints and prints.
      token: instead of `ordered`: arrays that are given back, and once they are computed, the program stops; not if nobody needs
        what is given back.
      kwargs: `stdin` and `stdout` of the prompt."""
    if token is not None and ordered:
        raise ValueError("`ordered` and `token` are mutually exclusive arguments.")
    if backend not in (None, "cli"):
        raise ValueError(f'debug.breakpoint: backend must be "cli" or None, got {backend!r}')
    frames = _frames(inspect.currentframe(), filter_frames)[:num_frames]
    leaves, structure = tree.flatten([f.values for f in frames], is_leaf=_is_leaf)
    traced = [isinstance(x, Tracer) and not x.tracing.ended for x in leaves]
    stop = _Stop(frames, structure, leaves, traced, kwargs)
    operands = [x for x, flag in zip(leaves, traced, strict=True) if flag]
    if token is None:
        return call_for_debugging(stop, operands, {}, ordered)
    held, operands = tree.map(_stopped, (token, operands))

    def pass_on(value: Any, *values: Any) -> Any:
        stop(*values)
        return value

    return pure_callback(pass_on, held, held, *operands)


def _stopped(x: Any) -> Any:
    return bind(REGISTRY["stop_gradient"], x)


def _is_leaf(value: Any) -> bool:
    """Containers that cannot be taken apart stay what they are, and so do iterators."""
    try:
        tree.leaves(value, _is_iterator)
    except (TypeError, ValueError):
        return True
    return _is_iterator(value)


def _is_iterator(value: Any) -> bool:
    return hasattr(type(value), "__next__")


def _frames(frame: FrameType | None, filter_frames: bool) -> list[Frame]:
    stack: list[Frame] = []
    frame = frame.f_back if frame is not None else None
    while frame is not None:
        code = frame.f_code
        if not filter_frames or not is_own(code):
            stack.append(Frame(code.co_filename, frame.f_lineno, code.co_name, dict(frame.f_locals), frame.f_globals))
        frame = frame.f_back
    return stack


@dataclass(frozen=True, eq=False)
class _Stop:
    """The frames again, with values in place of the traced ones, and the prompt."""

    frames: Sequence[Frame]
    structure: Any
    leaves: Sequence[Any]
    traced: Sequence[bool]
    options: Mapping[str, Any]
    __name__ = "debug.breakpoint"

    def __call__(self, *values: Any) -> None:
        rest = iter(values)
        known = [next(rest) if flag else x for x, flag in zip(self.leaves, self.traced, strict=True)]
        variables: Sequence[Any] = tree.unflatten(self.structure, known)
        pairs = zip(self.frames, variables, strict=True)
        with _lock:  # several devices and threads may get here at once
            Prompt([Frame(f.file, f.line, f.function, v, f.outer) for f, v in pairs], **self.options).run()


class Prompt(cmd.Cmd):
    """Commands about frames, the innermost first. What is no command is an expression."""

    prompt = "(jdb) "
    intro = "Entering jdb:"

    def __init__(self, frames: Sequence[Frame], stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self.frames = frames
        self.index = 0

    def run(self) -> None:
        """Read commands until one continues the program."""
        while True:
            try:
                return self.cmdloop()
            except KeyboardInterrupt:
                self.say("--KeyboardInterrupt--")

    def say(self, text: str) -> None:
        print(text, file=self.stdout)

    def show(self, expression: str, text_of: Callable[[Any], str]) -> None:
        frame = self.frames[self.index]
        try:
            self.say(text_of(eval(expression, {**frame.outer, **frame.values})))
        except Exception as error:
            self.say(f"*** {type(error).__name__}: {error}")

    def source(self, around: int) -> Iterator[str]:
        """Lines of the frame's file, the current one marked."""
        frame = self.frames[self.index]
        yield f"> {frame.file}({frame.line})"
        lines = linecache.getlines(frame.file)
        for number in range(max(1, frame.line - around), min(len(lines), frame.line + around) + 1):
            yield f"{'->  ' if number == frame.line else '    '}{lines[number - 1].rstrip()}"

    def default(self, line: str) -> None:
        self.show(line, repr)

    def emptyline(self) -> bool:
        return False

    def do_p(self, arg: str) -> None:
        """p expression: evaluate it, and print its value."""
        self.show(arg, repr)

    def do_pp(self, arg: str) -> None:
        """pp expression: evaluate it, and print its value over several lines."""
        self.show(arg, pprint.pformat)

    def do_up(self, arg: str) -> None:
        """u(p): go to the caller's frame."""
        self._go(1, "At topmost frame.")

    def do_down(self, arg: str) -> None:
        """d(own): go back towards the innermost frame."""
        self._go(-1, "At bottommost frame.")

    def _go(self, step: int, end: str) -> None:
        if not 0 <= self.index + step < len(self.frames):
            self.say(end)
        else:
            self.index += step
        self.say("\n".join(self.source(2)))

    def do_list(self, arg: str) -> None:
        """l(ist): lines around the current one."""
        self.say("\n".join(self.source(5)))

    def do_where(self, arg: str) -> None:
        """w(here), bt: the frames, the innermost last."""
        self.say("Traceback:")
        for frame in reversed(self.frames):
            line = linecache.getline(frame.file, frame.line).strip()
            self.say(f'  File "{frame.file}", line {frame.line}\n    {line or "<no source>"}')

    def do_continue(self, arg: str) -> bool:
        """c(ontinue): go on with the program."""
        return True

    def do_quit(self, arg: str) -> None:
        """q(uit), exit: end the program."""
        sys.exit(0)

    do_u, do_d, do_l, do_w, do_bt = do_up, do_down, do_list, do_where, do_where
    do_c = do_cont = do_continue
    do_q = do_exit = do_EOF = do_quit
