"""The Array API standard's tables against meshjit.numpy: what does not hold is what docs/array_api.md gives a reason for."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshjit as mj
import meshjit.numpy as mnp
from tests.tools.array_api import count, faults, same, signature_faults

DOCUMENT = (Path(__file__).parents[1] / "docs" / "array_api.md").read_text()
EXCUSED = {
    "sign(-0.0)", "remainder(-0.0, 1.0)", "remainder(0.0, -1.0)", "remainder(-3.0, 3.0)", "remainder(3.0, -3.0)",
    "d(xp.searchsorted(a([1, 2]), a([1])))", "l(set_item(xp.zeros(2)))",
}  # fmt: skip


@pytest.mark.device
def test_all_holds_that_is_not_excused() -> None:
    with mj.enable_x64(True):
        missing = list(faults(mnp))
    assert {name for name, _ in missing} == EXCUSED, missing
    assert f"{count() - len(missing)} of {count()} hold" in DOCUMENT


def test_the_checks_can_fail() -> None:
    assert signature_faults(lambda x: x, "x, /, *, axis=") == "takes no axis="
    assert signature_faults(lambda x: x, "x1, x2, /") == "takes 1 operands by place, not 2"
    assert signature_faults(lambda x, *, axis: x, "x, /, *, axis=") == "needs axis="
    assert not same(0.0, -0.0) and not same(1.0, True and 2.0) and not same(float("nan"), 0.0) and same(1 / 3, 0.3333333)


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no version '1999.12' of the Array API here\n  fix: '2024.12', or None"):
        mnp.zeros(1).__array_namespace__(api_version="1999.12")


def test_dtypes_follow_x64() -> None:
    info = mnp.__array_namespace_info__()
    assert {"int64", "float64"} & set(info.dtypes()) == set() and str(info.default_dtypes()["integral"]) == "int32"
    with mj.enable_x64(True):
        assert {"int64", "float64", "complex128"} <= set(info.dtypes()) and str(info.default_dtypes()["integral"]) == "int64"
    with pytest.raises(KeyError, match="nope"):
        info.dtypes(kind="nope")


def test_floor_divide_keeps_the_sign_of_zero_where_sharded() -> None:
    mesh = mj.make_mesh((4,), ("x",))
    x = mj.device_put(mnp.array([-0.0, 0.0, 0.25, -0.0, 0.0]), mj.NamedSharding(mesh, mj.P("x")))
    y = mnp.array([1.0, -1.0, 1.0, -1.0, 1.0])
    result = mj.jit(mnp.floor_divide)(x, y)
    assert mnp.signbit(result).tolist() == [True, True, False, False, False] and result.tolist() == [0.0] * 5
