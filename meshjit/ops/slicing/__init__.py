"""Parts of dims at places that are known: slice, pad, reverse, concatenate, roll, update_slice, copy_part, and the exchange of
halos that they and later packages share. Imports base and collective.
"""

from meshjit.ops.slicing import concatenation, copy_part, halos, roll, slices, update_slice
