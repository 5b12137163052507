"use strict";
// Pointing, or tabbing, at a site of a program lights it up as equation, line and node; a click keeps it.
for (const view of document.querySelectorAll(".process")) {
  const parts = [...view.querySelectorAll("[data-site]")];
  const program = view.querySelector(".process-program pre");
  const said = view.nextElementSibling;
  const sitesOf = (part) => part.dataset.site.split(" ");
  let kept = null;
  const light = (source) => {
    const sites = new Set(source ? sitesOf(source) : []);
    const lit = parts.filter((part) => sitesOf(part).some((site) => sites.has(site)));
    for (const part of parts) part.classList.toggle("lit", lit.includes(part));
    const line = lit.find((part) => program.contains(part));
    if (line && !program.contains(source)) {
      const [box, frame] = [line.getBoundingClientRect(), program.getBoundingClientRect()];
      if (box.top < frame.top || box.bottom > frame.bottom) program.scrollTop += box.top - frame.top - frame.height / 3;
    }
    const lines = [...program.children].map((part, place) => (lit.includes(part) ? place + 1 : 0)).filter(Boolean);
    said.textContent = source
      ? `${[...sites].join(", ")}: ` + (lines.length ? `line ${lines.join(", ")} of the program` : "not in this example")
      : "";
  };
  const partOf = (event) => event.target.closest?.("[data-site]");
  view.addEventListener("pointerover", (event) => light(partOf(event) ?? kept));
  view.addEventListener("pointerleave", () => light(kept));
  view.addEventListener("focusin", (event) => light(partOf(event) ?? kept));
  view.addEventListener("focusout", () => light(kept));
  const keep = (part) => { kept = part && part !== kept ? part : null; light(kept); };
  view.addEventListener("click", (event) => keep(partOf(event)));
  view.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && partOf(event)) keep(partOf(event));
    if (event.key === "Escape") keep(null);
  });
}
