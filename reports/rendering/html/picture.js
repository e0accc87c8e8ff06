/* The picture at the top: findings, requests, bytes, broker times and failures over time, of what is chosen. */

const SVG = "http://www.w3.org/2000/svg";
const SLOT = 0, LEVEL = 4, REQUESTS = 5, BYTES = 6, FAILED = 7, UNANSWERED = 8, THROTTLED = 9;
const KINDS = ["API", "client", "broker"];
/* Percentiles of fewer exchanges are close to the longest time. */
const ENOUGH_FOR_P99 = 100;
const MOST_MARK_ROWS = 6, MARK_HEIGHT = 18, LISTED = 8;
const TONES = ["bad", "warn", "good", "note"];

function draw(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function duration(ns) {
  const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, least]) => ns >= least) || ["ns", 1];
  const value = ns / size;
  return `${value >= 100 ? Math.round(value) : Number(value.toPrecision(3))} ${unit}`;
}

/* The length of intervals, which is round. */
function step(ms) {
  const [unit, size] = [["d", 86400000], ["h", 3600000], ["min", 60000]].find(([, least]) => ms >= least && ms % least === 0) || ["", 0];
  return size ? `${ms / size} ${unit}` : duration(ms * 1e6);
}

function size(bytes) {
  const [unit, least] = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]].find(([, n]) => bytes >= n) || ["B", 1];
  return `${Number((bytes / least).toPrecision(3))} ${unit}`;
}

/* A time as the rest of the page shows it. */
function clock(ms, digits = 3) {
  const shown = new Date(Math.floor(ms + (data.picture ? data.picture.offset : 0))).toISOString();
  return digits ? shown.slice(11, 20 + digits) : shown.slice(11, 19);
}

function plural(count, what) {
  return `${grouped.format(count)} ${what}${count === 1 ? "" : "s"}`;
}

const CELLS = [];
if (data.picture) {
  for (const row of data.picture.cells.split(",")) {
    const before = CELLS[CELLS.length - 1];
    CELLS.push(row.split(" ").map((part, n) => part === "" ? before[n] : Number(part)));
  }
}

/* What is chosen, summed by slot: requests of Produce, of Fetch and of others; bytes; failures; counts by level. */
function summed() {
  const { names } = data.picture;
  const kept = names.map((all, kind) => all.map((name) => isChosen(kind, name)));
  const slots = new Map();
  const kindOf = names[0].map((api) => api === "Produce" ? 0 : api === "Fetch" || api === "ShareFetch" ? 1 : 2);
  for (const cell of CELLS) {
    if (!kept.every((some, kind) => some[cell[1 + kind]])) continue;
    let slot = slots.get(cell[SLOT]);
    if (!slot) slots.set(cell[SLOT], slot = { requests: [0, 0, 0], bytes: 0, trouble: [0, 0, 0], levels: new Map(), timed: 0 });
    slot.requests[kindOf[cell[1]]] += cell[REQUESTS];
    slot.bytes += cell[BYTES];
    [FAILED, UNANSWERED, THROTTLED].forEach((at, n) => { slot.trouble[n] += cell[at]; });
    if (cell[LEVEL] >= 0) {
      slot.levels.set(cell[LEVEL], (slot.levels.get(cell[LEVEL]) || 0) + cell[REQUESTS]);
      slot.timed += cell[REQUESTS];
    }
  }
  return slots;
}

/* The level within which a share of the exchanges of a slot are. */
function percentile(slot, share) {
  let left = Math.ceil(slot.timed * share);
  for (const level of [...slot.levels.keys()].sort((a, b) => a - b)) {
    left -= slot.levels.get(level);
    if (left <= 0) return level;
  }
  return null;
}

function sum(numbers) {
  return [...numbers].reduce((a, b) => a + b, 0);
}

/* The marks in rows, so that none overlaps another: [mark, row, its place], and the number of rows. The worst come
   first; those that find no room are only among the findings. */
function placed(place, right) {
  const rows = [], found = [];
  for (const tone of TONES) {
    for (const mark of data.marks.filter((each) => each.tone === tone)) {
      const left = place(mark.begin), until = Math.max(place(mark.end ?? mark.begin), left + 3);
      const taken = Math.max(until, left + 22 + 6.3 * mark.label.length) + 4;
      let row = rows.findIndex((others) => others.every(([from, to]) => taken <= from || to <= left));
      if (row < 0 && rows.length < MOST_MARK_ROWS) row = rows.push([]) - 1;
      if (row < 0) continue;
      rows[row].push([left, taken]);
      found.push([mark, row, left, until, taken > right + 8]);
    }
  }
  return [found, rows.length];
}

const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800].map((seconds) => 1000 * seconds);

function drawPicture() {
  const { first, interval, start, edges } = data.picture;
  const scroll = picture.querySelector(".scroll");
  const width = Math.max(Math.min(scroll.clientWidth, 1400), 300), left = width < 600 ? 54 : 64, right = width - 10;
  const slots = summed();
  const last = Math.max(data.picture.last, first + 1);
  const begin = Math.min(first, start), end = Math.max(last, begin + interval);
  const place = (ms) => left + (Math.min(Math.max(ms, begin), end) - begin) / (end - begin) * (right - left);
  const seconds = interval / 1000;
  const [marks, markRows] = placed(place, right);
  const trouble = [...slots.values()].some((slot) => sum(slot.trouble));
  const above = [
    ["requests/s", 64, (slot) => slot.requests.map((n) => n / seconds), ["b-produce", "b-fetch", "b-other"], (n) => grouped.format(Number(n.toPrecision(2)))],
    ["bytes/s", 44, (slot) => [slot.bytes / seconds], ["b-bytes"], size],
  ];
  const below = ["failed", 36, (slot) => slot.trouble, ["b-failed", "b-unanswered", "b-throttled"], (n) => grouped.format(n)];
  const svg = draw("svg", { role: "img", "aria-label": "Requests, bytes and broker times over time" });
  let top = markRows ? markRows * MARK_HEIGHT + 8 : 4;
  const places = [];
  const label = (x, y, text, anchor = "end", name = "axis") => svg.append(draw("text", { x, y, "text-anchor": anchor, class: name }, text));

  function barLane([title, height, values, classes, shown]) {
    const most = Math.max(...[...slots.values()].map((slot) => sum(values(slot))), 0);
    const paths = classes.map(() => "");
    for (const [number, slot] of slots) {
      const x = place(start + number * interval), w = Math.max(place(start + (number + 1) * interval) - x - 0.5, 0.8);
      let y = top + height;
      values(slot).forEach((value, n) => {
        const h = most ? value / most * height : 0;
        y -= h;
        if (h) paths[n] += `M${x.toFixed(1)} ${y.toFixed(1)}h${w.toFixed(1)}v${Math.max(h, 0.7).toFixed(1)}h-${w.toFixed(1)}z`;
      });
    }
    svg.append(draw("line", { x1: left, x2: right, y1: top + height, y2: top + height, class: "line" }));
    paths.forEach((d, n) => { if (d) svg.append(draw("path", { d, class: classes[n] })); });
    label(left - 6, top + 9, shown(most));
    label(left + 4, top + 9, title, "start", "lane");
    places.push([title, top, height]);
    top += height + 14;
  }

  function heatLane() {
    const levels = [...slots.values()].flatMap((slot) => [...slot.levels.keys()]);
    if (!levels.length) return;
    const low = Math.min(...levels), high = Math.max(...levels) + 1;
    const rows = Math.max(high - low, 8), height = Math.min(Math.max(rows * 4.5, 90), 190), step = height / rows;
    const y = (level) => top + height - (level - low) * step;
    const most = Math.max(...[...slots.values()].flatMap((slot) => [...slot.levels.values()]));
    const paths = Array(8).fill("");
    let middle = "", p99 = "";
    for (const number of [...slots.keys()].sort((a, b) => a - b)) {
      const slot = slots.get(number);
      const x = place(start + number * interval), w = Math.max(place(start + (number + 1) * interval) - x, 1);
      for (const [level, count] of slot.levels) {
        const shade = most < 2 ? 7 : Math.min(Math.floor(Math.log(count) / Math.log(most) * 6) + 2, 8);
        paths[shade - 1] += `M${x.toFixed(1)} ${y(level + 1).toFixed(1)}h${w.toFixed(1)}v${step.toFixed(1)}h-${w.toFixed(1)}z`;
      }
      if (slot.timed) middle += `M${x.toFixed(1)} ${(y(percentile(slot, 0.5)) - step / 2).toFixed(1)}h${w.toFixed(1)}`;
      if (slot.timed >= ENOUGH_FOR_P99) p99 += `M${x.toFixed(1)} ${(y(percentile(slot, 0.99)) - step / 2).toFixed(1)}h${w.toFixed(1)}`;
    }
    for (let level = Math.ceil(low / 10) * 10; level <= low + rows; level += 10) {
      svg.append(draw("line", { x1: left, x2: right, y1: y(level), y2: y(level), class: "line" }));
      label(left - 6, y(level) + 4, duration(edges[level]));
    }
    paths.forEach((d, n) => { if (d) svg.append(draw("path", { d, class: `heat${n + 1}` })); });
    svg.append(draw("path", { d: middle, class: "median" }), draw("path", { d: p99, class: "p99" }));
    label(left + 4, top + 9, "broker time", "start", "lane");
    places.push(["broker time", top, height, (at) => low + Math.floor((top0 + height - at) / step)]);
    const top0 = top;
    top += height + 14;
  }

  above.forEach(barLane);
  heatLane();
  if (trouble) barLane(below);
  const bottom = top - 8;
  for (const [mark, row, x, until, isLeft] of marks) {
    const y = row * MARK_HEIGHT + 2;
    const group = draw("g", { class: `mark m-${mark.tone}`, tabindex: 0, role: "button", "aria-label": `${mark.label}: ${mark.text}` },
      draw("rect", { x, y, width: until - x, height: bottom - y, class: "during" }),
      draw("line", { x1: x, x2: x, y1: y, y2: bottom }),
      draw("rect", { x, y, width: until - x, height: MARK_HEIGHT - 3, rx: 2, class: "flag" }),
      draw("text", { x: isLeft ? Math.min(until, right) - 3 : x + 5, y: y + 11, "text-anchor": isLeft ? "end" : "start" }, `${mark.n + 1} ${mark.label}`));
    group.dataset.tip = `${clock(mark.begin)} ${mark.label}: ${mark.text}`;
    group.onclick = () => showFinding(mark.n);
    group.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); showFinding(mark.n); } };
    svg.append(group);
  }
  const tick = STEPS.find((ms) => (end - begin) / ms * 74 <= right - left) || STEPS[STEPS.length - 1];
  const offset = data.picture.offset, digits = tick < 1000 ? 3 : 0;
  for (let at = Math.ceil((begin + offset) / tick) * tick - offset; at <= end; at += tick) {
    svg.append(draw("line", { x1: place(at), x2: place(at), y1: bottom, y2: bottom + 4, class: "line" }));
    const day = tick >= 86400000 ? new Date(at + offset).toISOString().slice(5, 10) : clock(at, digits);
    if (place(at) < right - 20) label(place(at), bottom + 16, day, "middle");
  }
  const height = bottom + 22;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  picture.dataset.span = JSON.stringify([begin, end, left / width, right / width]);
  scroll.replaceChildren(svg);

  const found = (event) => {
    const box = svg.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const number = Math.floor((begin + (x - left) / (right - left) * (end - begin) - start) / interval);
    const lane = places.find(([, from, tall]) => y >= from - 6 && y <= from + tall + 7);
    const level = lane && lane[3] ? lane[3](y) : null;
    return x < left - 2 || x > right + 2 ? [] : [number, level];
  };
  svg.addEventListener("pointermove", (event) => {
    const [number, level] = found(event), slot = slots.get(number);
    if (slot) svg.dataset.tip = told(number, slot, level);
    else delete svg.dataset.tip;
  });
  choosable(picture, (event) => {
    const [number, level] = found(event), slot = slots.get(number);
    if (slot) showSlot(number, slot, slot.levels.has(level) ? level : null);
  });
  shade(picture, span);
}

function told(number, slot, level) {
  const { start, interval, edges } = data.picture;
  const [produce, fetch, other] = slot.requests;
  const lines = [`${clock(start + number * interval)} + ${step(interval)}`,
    `${plural(sum(slot.requests), "request")}: Produce ${produce}, Fetch ${fetch}, others ${other}; ${size(slot.bytes)}`];
  if (slot.timed) lines.push(`broker time: median ${duration(edges[percentile(slot, 0.5)])}, longest ${duration(edges[Math.max(...slot.levels.keys()) + 1])} or less`);
  if (slot.levels.has(level)) lines.push(`${duration(edges[level])} to ${duration(edges[level + 1])}: ${plural(slot.levels.get(level), "exchange")}`);
  const [failed, unanswered, throttled] = slot.trouble;
  if (failed) lines.push(`${failed} with an error code`);
  if (unanswered) lines.push(`${unanswered} without a response`);
  if (throttled) lines.push(`${throttled} throttled`);
  return lines.join("\n");
}

/* Exchanges of a place in the picture, or of a finding */

/* The exchanges of this page that pass within [from, to], of what is chosen and, with `whom`, of one of these names. */
function exchangesWithin(from, to, whom = [], least = 0) {
  const table = tables.get("slowest");
  if (!table) return [];
  const column = (name) => table.columns.find((each) => each.name === name);
  const begins = column("start"), total = column("total_ns"), broker = column("broker_ns"), waiting = column("waiting_ns");
  const named = NAMED.map((name) => column(name));
  const found = [];
  for (let row = 0; row < table.rows; row++) {
    const at = timeOfRow(begins, row);
    if (at > to || at + total.values[row] / 1e6 < from) continue;
    if (broker.values[row] - waiting.values[row] < least) continue;
    if (!named.every((each, kind) => isChosen(kind, text(each, row)))) continue;
    if (whom.length && !whom.some((name) => name === text(named[1], row) || name === text(named[2], row))) continue;
    found.push(row);
  }
  return found.sort((a, b) => total.values[b] - total.values[a]);
}

/* The command that prints the exchanges that began within [from, to]; "": there is none. */
function commandOf(from, to, more = "") {
  const { command: line, place, conditions, names } = data.picture;
  if (!line) return "";
  const parts = [`time >= ${isoTime(from)} and time < ${isoTime(to)}`];
  if (more) parts.push(more);
  for (const [kind, chosen] of chosenNames.entries()) {
    if (chosen === null) continue;
    const condition = conditions[kind][names[kind].indexOf(chosen)];
    if (!condition) return "";
    parts.push(condition);
  }
  return line.replace(place, () => parts.join(" and "));
}

/* A list of exchanges, of which each opens into its waterfall and packets. */
function listed(rows) {
  const table = tables.get("slowest");
  const list = make("ul", { className: "exchanges" });
  rows.slice(0, LISTED).forEach((row, n) => {
    const at = (name) => textOf(table, name, row);
    const summary = make("summary", {}, make("b", { textContent: at("total_ns") }),
      ` ${at("api")} of ${at("client_id")} to ${at("broker")}, ${at("start")}`);
    const details = make("details", { open: !n }, summary);
    const fill = () => { if (details.children.length === 1) details.append(...drawings(table, row)); };
    details.ontoggle = fill;
    if (!n) fill();
    list.append(make("li", {}, details));
  });
  if (rows.length > LISTED) list.append(make("li", { className: "count", textContent: `${plural(rows.length - LISTED, "more exchange")} in Slowest exchanges` }));
  return list;
}

function panel(title, ...children) {
  const box = document.getElementById("exchanges");
  const close = make("button", { type: "button", textContent: "Close" });
  close.onclick = () => { box.hidden = true; };
  box.replaceChildren(make("div", { className: "head" }, make("h3", { textContent: title }), close), ...children);
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
}

function showSlot(number, slot, level) {
  const { start, interval, edges } = data.picture;
  const from = start + number * interval, to = from + interval;
  const least = level === null ? 0 : edges[level];
  const count = level === null ? sum(slot.requests) : slot.levels.get(level);
  const rows = exchangesWithin(from, to, [], least);
  const line = commandOf(from, to, level === null ? "" : `broker_time >= ${duration(least).replace(" ", "").replace("µs", "us")}`);
  panel(`${clock(from)} to ${clock(to)}: ${plural(count, level === null ? "request" : "exchange")}${level === null ? "" : `, broker time ${duration(least)} to ${duration(edges[level + 1])}`}`,
    ...(line ? [command(line)] : []),
    ...(rows.length ? [listed(rows)] : [make("p", { className: "count", textContent: "None of them is among the slowest exchanges of its API, which this page has." })]));
}

/* The exchanges of this page that show a finding. */
function exchangesOf(n) {
  const mark = data.marks.find((each) => each.n === n);
  if (!mark || !(data.whom[n].length || mark.end)) return [];
  return exchangesWithin(mark.begin, mark.end ?? mark.begin, data.whom[n]);
}

/* What shows a finding: these exchanges, and the packets around the first one that shows it. */
function shownBy(n) {
  const rows = exchangesOf(n), sequence = data.sequences[data.packets[n]];
  return [...(rows.length ? [listed(rows)] : []), ...(sequence ? [sequenceOf(sequence, data.packets[n])] : [])];
}

function showFinding(n) {
  const item = document.querySelector(`[data-finding="${n}"]`);
  const mark = data.marks.find((each) => each.n === n);
  const jump = make("a", { href: "#findings", textContent: "All findings" });
  panel(`${n + 1} ${mark.label}`, make("p", { textContent: item.querySelector("p").textContent }),
    ...[...item.querySelectorAll(".command code")].map((code) => command(code.dataset.whole ?? code.textContent)), ...shownBy(n), jump);
}

for (const item of document.querySelectorAll("[data-finding]")) {
  const n = Number(item.dataset.finding);
  if (data.picture && data.marks.some((mark) => mark.n === n)) item.querySelector(".label").prepend(make("span", { className: "number", textContent: n + 1 }));
  if (!data.picture || !(data.sequences[data.packets[n]] || exchangesOf(n).length)) continue;
  const details = make("details", { className: "shown-by" }, make("summary", { textContent: "Exchanges and packets" }));
  details.ontoggle = () => { if (details.children.length === 1) details.append(...shownBy(n)); };
  item.lastElementChild.append(details);
}

if (data.picture) {
  document.getElementById("picture").hidden = false;
  const tools = document.getElementById("chosen");
  KINDS.forEach((kind, n) => {
    const all = make("option", { value: "", textContent: `all ${kind}s` });
    const names = data.picture.names[n];
    const select = make("select", {}, all, ...names.map((name) => make("option", { value: "=" + name, textContent: name })));
    select.setAttribute("aria-label", kind);
    select.hidden = names.length < 2;
    select.onchange = () => {
      chosenNames[n] = select.value ? select.value.slice(1) : null;
      tools.querySelector("button").hidden = chosenNames.every((name) => name === null);
      document.body.classList.toggle("is-part", chosenNames.some((name) => name !== null));
      drawPicture();
      shown.forEach((table) => table.draw());
    };
    tools.append(select);
  });
  const reset = make("button", { type: "button", textContent: "Show all", hidden: true });
  reset.onclick = () => {
    tools.querySelectorAll("select").forEach((select) => {
      select.value = "";
      select.onchange();
    });
  };
  const legend = make("span", { className: "legend" });
  for (const [name, label] of [["b-produce", "Produce"], ["b-fetch", "Fetch"], ["b-other", "others"], ["b-failed", "error code"],
    ["b-unanswered", "no response"], ["b-throttled", "throttled"], ["l-median", "median"], ["l-p99", "99th percentile"]]) {
    legend.append(make("span", {}, make("i", { className: name }), label));
  }
  legend.append(make("span", { textContent: `${step(data.picture.interval)} each; broker time without waits for data and members` }));
  tools.append(reset, legend);
  drawPicture();
  new ResizeObserver(() => {
    const wide = picture.querySelector(".scroll").clientWidth;
    if (wide && Math.abs(wide - Number(picture.dataset.width || 0)) > 1) {
      picture.dataset.width = wide;
      drawPicture();
    }
  }).observe(picture.querySelector(".scroll"));
}
