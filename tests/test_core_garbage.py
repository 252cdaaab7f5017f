"""Looking for garbage rarely while Programs are made: thresholds come back, whatever happens meanwhile."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Generator

import pytest

from meshjit.core import garbage
from meshjit.core.garbage import FEW, OBJECTS, rarely_collected


@pytest.fixture(autouse=True)
def thresholds() -> Generator[None, None, None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_thresholds_are_high_inside_and_come_back() -> None:
    @rarely_collected
    def inside(x: int, *, y: int) -> tuple[int, int, int]:
        assert x + y == 3
        return gc.get_threshold()

    assert inside(1, y=2) == (OBJECTS, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)
    assert inside.__name__ == "inside"


def test_calls_inside_of_one_another_and_errors() -> None:
    @rarely_collected
    def inner() -> None:
        raise ValueError("no")

    @rarely_collected
    def outer() -> None:
        with pytest.raises(ValueError, match="no"):
            inner()
        assert gc.get_threshold()[0] == OBJECTS
        inner()

    with pytest.raises(ValueError, match="no"):
        outer()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("first", [0, OBJECTS + 1])
def test_higher_thresholds_and_none_are_left_alone(first: int) -> None:
    gc.set_threshold(first, 5, 6)
    assert rarely_collected(gc.get_threshold)() == (first, 5, 6)
    assert gc.get_threshold() == (first, 5, 6)


def test_what_somebody_sets_meanwhile_stays() -> None:
    rarely_collected(lambda: gc.set_threshold(1234, 7, 8))()
    assert gc.get_threshold() == (1234, 7, 8)


def test_the_last_of_several_threads_brings_them_back() -> None:
    entered, leave = threading.Event(), threading.Event()

    @rarely_collected
    def waiting() -> None:
        entered.set()
        assert leave.wait(10)

    thread = threading.Thread(target=waiting)
    thread.start()
    assert entered.wait(10)
    rarely_collected(lambda: None)()
    assert gc.get_threshold()[0] == OBJECTS
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.fixture
def nothing_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(garbage._state, "aged", 0)


@pytest.mark.usefixtures("nothing_aged")
def test_what_was_made_is_old_afterwards_without_a_look_at_it() -> None:
    looks: list[str] = []
    watch = lambda phase, info: looks.append(f"{phase} {info['generation']}")  # noqa: E731
    made = rarely_collected(lambda: [[i] for i in range(2 * FEW)])
    gc.callbacks.append(watch)
    try:
        kept = made()
        more = [[i] for i in range(100)]
    finally:
        gc.callbacks.remove(watch)
    assert not looks and len(kept) == 2 * FEW and more
    assert any(each is kept for each in gc.get_objects(generation=2))


@pytest.mark.usefixtures("nothing_aged")
def test_garbage_in_cycles_is_found_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.self = self

    monkeypatch.setattr(garbage, "OBJECTS", 5 * FEW)
    made = rarely_collected(lambda: [Cycle() for _ in range(2 * FEW)])
    alive = weakref.ref(made()[0])
    for _ in range(2):
        assert alive() is not None
        made()
    assert alive() is None


@pytest.mark.usefixtures("nothing_aged")
def test_what_a_program_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        rarely_collected(lambda: [[i] for i in range(2 * FEW)])()
        assert gc.get_freeze_count() > frozen // 2 > 0
    finally:
        gc.unfreeze()
