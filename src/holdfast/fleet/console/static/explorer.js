"use strict";

/* A slider's place, 0 to 1000, and the value there: logarithmic, and linear near 0 if it begins there. */
function valueAt(place, low, high) {
  const share = place / 1000;
  if (low > 0) return low * Math.pow(high / low, share);
  return Math.expm1(share * Math.log1p(high));
}

function placeOf(value, low, high) {
  const share = low > 0 ? Math.log(value / low) / Math.log(high / low) : Math.log1p(value) / Math.log1p(high);
  return Math.round(1000 * Math.min(1, Math.max(0, share)));
}

/* Two significant digits: a slider does not choose the third. */
function rounded(value, whole) {
  if (value <= 0) return 0;
  const size = Math.pow(10, Math.floor(Math.log10(value)) - 1);
  const near = Math.round(value / size) * size;
  return whole ? Math.max(1, Math.round(near)) : Number(near.toPrecision(2));
}

function explore(form) {
  const plot = document.querySelector("#explorer .plot");
  const problem = document.getElementById("problem");
  const sliders = [...form.querySelectorAll("input[type=range]")];
  const fieldOf = (slider) => document.getElementById(slider.dataset.for);
  let drawn = null; /* the last answer */
  let asked = 0;

  function place(slider, value, text) {
    slider.value = placeOf(value, Number(slider.dataset.low), Number(slider.dataset.high));
    slider.setAttribute("aria-valuetext", text);
  }

  function show(answer) {
    drawn = answer;
    const box = document.getElementById("answer-box");
    box.innerHTML = answer.answer; /* written and escaped by the console */
    box.querySelectorAll("table").forEach(sortable);
    box.querySelectorAll("button[data-copy]").forEach(copyable);
    draw();
  }

  function draw() {
    if (!drawn || !plot.view) return;
    plot.view.data("curve", drawn.curve).runAsync();
  }

  async function ask(source) {
    const mine = ++asked;
    const query = new URLSearchParams(new FormData(form));
    let answer;
    try {
      const response = await fetch(`${form.dataset.curve}?${query}`);
      answer = await response.json();
    } catch {
      answer = { problem: "The console does not answer." };
    }
    if (mine !== asked) return; /* a later move is under way */
    problem.textContent = answer.problem || "";
    if (answer.problem) return;
    history.replaceState(null, "", `${location.pathname}?${answer.query}`);
    for (const slider of sliders) {
      const field = fieldOf(slider);
      const { value, text } = answer.fields[field.name];
      /* What is being typed stays as it is typed, what is being dragged stays under the finger. */
      if (source !== field) field.value = text;
      if (source !== slider) place(slider, value, text);
      else slider.setAttribute("aria-valuetext", text);
    }
    show(answer);
  }

  for (const slider of sliders) {
    const field = fieldOf(slider);
    place(slider, Number(slider.dataset.value), field.value);
    slider.hidden = false;
    slider.addEventListener("input", () => {
      const value = valueAt(Number(slider.value), Number(slider.dataset.low), Number(slider.dataset.high));
      field.value = rounded(value, slider.dataset.whole === "yes") + (slider.dataset.time ? "s" : "");
      ask(slider);
    });
    field.addEventListener("input", () => ask(field));
    field.addEventListener("change", () => ask(null));
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(null); });
  plot.addEventListener("drawn", draw);

  const share = document.getElementById("share");
  share.hidden = false;
  share.addEventListener("click", async () => {
    let done = true;
    try { await navigator.clipboard.writeText(location.href); } catch { done = false; }
    share.textContent = done ? "Link copied" : "Copy the address of this page";
    setTimeout(() => { share.textContent = "Copy link"; }, 2500);
  });
}

if (typeof document !== "undefined") {
  const form = document.getElementById("setting");
  if (form) explore(form);
}
