"use strict";
(() => {
  const R = JSON.parse(document.getElementById("report").textContent);
  const app = document.getElementById("app");
  const NS = "http://www.w3.org/2000/svg";
  const FAMILIES = [["matrix", "matrix product"], ["attention", "attention"], ["norm", "normalisation"],
    ["elementwise", "element-wise"], ["movement", "data movement"]];

  // Every text of the report reaches the page as a text node or an attribute value, never as markup.
  const fill = (node, props, kids) => {
    for (const [key, value] of Object.entries(props || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value === true ? "" : value);
    }
    for (const kid of kids.flat(9)) if (kid !== null && kid !== undefined && kid !== false) node.append(kid);
    return node;
  };
  const el = (tag, props, ...kids) => fill(document.createElement(tag), props, kids);
  const sv = (tag, props, ...kids) => fill(document.createElementNS(NS, tag), props, kids);

  const bytes = (n) => {
    if (n < 1024) return n + " B";
    const units = ["KiB", "MiB", "GiB", "TiB"];
    let unit = -1;
    while (n >= 1024 && unit < 3) { n /= 1024; unit++; }
    return n.toFixed(n < 9.95 ? 2 : n < 99.5 ? 1 : 0) + " " + units[unit];
  };
  const time = (ns) => {
    if (ns === undefined) return "–";
    if (ns < 999.5) return Math.round(ns) + " ns";
    const units = ["µs", "ms", "s"];
    let unit = -1;
    while (ns >= 999.5 && unit < 2) { ns /= 1000; unit++; }
    return ns.toFixed(ns < 9.995 ? 2 : ns < 99.95 ? 1 : 0) + " " + units[unit];
  };
  const flops = (n) => n >= 1e9 ? (n / 1e9).toFixed(2) + " GFLOP" : n >= 1e6 ? (n / 1e6).toFixed(2) + " MFLOP"
    : n >= 1e3 ? (n / 1e3).toFixed(1) + " kFLOP" : n + " FLOP";
  const shape = (t) => t.dtype + " [" + t.shape.join(", ") + "]";
  const many = (n, word, plural) => n + " " + (n === 1 ? word : plural || word + "s");
  const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
  const deviceName = (at) => at === null || at === undefined || !R.devices[at] ? "–" : R.devices[at].name;
  const path = (op) => op.group.concat(op.label).join(" › ");
  const breakable = (ops) => ops.split("+").join("+\u200b");
  // The end of a path, for places where its beginning is known or long.
  const brief = (op) => op.group.slice(-1).concat(op.label).join(" › ");
  const copyName = (c) => c.operation === undefined ? c.tensor : brief(G.operations[c.operation]);

  // ── Overview of the devices ──
  const swatch = (color) => el("i", { class: "swatch", style: "background:" + color });
  const memoryName = (memory) => memory.devices.length > 0 ? memory.devices.map(deviceName).join(", ") : memory.name;
  const deviceCard = (memory) => {
    const devices = memory.devices.map((at) => R.devices[at]);
    const title = memoryName(memory);
    const about = devices.map((d) => d.description).concat("memory: " + memory.name).join(" · ");
    const whole = Math.max(memory.limit_bytes || 0, memory.peak_bytes, 1);
    const parts = [["weights", memory.weights_bytes], ["state", memory.state_bytes], ["compute", memory.compute_bytes]];
    const percent = (n) => (100 * n / whole).toFixed(3) + "%";
    const limit = memory.limit_bytes === undefined ? "" : " of " + bytes(memory.limit_bytes);
    return el("div", { class: "card device" },
      el("div", { class: "head" }, el("b", {}, title),
        devices.map((d) => el("span", { class: "tag" }, d.kind)),
        el("span", { class: "of num" }, el("b", {}, bytes(memory.peak_bytes)), el("span", { class: "soft" }, limit))),
      el("div", { class: "what", title: about }, about),
      el("div", { class: "bar", role: "img", "aria-label": bytes(memory.peak_bytes) + limit },
        parts.filter(([, n]) => n > 0).map(([name, n]) => el("i", { style: "width:" + percent(n) + ";background:var(--" + name + ")" })),
        memory.over_bytes > 0 ? el("span", { class: "limit", style: "width:" + percent(memory.over_bytes) }) : null),
      el("div", { class: "keys" },
        parts.map(([name, n]) => el("span", { class: "num" }, swatch("var(--" + name + ")"), name + " ", el("b", {}, bytes(n)))),
        memory.over_bytes > 0 ? el("span", { class: "over num" }, "over by " + bytes(memory.over_bytes)) : null));
  };

  // ── State of the page ──
  const S = { graph: 0, mode: "order", view: [0, 1], op: null, split: null, query: "", hits: [], at: 0 };
  let G = null;
  let L = null;

  // Positions along the horizontal axis: predicted time, or the order of execution.
  const lay = (g, mode) => {
    const xs = new Array(g.operations.length);
    const splits = [];
    let end = 0;
    g.splits.forEach((s, i) => {
      const timed = mode === "time" && s.predicted;
      const ops = g.operations.slice(s.first_operation, s.first_operation + s.operations);
      const start = timed ? s.predicted.start_ns : end;
      const known = ops.reduce((sum, op) => sum + (op.predicted_ns || 0), 0);
      // What a split costs in itself comes before its operations.
      let x = start + (timed ? Math.max(s.predicted.compute_ns - known, 0) : s.copies.length > 0 ? 1.6 : i > 0 ? 0.4 : 0);
      const ready = timed ? start : x;
      ops.forEach((op, k) => {
        const w = timed ? op.predicted_ns || 0 : 1;
        xs[s.first_operation + k] = [x, x + w];
        x += w;
      });
      splits.push([start, ready, timed ? s.predicted.end_ns : x]);
      end = Math.max(end, splits[i][2]);
    });
    if (mode === "time") g.copies.forEach((c) => { if (c.predicted) end = Math.max(end, c.predicted.end_ns); });
    const depth = Math.min(3, g.operations.reduce((most, op) => Math.max(most, op.group.length), 0));
    const bands = [];
    for (let level = 0; level < depth; level++) {
      let open = null;
      g.operations.forEach((op, i) => {
        const key = op.group.length > level ? JSON.stringify(op.group.slice(0, level + 1)) : null;
        if (key === null) { open = null; return; }
        if (open && open.key === key) { open.x1 = Math.max(open.x1, xs[i][1]); open.last = i; return; }
        open = { key, level, name: op.group[level], full: op.group.slice(0, level + 1).join(" › "), x0: xs[i][0], x1: xs[i][1], first: i, last: i };
        bands.push(open);
      });
    }
    const readers = g.operations.map(() => []);
    g.operations.forEach((op, i) => op.sources.forEach((s) => { if (s.operation !== undefined) readers[s.operation].push(i); }));
    const used = R.devices.map((d, i) => g.operations.some((op) => op.device === i));
    return { xs, splits, bands, depth, readers, used, end: Math.max(end, 1e-9) };
  };
  const timed = () => G.splits.length > 0 && G.splits.every((s) => s.predicted);

  // ── Frame of the page ──
  const tip = el("div", { class: "tip", hidden: true });
  const say = el("div", { class: "sr", "aria-live": "polite" });
  const tabs = el("div", { class: "tabs", role: "tablist", "aria-label": "Graphs" });
  const facts = el("div", { class: "facts" });
  const count = el("output", {});
  const search = el("input", { type: "search", placeholder: "Find an operation, weight, device, reason…", "aria-label": "Find operations",
    oninput: () => { S.query = search.value; find(); draw(); list(); },
    onkeydown: (e) => {
      if (e.key === "Enter" && S.hits.length > 0) {
        if (S.op !== null && S.hits[S.at] === S.op) S.at = (S.at + (e.shiftKey ? S.hits.length - 1 : 1)) % S.hits.length;
        select(S.hits[S.at], true);
      }
      if (e.key === "Escape") { search.value = S.query = ""; find(); draw(); list(); }
    } });
  const modes = el("span", { class: "group", role: "group", "aria-label": "Width of operations" });
  const legend = el("span", { class: "legend" }, FAMILIES.map(([key, name]) => el("span", { class: key }, swatch("var(--c)"), name)));
  const plot = sv("svg", { class: "plot", tabindex: 0, role: "group" });
  const mini = sv("svg", { class: "mini-map", height: 40, "aria-hidden": "true" });
  const side = el("aside", { class: "card side", "aria-label": "Details" });
  const splitsAt = el("section", { class: "card below" });
  const listAt = el("section", { class: "card below" });
  const zoomBy = (factor) => { const [a, b] = S.view; const m = (a + b) / 2; look(m - (m - a) * factor, m + (b - m) * factor); };
  const tool = (label, name, act) => el("button", { type: "button", title: name, "aria-label": name, onclick: act }, label);
  const chart = el("div", { class: "card chart" },
    el("div", { class: "tools" }, modes, legend,
      el("span", { class: "group right" }, tool("−", "Zoom out", () => zoomBy(1.6)), tool("+", "Zoom in", () => zoomBy(1 / 1.6)), tool("Fit", "Show everything", () => look(0, L.end)))),
    mini, plot,
    el("div", { class: "hint" }, "Drag to pan, click a part to zoom to it, ", el("kbd", {}, "Ctrl"), "+wheel or ", el("kbd", {}, "+"), " ", el("kbd", {}, "−"),
      " to zoom, ", el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " to step through operations, ", el("kbd", {}, "0"), " to fit, ", el("kbd", {}, "/"), " to find."));
  const unknown = R.devices.filter((d) => !d.speed_known).map((d) => d.name);
  const over = R.memory.filter((m) => m.over_bytes > 0);
  fill(app, {}, [
    el("header", { class: "top" }, el("h1", {}, R.title),
      R.fits ? el("span", { class: "verdict good" }, "Fits")
        : el("span", { class: "verdict bad", title: R.problem }, "Does not fit" + (over.length > 0 ? ": " + over.map((m) => memoryName(m) + " is over by " + bytes(m.over_bytes)).join(", ") : "")),
      el("p", {}, "What runs where, and why, before anything is loaded. Strategy: " + R.strategy + "."),
      unknown.length > 0 ? el("p", {}, "No time is predicted: the speed of " + unknown.join(", ") + " is not known.") : null,
      R.problem ? el("p", { class: "over" }, R.problem) : null),
    el("div", { class: "devices" }, R.memory.map(deviceCard)),
    el("div", { class: "bar-row" }, tabs, el("div", { class: "search" }, search, count)),
    facts, el("div", { class: "work" }, el("div", { class: "main" }, chart, splitsAt, listAt), side), tip, say]);

  // ── Moving about ──
  const look = (a, b) => {
    const least = Math.min(L.end, S.mode === "time" ? L.end / 20000 : 3);
    let width = clamp(b - a, least, L.end);
    const middle = (a + b) / 2;
    a = clamp(middle - width / 2, 0, L.end - width);
    S.view = [a, a + width];
    draw();
  };
  const select = (at, reveal) => {
    S.op = at;
    S.split = null;
    if (at !== null) {
      const [x0, x1] = L.xs[at];
      const [a, b] = S.view;
      if (reveal) {
        const width = plot.clientWidth || 900;
        let span = b - a;
        if ((x1 - x0) / span * width < 26) span = Math.min(L.end, (x1 - x0) * width / 64);
        if (x0 < a || x1 > b || span !== b - a) look((x0 + x1) / 2 - span / 2, (x0 + x1) / 2 + span / 2);
      }
      const op = G.operations[at];
      say.textContent = path(op) + ", " + op.op + ", on " + deviceName(op.device) + ". " + op.because;
    }
    remember();
    draw();
    detail();
    list();
  };
  const remember = () => {
    const mark = "#" + encodeURIComponent(G.name) + (S.op === null ? "" : "/" + S.op);
    try { history.replaceState(null, "", mark); } catch (e) { /* some places have no history */ }
  };
  const open = (at) => {
    S.graph = at;
    G = R.graphs[at];
    S.op = S.split = null;
    S.mode = timed() ? "time" : "order";
    L = lay(G, S.mode);
    S.view = [0, L.end];
    frame();
  };
  const frame = () => {
    tabs.replaceChildren(...R.graphs.map((g, i) => el("button", { type: "button", role: "tab", "aria-selected": String(i === S.graph), tabindex: i === S.graph ? 0 : -1,
      onclick: () => { open(i); remember(); },
      onkeydown: (e) => {
        const step = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
        if (step) { open((i + step + R.graphs.length) % R.graphs.length); remember(); tabs.children[S.graph].focus(); }
      } }, g.name)));
    const fact = (value, name) => el("div", {}, el("b", {}, value), el("span", {}, name));
    facts.replaceChildren(
      ...(G.predicted_ns !== undefined ? [fact(time(G.predicted_ns), "predicted")] : []),
      fact(G.operations.length, "operations of " + G.nodes + " nodes"), fact(G.splits.length, G.splits.length === 1 ? "split" : "splits"),
      fact(G.copies.length, G.copies.length === 1 ? "copy" : "copies"), fact(bytes(G.copied_bytes), "copied"), fact(flops(G.flops), "a run"),
      el("div", { class: "purpose" }, G.purpose));
    modes.hidden = !timed();
    modes.replaceChildren(...[["order", "Order"], ["time", "Time"]].filter(([key]) => key === "order" || timed()).map(([key, name]) =>
      el("button", { type: "button", "aria-pressed": String(S.mode === key), title: key === "time" ? "Width is predicted time" : "Every operation is equally wide",
        onclick: () => { S.mode = key; L = lay(G, key); S.view = [0, L.end]; frame(); } }, name)));
    find();
    draw();
    detail();
    splits();
    list();
  };
  const find = () => {
    const words = S.query.toLowerCase().split(/\s+/).filter((w) => w !== "");
    S.hits = words.length === 0 ? [] : G.operations.map((op, i) => i).filter((i) => {
      const op = G.operations[i];
      const text = [path(op), op.name, op.op, deviceName(op.device), op.why, op.because, shape(op.result), op.sources.map((s) => s.name).join(" "),
        op.nodes.map((n) => n.name).join(" ")].join(" ").toLowerCase();
      return words.every((w) => text.includes(w));
    });
    S.at = 0;
    count.textContent = words.length === 0 ? "" : S.hits.length === 0 ? "nothing" : many(S.hits.length, "match", "matches");
  };

  // ── The chart ──
  const GUTTER = 112, AXIS = 20, BAND = 21, HEAD = 20, BOX = 82, PAD = 6, GAP = 48;
  const LANE = HEAD + BOX + PAD * 2;
  const laneHeight = (device) => L.used[device] ? LANE : 34;
  const laneTop = (device) => {
    let y = AXIS + L.depth * BAND + 10;
    for (let i = 0; i < device; i++) y += laneHeight(i) + (G.copies.length > 0 ? GAP : 10);
    return y;
  };
  const ruler = document.createElement("canvas").getContext("2d");
  const widths = new Map();
  const wide = (text, font) => {
    const key = font + text;
    if (!widths.has(key)) { ruler.font = font + " " + getComputedStyle(document.body).fontFamily; widths.set(key, ruler.measureText(text).width); }
    return widths.get(key);
  };
  const NAME = "600 11px", NOTE = "11px", SMALL = "10.5px", TINY = "600 9.5px";
  // As much of a text as fits; nothing where it would say nothing.
  const cut = (text, width, font) => {
    if (wide(text, font || NOTE) <= width) return text;
    let fits = Math.floor(text.length * width / wide(text, font || NOTE));
    while (fits > 2 && wide(text.slice(0, fits - 1) + "…", font || NOTE) > width) fits--;
    return fits < 4 ? "" : text.slice(0, fits - 1) + "…";
  };
  const niceStep = (span, ticks) => {
    const raw = span / ticks;
    const base = Math.pow(10, Math.floor(Math.log10(raw)));
    return [1, 2, 5, 10].map((m) => m * base).find((step) => step >= raw);
  };
  // A time on the axis, exact enough to tell it from its neighbours.
  const tickText = (ns, step) => {
    const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([u]) => ns >= u && step >= u / 1e4) || [1, "ns"];
    return (ns / unit).toFixed(Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9))) + " " + name;
  };
  const hover = (node, lines) => {
    node.addEventListener("pointermove", (e) => {
      if (drag) return;
      const [title, ...rest] = lines();
      tip.replaceChildren(el("b", {}, title), ...rest.map((line) => el("span", {}, line)));
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      tip.style.left = clamp(e.clientX + 14, 6, innerWidth - box.width - 6) + "px";
      tip.style.top = (e.clientY + 18 + box.height > innerHeight ? e.clientY - box.height - 12 : e.clientY + 18) + "px";
    });
    node.addEventListener("pointerleave", () => { tip.hidden = true; });
    return node;
  };

  let drag = null;
  let pending = false;
  const draw = () => {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; drawPlot(); drawMini(); });
  };

  const drawPlot = () => {
    const W = Math.max(plot.clientWidth || chart.clientWidth, 320);
    const [a, b] = S.view;
    const right = W - 10;
    const X = (u) => GUTTER + (u - a) / (b - a) * (right - GUTTER);
    const H = laneTop(R.devices.length - 1) + laneHeight(R.devices.length - 1) + 12;
    plot.setAttribute("height", H);
    plot.setAttribute("viewBox", "0 0 " + W + " " + H);
    plot.setAttribute("aria-label", "Timeline of " + G.name + ": " + many(G.operations.length, "operation") + " in " + many(G.splits.length, "split"));
    const seen = (x0, x1) => x1 >= a && x0 <= b;
    const under = sv("g", {}), mid = sv("g", { "clip-path": "url(#inside)" }), top = sv("g", { "clip-path": "url(#inside)" });
    const defs = sv("defs", {}, sv("clipPath", { id: "inside" }, sv("rect", { x: GUTTER - 1, y: 0, width: right - GUTTER + 2, height: H })));

    // Axis.
    if (S.mode === "time") {
      const step = niceStep(b - a, (right - GUTTER) / 120);
      const beside = (x, label) => x + 3 + wide(label, NOTE) < right ? { x: x + 3 } : { x: x - 3, "text-anchor": "end" };
      for (let t = Math.ceil(a / step) * step; t <= b; t += step) {
        mid.append(sv("line", { class: "tick", x1: X(t), x2: X(t), y1: AXIS - 4, y2: H - 8 }), sv("text", { class: "axis", y: 11, ...beside(X(t), tickText(t, step)) }, tickText(t, step)));
      }
    } else {
      under.append(sv("text", { class: "axis", x: GUTTER, y: 11 }, "order of execution →"));
    }

    // Lanes.
    R.devices.forEach((device, i) => {
      const y = laneTop(i);
      const ops = G.operations.filter((op) => op.device === i);
      const busy = G.splits.reduce((sum, s) => sum + (s.device === i && s.predicted ? s.predicted.compute_ns : 0), 0);
      under.append(sv("rect", { class: "lane", x: 0, y, width: W, height: laneHeight(i) }),
        sv("text", { class: "lane-name", x: 14, y: y + (L.used[i] ? 24 : 21) }, cut(device.name, GUTTER - 20, "650 13px")),
        ops.length > 0 ? sv("text", { class: "lane-note", x: 14, y: y + 42 }, many(ops.length, "op")) : sv("text", { class: "lane-note", x: right - 4, y: y + 21, "text-anchor": "end" }, "runs nothing of this graph"),
        busy > 0 ? sv("text", { class: "lane-note", x: 14, y: y + 58 }, time(busy) + " busy") : "");
    });

    // Parts of the model.
    for (const band of L.bands) {
      if (!seen(band.x0, band.x1)) continue;
      const x0 = Math.max(X(band.x0), GUTTER - 2), x1 = Math.min(X(band.x1), right + 2);
      const y = AXIS + band.level * BAND;
      const node = sv("rect", { class: "band", x: x0 + 0.5, y: y + 0.5, width: Math.max(x1 - x0 - 1, 1), height: BAND - 3, rx: 4 });
      node.addEventListener("click", () => { if (!moved) look(band.x0 - (band.x1 - band.x0) * 0.02, band.x1 + (band.x1 - band.x0) * 0.02); });
      hover(node, () => [band.full, many(band.last - band.first + 1, "operation"), "click to zoom to it"]);
      mid.append(node);
      const tail = band.name.slice(band.name.lastIndexOf(".") + 1);
      const name = cut(band.name, x1 - x0 - 10) || (wide(tail, NOTE) < x1 - x0 - 10 ? tail : "");
      if (name) mid.append(sv("text", { class: "band-name", x: x0 + 6, y: y + 13.5 }, name));
    }

    // Splits.
    G.splits.forEach((s, i) => {
      const [start, ready, end] = L.splits[i];
      if (!seen(start, end)) return;
      const y = laneTop(s.device) + 3;
      const x0 = X(ready), x1 = X(end), w = x1 - x0;
      mid.append(sv("rect", { class: "split", x: x0 - 2, y, width: Math.max(w + 4, 2), height: LANE - 6, rx: 6 }));
      const left = Math.max(x0, GUTTER);
      const facts = "split " + i + " · " + many(s.operations, "op") + (s.predicted ? " · " + time(s.predicted.compute_ns) : "");
      const name = cut(facts, Math.min(x1, right) - left - 8) || cut(String(i), Math.min(x1, right) - left);
      if (name) mid.append(sv("text", { class: "split-name", x: left + 5, y: y + 13.5 }, name));
    });

    // Time that a device spends on sending copies.
    if (S.mode === "time") {
      for (const c of G.copies) {
        if (!c.predicted || c.predicted.end_ns <= c.predicted.start_ns || !seen(c.predicted.start_ns, c.predicted.end_ns)) continue;
        const x = X(c.predicted.start_ns), w = X(c.predicted.end_ns) - x;
        mid.append(hover(sv("rect", { class: "sending", x, y: laneTop(c.predicted.queue) + (L.used[c.predicted.queue] ? HEAD + PAD - 2 : 4), width: Math.max(w - 1, 0.8), height: L.used[c.predicted.queue] ? BOX : 26, rx: w > 8 ? 4 : 0 }),
          () => ["sends " + copyName(c), bytes(c.bytes) + " to " + deviceName(c.to) + " in " + time(c.predicted.end_ns - c.predicted.start_ns)]));
      }
    }

    // Operations.
    const wanted = new Set(S.hits);
    G.operations.forEach((op, i) => {
      const [u0, u1] = L.xs[i];
      if (!seen(u0, u1)) return;
      const x0 = X(u0), w = X(u1) - x0;
      const gap = w > 6 ? 1.5 : w > 3 ? 0.5 : 0;
      const y = laneTop(op.device) + HEAD + PAD - 2;
      const state = (S.op === i ? " on" : "") + (S.query && !wanted.has(i) && S.op !== i ? " dim" : "") + (w < 7 ? " solid" : "");
      const inner = Math.max(w - gap, 0.6);
      const node = sv("g", { class: "op " + op.family + state }, sv("rect", { class: "body", x: x0, y, width: inner, height: BOX, rx: w > 12 ? 4 : w > 6 ? 2 : 0 }));
      if (w >= 7) {
        // A stripe for each part of a fused operation.
        const n = Math.max(op.nodes.length, 1);
        const part = (inner - 4) / n;
        (op.nodes.length ? op.nodes : [{ family: op.family, op: op.op }]).forEach((p, k) => {
          node.append(sv("g", { class: p.family }, sv("rect", { class: "part", x: x0 + 2 + k * part, y: y + BOX - 7, width: Math.max(part - (n > 1 ? 1 : 0), 0.8), height: 5, rx: 1.5 })));
        });
      }
      const from = Math.max(x0, GUTTER), visible = Math.min(x0 + inner, right) - from;
      if (w >= 74) {
        node.append(sv("text", { class: "label", x: from + 6, y: y + 17 }, cut(op.label, visible - 10, NAME)),
          sv("text", { class: "detail", x: from + 6, y: y + 33 }, op.op === op.label ? "" : cut(op.op, visible - 10, SMALL)),
          sv("text", { class: "detail", x: from + 6, y: y + 48 }, cut(shape(op.result), visible - 10, SMALL)));
        node.append(sv("text", { class: "detail", x: from + 6, y: y + 63 }, cut(op.predicted_ns !== undefined ? time(op.predicted_ns) : bytes(op.bytes), visible - 10, SMALL)));
      } else if (w >= 10) {
        const both = w >= 34 && op.op !== op.label, room = BOX - 18;
        const up = (x, cls, text) => sv("text", { class: cls, transform: "translate(" + x + " " + (y + BOX - 12) + ") rotate(-90)" }, text);
        const x = x0 + inner / 2 + 3.5;
        node.append(up(both ? x - 8 : x, w < 13 ? "label tiny" : "label", cut(op.label, room, w < 13 ? TINY : NAME)));
        if (both) node.append(up(x + 7, "detail", cut(op.op, room, SMALL)));
      }
      node.addEventListener("click", () => { if (!moved) select(S.op === i ? null : i, false); });
      hover(node, () => [path(op), op.op + " → " + shape(op.result), "on " + deviceName(op.device) + ": " + op.because,
        bytes(op.bytes) + (op.predicted_ns !== undefined ? " · " + time(op.predicted_ns) : "") + " · " + flops(op.flops)]);
      mid.append(node);
    });

    // Copies, bundled by split and device that they come from.
    const taken = {}, pills = [];
    G.splits.forEach((s, i) => {
      const bundles = new Map();
      s.copies.forEach((at) => {
        const copy = G.copies[at];
        const key = String(copy.from);
        if (!bundles.has(key)) bundles.set(key, []);
        bundles.get(key).push(copy);
      });
      for (const copies of bundles.values()) {
        const [start, ready] = L.splits[i];
        const made = copies.filter((c) => c.operation !== undefined).map((c) => L.xs[c.operation][1]);
        const sent = S.mode === "time" ? copies.filter((c) => c.predicted).map((c) => c.predicted.end_ns) : [];
        const from = sent.length ? sent : made;
        const u0 = from.length ? Math.min(Math.max(...from), ready) : start;
        if (!seen(u0, ready)) continue;
        const source = copies[0].from;
        const down = source === null || source < s.device;
        const y0 = source === null ? AXIS : laneTop(source) + (down ? laneHeight(source) - 3 : 3);
        const y1 = laneTop(s.device) + (down ? 2 : LANE - 2);
        const x1 = X(ready) + (S.mode === "time" ? 0 : 5), x0 = Math.min(X(u0) - (S.mode === "time" ? 0 : 3), x1);
        const sum = copies.reduce((n, c) => n + c.bytes, 0);
        const label = bytes(sum);
        const w = label.length * 6.2 + 12, turn = down ? 1 : -1;
        const my = down ? y1 - 15 : y1 + 15;
        const line = "M" + x0 + " " + y0 + "V" + (my - turn * 5) + "Q" + x0 + " " + my + " " + Math.min(x0 + 5, x1) + " " + my
          + "H" + Math.max(x1 - 5, x0) + "Q" + x1 + " " + my + " " + x1 + " " + (my + turn * 5) + "V" + (y1 - turn * 5);
        const straight = "M" + x1 + " " + y0 + "V" + (y1 - turn * 5);
        const node = sv("g", { class: "copy" }, sv("path", { d: x1 - x0 < 8 ? straight : line }),
          sv("path", { class: "head", d: "M" + (x1 - 4) + " " + (y1 - turn * 6) + "h8l-4 " + turn * 7 + "z" }));
        const cx = clamp(x1 - x0 > w + 16 ? (Math.max(x0, GUTTER) + x1) / 2 : x1, GUTTER + w / 2, right - w / 2);
        const touch = (target) => {
          target.addEventListener("click", () => { if (!moved) { S.op = null; S.split = i; remember(); draw(); detail(); } });
          hover(target, () => [many(copies.length, "copy", "copies") + " from " + deviceName(source) + " to " + deviceName(s.device),
            ...copies.slice(0, 6).map((c) => copyName(c) + " · " + bytes(c.bytes)), ...(copies.length > 6 ? ["and " + (copies.length - 6) + " more"] : [])]);
        };
        // A label that would hide another is left to the pointer.
        const row = taken[my] || (taken[my] = []);
        if (row.every(([l, r]) => cx + w / 2 + 12 < l || cx - w / 2 - 12 > r)) {
          row.push([cx - w / 2, cx + w / 2]);
          const pill = sv("g", { class: "copy" }, sv("rect", { x: cx - w / 2, y: my - 8, width: w, height: 16, rx: 8 }), sv("text", { x: cx, y: my + 3.8, "text-anchor": "middle" }, label));
          touch(pill);
          pills.push(pill);
        }
        touch(node);
        top.append(node);
      }
    });
    top.append(...pills);

    // What the selected operation reads, and what reads it.
    if (S.op !== null) {
      const anchor = (i, side) => {
        const [u0, u1] = L.xs[i];
        return [X(side ? u1 : u0), laneTop(G.operations[i].device) + HEAD + PAD + BOX / 2];
      };
      const curve = (from, to, cls) => {
        const [x0, y0] = anchor(from, true), [x1, y1] = anchor(to, false);
        const lift = y0 === y1 ? clamp((x1 - x0) / 6, 8, 46) : 0, reach = Math.max((x1 - x0) / 2, 16);
        top.append(sv("path", { class: "flow " + cls, d: "M" + x0 + " " + y0 + "C" + (x0 + reach) + " " + (y0 - lift) + " " + (x1 - reach) + " " + (y1 - lift) + " " + x1 + " " + y1 }));
      };
      new Set(G.operations[S.op].sources.map((s) => s.operation).filter((at) => at !== undefined)).forEach((at) => curve(at, S.op, "in"));
      new Set(L.readers[S.op]).forEach((at) => curve(S.op, at, "out"));
    }
    plot.replaceChildren(defs, under, mid, top);
  };

  const drawMini = () => {
    const W = Math.max(mini.clientWidth || chart.clientWidth, 320);
    const X = (u) => GUTTER + u / L.end * (W - 10 - GUTTER);
    const H = 40, n = R.devices.length, each = Math.min(13, (H - 10) / n);
    mini.setAttribute("viewBox", "0 0 " + W + " " + H);
    const kids = [sv("text", { class: "lane-note", x: 14, y: 20 }, "overview")];
    R.devices.forEach((d, i) => kids.push(sv("rect", { class: "mini-lane", x: GUTTER, y: 3 + i * each, width: W - 10 - GUTTER, height: each - 1 })));
    G.operations.forEach((op, i) => {
      const [u0, u1] = L.xs[i];
      kids.push(sv("g", { class: op.family }, sv("rect", { class: "mini", x: X(u0), y: 3 + op.device * each, width: Math.max(X(u1) - X(u0) - 0.3, 0.5), height: each - 1,
        opacity: S.query && !S.hits.includes(i) ? 0.25 : 1 })));
    });
    const [a, b] = S.view;
    kids.push(sv("rect", { class: "window", x: X(a), y: 0.5, width: Math.max(X(b) - X(a), 3), height: n * each + 4, rx: 3 }));
    mini.replaceChildren(...kids);
  };
  const jump = (e) => {
    const box = mini.getBoundingClientRect();
    const u = (e.clientX - box.left - GUTTER) / (box.width - 10 - GUTTER) * L.end;
    const half = (S.view[1] - S.view[0]) / 2;
    look(u - half, u + half);
  };
  mini.addEventListener("pointerdown", (e) => { mini.setPointerCapture(e.pointerId); jump(e); });
  mini.addEventListener("pointermove", (e) => { if (e.buttons) jump(e); });

  // A drag must not end as a click on what it began on.
  let moved = false;
  plot.addEventListener("pointerdown", (e) => { if (e.button === 0) { drag = { x: e.clientX, view: S.view }; moved = false; } });
  addEventListener("pointermove", (e) => {
    if (!drag) return;
    const dx = e.clientX - drag.x;
    if (Math.abs(dx) > 4) { moved = true; plot.classList.add("dragging"); tip.hidden = true; }
    if (!moved) return;
    const [a, b] = drag.view;
    const u = dx / Math.max(plot.clientWidth - GUTTER, 1) * (b - a);
    look(a - u, b - u);
  });
  addEventListener("pointerup", () => { drag = null; plot.classList.remove("dragging"); });
  addEventListener("pointercancel", () => { drag = null; plot.classList.remove("dragging"); });
  plot.addEventListener("wheel", (e) => {
    const [a, b] = S.view;
    const width = plot.clientWidth - GUTTER;
    if (e.ctrlKey || e.metaKey) {
      e.preventDefault();
      const u = a + clamp((e.offsetX - GUTTER) / width, 0, 1) * (b - a);
      const factor = Math.exp(clamp(e.deltaY, -60, 60) * 0.008);
      look(u - (u - a) * factor, u + (b - u) * factor);
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      e.preventDefault();
      const u = (e.deltaX || e.deltaY) / width * (b - a);
      look(a + u, b + u);
    }
  }, { passive: false });
  plot.addEventListener("keydown", (e) => {
    const last = G.operations.length - 1;
    const act = {
      ArrowRight: () => select(S.op === null ? 0 : Math.min(S.op + 1, last), true),
      ArrowLeft: () => select(S.op === null ? last : Math.max(S.op - 1, 0), true),
      Home: () => select(0, true), End: () => select(last, true),
      Escape: () => select(null), "+": () => zoomBy(1 / 1.6), "=": () => zoomBy(1 / 1.6), "-": () => zoomBy(1.6), "0": () => look(0, L.end),
    }[e.key];
    if (act && last >= 0 && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); act(); }
  });
  addEventListener("keydown", (e) => {
    if (e.key === "/" && document.activeElement !== search) { e.preventDefault(); search.focus(); search.select(); }
  });
  addEventListener("resize", draw);
  addEventListener("hashchange", () => restore());

  // ── Details ──
  const go = (at, text) => el("button", { class: "link", type: "button", onclick: () => select(at, true) }, text);
  const rows = (pairs) => el("dl", {}, pairs.filter((p) => p[1] !== undefined && p[1] !== null).map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
  const detail = () => {
    side.scrollTop = 0;
    if (S.op !== null) return opDetail(G.operations[S.op]);
    if (S.split !== null) return splitDetail(S.split);
    const slow = G.operations.map((op, i) => i).sort((p, q) => weight(G.operations[q]) - weight(G.operations[p])).slice(0, 8);
    const reasons = new Map();
    G.operations.forEach((op) => { const key = deviceName(op.device) + ": " + op.why; reasons.set(key, (reasons.get(key) || 0) + 1); });
    side.replaceChildren(el("h2", {}, G.name), el("p", { class: "path" }, "Choose an operation to see why it runs where it does."),
      el("h3", {}, "Why, in all"),
      el("ul", { class: "list" }, [...reasons].sort((p, q) => q[1] - p[1]).map(([key, n]) => el("li", {}, el("span", { class: "grow" }, key), el("span", { class: "tail num" }, many(n, "op"))))),
      el("h3", {}, "Compute memory"),
      el("ul", { class: "list" }, G.compute.map((c) => el("li", {}, el("span", { class: "grow" }, c.memory), el("span", { class: "tail num" }, bytes(c.bytes))))),
      el("h3", {}, timed() ? "Longest operations" : "Largest operations"),
      el("ul", { class: "list" }, slow.map((i) => el("li", {}, el("span", { class: "grow" }, go(i, path(G.operations[i]))),
        el("span", { class: "tail num" }, timed() ? time(G.operations[i].predicted_ns) : flops(G.operations[i].flops))))));
  };
  const weight = (op) => op.predicted_ns !== undefined ? op.predicted_ns : op.flops;
  const closer = () => el("button", { class: "close", type: "button", title: "Close", "aria-label": "Close details", onclick: () => select(null) }, "×");
  const opDetail = (op) => {
    const at = S.op;
    const places = { compute: "chunk", state: "state", weight: "weight" };
    side.replaceChildren();
    fill(side, {}, [closer(), el("p", { class: "path" }, op.group.join(" › ")), el("h2", {}, op.label),
      el("div", { class: op.family, style: "margin-top:5px" }, swatch("var(--c)"), el("code", {}, op.op)),
      el("div", { class: "why" }, el("b", {}, "On " + deviceName(op.device) + ": " + op.why), op.because),
      rows([["result", el("code", {}, shape(op.result))], ["bytes", bytes(op.bytes)], ["lies in", op.memory.kind],
        ["place", places[op.memory.region] + " " + op.memory.number + ", from byte " + op.memory.offset_bytes], ["takes over", op.memory.takes_over],
        ["predicted", op.predicted_ns === undefined ? undefined : time(op.predicted_ns)], ["work", flops(op.flops)], ["reads and writes", bytes(op.moved_bytes)],
        ["split", String(op.split)], ["name", el("code", {}, op.name)]]),
      el("h3", {}, "Reads"),
      el("ul", { class: "list" }, op.sources.map((s) => el("li", {},
        el("span", { class: "grow" }, s.operation === undefined ? s.name : go(s.operation, path(G.operations[s.operation])),
          el("small", {}, shape(s.tensor_type) + " in " + s.memory)),
        el("span", { class: "tail num" }, el("span", { class: "tag" }, s.copy !== undefined ? "copied" : s.origin), el("br"), bytes(s.bytes))))),
      op.nodes.length > 1 ? [el("h3", {}, "Fused from"),
        el("ul", { class: "list" }, op.nodes.map((n) => el("li", {}, el("span", { class: "grow " + n.family }, swatch("var(--c)"), el("code", {}, n.op), " " + n.name,
          n.parameters ? el("small", {}, n.parameters) : null), el("span", { class: "tail num" }, shape(n.result)))))]
        : op.nodes[0] && op.nodes[0].parameters ? [el("h3", {}, "Parameters"), el("code", {}, op.nodes[0].parameters)] : null,
      el("h3", {}, "Read by"),
      L.readers[at].length === 0 ? el("span", { class: "soft" }, "Nothing in this graph: it is a result, or state for later.")
        : el("ul", { class: "list" }, [...new Set(L.readers[at])].map((i) => el("li", {}, el("span", { class: "grow" }, go(i, path(G.operations[i]))),
          el("span", { class: "tail" }, deviceName(G.operations[i].device)))))]);
  };
  const splitDetail = (i) => {
    const s = G.splits[i];
    side.replaceChildren(closer(), el("p", { class: "path" }, "on " + deviceName(s.device)), el("h2", {}, "Split " + i),
      rows([["operations", String(s.operations)], ["copied in", bytes(s.copied_bytes)], ["starts at", s.predicted ? time(s.predicted.start_ns) : undefined],
        ["copies take", s.predicted ? time(s.predicted.copy_ns) : undefined], ["operations take", s.predicted ? time(s.predicted.compute_ns) : undefined]]),
      el("h3", {}, "Copies"),
      el("ul", { class: "list" }, s.copies.map((at) => G.copies[at]).map((c) => el("li", {},
        el("span", { class: "grow" }, c.operation === undefined ? c.tensor : go(c.operation, path(G.operations[c.operation])), el("small", {}, shape(c.tensor_type) + " from " + deviceName(c.from))),
        el("span", { class: "tail num" }, el("span", { class: "tag" }, c.origin), el("br"), bytes(c.bytes))))));
  };

  // ── Tables ──
  const copyNames = (copies) => {
    const from = new Map();
    copies.forEach((c) => { from.set(c.from, (from.get(c.from) || []).concat(copyName(c))); });
    return [...from].map(([device, names]) => names.slice(0, 4).join(", ") + (names.length > 4 ? " and " + (names.length - 4) + " more" : "") + " from " + deviceName(device)).join("; ");
  };
  let allSplits = false;
  const splits = () => {
    const shown = allSplits ? G.splits.length : Math.min(G.splits.length, 10);
    splitsAt.replaceChildren(el("h2", {}, "Splits"), el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", {}, "#"), el("th", {}, "device"), el("th", { class: "r" }, "operations"), el("th", {}, "copied in"), el("th", { class: "r" }, "bytes"),
        timed() ? [el("th", { class: "r wide" }, "starts at"), el("th", { class: "r wide" }, "copies"), el("th", { class: "r" }, "compute")] : null)),
      el("tbody", {}, G.splits.slice(0, shown).map((s, i) => el("tr", {},
        el("td", {}, el("button", { class: "link", type: "button", onclick: () => { S.op = null; S.split = i; const [x0, , x1] = L.splits[i]; look(x0, x1); detail(); } }, String(i))),
        el("td", {}, deviceName(s.device)), el("td", { class: "r" }, String(s.operations)),
        el("td", {}, s.copies.length === 0 ? el("span", { class: "soft" }, "nothing")
          : copyNames(s.copies.map((at) => G.copies[at]))),
        el("td", { class: "r" }, s.copied_bytes ? bytes(s.copied_bytes) : "–"),
        timed() ? [el("td", { class: "r wide" }, time(s.predicted.start_ns)), el("td", { class: "r wide" }, time(s.predicted.copy_ns)), el("td", { class: "r" }, time(s.predicted.compute_ns))] : null))))));
    if (G.splits.length > shown) splitsAt.append(el("button", { class: "link", type: "button", onclick: () => { allSplits = true; splits(); } }, "Show all " + G.splits.length));
  };
  const list = () => {
    const parts = [];
    G.operations.forEach((op, i) => {
      const key = op.group.slice(0, 2).join(" › ") || G.name;
      const last = parts[parts.length - 1];
      if (last && last.key === key) last.ops.push(i);
      else parts.push({ key, ops: [i] });
    });
    const hits = new Set(S.hits);
    const shown = parts.map((p) => ({ key: p.key, ops: S.query ? p.ops.filter((i) => hits.has(i)) : p.ops })).filter((p) => p.ops.length > 0);
    listAt.replaceChildren(el("h2", {}, "Operations"), ...shown.map((p) => {
      const ops = p.ops.map((i) => G.operations[i]);
      const devices = [...new Set(ops.map((op) => op.device))].map(deviceName).join(", ");
      const sum = ops.reduce((n, op) => n + weight(op), 0);
      const isOpen = p.ops.includes(S.op) || (S.query !== "" && S.hits.length <= 40);
      const body = el("div", { class: "scroll" });
      const fillIn = () => { if (!body.firstChild) body.append(opTable(p.ops)); };
      if (isOpen) fillIn();
      return el("details", { class: "part", open: isOpen, ontoggle: fillIn },
        el("summary", {}, el("span", { class: "name" }, p.key), el("span", { class: "soft num" }, many(ops.length, "op")), el("span", { class: "soft" }, devices),
          el("span", { class: "end num" }, timed() ? time(sum) : flops(sum))), body);
    }));
    if (shown.length === 0) listAt.append(el("p", { class: "soft" }, "Nothing matches."));
  };
  const opTable = (ats) => el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, "operation"), el("th", {}, "op"), el("th", {}, "device and reason"), el("th", { class: "wide" }, "result"), el("th", { class: "r wide" }, "bytes"), el("th", { class: "r" }, timed() ? "time" : "work"))),
    el("tbody", {}, ats.map((i) => {
      const op = G.operations[i];
      return el("tr", { class: i === S.op ? "on" : null }, el("td", {}, go(i, op.group.slice(2).concat(op.label).join(" › "))),
        el("td", { class: op.family }, swatch("var(--c)"), el("code", {}, breakable(op.op))),
        el("td", {}, deviceName(op.device), el("small", { class: "soft" }, " " + op.because)),
        el("td", { class: "wide" }, el("code", {}, shape(op.result))), el("td", { class: "r wide" }, bytes(op.bytes)),
        el("td", { class: "r" }, timed() ? time(op.predicted_ns) : flops(op.flops)));
    })));

  const restore = () => {
    const [name, op] = location.hash.slice(1).split("/");
    let wanted = 0;
    try { wanted = Math.max(R.graphs.findIndex((g) => g.name === decodeURIComponent(name || "")), 0); } catch (e) { /* a damaged link opens the first graph */ }
    if (G !== R.graphs[wanted]) open(wanted);
    const at = Number.parseInt(op, 10);
    if (at >= 0 && at < G.operations.length) select(at, true);
  };
  if (R.graphs.length > 0) restore();
})();
