"""Errors that users meet, with the names of `jax.errors`. The messages name lines and fixes."""

from __future__ import annotations

from meshjit.core.promotion import TypePromotionError as TypePromotionError
from meshjit.missing import explain as _explain
from sharding.placement import ShardingError


class JAXTypeError(TypeError):
    """What is wrong with the type of a value that is traced."""


class JAXIndexError(IndexError):
    """What is wrong with an index that is traced."""


class ConcretizationTypeError(JAXTypeError):
    """A traced value was needed as a concrete one: its value is known only when the compiled program runs."""


class TracerArrayConversionError(ConcretizationTypeError):
    """A traced value was given to NumPy (`np.asarray(x)`, `np.sin(x)`), which needs its elements."""


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value was used where Python needs an integer: an index of a list, `range(x)`, a shape."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used where Python needs a truth value: `if x:`, `while x:`, `a and b`, `assert x`."""


class UnexpectedTracerError(JAXTypeError):
    """A traced value outlived the function that it was traced in (it leaked), or came from another thread."""


class NonConcreteBooleanIndexError(JAXIndexError):
    """`x[mask]` with a traced mask: the result's shape would depend on its values."""


class ShardingTypeError(ShardingError):
    """In explicit axes, the placements of an op's operands conflict, or do not say where its result is."""


class JaxprTypeError(TypeError):
    """A jaxpr whose types do not fit, as JAX's checks call it. meshjit makes and takes none such: it is there for `except`."""


class InconclusiveDimensionOperation(Exception):  # noqa: N818 - JAX's name
    """A question of extents that are names, whose answer depends on them. Extents are numbers here: it is there for `except`."""


class InternalError(RuntimeError):
    """meshjit or XLA broke on a program that it should have handled. The message names a file that shows it again."""


class OutOfMemoryError(RuntimeError):
    """A device has too little memory for a program. The message says what was asked for, what is needed and what is large."""

_explain(__name__)
