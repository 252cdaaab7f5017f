"""docs/ops.md is what its generator writes."""

from __future__ import annotations

import importlib.util
import pathlib

PATH = pathlib.Path(__file__).parents[1] / "docs" / "generate_op_table.py"


def test_the_table_of_ops_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_op_table", PATH)
    assert spec is not None and spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.PATH.read_text() == generator.table(), "run: python docs/generate_op_table.py"
