"use strict";

/* New data: pages without a form show it by themselves, the others say that it is there. */
const NEWS_MS = 5000;

async function look(body, shown) {
  let answer;
  try {
    const response = await fetch("/generation", { headers: { Accept: "application/json" } });
    answer = await response.json();
  } catch {
    return; // the console is being restarted
  }
  if (!answer.generation || answer.generation === shown) return;
  const busy = document.querySelector("dialog[open]") || document.getSelection().type === "Range";
  if (body.dataset.onNews === "show" && !busy) location.reload();
  else document.getElementById("news").hidden = false;
}

function watchForNews() {
  const body = document.body;
  const shown = body.dataset.generation;
  if (!shown) return;
  setInterval(() => { if (!document.hidden) look(body, shown); }, NEWS_MS);
}

/* A node's evidence: its page, shown beside the table. */
function drawer(dialog) {
  const title = document.getElementById("drawer-title");
  const body = document.getElementById("drawer-body");
  const asPage = document.getElementById("drawer-page");
  const home = location.pathname + location.search;
  let opener = null;

  async function open(link) {
    const response = await fetch(link.href);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const evidence = page.getElementById("evidence");
    if (!evidence) { location.href = link.href; return; }
    title.textContent = link.textContent;
    asPage.href = link.href;
    body.replaceChildren(...[...evidence.childNodes].map((node) => document.adoptNode(node)));
    body.querySelectorAll("table").forEach(sortable);
    body.querySelectorAll("button[data-copy]").forEach(copyable);
    opener = link;
    if (!dialog.open) dialog.showModal();
    body.focus({ preventScroll: true });
    dialog.scrollTop = 0;
    history.pushState({ drawer: true }, "", link.href);
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='/nodes/']");
    const other = event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
    if (!link || other || link === asPage || link.closest("dialog")) return;
    event.preventDefault();
    open(link).catch(() => { location.href = link.href; });
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    if (history.state && history.state.drawer) history.replaceState(null, "", home);
    if (opener) opener.focus();
  });
  addEventListener("popstate", () => { if (dialog.open) dialog.close(); });
}

if (typeof document !== "undefined") {
  watchForNews();
  const dialog = document.getElementById("drawer");
  if (dialog) drawer(dialog);
}
