"""`jax.interpreters.partial_eval`: meshjit takes Programs apart otherwise, so nothing of it works."""

from __future__ import annotations

from typing import Any, NoReturn

from meshjit.missing import explain as _explain


class PartialVal:
    """What is known of a value; named in annotations."""

    @staticmethod
    def known(value: Any) -> NoReturn:
        """Refused."""
        _refuse()

    unknown = known


def trace_to_jaxpr_nounits(*_: Any, **__: Any) -> NoReturn:
    """Refused."""
    _refuse()


def _refuse() -> NoReturn:
    raise NotImplementedError("partial evaluation of functions (jax.interpreters.partial_eval) is not there")


_explain(__name__)
