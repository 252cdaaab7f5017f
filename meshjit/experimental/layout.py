"""`jax.experimental.layout`: what `Compiled.input_formats` and `output_formats` hold."""

from meshjit.api.layouts import Format as Format, Layout as Layout
from meshjit.missing import explain as _explain

_explain(__name__)
