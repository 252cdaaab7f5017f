"""once_per_program and Once: one answer for a Program, which goes with it, or with who asks."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

from meshjit.core.once import Once, once_per_program
from meshjit.core.program import Builder, Program
from meshjit.core.types import TensorType


def program() -> Program:
    with Builder("f") as builder:
        return builder.build([builder.input(TensorType.parse("f32[2]"))])


def test_an_answer_for_each_program_and_its_arguments():
    asked = list[object]()

    @once_per_program
    def answer(program: Program, number: int) -> object:
        asked.append((program, number))
        return program, number

    one, other = program(), program()
    assert answer(one, 1) is answer(one, 1) and answer(one, 2) != answer(one, 1) != answer(other, 1)
    assert len(asked) == 3
    reference = weakref.ref(one)
    asked.clear()
    del one
    gc.collect()  # the answer holds the Program
    assert reference() is None


def test_answers_that_go_with_who_asks():
    asked = list[int]()
    once = Once(lambda program: asked.append(id(program)) or len(asked))
    one = program()
    assert once(one) == once(one) == 1
    for _ in range(50):  # other Programs, at the same places
        assert once(program()) == len(asked)
    assert len(asked) == 51 and once(one) == 1 and len(once.answers) <= 3


_ENDS = """
import gc
from meshjit.core.once import Once, once_per_program
from tests.test_core_once import program

class Asking:
    def __init__(self):
        self.once, self.cycle = Once(lambda program: [1] * 9), self

known = [once_per_program(lambda program, i=i: [i]) for i in range(4)]
gc.disable()
for round in range(200):
    one = program()
    for _ in range(20):
        Asking().once(one)
    for ask in known:
        ask(one)
    gc.enable()
    gc.set_threshold(1)
    del one  # garbage may be searched for while it ends
    gc.disable()
"""


def test_a_program_may_end_while_garbage_is_collected():
    """Two weak references with callbacks to one object end CPython 3.11 with a segmentation fault here."""
    done = subprocess.run([sys.executable, "-c", _ENDS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr)
