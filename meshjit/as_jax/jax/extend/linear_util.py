"""`jax.extend.linear_util`: libraries can define with it what meshjit, which traces functions as they are, does not run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from meshjit.missing import explain as _explain


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
