"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

function made(tag, properties = {}, ...children) {
  const node = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// -- numbers

function scaled(value, units) {
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) { value /= 1000; unit++; }
  return `${value >= 100 || unit === 0 && Number.isInteger(value) ? value.toFixed(0) : value.toPrecision(3)} ${units[unit]}`;
}
const bytes = (count) => scaled(count, ["B", "kB", "MB", "GB", "TB"]);
const seconds = (time) => time ? scaled(time * 1e6, ["us", "ms", "s"]) : "0";

// -- colours of mesh axes

const axes = Object.keys(data.mesh);
const hue = (axis) => 360 * axes.indexOf(axis) / Math.max(1, axes.length) + 210;
function typed(text) {
  const span = made("span", { class: "type" });
  for (const part of text.split(new RegExp(`\\b(${axes.join("|") || "$^"})\\b`))) {
    span.append(axes.includes(part) ? made("span", { class: "axis", style: `background: hsl(${hue(part)} 70% 50% / .28)` }, part) : part);
  }
  return span;
}

// -- lines of code

const key = (at) => at ? `${at[0]}:${at[1]}` : "";
const short = (at) => at ? `${at[0].split("/").pop()}:${at[1]}` : "";
const prices = new Map();
for (const row of data.rows) if (row.at && row.kind === "line") {
  const before = prices.get(key(row.at)) || { work: 0, sends: 0, bytes: 0 };
  prices.set(key(row.at), { work: before.work + (row.work || 0), sends: before.sends + (row.seconds || 0), bytes: before.bytes + (row.wire_bytes || 0) });
}

function drawCode() {
  const dearest = Math.max(1e-12, ...[...prices.values()].map((price) => price.work + price.sends));
  for (const [file, lines] of Object.entries(data.sources)) {
    const block = made("div", {}, made("h2", { title: file }, file.split("/").pop()));
    lines.forEach((line, i) => {
      const at = [file, i + 1], price = prices.get(key(at));
      const time = price ? price.work + price.sends : 0;
      const note = price ? `${seconds(price.work)} work, ${seconds(price.sends)} sending ${bytes(price.bytes)}` : null;
      const reached = price ? { tabindex: 0, role: "button", "aria-label": `line ${i + 1}, ${note}: ${line.trim()}`, onkeydown: (e) => e.key === "Enter" && choose(at) } : {};
      block.append(made("div", { class: "source" + (price ? " costs" : ""), id: key(at), title: note, onclick: () => price && choose(at), ...reached },
        made("span", { class: "number" }, String(i + 1)),
        made("span", { class: "price", style: `--part: ${100 * time / dearest}%` }, time ? seconds(time) : ""),
        made("span", {}, line)));
    });
    one("#code").append(block);
  }
}

// -- what is chosen: a line; its address stands behind the #

function choose(at, scroll = true) {
  if (!at) return;
  history.replaceState(null, "", `#${view}/${encodeURIComponent(key(at))}`);
  all(".at, .chosen").forEach((node) => node.classList.remove("at", "chosen"));
  const line = document.getElementById(key(at));
  if (line) { line.classList.add("at"); if (scroll) line.scrollIntoView({ block: "center" }); }
  all("[data-at]").filter((node) => node.dataset.at === key(at)).forEach((node) => node.classList.add("chosen"));
}
const chosen = (at) => ({ "data-at": key(at), tabindex: 0, onclick: () => choose(at), onkeydown: (e) => { if (e.key === "Enter") choose(at); } });

// -- views

function program(root) {
  for (const row of data.rows) {
    const pad = `padding-left: ${1.2 * (row.depth || 0)}em`;
    if (["function", "layers", "loop", "branch", "devices"].includes(row.kind)) {
      const times = row.kind === "function" ? "" : ` × ${row.times || 1} (${row.equations || 0} equations)`;
      root.append(made("div", { class: "row head", role: "heading", "aria-level": String(2 + (row.depth || 0)), style: pad, "data-at": key(row.at) },
        row.title + times + (row.wire_bytes ? `, ${bytes(row.wire_bytes)} sent` : "")));
      continue;
    }
    root.append(made("div", { class: "row", style: pad, ...chosen(row.at) },
      made("span", { class: "name" }, row.title + (row.times > 1 ? ` × ${row.times}` : "")), typed(row.type || ""),
      made("span", { class: "right", title: "on each device" }, `${(row.type || "").includes("@") ? `[${row.local_shape.join(", ")}] ` : ""}${bytes(row.local_bytes || 0)}`),
      made("span", { class: "right" }, row.wire_bytes ? `${bytes(row.wire_bytes)} sent` : "")));
  }
}

const columns = [["kind", (r) => r.kind], ["axes", (r) => r.axes], ["bytes", (r) => r.wire_bytes, bytes], ["time", (r) => r.seconds, seconds],
  ["times", (r) => r.times], ["value", (r) => r.value], ["line", (r) => short(r.at)]];
let order = [3, -1];

function collectives(root) {
  const table = made("table"), head = made("tr");
  columns.forEach(([name, , text], i) => head.append(made("th", {
    class: text ? "right" : "", tabindex: 0, scope: "col", "aria-sort": order[0] === i ? (order[1] < 0 ? "descending" : "ascending") : null,
    onclick: () => { order = [i, order[0] === i ? -order[1] : -1]; show(view); }, onkeydown: (e) => e.key === "Enter" && e.target.click(),
  }, name)));
  table.append(made("thead", {}, head));
  const value = columns[order[0]][1], body = made("tbody");
  for (const row of [...data.collectives].sort((a, b) => order[1] * (value(a) > value(b) ? 1 : value(a) < value(b) ? -1 : 0))) {
    const cells = columns.map(([, of, text]) => made("td", { class: text ? "right" : "" }, String(text ? text(of(row)) : of(row))));
    cells[5].append(" ", typed(row.type), made("div", { class: "why" }, row.why));
    if (row.is_whole) cells[0].append(made("div", { class: "warn" }, "whole on every device"));
    body.append(made("tr", chosen(row.at), ...cells));
  }
  table.append(body);
  root.append(data.collectives.length ? table : made("p", {}, "Nothing is sent."));
  for (const note of data.notes) root.append(made("p", {}, made("span", { class: "warn" }, `${note.kind}: `), note.text));
}

function timeline(root) {
  const spans = data.timeline, end = Math.max(1e-12, ...spans.map((s) => s[1] + s[2])), width = 1000, height = 26;
  const tracks = [...new Set(spans.map((s) => s[0]))];
  const svg = made("svg:svg", { width: "100%", viewBox: `0 0 ${width + 130} ${tracks.length * height + 30}`, role: "img", "aria-label": "Predicted timeline" });
  tracks.forEach((track, i) => svg.append(made("svg:text", { x: 0, y: i * height + 16 }, track)));
  for (const [track, start, time, what, at] of spans) {
    const colour = track === "computing" ? "var(--bar)" : `hsl(${hue(track.replace(/[(),].*/g, ""))} 60% 55%)`;
    const bar = made("svg:rect", { class: "span", x: 130 + width * start / end, y: tracks.indexOf(track) * height + 3, height: height - 6,
      width: Math.max(.5, width * time / end), fill: colour, "data-at": key(at), onclick: () => choose(at) });
    bar.append(made("svg:title", {}, `${what}, ${seconds(time)}, ${short(at)}`));
    svg.append(bar);
  }
  svg.append(made("svg:text", { x: 130, y: tracks.length * height + 20 }, "0"), made("svg:text", { x: width + 70, y: tracks.length * height + 20 }, seconds(end)));
  root.append(svg, made("p", { class: "why" }, "Predicted, one after the other; loops are one bar a track."));
}

function memory(root) {
  const { curve, limit, peak, held, at } = data.memory, top = Math.max(peak, 1), width = 1000, height = 180;
  root.append(made("p", { class: data.memory.peak <= limit ? "" : "warn" }, `${bytes(peak)} at the peak, at ${at}; a device has ${bytes(limit)}.`));
  const points = curve.map(([size], i) => `${width * i / Math.max(1, curve.length - 1)},${height - height * size / top}`);
  const svg = made("svg:svg", { width: "100%", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Memory along the program" });
  const step = width / Math.max(1, curve.length);
  curve.forEach(([, , trips], i) => trips > 1 && svg.append(made("svg:rect", { class: "loop", x: step * i, width: step + .5, y: 0, height })));
  svg.append(made("svg:polygon", { class: "curve", points: `0,${height} ${points.join(" ")} ${width},${height}` }));
  curve.forEach(([size, line, trips], i) => {
    const bar = made("svg:rect", { class: "span", x: width * (i - .5) / curve.length, width: width / curve.length, y: 0, height, fill: "transparent", onclick: () => choose(line) });
    bar.append(made("svg:title", {}, `${bytes(size)} ${short(line)}${trips > 1 ? `, one of ${trips} iterations` : ""}`));
    svg.append(bar);
  });
  const table = made("table", {}, made("thead", {}, made("tr", {}, ...["bytes", "value", "type", "line"].map((name) => made("th", { scope: "col" }, name)))));
  table.append(made("tbody", {}, ...held.map((row) => made("tr", {},
    made("td", { class: "right" }, bytes(row.bytes)), made("td", {}, row.value + (row.copies > 1 ? ` × ${row.copies}` : "")), made("td", {}, typed(row.type)), made("td", {}, row.source || row.role)))));
  if (curve.some(([, , trips]) => trips > 1)) root.append(made("p", { class: "why" }, "Shaded: loops, as one of their iterations."));
  root.append(svg, table);
}

function flow(root) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 26 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const i of data.flow.nodes) {
    const row = data.rows[i], text = `${row.title}  ${row.type || ""}`;
    graph.setNode(String(i), { row, text, width: 6.8 * text.length + 16, height: 24 });
  }
  for (const [from, to] of data.flow.edges) graph.setEdge(String(from), String(to));
  dagre.layout(graph);
  const size = graph.graph(), width = Math.ceil(size.width) + 20, height = Math.ceil(size.height) + 20;
  const svg = made("svg:svg", { width, height, viewBox: `-10 -10 ${width} ${height}`, role: "img", "aria-label": "Flow of values between lines" });
  for (const edge of graph.edges()) {
    const points = graph.edge(edge).points.map((p) => `${p.x},${p.y}`).join(" ");
    svg.append(made("svg:polyline", { class: "edge", points, "stroke-dasharray": Number(edge.v) > Number(edge.w) ? "4 3" : null }));
  }
  for (const name of graph.nodes()) {
    const node = graph.node(name), group = made("svg:g", { transform: `translate(${node.x - node.width / 2},${node.y - 12})`, ...chosen(node.row.at) });
    group.append(made("svg:rect", { class: "box", width: node.width, height: 24, rx: 4 }), made("svg:text", { x: 8, y: 16 }, node.text));
    svg.append(group);
  }
  root.append(svg);
  const first = graph.nodes().length ? graph.node(graph.nodes()[0]) : { x: 0 };
  root.scrollLeft = first.x - root.clientWidth / 2;
}

const views = { program, collectives, timeline, memory, flow };
let view = "program";

function show(name) {
  view = views[name] ? name : "program";
  all("nav button[role=tab]").forEach((button) => {
    button.setAttribute("aria-selected", String(button.id === `tab-${view}`));
    button.tabIndex = button.id === `tab-${view}` ? 0 : -1;
  });
  const root = one("#view");
  root.replaceChildren();
  root.setAttribute("aria-labelledby", `tab-${view}`);
  views[view](root);
  filter();
}

function filter() {
  const wanted = one("#search").value.trim().toLowerCase();
  const nodes = all("#view .row, #view tbody tr");
  nodes.forEach((node) => node.classList.toggle("hidden", wanted !== "" && !node.textContent.toLowerCase().includes(wanted)));
  one("#count").textContent = wanted === "" ? "" : `${nodes.filter((node) => !node.classList.contains("hidden")).length} of ${nodes.length}`;
}

one("#title").textContent = `${data.title} on ${Object.entries(data.mesh).map(([name, size]) => `${name}=${size}`).join(", ")}, ${data.target}`;
one("#cost").textContent = `${seconds(data.cost.work_seconds + data.cost.move_seconds)} a step (${seconds(data.cost.move_seconds)} sending), ${bytes(data.cost.wire_bytes)} sent, ${bytes(data.cost.peak_bytes)} held`;
Object.keys(views).forEach((name, i) => one("nav").append(made("button", { id: `tab-${name}`, role: "tab", "aria-controls": "view", title: `Alt+${i + 1}`, onclick: () => show(name) }, name)));
one("#search").addEventListener("input", filter);
one("#theme").addEventListener("click", () => {
  const isDark = getComputedStyle(document.documentElement).getPropertyValue("color-scheme").trim() === "dark";
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
});
one("nav").addEventListener("keydown", (e) => {
  const names = Object.keys(views), step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
  if (!step) return;
  show(names[(names.indexOf(view) + step + names.length) % names.length]);
  one(`#tab-${view}`).focus();
});
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && document.activeElement !== one("#search")) { e.preventDefault(); one("#search").focus(); }
  const name = e.altKey && Object.keys(views)[Number(e.key) - 1];
  if (name) { e.preventDefault(); show(name); }
});
drawCode();
const priced = one("#code .costs");
if (priced) priced.scrollIntoView({ block: "start" });
const [start, place] = decodeURIComponent(location.hash.slice(1)).split(/\/(.*)/s);
show(start || "program");
if (place) { const cut = place.lastIndexOf(":"); choose([place.slice(0, cut), Number(place.slice(cut + 1))]); }
