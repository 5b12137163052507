(() => {
  // What is wrong with a page as it stands, in words: empty if nothing is. Bounding boxes, contrast, structure.
  const faults = [];
  const add = (kind, element, more) => faults.push(
    kind + ": " + element.tagName.toLowerCase() + (element.className ? "." + element.className : "")
    + " '" + element.textContent.trim().slice(0, 60) + "'" + (more ? " " + more : ""));
  const shown = (element) => element.checkVisibility() && !element.closest(".skip, dialog:not([open])");
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page is wider than the window");

  // Labels: every run of text, by the boxes of its lines.
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const boxes = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || !shown(parent) || parent.closest("script, style")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      boxes.push({ node, parent, box });
      if (!parent.closest(".scroll, pre") && (box.left < -1 || box.right > wide + 1)) add("outside the window", parent);
    }
    for (let up = parent; up !== document.body; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (style.overflowX === "hidden" && up.scrollWidth > up.clientWidth + 1) add("clipped", parent);
      if (style.textOverflow === "ellipsis" && up.scrollWidth > up.clientWidth) add("clipped", parent);
    }
    const cell = parent.closest("td, th");
    if (cell) {
      const frame = cell.getBoundingClientRect(), own = range.getBoundingClientRect();
      if (own.left < frame.left - 1 || own.right > frame.right + 1) add("clipped by its cell", cell);
    }
  }
  boxes.sort((a, b) => a.box.top - b.box.top);
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j].box.top < boxes[i].box.bottom - 3; j++) {
      const [a, b] = [boxes[i].box, boxes[j].box];
      if (boxes[i].node === boxes[j].node) continue;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && down > 6) add("overlaps", boxes[i].parent, "and '" + boxes[j].node.data.trim().slice(0, 40) + "'");
    }
  }
  for (const image of document.querySelectorAll("img")) {
    if (!shown(image)) continue;
    const box = image.getBoundingClientRect();
    if (box.right > wide + 1) faults.push("a picture is cut: " + image.alt.slice(0, 60));
    if (!image.complete || !image.naturalWidth) faults.push("a picture is not drawn: " + image.alt.slice(0, 60));
  }
  for (const cell of document.querySelectorAll(".decisive"))
    if (shown(cell) && cell.getBoundingClientRect().right > innerWidth + 1) add("a decisive column is off the screen", cell);

  // Contrast, as the Web Content Accessibility Guidelines (2.1) define it.
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const luminance = (rgb) => rgb.map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let up = element; up; up = up.parentElement) {
      const colour = parse(getComputedStyle(up).backgroundColor);
      if (colour.a > 0) return colour.rgb;
    }
    return [255, 255, 255];
  };
  let least = Infinity;
  for (const parent of new Set(boxes.map((box) => box.parent))) {
    const [low, high] = [luminance(parse(getComputedStyle(parent).color).rgb), luminance(ground(parent))].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    least = Math.min(least, ratio);
    if (ratio < 4.5) add("contrast " + ratio.toFixed(2), parent);
  }

  // Structure.
  const all = (selector) => [...document.querySelectorAll(selector)];
  if (!document.documentElement.lang) faults.push("no language");
  if (!document.title.trim()) faults.push("no title");
  if (all("h1").length !== 1) faults.push("headings: not one h1");
  let level = 0;
  for (const head of all("h1, h2, h3, h4, h5, h6")) {
    const own = Number(head.tagName[1]);
    if (own > level + 1) add("headings: a level is skipped", head);
    if (!head.textContent.trim()) add("headings: empty", head);
    level = own;
  }
  for (const name of ["main", "header", "nav"]) if (all(name).length !== 1) faults.push("landmarks: not one " + name);
  for (const image of all("img")) if (!(image.alt || "").trim()) faults.push("a picture without alternative text");
  for (const table of all("table")) {
    if (!table.caption || !table.caption.textContent.trim()) add("a table without caption", table);
    for (const head of table.querySelectorAll("th"))
      if (!["col", "row"].includes(head.scope)) add("a table header without scope", head);
    for (const row of table.tBodies[0].rows) {
      if (!row.querySelector("th[scope=row]")) add("a row without header", row);
      if (row.cells.length !== table.tHead.rows[0].cells.length) add("a row of another length", row);
    }
  }
  for (const button of all("button")) {
    if (!(button.getAttribute("aria-label") || button.textContent).trim() && button.closest("dialog") === null
        && button.closest("th")?.cellIndex !== 0) add("a button without a name", button);
  }
  const ids = all("[id]").map((element) => element.id);
  if (new Set(ids).size !== ids.length) faults.push("an id is used twice");
  for (const link of all("a[href^='#']")) if (!document.getElementById(link.hash.slice(1))) add("a link leads nowhere", link);
  for (const name of all("[aria-labelledby]"))
    if (!document.getElementById(name.getAttribute("aria-labelledby"))) add("a label that is not there", name);
  for (const box of all(".scroll, pre"))
    if (box.scrollWidth > box.clientWidth + 1 && box.tabIndex !== 0) add("scrolls, but not by keyboard", box);
  if (all("[style], [onclick], [onload], [onerror]").length) faults.push("an inline style or handler");
  return { faults: [...new Set(faults)], least, labels: boxes.length };
})()
