"""Every op of the registry: its NumPy meaning has the declared types, and XLA computes the same from its emission."""

from __future__ import annotations

import numpy as np
import pytest

from meshjit.core.op import Op
from meshjit.core.parser import parse_program
from meshjit.core.program import Builder
from meshjit.core.types import type_of
from meshjit.core.verify import verify
from tests.tools.op_harness import GLOBAL_OPS, assert_close, called, describe, evaluated, module, out_types, run_xla, samples

SCALES = {"lgamma": 20.0, "digamma": 20.0, "polygamma": 50.0}  # XLA's f32 approximations are this much worse


@pytest.mark.parametrize("op", GLOBAL_OPS, ids=str)
def test_evaluate_gives_the_declared_types(op: Op) -> None:
    generator = np.random.default_rng(0)
    for sample in samples(op):
        results = evaluated(op, sample.arrays(generator), sample.params)
        assert tuple(map(type_of, results)) == out_types(op, sample), describe(op, sample)


@pytest.mark.parametrize("op", [op for op in GLOBAL_OPS if list(samples(op))], ids=str)  # callbacks have none
def test_xla_agrees_with_numpy(op: Op) -> None:
    generator = np.random.default_rng(1)
    arrays = [(sample, sample.arrays(generator)) for sample in samples(op)]
    calls = [(op, sample.types, out_types(op, sample), sample.params) for sample, _ in arrays]
    outputs = tuple(t for _, _, outs, _ in calls for t in outs)
    got = iter(run_xla(module(calls), [[a] for _, each in arrays for a in each], outputs))
    for sample, each in arrays:
        for want in evaluated(op, each, sample.params):
            assert_close(next(got)[0], want, describe(op, sample), SCALES.get(op.name, 1.0))


@pytest.mark.parametrize("op", GLOBAL_OPS, ids=str)
def test_one_equation_verifies_prints_and_parses_back(op: Op) -> None:
    for sample in samples(op):
        with Builder("one") as builder:
            program = builder.build(called(op, [builder.input(t) for t in sample.types], sample.params))
        text = str(verify(program))
        assert str(parse_program(text)) == text
