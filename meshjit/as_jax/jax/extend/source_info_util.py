"""`jax.extend.source_info_util`."""

from meshjit.missing import explain as _explain
from meshjit.trace.source import exclude as register_exclusion

__all__ = ["register_exclusion"]

_explain(__name__)
