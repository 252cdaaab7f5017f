"""Law: what a report says of parts adds up to what the plan costs, and to what partitioning writes; random programs and loops,
gradients, code for single devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from meshjit import lax
from meshjit.core.collective import collectives_in
from meshjit.partition.partition import write_locally
from meshjit.plan.make import Annotations, make_plan
from meshjit.report import Report
from meshjit.report.curve import curve
from meshjit.report.folding import Folded, folded
from meshjit.report.optimum import optimum_of
from meshjit.report.page import Shown, page_data
from meshjit.report.subject import Subject
from meshjit.report.timeline import timeline
from meshjit.transform.pipeline import finish
from sharding import AbstractMesh, NamedSharding, PartitionSpec as P
from tests.tools.fuzz import drawn_by


def check(report: Report) -> None:
    cost, lines = report.cost, [row for row in report.program if not row.is_head]
    for by in ("axis", "line", "function", "layer", "kind"):
        assert sum(total.wire_bytes for total in report.totals(by)) == pytest.approx(cost.wire_bytes), by
        assert sum(total.seconds for total in report.totals(by)) == pytest.approx(cost.move_seconds), by
    assert sum(row.wire_bytes for row in lines) == pytest.approx(cost.wire_bytes)
    assert sum(row.seconds for row in lines) == pytest.approx(cost.move_seconds)
    assert sum(row.work for row in lines) == pytest.approx(cost.work_seconds)
    assert sum(span.seconds for span in timeline(report.subject)) == pytest.approx(cost.seconds)
    assert optimum_of(report.subject).bound <= cost.work_seconds * (1 + 1e-9)
    check_memory(report)


def check_memory(report: Report) -> None:
    """Headline, view, curve of the page and what is listed agree."""
    plan, memory, page = report.subject.plan, report.memory, page_of(report)["memory"]
    assert report.cost.peak_bytes == memory.peak == page["peak"] == max(size for size, *_ in page["curve"])
    assert sum(row.bytes for row in memory.held) == memory.peak
    assert sum(row.bytes for row in memory.held if row.role == "inside") == memory.inside
    points = curve(report.subject)
    assert [p.trips for p in points if not p.outer] == [1.0] * (1 + sum(not e.bodies for e in plan.equations))


def page_of(report: Report) -> Any:
    return page_data(Shown(report.subject, report.cost, report.program, report.transfers, report.notes, report.memory))


@pytest.mark.parametrize("seed", range(60))
def test_parts_add_up(seed):
    program, mesh, inputs, outputs, _ = drawn_by(seed)
    annotations = Annotations(inputs, outputs)
    plan = make_plan(program, mesh, annotations)
    names = [f"a[{i}]" for i in range(len(inputs))], [f"result[{i}]" for i in range(len(outputs))]
    report = Report(Subject("drawn", plan, annotations, *names))
    check(report)
    assert str(report) and all(len(line) <= 80 for line in str(report).splitlines())
    local = write_locally(plan, report.subject.machine.target)
    written = sum(each.wire_bytes(mesh) for each in collectives_in(local, mesh))
    final = sum(each.wire_bytes(mesh) for each in collectives_in(finish(local, mesh, report.subject.machine.topology), mesh))
    assert final <= report.cost.wire_bytes * (1 + 1e-9) <= written * (1 + 2e-9)  # what is shared in the end is sent once


MESH = AbstractMesh((4, 2), ("data", "model"))


def struct(shape, *spec):
    return mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def layer(x, w):
    return mnp.tanh(x @ w) + mnp.sin(x)


def scanned(ws, x):
    return lax.scan(lambda c, w: (layer(c, w), None), x, ws)[0].sum()


def by_hand(ws, x):
    def body(w, x):
        h = lax.fori_loop(0, 3, lambda i, c: mnp.tanh(lax.psum(c @ w[0], "model")), x)
        return lax.pmean(h, "data")

    return mj.shard_map(body, mesh=MESH, in_specs=(P(None, "model"), P("data")), out_specs=P())(ws, x).sum()


def test_a_loop_is_one_of_its_iterations_in_the_curve():
    """Up and down in the body, below what the loop as a whole is taken to hold."""
    report = mj.jit(scanned).trace(struct((6, 64, 64), None, None, "model"), struct((32, 64), "data")).plan().report()
    (body,) = next(e.bodies for e in report.subject.plan.equations if e.bodies)
    inside = [point for point in curve(report.subject) if point.outer]
    assert len(inside) == len(body.equations) + 1 and {point.trips for point in inside} == {6.0}
    assert len({point.bytes for point in inside}) > 2 and {point.place.function for point in inside if point.place} >= {"layer"}
    assert any(row.value == "ws[i]" and row.role == "inside" for row in report.memory.held)


@pytest.mark.parametrize(("fun", "width"), [(scanned, 64), (mj.grad(scanned), 64), (by_hand, 128), (mj.grad(by_hand), 128)])
def test_parts_of_loops_and_of_code_for_devices_add_up(fun, width):
    axes = (None, None, "model") if width == 64 else (None, "model")
    check(mj.jit(fun).trace(struct((6, width, 64), *axes), struct((32, 64), "data")).plan().report())


def test_code_for_single_devices_is_shown_by_its_lines():
    def ring(x):
        return lax.ppermute(mnp.sin(x), "data", [(i, (i + 1) % 4) for i in range(4)])

    def fun(x):
        return mj.shard_map(ring, mesh=MESH, in_specs=P("data"), out_specs=P("data"))(x) * 2.0

    report = mj.jit(fun).trace(struct((8, 4), "data")).plan().report()
    (row,) = report.transfers
    assert row.kind == "collective_permute" and row.place is not None and row.place.function.endswith("ring")
    assert row.why == "your code for single devices sends it"
    kinds = [row.kind for row in report.program]
    assert "devices" in kinds and report.program[kinds.index("devices") + 2].wire_bytes == row.wire_bytes


def test_what_repeats_is_folded():
    assert folded("abcdcdcde") == [0, 1, Folded(2, 2, 3, (0, 1)), 8]
    assert folded("") == [] and folded("abc") == [0, 1, 2] and folded("aaaa") == [Folded(0, 1, 4, (0,))]
    (outer,) = folded("xaabxaab")
    assert outer == Folded(0, 4, 2, (0, Folded(1, 1, 2, (0,)), 3))
