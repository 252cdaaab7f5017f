"""What JAX has and meshjit has not, names and parameters, is exactly what is listed with a reason; and docs/migration.md says so."""

from __future__ import annotations

from meshjit.missing import NOT_THERE
from tests.tools.jax_names import PAGE, compared
from tests.tools.migration import absent, excused, text

FOUND = compared()


def test_names_that_are_missing_are_listed_with_a_reason() -> None:
    missing = {item for item, lack in FOUND.items() if lack is None}
    unlisted = [f"{item.mine}.{item.name}" for item in missing if not absent(item)]
    arrived = [f"{item.mine}.{item.name}" for item in FOUND if absent(item) and item not in missing]
    assert not unlisted, "neither there nor in meshjit/missing.py"
    assert not arrived, "there, but listed as missing in meshjit/missing.py"


def test_names_that_are_listed_are_jaxs() -> None:
    known = {f"{item.mine}.{item.name}" for item in FOUND} | {item.mine for item in FOUND}
    assert not [f"{m}.{n}" for m, names in NOT_THERE.items() for n in names if f"{m}.{n}" not in known]


def test_parameters_that_are_missing_are_listed_with_a_reason() -> None:
    unlisted = [f"{item.module}.{item.name} {p}" for item, lack in FOUND.items() for p in lack or () if not excused(item, p)]
    assert not unlisted, "neither there nor in LACKING of tests/tools/migration.py"


def test_the_page_is_what_is_generated() -> None:
    assert PAGE.read_text() == text(), "python -m tests.tools.jax_names writes it anew"


def test_the_record_is_of_much() -> None:
    assert len(FOUND) > 1600 and sum(len(item.parameters) for item in FOUND) > 3000
