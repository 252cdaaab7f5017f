"""`config`: the values of all options (`meshjit.options`); set by the environment, by `config.update`, or by
`with config.using(…)`.

    config.enable_x64                          read
    config.update("enable_x64", True)          set; JAX's spelling "jax_enable_x64" means the same
    with config.using(enable_x64=True): ...    set for a block, in this thread only

The environment is read when meshjit is imported.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from meshjit.options import ACCEPTED, OPTIONS, TRACED, Option
from meshjit.options.flags import read_flags, register_with_absl


class _Overrides(threading.local):
    """The options of one thread, by name; under "" those that traced functions depend on, as a key."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}


class Config:
    """The values of OPTIONS. One instance, `config`; tests make others, from an environment of their own."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._options = {option.name: option for option in (*OPTIONS, *ACCEPTED)}
        self._values = {option.name: _initial(option, environ) for option in self._options.values()}
        self._first = dict(self._values)
        self._frozen: dict[str, str] = {}
        self._in_force: dict[str, Any] = {}  # what an option that is None turned out to mean
        self._users: list[str] = []  # options that are context variables of the user's
        self._on_update: list[Callable[[], Any]] = []
        self._on_using: list[Callable[[], Any]] = []
        self._context = self._context_of(self._values)
        self._overrides = _Overrides()

    def __getattr__(self, name: str) -> Any:
        """JAX's spellings, and names that do not exist; our own spellings are properties (see below)."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self.read(name)

    @property
    def x64_enabled(self) -> bool:
        """Another of JAX's names for `enable_x64`."""
        return self.enable_x64

    def read(self, name: str) -> Any:
        """The value of an option by either spelling."""
        known = self._resolve(name)
        return self._overrides.values.get(known, self._values[known])

    def default_of(self, name: str) -> Any:
        """The value where nobody says another."""
        return self._options[name].default

    def of_all_threads(self, name: str) -> Any:
        """The value for threads that have set none of their own."""
        return self._values[name]

    def of_thread(self) -> Mapping[str, Any]:
        """What this thread has set for itself, in a block of `using`."""
        return self._overrides.values

    def update(self, name: str, value: Any) -> None:
        """Set an option. Raises AttributeError for an unknown name, ValueError for a value that does not fit,
        RuntimeError where it comes too late."""
        known, parsed = self._check(name, value)
        self._values[known] = parsed
        self._context = self._context_of(self._values)
        for tell in self.on_update:
            tell()

    @property
    def on_update(self) -> list[Callable[[], Any]]:
        """Called after every `update`."""
        return self._on_update

    @property
    def on_using(self) -> list[Callable[[], Any]]:
        """Called in the thread where a block of `using` began or ended."""
        return self._on_using

    def context(self) -> Any:
        """The options that traced functions depend on, as a key that is quick to get: the global ones, then this
        thread's."""
        overrides = self._overrides.values
        return (self._context, overrides[""]) if overrides and overrides[""] else self._context

    def global_context(self) -> Any:
        """The same for a thread without options of its own."""
        return self._context

    def traced_values(self) -> dict[str, Any]:
        """The same for people: option → value."""
        return {name: self.read(name) for name in (*TRACED, *self._users)}

    def _context_of(self, values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        return tuple((name, values[name]) for name in (*TRACED, *self._users) if name in values)

    def context_variable(self, default: Any) -> str:
        """The name of a new option that traced functions depend on; users know it as a context of theirs."""
        name = f"user context {len(self._users)}"
        self._options[name] = Option(name, lambda value: value, default, "", ())
        self._users.append(name)
        self._values[name] = default
        self._context = self._context_of(self._values)
        for tell in self.on_update:
            tell()
        return name

    @contextlib.contextmanager
    def using(self, **values: Any) -> Iterator[None]:
        """Set options for a block, in this thread only. Blocks nest."""
        checked = dict(self._check(name, value) for name, value in values.items())
        outer = self._overrides.values
        overrides = {**outer, **checked}
        overrides[""] = self._context_of(overrides)  # no option's name
        self._override(overrides)
        try:
            yield
        finally:
            self._override(outer)

    def _override(self, overrides: dict[str, Any]) -> None:
        self._overrides.values = overrides
        for tell in self.on_using:
            tell()

    def read_again(self, name: str, environ: Mapping[str, str]) -> None:
        """Take what the environment says by now, unless somebody has set the option since it was read first."""
        if self._values[name] == self._first[name]:
            self._values[name] = _initial(self._options[name], environ)

    def found_out(self, name: str, value: Any) -> None:
        """An option that nobody has set turned out to mean this value: setting it to that changes nothing, however late."""
        self._in_force[self._resolve(name)] = value

    def freeze(self, name: str, reason: str) -> None:
        """From now on a change of this option raises: what it governs exists already."""
        self._frozen[self._resolve(name)] = reason

    def parse_flags_with_absl(self) -> None:
        """Set the options that this program's command line names: `--jax_enable_x64`, `--jax_num_cpu_devices=8`,
        `--nojax_debug_nans`. Other flags are left to the program. absl is not needed; where it is imported, its flags have been
        read afterwards, as in JAX."""
        for name, value in read_flags([*self._options.values()], sys.argv[1:]):
            self.update(name, value)
        flags = sys.modules.get("absl.flags")
        if flags is not None and not flags.FLAGS.is_parsed():
            flags.FLAGS(sys.argv, known_only=True)

    def config_with_absl(self) -> None:
        """Make the options flags of absl: `absl.app.run` then sets those that the command line names."""
        register_with_absl([*self._options.values()], self.update)

    def describe(self) -> str:
        """All options: name, value, environment variable, meaning. A table for people."""
        rows = [(f"{o.name} = {self.read(o.name)!r}", o.variables[0] if o.variables else "", o.doc) for o in OPTIONS]
        return "\n".join(f"{value:40} {variable:34} {doc}" for value, variable, doc in rows)

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *(name for name in self._options if name.isidentifier())])

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f'options are set by config.update("{name}", {value!r})')
        super().__setattr__(name, value)

    def _check(self, name: str, value: Any) -> tuple[str, Any]:
        known = self._resolve(name)
        parsed = _parse(self._options[known], value, f"config option {known}")
        if known in self._frozen and parsed not in (self.read(known), self._in_force.get(known)):
            raise RuntimeError(
                f"config option {known} cannot change from {self.read(known)!r} to {parsed!r}: {self._frozen[known]}\n"
                f"  fix: set it before the first use of devices, or by {self._options[known].variables[0]}={value}"
            )
        return known, parsed

    def _resolve(self, name: str) -> str:
        """Our name of an option that may be spelled as JAX spells it."""
        bare = name.removeprefix("jax_")
        for option in self._options.values():
            if bare in (option.name, option.jax_name):
                return option.name
        near = difflib.get_close_matches(bare, self._options, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(o.name for o in OPTIONS)}"
        raise AttributeError(f"there is no config option {name!r}{hint}")


def _reader(name: str) -> Any:
    """A fast read: these stand on the path of every call of a jitted function."""

    def read(self: Config) -> Any:
        overrides = self._overrides.values
        return overrides[name] if name in overrides else self._values[name]

    return read


for _option in OPTIONS:
    setattr(Config, _option.name, property(_reader(_option.name), doc=_option.doc))


def _initial(option: Option, environ: Mapping[str, str]) -> Any:
    for variable in option.variables:
        if environ.get(variable, "") != "":
            return _parse(option, environ[variable], f"environment variable {variable}")
    forced = re.search(r"--xla_force_host_platform_device_count=(\d+)", environ.get("XLA_FLAGS", ""))
    return int(forced[1]) if option.name == "num_cpu_devices" and forced else option.default


def _parse(option: Option, value: Any, where: str) -> Any:
    try:
        return option.parse(value)
    except (TypeError, ValueError) as error:
        reason = str(error) if str(error).startswith(("expected", "'")) else "expected a number"
        raise ValueError(f"{where}: {value!r} does not fit: {reason}") from None


config = Config(os.environ)
