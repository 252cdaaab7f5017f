"""Importing this package fills the registry: every op stands in one of these files, with everything known about it.

The packages stand in layers, each above those that it may import, and so do the files of each:

    base < collective < slicing < {reduce, index, window} < {control, random, fft} < {sort, special} < linalg

No function imports. An op and its transpose need one another, though, and rules of the ops in `base` need ops of all kinds.
What such a rule needs from a file above its own, it calls as `ops.name`, after `from meshjit import ops`: the name is looked up
when the rule runs. These names are listed here, the files that use them in pyproject.toml; import-linter holds the rest.
"""

from meshjit.ops import base, collective, control, fft, index, linalg, random, reduce, slicing, sort, special, window
from meshjit.ops.base.arithmetic import add, add_tangents, multiply
from meshjit.ops.base.batching import align_to_first, move, shifted
from meshjit.ops.base.conversion import complex_, conjugate, convert, imag, real
from meshjit.ops.base.reduction import reduce_sum
from meshjit.ops.base.shape import broadcast_in_dim, reshape
from meshjit.ops.base.transcendental import log
from meshjit.ops.index.dynamic import dynamic_slice, dynamic_update_slice
from meshjit.ops.index.scatter import scatter
from meshjit.ops.reduce.cumulative import product_of_others
from meshjit.ops.slicing.concatenation import concatenate
from meshjit.ops.slicing.halos import fetch_run
from meshjit.ops.slicing.slices import pad, slice_
from meshjit.ops.window.convolution import convolution
from meshjit.ops.window.select_and_scatter import select_and_scatter
