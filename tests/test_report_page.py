"""The HTML report in a real browser: no errors, search, a click on a collective marks its line, every view drawn."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

import meshjit as mj
import meshjit.numpy as mnp
from sharding import AbstractMesh, NamedSharding, PartitionSpec as P

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
MESH = AbstractMesh((4, 2), ("data", "model"))
VIEWS = ["program", "collectives", "timeline", "memory", "flow"]


def struct(shape, *spec):
    return mj.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def loss(w1, w2, x):
    hidden = mnp.tanh(x @ w1)
    return mnp.mean((hidden @ w2) ** 2)


@pytest.fixture(scope="module")
def report():
    arguments = struct((512, 1024), None, "model"), struct((1024, 512), "model"), struct((64, 512), "data")
    return mj.jit(mj.value_and_grad(loss, (0, 1))).trace(*arguments).plan().report()


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900", "--enable-logging=stderr"]
    return subprocess.run([*command, "--virtual-time-budget=5000", *options], capture_output=True, text=True, timeout=120)


def result_of(report, tmp_path: Path, script: str):
    """What a script that runs in the page hands over."""
    page = tmp_path / "page.html"
    tail = f"<script>document.body.dataset.result = JSON.stringify((() => {{{script}}})())</script></body>"
    page.write_text(report.to_html().replace("</body>", tail))
    done = run(page, "--dump-dom", f"file://{page}")
    assert "Uncaught" not in done.stderr, done.stderr[-2000:]
    found = re.search(r'data-result="([^"]*)"', done.stdout)
    assert found is not None, done.stdout[-500:]
    return json.loads(html.unescape(found[1]))


@browser
def test_search_finds_and_hides(report, tmp_path):
    script = """
      document.querySelector("#search").value = "w1";
      document.querySelector("#search").dispatchEvent(new Event("input"));
      return [...document.querySelectorAll("#view .row")].filter((row) => !row.classList.contains("hidden")).map((row) => row.textContent);
    """
    rows = result_of(report, tmp_path, script)
    assert len(rows) == 1 and rows[0].startswith("w1")


@browser
def test_a_collective_marks_its_line(report, tmp_path):
    script = """
      document.querySelector("#tab-collectives").click();
      const row = document.querySelector("#view tbody tr");
      row.click();
      return [row.className, document.querySelector("#code .at")?.textContent, location.hash];
    """
    chosen, line, address = result_of(report, tmp_path, script)
    assert chosen == "chosen" and "hidden" in line and address.startswith("#collectives/")


@browser
def test_columns_sort(report, tmp_path):
    script = """
      document.querySelector("#tab-collectives").click();
      const column = () => [...document.querySelectorAll("#view tbody tr td:nth-child(1)")].map((cell) => cell.firstChild.textContent);
      document.querySelector("#view th").click();
      const down = column();
      document.querySelector("#view th").click();
      return [down, column()];
    """
    down, up = result_of(report, tmp_path, script)
    assert down == sorted(down, reverse=True) and up == sorted(up) and len(up) == len(report.transfers)


@browser
def test_keyboard_theme_and_screen_readers(report, tmp_path):
    script = """
      const key = (node, key) => node.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      document.querySelector("#tab-program").focus();
      key(document.activeElement, "ArrowRight");
      const reached = document.activeElement.id;
      const line = document.querySelector("#code .costs");
      key(line, "Enter");
      const back = () => getComputedStyle(document.body).backgroundColor;
      const light = back();
      document.querySelector("#theme").click();
      document.querySelector("#search").value = "all_reduce";
      document.querySelector("#search").dispatchEvent(new Event("input"));
      return [reached, line.className, light === back(), document.querySelector("#count").textContent, line.getAttribute("aria-label")];
    """
    reached, chosen, same, count, label = result_of(report, tmp_path, script)
    assert reached == "tab-collectives" and chosen.endswith(" at") and not same
    assert re.fullmatch(r"\d of \d", count) and label.startswith("line ")


@browser
def test_every_view_is_drawn(report, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(report.to_html())
    for view in VIEWS:
        picture = tmp_path / f"{view}.png"
        done = run(page, f"--screenshot={picture}", f"file://{page}#{view}")
        assert "Uncaught" not in done.stderr, done.stderr[-2000:]
        size, values = picture_of(picture)
        assert size == (1400, 900) and values > 40, view


def picture_of(path: Path) -> tuple[tuple[int, int], int]:
    """Width and height of a PNG, and how many different bytes its lines hold: a blank one has few."""
    data = path.read_bytes()
    size = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    at, parts = 8, []
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        parts += [data[at + 8 : at + 8 + length]] if kind == b"IDAT" else []
        at += 12 + length
    return size, len(set(zlib.decompress(b"".join(parts))))


def test_the_page_needs_nothing_from_outside(report):
    text = report.to_html()
    assert not re.search(r"""(src|href)=["']""", text)
    assert "</script" not in text.split('id="data">')[1].split("</script>")[0]
