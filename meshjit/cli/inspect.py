"""`meshjit inspect`: what lives where and why, what is sent, what is held, and what would be better."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pydoc
import shutil
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from meshjit.api.stages import Planned
from meshjit.core.garbage import rarely_collected
from meshjit.inspect.functions import Setting, is_function, listen
from meshjit.inspect.shardy import mlir_text
from meshjit.inspect.unusable import Unusable, check_count, nearest, parsed_mesh, parsed_spec, parsed_topology
from meshjit.report import Report
from meshjit.report.as_json import plain
from meshjit.report.exports import EXPORTS
from meshjit.report.names import UnknownName
from meshjit.report.patch import apply, patch_of
from meshjit.report.report import VIEWS, Text
from meshjit.report.suggest import Suggestions
from meshjit.report.text import indented
from meshjit.runtime import client
from sharding.mesh import AbstractMesh
from sharding.spec import ShardingError

EXAMPLES = """\
  meshjit inspect train.py --steps 1                    everything that the script jits
  meshjit inspect --view collectives train.py           what is sent, and why
  meshjit inspect --why "params['w1']" train.py         from the annotation to this placement
  meshjit inspect --why-not x 'P("data", None)' train.py   the plan with that pin
  meshjit inspect --suggest train.py                    annotations that would save most
  meshjit inspect --mesh data=4,model=2 --arg 'f32[128,512]=P("data",None)' model.py:loss
  meshjit inspect --topology v5p:4x4x4 --mesh data=8,model=8 --abstract train.py"""


def add_target(command: argparse.ArgumentParser, name: str = "target", optional: bool = False) -> None:
    text = "a script, or a function of a file or module: train.py, train.py:step, models.gpt:step"
    command.add_argument(name, nargs="?" if optional else None, help=text)


def add_setting(command: argparse.ArgumentParser) -> None:
    """The options that say for which machine, and with which arguments."""
    command.add_argument("--mesh", action="append", default=[], help="data=4,model=2: plan for a mesh that needs no devices")
    command.add_argument("--topology", help="v5p:4x4x4, h100, cpu, cluster.toml: whose figures plans are priced with")
    command.add_argument("--abstract", action="store_true", help="plan what a script jits without running it")
    command.add_argument("--arg", action="append", default=[], metavar="TYPE", help="an argument: f32[8,4]=P('data')")
    command.add_argument("--example", action="append", default=[], metavar="NAME", help="a function beside it that gives them")
    command.add_argument("--traceback", action="store_true", help="show where an error comes from")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.add_argument("--width", type=int, help="columns; the terminal's, or 80")


def add_inspect(commands: Any) -> None:
    command = commands.add_parser(
        "inspect", help="placements, collectives and memory of the functions that a script jits, and why",
        description="Options of the script stand behind it; behind a function, meshjit's.", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_setting(command)
    command.add_argument("--view", default="program,collectives,memory", help=f"some of {','.join(VIEWS)}")
    command.add_argument("--function", metavar="NAME", help="only functions of this name")
    command.add_argument("--why", metavar="VALUE", help="why a value lives where it does: params['w1'], train.py:31, loss, %%12")
    command.add_argument("--why-not", nargs=2, metavar=("VALUE", "SPEC"), help="the plan in which it lives elsewhere")
    command.add_argument("--suggest", action="store_true", help="annotations that would save most, each planned")
    command.add_argument("--html", metavar="FILE", help="write a page that opens offline; of several functions FILE-2, …")
    command.add_argument("--export", nargs=2, metavar=("KIND", "FILE"), help=f"for other tools: {', '.join(EXPORTS)}, mlir")
    command.add_argument("--apply", action="store_true", help="write the best suggestion into the script, and show the patch")
    command.add_argument("--tries", type=int, metavar="N", help="plan at most so many suggestions")
    command.add_argument("--seconds", type=float, help="for planning what-ifs: 10 for suggestions, 2 for each function else")
    add_target(command)
    command.add_argument("rest", nargs=argparse.REMAINDER, help="the script's arguments")
    command.set_defaults(options=command)


def read_behind(parsed: argparse.Namespace, allowed: Container[str] = ()) -> argparse.Namespace:
    """With the command's options that stand behind its target: behind a function all of them, for it takes no others; behind a
    script those allowed, up to the first other word, with which the script's own begin."""
    if not parsed.rest:
        return parsed
    known = parsed.options._option_string_actions
    names = known if is_function(parsed.target) else allowed
    count = 0
    while count < len(parsed.rest) and (name := parsed.rest[count].partition("=")[0]) in names:
        values = 1 if known[name].nargs is None else known[name].nargs
        count += 1 if "=" in parsed.rest[count] else 1 + values
    own, rest = parsed.rest[:count], parsed.rest[count:]
    check_words(parsed.target, rest, known)
    parsed = parsed.options.parse_args([*own, parsed.target], parsed)
    parsed.rest = rest
    return parsed


def check_words(target: str, words: Sequence[str], known: Iterable[str] = ()) -> None:
    """Unusable where words stand behind a function, which has no use for them."""
    if words and is_function(target):
        problem = f"{words[0]!r} stands behind {target}, a function, which takes no words of its own"
        raise Unusable(f"{problem}\n  fix: leave it out; --arg and --example say its arguments{nearest(words[0], known)}")


def setting_of(parsed: argparse.Namespace, mesh: AbstractMesh | None) -> Setting:
    platform = model = None
    if parsed.topology:
        platform, model, count = parsed_topology(parsed.topology)
        if mesh is not None:
            check_count(parsed.topology, count, mesh)
        if mesh is None and is_function(parsed.target):
            raise Unusable(f"--topology {parsed.topology} needs a mesh\n  fix: --mesh data={count or 8}")
    return Setting(mesh, platform, model, parsed.abstract, tuple(parsed.arg), next(iter(parsed.example), None))


def check_views(views: str) -> None:
    unknown = [view for view in views.split(",") if view not in VIEWS]
    if unknown:
        raise Unusable(f"there is no view {unknown[0]!r}\n  there are: {', '.join(VIEWS)}")


def check_folder(option: str, path: str | None) -> None:
    """Before anything is planned that could not be written there."""
    folder = os.path.dirname(path or "")
    if folder and not os.path.isdir(folder):
        raise Unusable(f"{option} {path}: there is no folder {folder}\n  fix: mkdir -p {folder}")


def inspect(parsed: argparse.Namespace) -> int:
    """0; 1 where a `why-not` is not better; 2 where something typed cannot be used."""
    parsed = read_behind(parsed)
    check_views(parsed.view)
    if parsed.export and parsed.export[0] not in (*EXPORTS, "mlir"):
        raise Unusable(f"there is no export {parsed.export[0]!r}\n  there are: {', '.join(EXPORTS)}, mlir")
    for option, path in (("--html", parsed.html), ("--export", parsed.export and parsed.export[1])):
        check_folder(option, path)
    if len(parsed.mesh) > 1:
        raise Unusable("--mesh is given twice\n  fix: meshjit diff compares two meshes")
    session = Session(parsed)
    mesh = parsed_mesh(parsed.mesh[0]) if parsed.mesh else None
    try:
        listen(parsed.target, parsed.rest, setting_of(parsed, mesh), session.take)
    finally:
        session.page()
    return session.end()


class Session:
    """What is said of each function as it comes, and what remains to be said in the end."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self.parsed = parsed
        self.documents: list[Any] = []
        self.notes: list[str] = []  # behind the next answer
        self.pages: list[str] = []  # shown at the end
        self.unknown: UnknownName | None = None
        self.functions: list[str] = []  # that were planned, asked for or not
        self.answers = 0
        self.status = 0
        self.noted = Notes(parsed_mesh(parsed.mesh[0]) if parsed.mesh and parsed.command == "inspect" else None)
        self.width = parsed.width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else 80)

    @rarely_collected
    def take(self, planned: Planned, compiled: Any) -> None:
        """Of several processes the first one speaks."""
        self.functions.append(planned.fun_name)
        if client.process_index() or self.parsed.function not in (None, planned.fun_name):
            return
        self.noted.note(planned)
        try:
            answer = self.answer(planned.report())
        except UnknownName as error:  # another function may have the value
            self.unknown = error
            return
        self.answers += 1
        if getattr(self.parsed, "html", None) or getattr(self.parsed, "export", None):
            self.write(planned, planned.report())
            return
        if self.parsed.json:
            self.documents.append(answer if isinstance(answer, dict) else plain(answer.data))
        elif isinstance(answer, Text):
            print("\n".join([str(answer), *self.notes]), flush=True)
            self.notes.clear()
        else:
            self.show("\n".join(self.report_lines(planned.report(), compiled)))

    def answer(self, report: Report) -> Any:
        parsed = self.parsed
        if parsed.command == "plan":
            return report.data() if parsed.json else report
        if parsed.why:
            return report.why(parsed.why)
        if parsed.why_not:
            comparison = report.why_not(parsed.why_not[0], parsed_spec(parsed.why_not[1]))
            self.status = 0 if comparison.data.is_better else 1
            return comparison
        if parsed.suggest:
            return self.suggested(report)
        return report.data() if parsed.json else report

    def write(self, planned: Planned, report: Report) -> None:
        """Into the file; of further functions into one beside it."""
        kind, path = ("", self.parsed.html) if self.parsed.html else self.parsed.export
        root, extension = os.path.splitext(path)
        path = path if self.answers == 1 else f"{root}-{self.answers}{extension}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(report.to_html() if not kind else mlir_text(report.subject) if kind == "mlir" else report.export(kind))
        print(f"{report.subject.title}: {path}", flush=True)

    def show(self, text: str) -> None:
        """On a terminal at the end, for its pager. A script that runs prints in between, and may take long: at once then."""
        is_quiet = is_function(self.parsed.target) or self.parsed.abstract or self.parsed.mesh or self.parsed.topology
        if sys.stdout.isatty() and is_quiet:
            self.pages.append(text)
        else:
            print(text, flush=True)

    def page(self) -> None:
        """What waits for the end: through the terminal's pager where it is longer than the terminal."""
        text = "\n".join(self.pages)
        self.pages.clear()
        if text.count("\n") >= shutil.get_terminal_size().lines:
            pydoc.pager(text)
        elif text:
            print(text, flush=True)

    def suggested(self, report: Report) -> Text[Suggestions]:
        """The suggestions; with --apply the best is written into the user's file."""
        suggestions = report.suggest(10.0 if self.parsed.seconds is None else self.parsed.seconds, self.parsed.tries)
        if suggestions.data.rows:
            patch = patch_of(report.subject, suggestions.data.rows[0])
            text, how = (apply(patch), ", written:") if self.parsed.apply else (patch.text, " (--apply writes it):")
            self.notes.append(text if patch.advice else f"the best of them as a patch{how}\n{text}".rstrip())
        return suggestions

    def report_lines(self, report: Report, compiled: Any) -> Iterator[str]:
        views = self.parsed.view.split(",")
        yield "─" * self.width
        seconds = getattr(self.parsed, "seconds", 0.0)
        yield from report.lines(views, self.width, 2.0 if seconds is None else seconds)
        if compiled is not None and "memory" in views:
            rows = [f"{name} {count:,}" for name, count in compiled.memory_analysis().rows()]
            yield from indented(f"bytes a device, as XLA compiled it: {', '.join(rows)}", 0, self.width)

    def end(self) -> int:
        if self.parsed.json:
            print(json.dumps(self.documents, indent=1))
        if not self.answers and not client.process_index():
            if self.unknown is not None:
                raise Unusable(str(self.unknown))
            known = list(dict.fromkeys(self.functions))
            near = nearest(str(self.parsed.function), known) or f"\n  there are: {', '.join(known[:6])}"
            raise Unusable(f"{self.parsed.target} jits no function named {self.parsed.function}{near}")
        return self.status


class Notes:
    """Says, once for each function, that its plan is for the mesh of its arguments, and not for --mesh."""

    def __init__(self, mesh: AbstractMesh | None) -> None:
        self.mesh, self.noted = mesh, set[str]()

    def note(self, planned: Planned) -> None:
        own, title = planned.plan.mesh, planned.call.title
        if self.mesh is None or title in self.noted or {**own.shape} == {**self.mesh.shape} or own.size == 1:
            return
        self.noted.add(title)
        asked, mine = (",".join(f"{name}={size}" for name, size in mesh.shape.items()) for mesh in (self.mesh, own))
        fix = "meshjit plan --mesh places them itself; or name a function, with --arg or --example"
        problem = f"{title} is planned for {mine}, not for --mesh {asked}: its arguments are placed there"
        print(f"note: {problem}\n  fix: {fix}", file=sys.stderr)


def told(run: Any, parsed: argparse.Namespace) -> int:
    """Run a command; what cannot be used, and what a script raises, is one paragraph and exit code 2."""
    if parsed.traceback:
        return run(parsed)
    try:
        status = run(parsed)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read it, a pager or head, has enough
        with contextlib.suppress(OSError):  # what is left goes nowhere: Python writes it when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Unusable, UnknownName, ShardingError) as error:
        text = str(error.args[0] if error.args else error)
    except Exception as error:
        what = parsed.target or parsed.command
        text = f"{what} failed: {type(error).__name__}: {error}\n  --traceback shows where{_hint(error)}"
    print(f"meshjit {parsed.command}: {text}", file=sys.stderr)
    return 2


def _hint(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "jax":
        return "\n  a script that imports jax: python -m meshjit.as_jax -m meshjit.cli inspect …"
    return ""
