/* One exchange as a waterfall of its time, and the packets of one connection as a sequence. */

/* The parts of an exchange in the table of the slowest ones: name, colour, and what it is. */
const PARTS = [
  ["HOL wait", "hol", "hol_wait_ns"], ["broker", "broker", "broker_ns"], ["waiting", "waiting", "waiting_ns"],
  ["throttle", "throttle", "throttle_wait_ns"],
];
const OF_TRANSFERS = ["loss", "receiver", "sender", "path", "unexplained"];

function numberOf(table, name, row) {
  const column = table.columns.find((each) => each.name === name);
  return column && column.values ? column.values[row] ?? 0 : 0;
}

/* The waterfall of a row of the table, and its packets, where the page has them. */
function drawings(table, row) {
  if (table.name !== "slowest" && table.name !== "first_errors") return [];
  const packet = numberOf(table, "packet", row), sequence = data.sequences[packet];
  const found = table.name === "slowest" ? [waterfall(table, row, sequence)] : [];
  if (sequence) found.push(sequenceOf(sequence, packet, numberOf(table, "response_packet", row)));
  return found;
}

function waterfall(table, row, sequence) {
  const total = Math.max(numberOf(table, "total_ns", row), 1);
  const request = numberOf(table, "request_transfer_ns", row), response = numberOf(table, "response_transfer_ns", row);
  const box = make("div", { className: "waterfall" });
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `Where ${duration(total)} went`);
  function line(name, color, from, length, note = "") {
    const track = make("div", { className: "track" });
    const bar = make("i", { className: color });
    bar.style.left = Math.min(Math.max(from / total, 0), 1) * 100 + "%";
    bar.style.width = Math.max(Math.min(length / total, 1 - from / total), 0) * 100 + "%";
    track.append(bar);
    box.append(make("span", { textContent: name }), track, make("span", { className: "right", textContent: note || duration(length) }));
    return track;
  }
  line("request", "w-network", 0, request);
  const lengths = PARTS.map(([, , column]) => numberOf(table, column, row) - (column === "broker_ns" ? numberOf(table, "waiting_ns", row) : 0));
  const transfers = OF_TRANSFERS.map((name) => [name, numberOf(table, `${name}_ns`, row)]).filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
  const rest = total - request - response - lengths.reduce((all, length) => all + Math.max(length, 0), 0);
  let at = request;
  if (rest > total / 200) {
    line(transfers.length ? transfers[0][0] : "unexplained", "w-network", at, rest);
    at += rest;
  }
  PARTS.forEach(([name, color], n) => {
    if (lengths[n] <= 0) return;
    line(name, "w-" + color, at, lengths[n]);
    at += lengths[n];
  });
  line("response", "w-network", total - response, response);
  if (sequence) {
    const start = timeOfRow(timeColumn(table, "start"), row);
    const track = line("packets", "", 0, 0, "in time");
    for (const packet of sequence.rows) {
      const place = (sequence.start - start + packet[1] / 1e6) * 1e6 / total;
      if (packet.length < 8 || place < 0 || place > 1.0001) continue;
      const tick = make("b", { className: packet[7] ? "w-bad" : packet[2] ? "w-client" : "w-broker" });
      tick.style.left = Math.min(place, 1) * 100 + "%";
      track.append(tick);
    }
  }
  if (transfers.length) {
    box.append(make("p", { textContent: `On the way: ${transfers.map(([name, ns]) => `${name} ${duration(ns)}`).join(", ")}` }));
  }
  return box;
}

/* The sequence of packets. `packet`, `response`: numbers of those that it is of. */
function sequenceOf(sequence, packet, response = 0) {
  const figure = make("figure", { className: "sequence" });
  const caption = make("figcaption", {}, `Packets of ${sequence.client} and ${sequence.broker}, ms from packet ${packet}`);
  const scroll = make("div", { className: "scroll", tabIndex: 0 });
  figure.append(caption, scroll);
  const width = Math.min(Math.max(innerWidth - 84, 300), 560), client = 84, broker = width - 16;
  const origin = (sequence.rows.find((row) => row[0] === packet && row.length > 3) || [0, 0])[1];
  const svg = draw("svg", { role: "img", "aria-label": caption.textContent });
  let y = 24, before = null;
  const write = (x, at, text, anchor, name) => svg.append(draw("text", { x, y: at, "text-anchor": anchor, class: name }, text));
  write(client, 12, "client", "middle", "end");
  write(broker, 12, "broker", "end", "end");
  const lines = draw("path", { class: "life" });
  svg.append(lines);
  for (const row of sequence.rows) {
    if (row.length === 3) {
      write((client + broker) / 2, y + 10, `${plural(row[0], "packet")} more: ${size(row[1])} from the client, ${size(row[2])} from the broker`, "middle", "more-rows");
      y += 18;
      continue;
    }
    const [number, time, fromClient, seq, length, ack, flags, note] = row;
    if (before !== null && time - before >= 1e8) {
      write((client + broker) / 2, y + 8, `${duration(time - before)} without a packet`, "middle", "pause");
      y += 18;
    }
    before = time;
    const [from, to] = fromClient ? [client, broker] : [broker, client];
    const tip = fromClient ? -6 : 6;
    const kind = note ? "bad" : fromClient ? "client" : "broker";
    write(client - 14, y + 12, ((time - origin) / 1e6).toFixed(3), "end", number === packet || number === response ? "time of" : "time");
    const what = [`${number}:`, flags, length ? `${grouped.format(length)} B` : flags ? "" : "ACK", note].filter(Boolean).join(" ");
    write((client + broker) / 2, y + 10, what, "middle", note ? "bad" : number === packet || number === response ? "of" : "");
    const arrow = draw("path", { d: `M${from} ${y + 14}L${to} ${y + 18}m${tip} -4l${-tip} 4l${tip} 3`, class: "arrow a-" + kind });
    arrow.dataset.tip = `packet ${number}: ${fromClient ? "client" : "broker"}, seq ${grouped.format(seq)}${ack === null ? "" : `, ack ${grouped.format(ack)}`}, ${grouped.format(length)} B${flags ? `, ${flags}` : ""}${note ? `\n${note}` : ""}`;
    svg.append(arrow);
    y += 24;
  }
  lines.setAttribute("d", `M${client} 18V${y}M${broker} 18V${y}`);
  svg.setAttribute("viewBox", `0 0 ${width} ${y + 4}`);
  scroll.append(svg);
  return figure;
}
