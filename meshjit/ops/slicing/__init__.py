"""Parts of dims at places that are known: slice, pad, reverse, concatenate, roll, update_slice, and the exchange of halos
that they and later packages share. Imports base and collective.
"""

from meshjit.ops.slicing import concatenation, halos, roll, slices, update_slice
