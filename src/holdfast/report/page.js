"use strict";

/* The order of two table cells: numbers by value, text as people count ("node2" before "node10"),
   missing values last whichever the direction. A cell is {value, number}. */
function compareCells(a, b, descending) {
  const missing = (a.value === "") - (b.value === "");
  if (missing || a.value === "") return missing;
  let order;
  if (a.number !== null && b.number !== null) order = a.number - b.number;
  else order = a.value.localeCompare(b.value, "en", { numeric: true });
  return descending ? -order : order;
}

/* Text that a spreadsheet would run as a formula gets an apostrophe; line breaks and tabs go. */
function pasteable(cell) {
  if (cell.number !== null) return cell.value;
  const text = cell.value.replace(/[\t\r\n]+/g, " ");
  return /^[\s]*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(text) ? "'" + text : text;
}

function readCell(node) {
  const raw = node.dataset.v;
  if (raw === undefined) return { value: node.textContent, number: null };
  const number = raw === "" ? NaN : Number(raw);
  return { value: raw, number: Number.isNaN(number) ? null : number };
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      /* The first click shows the largest numbers, or text from A. */
      const first = head.classList.contains("r") ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const next = now === first ? other : first;
      heads.forEach((each) => each.setAttribute("aria-sort", each === head ? next : "none"));
      const rows = [...body.rows].map((row) => [readCell(row.cells[column]), row]);
      rows.sort((a, b) => compareCells(a[0], b[0], next === "descending"));
      body.append(...rows.map((pair) => pair[1]));
    });
  });
}

function tableText(table) {
  const head = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((c) => pasteable(readCell(c))));
  return [head, ...rows].map((row) => row.join("\t")).join("\n");
}

function copyable(button) {
  const table = document.getElementById(button.dataset.copy);
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = tableText(table);
    let done;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = done ? "Copied" : "Could not copy";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

/* Vega calls this with the value of a mark's tooltip: an object of titles and formatted values. */
function showTip(tip, event, value) {
  if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
  const grid = document.createElement("div");
  if (typeof value === "object") {
    for (const [key, shown] of Object.entries(value)) {
      for (const text of [key, shown]) {
        const span = document.createElement("span");
        span.textContent = String(text);
        grid.append(span);
      }
    }
  } else grid.textContent = String(value);
  tip.replaceChildren(grid);
  tip.hidden = false;
  const margin = 12;
  const x = Math.min(event.clientX + margin, innerWidth - tip.offsetWidth - margin);
  const above = event.clientY + margin + tip.offsetHeight > innerHeight;
  const y = above ? event.clientY - margin - tip.offsetHeight : event.clientY + margin;
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = Math.max(4, y) + "px";
}

/* Replaces the drawing in the page by a live one, fitted to the screen. */
async function enliven(plot, tip) {
  const spec = JSON.parse(document.getElementById(plot.id + "-spec").textContent);
  const fits = spec.autosize && spec.autosize.type === "fit-x";
  const room = () => Math.max(280, Math.floor(plot.clientWidth));
  if (fits) spec.width = room();
  const box = document.createElement("div");
  const { view } = await holdfastEmbed(box, spec, {
    mode: "vega", ast: true, actions: false, renderer: "svg", defaultStyle: false, hover: false,
    tooltip: (handler, event, item, value) => showTip(tip, event, value),
  });
  plot.replaceChildren(box);
  plot.view = view;
  plot.dispatchEvent(new Event("drawn"));
  if (!fits) return;
  let width = spec.width;
  new ResizeObserver(() => {
    if (matchMedia("print").matches || room() === width) return;
    width = room();
    view.width(width).runAsync();
  }).observe(plot);
}

function start() {
  document.querySelectorAll("table").forEach(sortable);
  document.querySelectorAll("button[data-copy]").forEach(copyable);
  const nav = document.querySelector("nav details");
  if (nav && matchMedia("(max-width: 74.99rem)").matches) nav.open = false;
  const folded = () => document.querySelectorAll("details.how:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => { opened = [...folded()]; opened.forEach((d) => { d.open = true; }); });
  addEventListener("afterprint", () => { opened.forEach((d) => { d.open = false; }); });
  const plots = document.querySelectorAll(".plot");
  if (!plots.length || typeof holdfastEmbed === "undefined") return;
  const tip = document.getElementById("tip");
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      enliven(entry.target, tip);
    }
  }, { rootMargin: "600px" });
  plots.forEach((plot) => watch.observe(plot));
}

if (typeof document !== "undefined") start();
