"""What an op's emit rule writes StableHLO with. Text only: no MLIR builders, whose Python API differs between versions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import numpy as np

from meshjit.core.host import HostCall, HostFunction
from meshjit.core.program import Program, Source
from meshjit.core.splat import element_of, is_splat
from meshjit.core.stored import wide_of
from meshjit.core.target import Target
from meshjit.core.types import DTYPES, SMALL_FLOATS, SMALL_INTEGERS, TensorType, short_name
from sharding.mesh import BaseMesh

_ELEMENT = {"bool": "i1", "c64": "complex<f32>", "c128": "complex<f64>"}
_ELEMENT |= {"f8e8m0fnu": "f8E8M0FNU"} | {name: f"f{name[1:].upper()}" for name in map(short_name, SMALL_FLOATS)}
TWO_BITS = DTYPES["i2"], DTYPES["u2"]
_MOVE_TWO_BITS = "concatenate", "all_gather", "all_to_all", "collective_permute", "collective_broadcast"
_IN_BYTES = dict.fromkeys(_MOVE_TWO_BITS, TWO_BITS) | {"pad": SMALL_INTEGERS}
_WITH_UPDATES = _IN_BYTES | {"dynamic_update_slice": SMALL_INTEGERS}
_REDUCERS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or"}


def element_type(dtype: np.dtype[Any]) -> str:
    """The MLIR name of an element: `ui32` for u32, `i1` for bool."""
    name = short_name(dtype)
    if name.startswith("u"):
        return f"ui{name[1:]}"
    return _ELEMENT.get(name, name)


class _Token(TensorType):
    """The type of what ordered effects hand on. It has no elements, and no Program has a value of it."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


TOKEN: Final = _Token((0,), np.dtype(np.bool_))


@functools.lru_cache(maxsize=4096)
def tensor(type: TensorType) -> str:
    """`f32[8,4]` → `tensor<8x4xf32>`."""
    if isinstance(type, _Token):
        return "!stablehlo.token"
    return f"tensor<{''.join(f'{n}x' for n in type.shape)}{element_type(type.dtype)}>"


class Emitter:
    """Collects lines of one function body; names are handed out in order, types are remembered by name."""

    def __init__(self, mesh: BaseMesh, target: Target, parent: Emitter | None = None) -> None:
        """Text is legal on all platforms, fastest on the target's; it is legal there alone where it calls `target.kernels`."""
        self.mesh = mesh
        self.target = target
        self._narrow = _WITH_UPDATES if target.updates_bytes else _IN_BYTES  # dtypes, by operation
        self.lines: list[str] = []
        self.types: dict[str, TensorType] = parent.types if parent else {}
        self.scalars: dict[str, int] = parent.scalars if parent else {}  # integer constants without dims
        self.functions: dict[str, str] = parent.functions if parent else {}  # private functions of the module, by name
        self.aliases: dict[Hashable, tuple[str, str]] = parent.aliases if parent else {}  # of long attributes: name, text
        self.copies: dict[Hashable, Copy] = parent.copies if parent else {}  # texts of Programs that stand in it several times
        self.hosts: dict[HostCall, int] = parent.hosts if parent else {}  # what is called in Python, by its number in the text
        self.token = parent.token if parent else ""  # that of the last ordered effect
        self._counter: list[int] = parent._counter if parent else [0]
        self.source: Source | None = parent.source if parent else None
        self.location = parent.location if parent else ""

    def program(self, program: Program, operands: Sequence[str]) -> list[str]:
        """A Program's equations, its inputs being `operands`; gives the names of its outputs."""
        names = dict(zip(program.inputs, operands, strict=True))
        for eqn in program.eqns:
            if eqn.source is not self.source:
                self.source, self.location = eqn.source, _location(eqn.source)
            values = [names[v] for v in eqn.inputs]
            results = eqn.op.emit(self, values, eqn.input_types, eqn.output_types, eqn.params)
            if len(eqn.outputs) == len(results) == 1:
                names[eqn.outputs[0]] = results[0]
            else:
                names.update(zip(eqn.outputs, results, strict=True))
        return [names[v] for v in program.outputs]

    def copy_of(self, program: Program, operands: Sequence[str]) -> list[str]:
        """The same for a Program without effects that stands in the text several times: its equations are written once."""
        known = tuple(map(self.scalars.get, operands))
        copy = self.copies.get((program, known))
        if copy is None:
            inner, before = Emitter(self.mesh, self.target, self), self._counter[0]
            names = [inner.fresh(v.type) for v in program.inputs]
            self.scalars.update((name, value) for name, value in zip(names, known, strict=True) if value is not None)
            results = inner.program(program, names)
            copy = self.copies[program, known] = Copy(inner.lines, results, before, self._counter[0])
        lines, results = copy.written(operands, self._counter[0])
        self._counter[0] += copy.size
        self.lines += lines
        self.types.update((name, v.type) for name, v in zip(results, program.outputs, strict=True))
        scalars = {name: self.scalars[model] for name, model in zip(results, copy.results, strict=True) if model in self.scalars}
        self.scalars.update(scalars)
        return results

    def fresh(self, type: TensorType) -> str:
        self._counter[0] += 1
        name = f"%{self._counter[0]}"
        self.types[name] = type
        return name

    def op(
        self,
        name: str,
        operands: Sequence[str],
        out_types: Sequence[TensorType],
        attributes: str = "",
        regions: Sequence[str] = (),
    ) -> list[str]:
        """One operation in MLIR's generic form.

        `name` without a dialect means StableHLO. `attributes` is the inside of `<{...}>` (properties), e.g.
        `dimensions = array<i64: 0, 2>`. Gives the result names, one per out type.
        """
        narrow = self._narrow.get(name)
        if narrow is not None and any(t.dtype in narrow for t in out_types):
            return self._in_bytes(name, operands, out_types, attributes)
        types = self.types
        ins = ", ".join([tensor(types[o]) for o in operands])
        if len(out_types) == 1:
            left = self.fresh(out_types[0])
            names, left, outs = [left], f"{left} = ", tensor(out_types[0])
        else:
            first, names = self._reserve(out_types)
            left, outs = f"{first} = " if first else "", f"({', '.join(map(tensor, out_types))})"
        properties = f" <{{{attributes}}}>" if attributes else ""
        body = f" ({', '.join(regions)})" if regions else ""
        full = name if "." in name else f"stablehlo.{name}"
        self.lines.append(f'{left}"{full}"({", ".join(operands)}){properties}{body} : ({ins}) -> {outs}{self.location}')
        return names

    def _in_bytes(self, name: str, operands: Sequence[str], out_types: Sequence[TensorType], attributes: str) -> list[str]:
        """What XLA gets wrong with 2 or 4 bits an element (docs/xla.md), with 8."""
        wide = [self._in_dtype(x, wide_of(self.types[x].dtype)) for x in operands]
        results = self.op(name, wide, [self._wide(t) for t in out_types], attributes)
        return [self.op("convert", [x], [t])[0] for x, t in zip(results, out_types, strict=True)]

    def _in_dtype(self, x: str, dtype: np.dtype[Any]) -> str:
        type = self.types[x]
        return x if type.dtype == dtype else self.op("convert", [x], [type.with_dtype(dtype)])[0]

    def _wide(self, type: TensorType) -> TensorType:
        return type.with_dtype(wide_of(type.dtype))

    def _reserve(self, out_types: Sequence[TensorType]) -> tuple[str, list[str]]:
        if not out_types:
            return "", []
        base = self.fresh(out_types[0])
        names = [f"{base}#{i}" for i in range(len(out_types))]
        self.types.update(zip(names, out_types, strict=True))
        return f"{base}:{len(out_types)}", names

    def region(self, arg_types: Sequence[TensorType], body: Callable[[Emitter, list[str]], Sequence[str]]) -> str:
        """The text of a region `{ ^bb0(%a: ...): ... return }`; `body(emitter, argument names)` gives the returned names."""
        inner = Emitter(self.mesh, self.target, self)
        names = [inner.fresh(t) for t in arg_types]
        results = body(inner, names)
        head = ", ".join(f"{n}: {tensor(t)}" for n, t in zip(names, arg_types, strict=True))
        types = ", ".join(tensor(self.types[r]) for r in results)
        tail = f"stablehlo.return {', '.join(results)} : {types}" if results else "stablehlo.return"
        block = f"^bb0({head}):" if names else "^bb0:"
        return "{\n" + "\n".join([block, *inner.lines, tail]) + "\n}"

    def while_(
        self,
        operands: Sequence[str],
        types: Sequence[TensorType],
        condition: Callable[[Emitter, list[str]], Sequence[str]],
        step: Callable[[Emitter, list[str]], Sequence[str]],
        ordered: bool,
    ) -> list[str]:
        """A loop. Where it is `ordered`, the token goes round with the rest."""
        if not ordered:
            return self.op("while", operands, types, regions=[self.region(types, condition), self.region(types, step)])

        def with_token(inner: Emitter, names: list[str]) -> Sequence[str]:
            inner.token = names[-1]
            return [*step(inner, names[:-1]), inner.token]

        types = [*types, TOKEN]
        regions = [self.region(types, lambda inner, names: condition(inner, names[:-1])), self.region(types, with_token)]
        *results, self.token = self.op("while", [*operands, self.token], types, regions=regions)
        return results

    def branches(
        self, index: str, bodies: Sequence[Callable[[Emitter], Sequence[str]]], outs: Sequence[TensorType], ordered: bool
    ) -> list[str]:
        """One of several branches, which read values from outside. Where one is `ordered`, each gives a token, too."""
        if not ordered:
            return self.op("case", [index], outs, regions=[self.region([], lambda inner, _, b=b: b(inner)) for b in bodies])

        def with_token(body: Callable[[Emitter], Sequence[str]]) -> Callable[[Emitter, list[str]], Sequence[str]]:
            return lambda inner, _: [*body(inner), inner.token]

        regions = [self.region([], with_token(body)) for body in bodies]
        *results, self.token = self.op("case", [index], [*outs, TOKEN], regions=regions)
        return results

    def call_host(self, host: HostFunction, operands: Sequence[str], ordered: bool, pure: bool) -> list[str]:
        """Call a function of the host's; in order, it takes the token and gives the next."""
        family = self.target.platform
        if family == "tpu":
            at = f" at {self.source}" if self.source is not None else ""
            raise NotImplementedError(
                f"{host.name}{at} is called back from a program for TPU: devices there have no way to call Python\n"
                "  fix: jit that part for CPU, with meshjit.default_device(meshjit.devices('cpu')[0])"
            )
        index = self.hosts.setdefault((host, ordered), len(self.hosts))
        ins = [TOKEN] * ordered + [self.types[o] for o in operands]
        outs = [TOKEN] * ordered + list(host.results)
        attributes = (
            f"api_version = 4 : i32, backend_config = {{index = {index} : ui64}}, "
            f'call_target_name = "xla_ffi_python_{family}_callback", '
            f"has_side_effect = {str(not pure).lower()}, operand_layouts = {_row_major(ins)}, result_layouts = {_row_major(outs)}"
        )
        names = self.op("custom_call", [self.token] * ordered + list(operands), outs, attributes)
        if not ordered:
            return names
        self.token, *results = names
        return results

    def in_memory(self, operand: str, memory: str) -> str:
        """The value in another memory. XLA makes copies of the marks between a parameter, a computed value, and a result."""
        type = self.types[operand]
        result = self.fresh(type)
        text = tensor(type)
        self.lines.append(
            f'{result} = "stablehlo.custom_call"({operand}) <{{call_target_name = "annotate_device_placement", '
            f'has_side_effect = true, backend_config = ""}}> {{mhlo.frontend_attributes = '
            f'{{_xla_buffer_placement = "{memory}"}}}} : ({text}) -> {text}{self.location}'
        )
        return result

    def string(self, text: str) -> str:
        """A string attribute."""
        return quoted(text)

    def reducer(self, kind: str, dtype: np.dtype[Any]) -> str:
        """The region of a reduction of this kind: sum, prod, max, min, and, or. Its names are of words: no other region has it
        inside, and nothing outside of regions is called so."""
        return _reducer(_REDUCERS[kind], tensor(TensorType((), dtype)), self.location)

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        """A constant value; one repeated element is written as a splat."""
        type = TensorType(tuple(array.shape), array.dtype)
        name = self.op("constant", [], [type], f"value = {literal(array)} : {tensor(type)}")[0]
        if not type.shape and type.dtype.kind in "iu":
            self.scalars[name] = int(array)
        return name

    def call(self, name: str, body: str, operand: str) -> str:
        """Call a private function that XLA does not inline: `body` computes from the argument `%x` a result of the same type."""
        type = self.types[operand]
        name = f"{name}_{'_'.join(map(str, type.shape))}{'_' if type.shape else ''}{short_name(type.dtype)}"
        text = tensor(type)
        self.functions[name] = f"  func.func private @{name}(%x: {text}) -> {text} {{\n    {body.format(type=text)}\n  }}\n"
        result = self.fresh(type)
        apart = '{mhlo.frontend_attributes = {inlineable = "false"}}'
        self.lines.append(f'{result} = "func.call"({operand}) <{{callee = @{name}}}> {apart} : ({text}) -> {text}{self.location}')
        return result

    def collective(self, key: Hashable, groups: Callable[[], Any]) -> str:
        """The attribute `replica_groups` of a collective within groups of flat positions, a table that `key` stands for."""
        return f"replica_groups = {self.alias('groups', key, groups)}"

    def alias(self, kind: str, key: Hashable, rows: Callable[[], Any]) -> str:
        """The name of a table of integers, which the module has once: all of its text is as long as the mesh is large."""
        if (kind, key) not in self.aliases:
            table = np.asarray(rows())
            text = f"dense<{table.tolist()}> : tensor<{table.shape[0]}x{table.shape[1]}xi64>"
            self.aliases[kind, key] = f"#{kind}{len(self.aliases)}", text
        return self.aliases[kind, key][0]

    @property
    def declarations(self) -> str:
        """What stands before the module."""
        return "".join([f"{name} = {text}\n" for name, text in self.aliases.values()])


class Copy:
    """Lines of text, to be written again for other operands under new names.

    The lines use the numbers from `first + 1` to `last`, the lowest for the operands."""

    def __init__(self, lines: Sequence[str], results: Sequence[str], first: int, last: int) -> None:
        self.results, self.size = results, last - first
        text = _END.join(lines)
        names = [match for match in _NAME.finditer(text) if match[1]]
        ends = [*(match.start() for match in names), len(text)]
        self.pieces = [text[a:b] for a, b in zip([0, *(match.end() for match in names)], ends, strict=True)]
        self.numbers = [int(match[1]) - first - 1 for match in names]
        split = [result[1:].partition("#") for result in results]
        self.given = [(int(number) - first - 1, mark + rest) for number, mark, rest in split]

    def written(self, operands: Sequence[str], last: int) -> tuple[list[str], list[str]]:
        """The lines with these operands and with numbers from `last + 1` on, and the names of the results."""
        names = [*operands, *[f"%{n}" for n in range(last + 1, last + 1 + self.size - len(operands))]]
        parts = [""] * (2 * len(self.numbers) + 1)
        parts[::2], parts[1::2] = self.pieces, [names[n] for n in self.numbers]
        text = "".join(parts)
        return text.split(_END) if text else [], [f"{names[n]}{mark}" for n, mark in self.given]


_END: Final = "\0"  # of a line, which may be several of text
_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|%(\d+)')  # strings are passed over: a path may have a %


def _row_major(types: Sequence[TensorType]) -> str:
    """Layouts as NumPy has them."""
    orders = [[] if type is TOKEN else list(range(type.rank))[::-1] for type in types]
    return f"[{', '.join(f'dense<{order if order else str()}> : tensor<{len(order)}xindex>' for order in orders)}]"


@functools.lru_cache(maxsize=4096)
def _reducer(name: str, type: str, location: str) -> str:
    combine = f'%both = "stablehlo.{name}"(%left, %right) : ({type}, {type}) -> {type}{location}'
    return f"{{\n^bb0(%left: {type}, %right: {type}):\n{combine}\nstablehlo.return %both : {type}\n}}"


@functools.lru_cache(maxsize=4096)
def _location(source: Source | None) -> str:
    """XLA carries these into its profiles and error messages."""
    if source is None:
        return ""
    return f" loc({quoted(source.function)}({quoted(source.file)}:{source.line}:0))"


def quoted(text: str) -> str:
    r"""A string as MLIR reads it: what is not plain ASCII is its bytes in UTF-8, `\C3\BC`."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    plain = {byte: chr(byte) for byte in range(32, 127) if chr(byte) not in '"\\'}
    return '"' + "".join(plain.get(byte, f"\\{byte:02X}") for byte in text.encode(errors="replace")) + '"'


_LOCATION = re.compile(r' loc\("(?:[^"\\]|\\.)*"\("(?:[^"\\]|\\.)*":\d+:0\)\)')


def without_locations(text: str) -> str:
    """A module's text without source lines: equal for programs that differ only in where they were written."""
    return _LOCATION.sub("", text)


def literal(array: np.ndarray[Any, Any]) -> str:
    """`dense<...>` of an array, exact to the last bit: the bytes in hexadecimal, or one element for a splat."""
    if array.size == 0:
        return "dense<>"
    is_one = is_splat(array)
    if array.dtype == np.bool_:
        return f"dense<{str(bool(element_of(array)) if is_one else array.tolist()).lower()}>"
    raw = element_of(array).tobytes() if is_one else np.ascontiguousarray(array).tobytes()
    return f'dense<"0x{raw.hex().upper()}">'


def integers(values: Sequence[int]) -> str:
    """`array<i64: 0, 2>`, the spelling of an integer list attribute; the empty list is `array<i64>`."""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"
