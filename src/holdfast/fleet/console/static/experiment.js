"use strict";

/* Shows how far a run is, and loads its result when it is there. */
const POLL_MS = 700;

async function follow(box) {
  const status = document.getElementById("status");
  const progress = document.getElementById("progress");
  for (;;) {
    await new Promise((done) => setTimeout(done, POLL_MS));
    let run;
    try {
      run = await (await fetch(box.dataset.state)).json();
    } catch {
      status.textContent = "The console does not answer.";
      continue;
    }
    if (run.state !== "waiting" && run.state !== "running") { location.reload(); return; }
    status.textContent = run.status;
    if (run.total) { progress.max = run.total; progress.value = run.done; }
  }
}

const box = document.getElementById("experiment");
if (box) follow(box);
