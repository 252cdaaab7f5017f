"""memory_analysis: JAX's names, one device's bytes."""

from __future__ import annotations

import numpy as np
import pytest

import meshjit as mj
from meshjit.api.memory import MemoryAnalysis
from meshjit.inspect.ahead import held_bytes
from sharding import PartitionSpec as P


@pytest.fixture(scope="module")
def compiled():
    mesh = mj.make_mesh((8,), ("x",))
    x = mj.device_put(np.zeros((16, 4), np.float32), mj.NamedSharding(mesh, P("x")))
    return mj.jit(lambda x: x * 2.0).lower(x).compile()


def test_sizes_are_one_devices(compiled):
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 16 * 4 * 4 // 8
    assert memory.output_size_in_bytes >= 16 * 4 * 4 // 8
    assert memory.alias_size_in_bytes == 0 == memory.host_temp_size_in_bytes
    assert memory.temp_size_in_bytes >= 0 and memory.generated_code_size_in_bytes >= 0
    assert memory.peak_memory_in_bytes == -1 or memory.peak_memory_in_bytes > 0


def test_table_leaves_out_what_is_not_known(compiled):
    rows = dict(MemoryAnalysis(32, 40, 0, 8, 100).rows())
    assert rows == {"argument": 32, "output": 40, "alias": 0, "temp": 8, "generated code": 100}


def test_a_donated_argument_whose_type_no_result_has_is_held_to_the_end():
    """XLA gives its memory to nothing else, so as much is held as if it were not donated."""

    def function(x, w):
        y = (x @ w)[:512]
        return (mj.numpy.tanh(y) @ w) @ w

    arguments = mj.ShapeDtypeStruct((2048, 1024), np.float32), mj.ShapeDtypeStruct((1024, 1024), np.float32)
    for donated in ((), 0):
        lowered = mj.jit(function, donate_argnums=donated).lower(*arguments)
        assert lowered.plan.cost.peak_bytes >= held_bytes(lowered.compile()) - 1024
