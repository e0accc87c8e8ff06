"use strict";
/* Tables, the switch of the theme, copy buttons and tooltips. Cells are made with textContent only. */
/* Rows that a table shows at first, and then at a time. Longer tables are never drawn whole by one click. */
const FIRST = 20, STEP = 200, AT_ONCE = 1000;
const MOST_RANK = 3;
const NOTHING = "No row has all of these words. The filter compares texts, not numbers: click a heading to sort by value.";
const data = JSON.parse(document.getElementById("data").textContent);
const tables = new Map(data.tables.map((table) => [table.name, table]));
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

const grouped = new Intl.NumberFormat("en-US");

function text(column, row) {
  if (column.texts) return column.texts[row];
  const value = column.values[row];
  return value === null ? "-" : column.kind === "packet" ? String(value) : grouped.format(value);
}

function isNone(column, row) {
  return column.values ? column.values[row] === null : column.texts[row] === "-";
}

/* Cells */

function words(shown) {
  const parts = [...shown.matchAll(/([A-Za-z-]+) (\d+) %/g)];
  if (!parts.length) {
    return /^[a-z-]{3,}$/.test(shown) ? [make("span", { className: "dot w-" + shown }), shown] : [shown];
  }
  const bar = make("span", { className: "bar" });
  for (const [, word, share] of parts) {
    const part = make("i", { className: "w-" + word.toLowerCase() });
    part.style.width = share + "%";
    bar.append(part);
  }
  return [bar, shown];
}

function classOf(column, row) {
  const found = [];
  const value = column.values ? column.values[row] : undefined;
  if (column.right) found.push("right");
  else found.push(column.sentence ? "sentence" : "text");
  if (isNone(column, row)) found.push("none");
  else if (value === 0 && column.kind !== "packet" && column.kind !== "time") found.push("zero");
  else if (column.bad) found.push(column.bad);
  if (column.name === "broker_p99_ns" || column.name === "total_p99_ns") found.push("strong");
  return found.join(" ");
}

function cell(column, row) {
  const shown = text(column, row);
  const td = make("td", { className: classOf(column, row) });
  if (column.words) {
    td.append(...words(shown));
    if (td.querySelector(".bar")) td.classList.add("words");
  } else if (column.sentence) td.append(make("span", { textContent: shown }));
  else td.textContent = shown;
  if (!column.right && shown.length > 24) td.title = shown;
  return td;
}

function command(line) {
  const code = make("code", { textContent: within(line) });
  code.dataset.whole = line;
  return make("div", { className: "command" }, code,
    make("button", { type: "button", className: "copy", textContent: "Copy" }));
}

/* The chosen span of time, in ms since the epoch; null: all of the capture. */
let span = null;

const MOMENTS = ["time", "start"];

function timeColumn(data, name) {
  return data.columns.find((column) => column.kind === "time" && column.name === name);
}

/* The time of a row, in ms since the epoch; null: none. */
function timeOfRow(column, row) {
  const value = column ? column.values[row] : null;
  return value === null ? null : column.start + value / 1e6;
}

function isoTime(ms) {
  const micros = Math.round(ms * 1000);
  return new Date(Math.floor(micros / 1000)).toISOString().replace("Z", `${String(micros % 1000).padStart(3, "0")}Z`);
}

/* A command with the span, unless it has one. */
function within(line) {
  if (!span || / --from[ =]/.test(line)) return line;
  return line.replace(/^kafkatap \S+/, (start) => `${start} --from ${isoTime(span[0])} --to ${isoTime(span[1])}`);
}

/* The chosen API, client and broker: the columns of tables that name them, and the names; null: all of them. */
const NAMED = ["api", "client_id", "broker"];
const chosenNames = [null, null, null];
const OTHERS = "(other)";

/* Whether a name is the chosen one. */
function isChosen(kind, name) {
  const chosen = chosenNames[kind];
  if (chosen === null) return true;
  const plain = kind ? name : name.replace(" (long poll)", "");
  return chosen === OTHERS ? !data.picture.names[kind].includes(plain) || plain === OTHERS : plain === chosen;
}

/* The text of a row in a column by name; undefined without such a column. */
function textOf(table, name, row) {
  const column = table.columns.find((each) => each.name === name);
  return column && text(column, row);
}

/* Tables */

class Table {
  constructor(box) {
    this.box = box;
    this.data = tables.get(box.dataset.table);
    this.order = [...Array(this.data.rows).keys()];
    this.sorted = null;
    this.descending = false;
    this.all = false;
    this.limit = this.data.rows <= FIRST * 1.25 ? this.data.rows : FIRST;
    this.filter = "";
    this.fitting = [];
    this.opened = new Set();
    this.begins = MOMENTS.map((name) => timeColumn(this.data, name)).find(Boolean);
    this.ends = timeColumn(this.data, "end");
    this.isTimed = Boolean(this.begins);
    this.named = NAMED.map((name) => this.data.columns.find((column) => column.name === name));
    this.build();
    this.fit();
  }

  get columns() {
    return this.all ? this.data.columns : this.fitting;
  }

  /* Hide columns of detail, those of the highest rank and on the right first, until the table fits the page. */
  fit() {
    if (this.all || this.fitted === innerWidth) return;
    this.fitted = innerWidth;
    this.box.dataset.width = innerWidth;
    this.fitting = this.data.columns.filter((column) => column.rank <= MOST_RANK);
    this.draw();
    const widths = new Map([...this.head.querySelectorAll("th")].map((th, n) => [this.fitting[n], th.offsetWidth]));
    let over = this.scroll.scrollWidth - this.scroll.clientWidth - 1;
    const details = this.fitting.filter((column) => column.rank > 0).sort((a, b) => a.rank - b.rank);
    while (over > 0 && details.length) over -= widths.get(details.pop());
    const shown = new Set(details);
    this.fitting = this.fitting.filter((column) => column.rank === 0 || shown.has(column));
    if (this.fitting.length < widths.size) this.draw();
    const hidden = this.data.columns.length - this.columns.length;
    this.detail_columns.hidden = !hidden;
    this.detail_columns.textContent = hidden === 1 ? "1 more column" : `${hidden} more columns`;
  }

  build() {
    const title = this.box.closest("section").querySelector("h3").textContent;
    this.search = make("input", { type: "search", placeholder: "Filter by text", spellcheck: false });
    this.search.setAttribute("aria-label", "Filter: " + title);
    this.count = make("span", { className: "count" });
    this.count.setAttribute("aria-live", "polite");
    this.sums = make("span", { className: "sums", textContent: "sums of the whole capture", hidden: true });
    const tools = make("div", { className: "tools" }, this.search, this.count, this.sums);
    const button = this.detail_columns = make("button", { type: "button" });
    button.setAttribute("aria-pressed", "false");
    button.onclick = () => {
      this.all = !this.all;
      button.setAttribute("aria-pressed", String(this.all));
      this.draw();
    };
    tools.append(button);
    if (this.data.rows < 6) this.search.hidden = true;
    this.head = make("thead");
    this.body = make("tbody");
    const table = make("table", {}, this.head, this.body);
    table.setAttribute("aria-label", title);
    this.scroll = make("div", { className: "scroll", tabIndex: 0 }, table);
    this.scroll.setAttribute("role", "group");
    this.scroll.setAttribute("aria-label", title);
    this.more = make("div", { className: "more" });
    this.box.append(tools, this.scroll, this.more);
    let waiting = 0;
    this.search.oninput = () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        this.filter = this.search.value.trim().toLowerCase();
        this.limit = FIRST;
        this.draw();
      }, this.data.rows > 2000 ? 120 : 0);
    };
    this.body.onclick = (event) => this.clicked(event);
    this.scroll.addEventListener("scroll", () => {
      const box = this.scroll;
      const isNear = box.scrollTop > 0 && box.scrollTop + box.clientHeight > box.scrollHeight - 800;
      if (isNear && this.drawn > FIRST && this.drawn < this.rows.length) this.extend(this.drawn + STEP);
    }, { passive: true });
  }

  /* Whether a row lies in the span; one with an end too, if a part of it does. */
  isInSpan(row) {
    const begin = timeOfRow(this.begins, row);
    return begin === null || (begin < span[1] && (timeOfRow(this.ends, row) ?? begin) >= span[0]);
  }

  /* The rows that match the filter and the span, in order. */
  found() {
    let order = span && this.isTimed ? this.order.filter((row) => this.isInSpan(row)) : this.order;
    this.named.forEach((column, kind) => {
      if (column && chosenNames[kind] !== null) order = order.filter((row) => isChosen(kind, text(column, row)));
    });
    if (!this.filter) return order;
    if (!this.haystack) {
      const columns = this.data.columns;
      this.haystack = [...Array(this.data.rows).keys()].map((row) =>
        columns.map((column) => text(column, row)).join("\n").toLowerCase());
    }
    const wanted = this.filter.split(/\s+/);
    return order.filter((row) => wanted.every((word) => this.haystack[row].includes(word)));
  }

  sortBy(column) {
    const numbers = Boolean(column.values);
    if (this.sorted !== column) [this.sorted, this.descending] = [column, numbers];
    else if (this.descending === numbers) this.descending = !numbers;
    else this.sorted = null;
    this.order = [...Array(this.data.rows).keys()];
    if (this.sorted) {
      const sign = this.descending ? -1 : 1;
      const values = column.values || column.texts;
      this.order.sort((a, b) => {
        const noA = isNone(column, a), noB = isNone(column, b);
        if (noA || noB) return noA - noB || a - b;
        const less = numbers ? values[a] - values[b] : collator.compare(values[a], values[b]);
        return sign * less || a - b;
      });
    }
    this.draw();
  }

  draw() {
    const columns = this.columns;
    const focused = this.head.contains(document.activeElement) ? document.activeElement.dataset.column : null;
    this.head.replaceChildren(make("tr", {}, ...columns.map((column, n) => this.heading(column, n))));
    if (focused !== null) this.head.querySelector(`[data-column="${CSS.escape(focused)}"]`)?.focus();
    this.rows = this.found();
    this.body.replaceChildren();
    this.drawn = 0;
    this.extend(this.limit);
    const total = this.data.rows;
    const isSummed = chosenNames.some((name, kind) => name !== null && !this.named[kind]);
    this.sums.hidden = !(isSummed || (span && !this.isTimed));
    this.sums.textContent = `sums of ${span && !this.isTimed ? "the whole capture" : ""}${span && !this.isTimed && isSummed ? ", and of " : ""}${isSummed ? "more than is chosen" : ""}`;
    this.count.textContent = this.rows.length < total ? `${grouped.format(this.rows.length)} of ${grouped.format(total)} rows`
      : `${grouped.format(total)} ${total === 1 ? "row" : "rows"}`;
  }

  heading(column, n) {
    const button = make("button", { type: "button", textContent: column.title, title: column.note });
    button.dataset.column = column.name;
    button.onclick = () => this.sortBy(column);
    const th = make("th", { scope: "col", className: (n ? "" : "first ") + (column.right ? "right" : "") }, button);
    if (this.sorted === column) th.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
    return th;
  }

  /* Draw rows until `limit` of them are there. */
  extend(limit) {
    const columns = this.columns;
    const made = document.createDocumentFragment();
    const until = Math.min(limit, this.rows.length);
    for (; this.drawn < until; this.drawn++) {
      const row = this.rows[this.drawn];
      const tr = this.row(columns, row);
      made.append(tr);
      if (this.opened.has(row)) this.open(tr, row);
    }
    this.body.append(made);
    this.limit = Math.max(limit, FIRST);
    const left = this.rows.length - this.drawn;
    this.more.replaceChildren();
    if (!this.rows.length) this.more.append(NOTHING);
    if (!left) return;
    const button = (label, to) => {
      const made = make("button", { type: "button", textContent: label });
      made.onclick = () => this.extend(to);
      return made;
    };
    if (left > STEP) this.more.append(button(`Show ${STEP} more`, this.drawn + STEP));
    if (this.rows.length <= AT_ONCE) this.more.append(button(`Show all ${grouped.format(this.rows.length)}`, this.rows.length));
    else if (this.drawn > FIRST) this.more.append(`${grouped.format(this.drawn)} shown; scroll the table for more`);
  }

  row(columns, row) {
    const tr = make("tr", { className: "row" });
    tr.dataset.row = row;
    columns.forEach((column, n) => {
      const td = cell(column, row);
      if (!n) {
        const button = make("button", { type: "button", className: "more-of" });
        button.setAttribute("aria-expanded", "false");
        button.setAttribute("aria-label", "All values of " + text(column, row));
        const span = make("span", {}, ...td.childNodes);
        td.replaceChildren(make("div", { className: "cell" }, button, span));
        td.classList.remove("text", "sentence");
        td.classList.add("first");
      }
      tr.append(td);
    });
    return tr;
  }

  clicked(event) {
    const tr = event.target.closest("tr.row");
    if (!tr || String(getSelection()).length) return;
    const row = Number(tr.dataset.row);
    if (!this.opened.delete(row)) {
      this.opened.add(row);
      this.open(tr, row);
      return;
    }
    tr.classList.remove("open");
    tr.querySelector(".more-of").setAttribute("aria-expanded", "false");
    tr.nextElementSibling.remove();
  }

  open(tr, row) {
    tr.classList.add("open");
    tr.querySelector(".more-of").setAttribute("aria-expanded", "true");
    tr.after(this.detail(row, tr.children.length));
  }

  detail(row, width) {
    const inside = make("div", { className: "inside" });
    for (const line of (this.data.commands || {})[row] || []) inside.append(command(line));
    const list = make("dl");
    for (const column of this.data.columns) {
      list.append(make("div", {}, make("dt", { textContent: column.title, title: column.note }),
        make("dd", { textContent: text(column, row), className: classOf(column, row).replace(/right|text|sentence/, "") })));
    }
    inside.append(...drawings(this.data, row), list);
    return make("tr", { className: "detail" }, make("td", { colSpan: width }, inside));
  }
}

const shown = [...document.querySelectorAll("[data-table]")].map((box) => new Table(box));
let resized = 0;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => {
    shown.forEach((table) => table.fit());
    charts.forEach((chart) => shade(chart, span));
  }, 150);
});

/* A span of time: dragged over a chart, or typed as seconds after the first packet. */

const picture = document.querySelector("#picture figure");
const charts = [...document.querySelectorAll("figure[data-span]"), ...(picture ? [picture] : [])];
const chooser = document.getElementById("span");
const [fromInput, toInput] = chooser ? chooser.querySelectorAll("input") : [];

function choose(chosen) {
  span = chosen;
  const [begin, end] = JSON.parse(chooser.dataset.span);
  fromInput.value = span ? ((span[0] - begin) / 1000).toFixed(3) : "";
  toInput.value = span ? ((span[1] - begin) / 1000).toFixed(3) : "";
  fromInput.placeholder = "0";
  toInput.placeholder = fromInput.max = toInput.max = ((end - begin) / 1000).toFixed(3);
  chooser.classList.toggle("chosen", Boolean(span));
  chooser.querySelector(".say").textContent = span ? `${isoTime(span[0])} to ${isoTime(span[1])}: charts, rows with a time, commands` : "";
  chooser.querySelector("button").hidden = !span;
  for (const chart of charts) shade(chart, span);
  for (const code of document.querySelectorAll(".command code")) {
    code.dataset.whole ??= code.textContent;
    code.textContent = within(code.dataset.whole);
  }
  shown.forEach((table) => table.draw());
}

/* Cover what is outside of a span. */
function shade(chart, chosen) {
  const scroll = chart.querySelector(".scroll"), svg = chart.querySelector("svg");
  if (!svg) return;
  scroll.querySelectorAll(".outside").forEach((each) => each.remove());
  if (!chosen) return;
  const [begin, end, left, right] = JSON.parse(chart.dataset.span);
  const place = (ms) => Math.min(Math.max((ms - begin) / (end - begin), 0), 1) * (right - left) + left;
  const width = svg.getBoundingClientRect().width;
  for (const [from, to] of [[left, place(chosen[0])], [place(chosen[1]), right]]) {
    const cover = make("div", { className: "outside" });
    cover.style.left = from * width + "px";
    cover.style.width = Math.max(to - from, 0) * width + "px";
    scroll.append(cover);
  }
}

/* Let a span be dragged over a chart. `clicked`: called with the event of a click without dragging. */
function choosable(chart, clicked = () => {}) {
  const svg = chart.querySelector("svg");
  const timeOf = (event) => {
    const [begin, end, left, right] = JSON.parse(chart.dataset.span);
    const box = svg.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width - left) / (right - left);
    return begin + Math.min(Math.max(share, 0), 1) * (end - begin);
  };
  let from = null;
  svg.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType === "touch" || event.target.closest("[role=button]")) return;
    from = [timeOf(event), event.clientX];
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (from !== null) shade(chart, [from[0], timeOf(event)].sort((a, b) => a - b));
  });
  svg.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const chosen = [from[0], timeOf(event)].sort((a, b) => a - b);
    if (Math.abs(event.clientX - from[1]) > 4) choose(chosen);
    else {
      shade(chart, span);
      clicked(event);
    }
    from = null;
  });
}

for (const chart of chooser ? charts : []) if (chart !== picture) choosable(chart);
if (chooser) {
  const [begin, end] = JSON.parse(chooser.dataset.span);
  chooser.hidden = false;
  chooser.querySelector("button").onclick = () => choose(null);
  chooser.onchange = () => {
    const typed = [fromInput, toInput].map((input, n) => {
      return input.value === "" ? [begin, end][n] : begin + 1000 * Number(input.value);
    });
    if (typed[0] < typed[1]) choose(typed);
  };
  choose(null);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && span) choose(null);
  });
}

/* Copy buttons */

const said = document.getElementById("said");

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  let done = false;
  try {
    await navigator.clipboard.writeText(code.textContent);
    done = true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    done = document.execCommand("copy");
  }
  button.textContent = done ? "Copied" : "Selected";
  said.textContent = button.textContent;
  setTimeout(() => { button.textContent = "Copy"; said.textContent = ""; }, 1500);
}

document.addEventListener("click", (event) => {
  if (event.target.classList.contains("copy")) copy(event.target);
});

/* Theme */

const root = document.documentElement, theme = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
function remembered(value) {
  try {
    if (value) localStorage.setItem("kafkatap-theme", value);
    return localStorage.getItem("kafkatap-theme");
  } catch {
    return null;
  }
}
if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
theme.hidden = false;
theme.onclick = () => {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
  root.dataset.theme = isDark ? "light" : "dark";
  remembered(root.dataset.theme);
};

/* Tooltips of charts: the texts of <title>, at once and also for fingers. */

const tip = document.getElementById("tip");
for (const title of document.querySelectorAll(".chart svg title")) {
  title.parentElement.dataset.tip = title.textContent;
  title.parentElement.setAttribute("aria-label", title.textContent);
  title.remove();
}
function point(event) {
  const target = event.target.closest ? event.target.closest("[data-tip]") : null;
  tip.hidden = !target;
  if (!target) return;
  tip.textContent = target.dataset.tip;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 12, innerWidth - box.width - 8);
  const y = event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16;
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = y + "px";
}
document.addEventListener("pointermove", point);
document.addEventListener("pointerdown", point);
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true, capture: true });

/* The place in the navigation */

const links = new Map([...document.querySelectorAll("nav li a:not(.group)")].map((a) => [a.hash.slice(1), a]));
const seen = new Set();
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target.id);
  const here = [...links.keys()].find((id) => seen.has(id));
  for (const [id, a] of links) a.classList.toggle("here", id === here);
  const place = here && links.get(here).closest("ul");
  for (const group of document.querySelectorAll("nav a.group")) {
    group.parentElement.classList.toggle("open", Boolean(place) && group.parentElement.contains(place));
  }
}, { rootMargin: "-10% 0px -60% 0px" });
for (const id of links.keys()) observer.observe(document.getElementById(id));
