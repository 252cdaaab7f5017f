"""docs/ops.md is what its generator writes."""

from __future__ import annotations

import importlib.util
import pathlib

import pytest

import meshjit.ops  # noqa: F401 - fills the registry
from meshjit.core.op import REGISTRY

PATH = pathlib.Path(__file__).parents[1] / "docs" / "generate_op_table.py"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("generate_op_table", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in REGISTRY.values()])
def test_what_stays_whole_has_a_reason_and_only_that(op, generator) -> None:
    found = [f"{sample.types}: {names} of {rule}" for sample in op.samples() for rule, names in [generator.whole_dims(op, sample)] if names]
    if op.whole is None:
        assert not found, f"say in the paragraph of {op.name}, as whole=..., why dims are whole: {found[0]}"
    else:
        assert found, f"nothing of {op.name} is whole any more: take the reason away"


def test_the_table_of_ops_is_up_to_date(generator) -> None:
    assert generator.PATH.read_text() == generator.table(), "run: python docs/generate_op_table.py"
