"""`jax.extend.linear_util`: libraries can define with it what meshjit, which traces functions as they are, does not run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from meshjit.missing import explain as _explain


@dataclass(frozen=True)
class WrappedFun:
    """A function that libraries hand on, as `wrap_init` gives it."""

    f: Callable[..., Any]
    debug_info: Any = None

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **kwargs)


def wrap_init(f: Callable[..., Any], params: dict[str, Any] | None = None, *, debug_info: Any = None) -> WrappedFun:
    """The function, with settings `params`."""
    return WrappedFun(functools.partial(f, **params) if params else f, debug_info)


def transformation(generator: Callable[..., Any]) -> Callable[..., NoReturn]:
    """A decorator, whose function is refused where it is called."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(
            f"jax.extend.linear_util: {generator.__name__} is a transformation of JAX's inner functions, which meshjit has not\n"
            "  fix: a function of functions, as in lambda *args: after(f(*before(*args)))"
        )

    return refused


transformation_with_aux = transformation

_explain(__name__)
