"use strict";
// Comfort only: tables sort by a column, pictures open at full size. Without it the page reads the same.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 3) continue;
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "ascending" : "descending");
      const sign = down ? 1 : -1;
      const keys = new Map([...body.rows].map((row) => {
        const text = row.cells[place].textContent.trim();
        return [row, { text, number: text === "inf" ? Infinity : Number.parseFloat(text) }];
      }));
      const compare = (one, other) => {
        const [a, b] = [keys.get(one), keys.get(other)];
        const [known, too] = [!Number.isNaN(a.number), !Number.isNaN(b.number)];
        if (known !== too) return known ? -1 : 1;
        if (known && a.number !== b.number) return a.number < b.number ? -sign : sign;
        return known ? 0 : sign * a.text.localeCompare(b.text, "en", { numeric: true });
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
}
const dialog = document.createElement("dialog");
const shut = document.createElement("button");
const large = document.createElement("img");
const box = document.createElement("div");
shut.type = "button";
shut.textContent = "Close";
shut.addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
box.tabIndex = 0;
box.append(large);
dialog.append(shut, box);
dialog.setAttribute("aria-label", "Picture at full size");
for (const picture of document.querySelectorAll("figure img")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "zoom";
  button.setAttribute("aria-label", "Enlarge: " + picture.alt);
  picture.replaceWith(button);
  button.append(picture);
  button.addEventListener("click", () => {
    if (!dialog.isConnected) document.body.append(dialog);
    large.src = picture.src;
    large.alt = picture.alt;
    dialog.showModal();
  });
}
