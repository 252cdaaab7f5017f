"""The functions that a target names, planned: every one that a script jits, or one of a module or a file."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

from meshjit.api.call import Automatic
from meshjit.api.imagined import imagining
from meshjit.api.putting import ShapeDtypeStruct
from meshjit.api.stages import Compiled, Lowered, Planned, Traced
from meshjit.api.watching import watching
from meshjit.api.wrapped import Wrapped
from meshjit.config import config
from meshjit.inspect.unusable import Unusable, nearest, parsed_argument
from sharding.current import set_mesh
from sharding.mesh import AbstractMesh
from sharding.named import NamedSharding
from sharding.spec import PartitionSpec


@dataclasses.dataclass(frozen=True)
class Setting:
    """For which machine functions are planned. mesh: instead of the devices that there are. platform, model: whose figures count.
    is_abstract: functions of a script are planned, and give zeros, instead of being compiled and run."""

    mesh: AbstractMesh | None = None
    platform: str | None = None
    model: str | None = None
    is_abstract: bool = False
    arguments: tuple[str, ...] = ()
    example: str | None = None  # a function beside the target's that gives its arguments

    @property
    def platforms(self) -> tuple[str, ...] | None:
        return None if self.platform is None else (self.platform,)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.model is not None:
                stack.enter_context(config.using(device_model=self.model))
            if self.mesh is not None:
                stack.enter_context(set_mesh(self.mesh))
            yield

    def plan(self, traced: Traced) -> Planned:
        return traced.plan(lowering_platforms=self.platforms)


@dataclasses.dataclass(frozen=True)
class AutomaticSetting(Setting):
    """Functions are planned automatically. Nothing is run. `automatic` is asked once a function is there: a script may say first
    how many devices it wants."""

    automatic: Callable[[], Automatic] = Automatic

    def plan(self, traced: Traced) -> Planned:
        return traced.automatically(self.automatic())


Listener = Callable[[Planned, Any], None]  # what was planned; the Compiled, or None where nothing is compiled


def is_function(target: str) -> bool:
    """Whether it names a function (`train.py:step`, `models.gpt:step`), and not a script."""
    head, colon, name = target.rpartition(":")
    return bool(colon) and bool(head) and all(part.isidentifier() for part in name.split("."))


def listen(target: str, rest: Sequence[str], setting: Setting, listener: Listener) -> None:
    """Call `listener` for every function that the target names. Unusable says what is wrong with a target."""
    with setting.applied():
        if is_function(target):
            listener(planned_function(target, setting), None)
        else:
            _run_script(target, rest, setting, listener)


# -- scripts


def _run_script(script: str, rest: Sequence[str], setting: Setting, listener: Listener) -> None:
    watch = _Watch(setting, listener)
    with watching(watch.told), imagining(watch.planned) if _is_abstract(setting) else contextlib.nullcontext():
        _run_to_its_end(script, rest)
    watch.end()
    if not watch.count:
        raise Unusable(f"{script} calls no jitted function\n  name one: {script}:function --arg 'f32[8,4]'")


def _run_to_its_end(script: str, rest: Sequence[str]) -> None:
    """Which may be a call of sys.exit."""
    try:
        run_script(script, rest)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise Unusable(f"{script} ended with the exit code {end.code}") from None


class _Watch:
    """What a script's functions become. One that is compiled is handed on at once; one that is only traced, or lowered, at the
    end of the script."""

    def __init__(self, setting: Setting, listener: Listener) -> None:
        self.setting, self.listener = setting, listener
        self.count = 0
        self.is_handing_on = False
        self.waiting: dict[int, Any] = {}  # the last stage of what is not compiled, by id of the Program's trace, which it keeps

    def told(self, stage: Any) -> None:
        if self.is_handing_on:  # what the listener itself lowers and compiles
            return
        if isinstance(stage, Compiled):
            self.hand_on(stage.lowered.planned, stage)
        else:
            self.waiting[id(stage.traced_program)] = stage

    def planned(self, traced: Traced) -> Planned:
        """Instead of compiling."""
        planned = self.setting.plan(traced)
        self.hand_on(planned, None)
        return planned

    def hand_on(self, planned: Planned, compiled: Any) -> None:
        self.waiting.pop(id(planned.traced_program), None)
        self.count += 1
        self.is_handing_on = True
        try:
            self.listener(planned, compiled)
        finally:
            self.is_handing_on = False

    def end(self) -> None:
        for stage in [*self.waiting.values()]:
            if isinstance(stage, Lowered) and not _is_abstract(self.setting):
                self.hand_on(stage.planned, None)
            else:
                self.planned(stage.traced if isinstance(stage, Lowered) else stage)


def _is_abstract(setting: Setting) -> bool:
    """A machine that is not here cannot run anything."""
    return setting.is_abstract or setting.mesh is not None or setting.platform not in (None, "cpu")


def missing_script(script: str) -> str:
    """That there is no such file, and which have names like it; empty where there is one."""
    if os.path.isfile(script):
        return ""
    return f"there is no file {script}{nearest(os.path.basename(script), _files_beside(script))}"


def run_script(script: str, rest: Sequence[str]) -> None:
    """Run a file as `python file args` would. Unusable where there is none."""
    if text := missing_script(script):
        raise Unusable(text)
    sys.argv = [script, *rest]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    runpy.run_path(script, run_name="__main__")


# -- single functions


def planned_function(target: str, setting: Setting) -> Planned:
    head, _, name = target.rpartition(":")
    sys.argv = [head]  # the words of the command are none of the module's
    module = _module(head)
    function = _attribute(module, name, target)
    wrapped = function if isinstance(function, Wrapped) else Wrapped(function)
    args, kwargs = _arguments(module, setting, target)
    _check_call(module, wrapped, args, kwargs, target)
    return setting.plan(wrapped.trace(*args, **kwargs))


def _check_call(module: Any, function: Wrapped, args: tuple[Any, ...], kwargs: dict[str, Any], target: str) -> None:
    """That the function takes these arguments. A function without a signature says so itself."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        examples = [name for name, each in vars(module).items() if _gives_arguments(each, module)]
        of = f"of {target.rpartition(':')[2]}({', '.join(signature.parameters)})"
        beside = f"; without arguments are: {', '.join(examples[:6])}" if examples else ""
        fix = f"--arg 'f32[8,4]' for each argument {of}, or\n    --example NAME, a function beside it that gives them{beside}"
        raise Unusable(f"{target}: {error}\n  fix: {fix}") from None


def _gives_arguments(function: Any, module: Any) -> bool:
    is_own = isinstance(function, FunctionType) and function.__module__ == module.__name__
    return is_own and not inspect.signature(function).parameters


def _module(head: str) -> Any:
    """Of a dotted name, or of a file; a file of a package under its name there, so that its relative imports work."""
    if head.endswith(".py") and not os.path.isfile(head):
        raise Unusable(f"there is no file {head}{nearest(os.path.basename(head), _files_beside(head))}")
    folder, name = _placed(head) if head.endswith(".py") else (os.getcwd(), head)
    sys.path.insert(0, folder)
    try:
        if head.endswith(".py") and "." not in name:
            return _module_of_file(head, name)
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if name != error.name and not name.startswith(f"{error.name}."):
            raise
        raise Unusable(f"there is no module {error.name}{nearest(name, _modules_beside(name))}") from None


def _placed(file: str) -> tuple[str, str]:
    """The folder from which a file is imported, and its dotted name there."""
    folder, name = os.path.split(os.path.abspath(file)[: -len(".py")])
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        name = f"{package}.{name}"
    return folder, name


def _module_of_file(file: str, name: str) -> Any:
    """By its path: another module of this name may have been imported."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, "Python loads files that end in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _files_beside(file: str) -> list[str]:
    folder = os.path.dirname(file) or "."
    return [name for name in os.listdir(folder) if name.endswith(".py")] if os.path.isdir(folder) else []


def _modules_beside(name: str) -> list[str]:
    """The modules of the package that it would be in."""
    parent = name.rpartition(".")[0]
    try:
        paths = list(importlib.import_module(parent).__path__) if parent else [os.getcwd()]
    except (ImportError, AttributeError):
        return _modules_beside(parent)
    return [f"{parent}.{each.name}".lstrip(".") for each in pkgutil.iter_modules(paths)]


def _attribute(module: Any, name: str, target: str) -> Any:
    value = module
    for part in name.split("."):
        if not hasattr(value, part):
            known = [n for n, v in vars(value).items() if callable(v) and not n.startswith("_")]
            raise Unusable(f"{target}: there is no function {part}{nearest(part, known) or _some(known)}")
        value = getattr(value, part)
    if not callable(value):
        raise Unusable(f"{target} is no function, but of type {type(value).__name__}")
    return value


def _some(names: Sequence[str]) -> str:
    return f"\n  there are: {', '.join(names[:6])}" if names else ""


def _arguments(module: Any, setting: Setting, target: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """From --arg, or from the function that --example names: a tuple of arguments, a dict of them, or one."""
    if setting.example is None:
        return tuple(_argument(text, setting) for text in setting.arguments), {}
    example = _attribute(module, setting.example, target.rpartition(":")[0] + ":" + setting.example)()
    if isinstance(example, dict):
        return (), example
    return (tuple(example) if isinstance(example, list | tuple) else (example,)), {}


def _argument(text: str, setting: Setting) -> ShapeDtypeStruct:
    type, spec = parsed_argument(text)
    return _struct(type.shape, type.dtype, spec, setting)


def _struct(shape: tuple[int, ...], dtype: Any, spec: PartitionSpec | None, setting: Setting) -> ShapeDtypeStruct:
    if spec is None:
        return ShapeDtypeStruct(shape, dtype)
    if setting.mesh is None:
        raise Unusable(f"an argument has the spec {spec!r}, but there is no mesh\n  fix: --mesh data=4,model=2")
    return ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(setting.mesh, spec))
