"""`jax._src.state.types`."""

from meshjit.missing import explain as _explain


class AbstractRef:
    """The type of a mutable array. meshjit has none, so nothing is one."""


_explain(__name__)
