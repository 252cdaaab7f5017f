"""Windows that slide along dims: convolution, pooling, and pooling's derivatives. Imports base, collective and slicing."""

from meshjit.ops.window import (
    choice,
    convolution,
    convolution_in_floats,
    convolution_rules,
    params,
    reduce_window,
    select_and_gather,
    select_and_scatter,
    sliding,
)
