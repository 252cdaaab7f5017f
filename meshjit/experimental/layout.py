"""`jax.experimental.layout`: what `Compiled.input_formats` and `output_formats` hold."""

from meshjit.api.layouts import Format as Format
from meshjit.api.layouts import Layout as Layout
