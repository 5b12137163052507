"use strict";
const film = JSON.parse(document.getElementById("film").textContent);
const SIGNS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const COLOURS = 8;
const LISTED = 12; // clusters of the legend
const of = (name) => document.querySelector("." + name);
const [panels, charts, words, legend, controls] = ["panels", "charts", "words", "legend", "controls"].map(of);
const [play, chainChoice, colourChoice] = ["play", "chain", "colours"].map(of);
const slider = controls.querySelector("input");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const last = film.numbers.length - 1;
let frame = last, timer = 0, screens = [], plots = [];

function draw(parent, name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}
// shapes repeat what colours say
function marker(kind, x, y, r) {
  const to = (points) => "M" + points.map(([a, b]) => `${(x + a * r).toFixed(1)} ${(y + b * r).toFixed(1)}`).join("L") + "Z";
  switch (kind % 6) {
    case 0: return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
    case 1: return to([[-.9, -.9], [.9, -.9], [.9, .9], [-.9, .9]]);
    case 2: return to([[0, -1.2], [1.1, .9], [-1.1, .9]]);
    case 3: return to([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
    case 4: return to([[0, 1.2], [1.1, -.9], [-1.1, -.9]]);
    default: return to([[-.4, -1.2], [.4, -1.2], [.4, -.4], [1.2, -.4], [1.2, .4], [.4, .4], [.4, 1.2], [-.4, 1.2], [-.4, .4], [-1.2, .4], [-1.2, -.4], [-.4, -.4]]);
  }
}
const byOwn = () => colourChoice !== null && colourChoice.value === "own";
function bears(chain, at, number) {
  return byOwn() && film.chains[chain].own ? film.chains[chain].own[at][number] ?? number : number;
}
const shown = () => chainChoice === null ? [0] : chainChoice.value === "all" ? film.chains.map((_, c) => c) : [Number(chainChoice.value)];

function axes(svg, box, x, y) {
  draw(svg, "rect", { class: "frame", x: box.left, y: box.top, width: box.width, height: box.height });
  for (const [place, text, anchor] of x.ticks) {
    const at = box.x(place);
    draw(svg, "path", { class: "tick", d: `M${at} ${box.bottom}v4` });
    draw(svg, "text", { class: "faint", x: at, y: box.bottom + 16, "text-anchor": anchor ?? "middle" }, text);
  }
  for (const [place, text] of y.ticks) {
    const at = box.y(place);
    draw(svg, "path", { class: "tick", d: `M${box.left} ${at}h-4` });
    draw(svg, "text", { class: "faint", x: box.left - 6, y: at + 4, "text-anchor": "end" }, text);
  }
}
function boxed(width, height, left, top, right, bottom) {
  const box = { left, top, width: width - left - right, height: height - top - bottom };
  box.bottom = top + box.height;
  box.x = (place) => +(left + place / 1000 * box.width).toFixed(1);
  box.y = (place) => +(box.bottom - place / 1000 * box.height).toFixed(1);
  return box;
}

function screen(chain, width, alone) {
  const height = Math.round(Math.max(Math.min(width * .72, 470), 190));
  const svg = draw(panels, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const box = boxed(width, height, 46, alone ? 18 : 34, 10, 38);
  axes(svg, box, film.axes[0], film.axes[1]);
  if (!alone) draw(svg, "text", { x: box.left, y: 12 }, `chain ${chain}`);
  draw(svg, "text", { class: "faint", x: box.left, y: alone ? 12 : 28 }, film.axes[1].label);
  draw(svg, "text", { class: "faint", x: box.left + box.width, y: height - 4, "text-anchor": "end" }, film.axes[0].label);
  const inside = draw(svg, "svg", { x: box.left, y: box.top, width: box.width, height: box.height, viewBox: `${box.left} ${box.top} ${box.width} ${box.height}` });
  const radius = Math.max(2, Math.min(4.5, 60 / Math.sqrt(film.points.length)));
  const rows = film.points.map(([x, y]) => ({ node: draw(inside, "path", { class: "row" }), x: box.x(x), y: box.y(y), kind: null }));
  return { chain, svg, box, rows, radius, over: draw(inside, "g", {}) };
}
function outline(box, [x, y, a, b, d]) {
  const points = Array.from({ length: 48 }, (_, i) => {
    const [c, s] = [Math.cos(i * Math.PI / 24), Math.sin(i * Math.PI / 24)];
    return `${box.x(x + a * c)} ${box.y(y + b * c + d * s)}`;
  });
  return "M" + points.join("L") + "Z";
}
function paint(view) {
  const own = film.chains[view.chain];
  const labels = own.labels ? own.labels[frame] : null;
  view.rows.forEach((row, i) => {
    const kind = labels === null ? -1 : bears(view.chain, frame, SIGNS.indexOf(labels[i]));
    if (kind === row.kind) return;
    row.kind = kind;
    row.node.setAttribute("d", marker(Math.max(kind, 0), row.x, row.y, view.radius));
    row.node.setAttribute("class", kind < 0 ? "row" : `row k${kind % COLOURS}`);
  });
  view.over.replaceChildren();
  if (own.spread) draw(view.over, "path", { class: "spread", d: outline(view.box, own.spread[frame]) });
  for (const [number, ...at] of own.ellipses ? own.ellipses[frame] : []) {
    const kind = bears(view.chain, frame, number);
    draw(view.over, "path", { class: `ellipse k${kind % COLOURS}`, d: outline(view.box, at) });
  }
  for (const [number, x, y] of own.ellipses ? own.ellipses[frame] : []) {
    draw(view.over, "text", { class: "number", x: view.box.x(x), y: view.box.y(y) + 5 }, bears(view.chain, frame, number));
  }
  (own.arrows ? own.arrows[frame] : []).forEach(([x, y], latent) => {
    const [a, b, c, d] = [view.box.x(own.spread[frame][0]), view.box.y(own.spread[frame][1]), view.box.x(x), view.box.y(y)];
    const [long, turn] = [Math.hypot(c - a, d - b) || 1, Math.atan2(d - b, c - a)];
    const head = [2.6, -2.6].map((by) => `M${c} ${d}L${c + 9 * Math.cos(turn + by)} ${d + 9 * Math.sin(turn + by)}`).join("");
    draw(view.over, "path", { class: `arrow k${latent % COLOURS}`, d: `M${a} ${b}L${c} ${d}${head}` });
    draw(view.over, "text", { class: "number", x: c + 14 * (c - a) / long, y: d + 14 * (d - b) / long + 5 }, latent);
  });
  view.svg.setAttribute("aria-label", own.sentences[frame]);
}

function plot(title, width, height, ticks, content) {
  const end = film.numbers[last];
  const box = boxed(width, height, 66, 22, 10, 22);
  const svg = draw(charts, "svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const at = (number) => 1000 * (number - 1) / Math.max(end - 1, 1);
  draw(svg, "text", { class: "faint", x: 0, y: 13 }, title);
  if (film.warmup) draw(svg, "rect", { class: "warmup", x: box.left, y: box.top, width: box.x(at(film.warmup)) - box.left, height: box.height });
  axes(svg, box, { ticks: [[0, 1], [1000, `${film.unit} ${end}`, "end"]] }, { ticks });
  content(svg, box, at);
  const now = draw(svg, "path", { class: "now" });
  return () => now.setAttribute("d", `M${box.x(at(film.numbers[frame]))} ${box.top}v${box.height}`);
}
const line = (box, at, points) => "M" + points.map(([n, y]) => `${box.x(at(n))} ${box.y(y)}`).join("L");

function lay() {
  if (!panels.clientWidth) return; // the page has no size yet: the observer calls again
  const chains = shown();
  const alone = chains.length === 1;
  panels.className = alone ? "panels" : "panels many";
  panels.replaceChildren();
  charts.replaceChildren();
  const wide = panels.clientWidth;
  screens = chains.map((chain) => screen(chain, alone ? wide : (wide - 8) / 2, alone));
  const width = charts.clientWidth;
  plots = [plot(film.warmup ? "log joint density, nats; warm-up is grey" : "objective, nats; higher is better", width, 130, film.trace.ticks, (svg, box, at) => {
    film.trace.lines.forEach((points, chain) => {
      if (!chains.includes(chain)) draw(svg, "path", { class: "line other", d: line(box, at, points) });
    });
    for (const chain of chains) draw(svg, "path", { class: alone ? "line" : `line k${chain % COLOURS}`, d: line(box, at, film.trace.lines[chain]) });
  })];
  const sizes = film.chains[chains[0]].sizes;
  if (sizes) {
    const most = Math.max(...sizes.flat().map((own) => own[1]));
    const kinds = [...new Set(sizes.flat().map((own) => own[0]))];
    plots.push(plot(`rows of each cluster${alone ? "" : `, chain ${chains[0]}`}`, width, 120, [[0, 0], [900, most]], (svg, box, at) => {
      for (const kind of kinds) {
        const points = sizes.map((held, i) => [film.numbers[i], 900 * (held.find((own) => own[0] === kind)?.[1] ?? 0) / most]);
        draw(svg, "path", { class: `line k${kind % COLOURS}`, d: line(box, at, points) });
      }
    }));
  }
  if (film.rhat) {
    plots.push(plot("largest R-hat of all chains; below 1.01 is wanted", width, 120, film.rhat.ticks, (svg, box, at) => {
      draw(svg, "path", { class: "wanted", d: `M${box.left} ${box.y(film.rhat.wanted)}h${box.width}` });
      draw(svg, "path", { class: "line", d: line(box, at, film.rhat.lines[0]) });
    }));
  }
  show(frame);
}

function show(number) {
  frame = Math.max(0, Math.min(last, number));
  slider.value = frame;
  slider.setAttribute("aria-valuetext", `${film.unit} ${film.numbers[frame]}`);
  screens.forEach(paint);
  plots.forEach((move) => move());
  const chain = screens[0].chain;
  const sentence = film.chains[chain].sentences[frame];
  if (words.textContent !== sentence) words.textContent = sentence;
  legend.replaceChildren(...(screens.length > 1 ? [Object.assign(document.createElement("li"), { textContent: `chain ${chain}:` })] : []));
  const sizes = film.chains[chain].sizes;
  const held = sizes ? sizes[frame] : [];
  for (const [kind, rows] of held.slice(0, LISTED)) {
    const item = document.createElement("li");
    const own = bears(chain, frame, kind);
    const svg = draw(item, "svg", { viewBox: "0 0 14 14", "aria-hidden": "true" });
    draw(svg, "path", { class: `row k${own % COLOURS}`, d: marker(own, 7, 7, 5) });
    item.append(`${own}: ${rows} rows`);
    legend.append(item);
  }
  if (held.length > LISTED) legend.append(Object.assign(document.createElement("li"), { textContent: `and ${held.length - LISTED} more` }));
}
function stop() {
  clearTimeout(timer);
  timer = 0;
  play.textContent = "Play";
  words.setAttribute("aria-live", "polite");
}
function step() {
  show(frame + 1);
  if (frame === last) stop();
  else timer = setTimeout(step, calm.matches ? 1500 : frame < 20 ? 260 : 110);
}
play.addEventListener("click", () => {
  if (timer) return stop();
  if (frame === last) show(0);
  play.textContent = "Pause";
  words.setAttribute("aria-live", "off"); // a sentence for each of ten frames a second tells nothing
  timer = setTimeout(step, 260);
});
const to = (number) => { stop(); show(number); };
of("back").addEventListener("click", () => to(frame - 1));
of("on").addEventListener("click", () => to(frame + 1));
slider.addEventListener("input", () => to(Number(slider.value)));
for (const choice of [chainChoice, colourChoice]) choice?.addEventListener("change", lay);
controls.hidden = false;
let before = 0;
new ResizeObserver(() => { if (panels.clientWidth !== before) { before = panels.clientWidth; lay(); } }).observe(panels);
lay();
