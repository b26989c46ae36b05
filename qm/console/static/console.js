"use strict";

// Questions before what cannot be undone.
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.question;
  if (question && !window.confirm(question)) event.preventDefault();
});

document.addEventListener("change", (event) => {
  const { all, hexOf, chosen } = event.target.dataset;
  const form = event.target.form;
  // One box for all of its column.
  if (all) for (const box of form.querySelectorAll(`input[name="${all}"]`)) box.checked = event.target.checked;
  // A file's bytes take the place of what is typed.
  if (hexOf && event.target.files.length) {
    event.target.files[0].arrayBuffer().then((bytes) => {
      const digits = Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0"));
      form.elements[hexOf].value = digits.join("");
      form.elements[chosen].value = "hexadecimal bytes";
    });
  }
});

// A node that is gone is said, not hidden behind old figures.
const silent = document.getElementById("silent");
const isSilent = (now) => { silent.hidden = !now; };
document.addEventListener("htmx:sendError", () => isSilent(true));
document.addEventListener("htmx:timeout", () => isSilent(true));
document.addEventListener("htmx:responseError", () => isSilent(true));
document.addEventListener("htmx:afterOnLoad", () => isSilent(false));

// Live plots of the overview.
const POLL_MS = 2000;
const POINTS_MAX = 300;

const PLOT_HEIGHT = 200;
const PLOT_WIDTH_MAX = 900;

function widthOf(place) {
  return Math.min(place.clientWidth, PLOT_WIDTH_MAX);
}

function plot(id, label) {
  const place = document.getElementById(id);
  const line = getComputedStyle(place).getPropertyValue("--link") || "blue";
  const text = getComputedStyle(place).color;
  const axis = { stroke: text, grid: { stroke: "#8884" } };
  const options = {
    width: widthOf(place), height: PLOT_HEIGHT, title: label,
    series: [{}, { label, stroke: line, width: 2 }], axes: [axis, axis], legend: { show: false },
  };
  const made = new uPlot(options, [[], []], place);
  window.addEventListener("resize", () => made.setSize({ width: widthOf(place), height: PLOT_HEIGHT }));
  return made;
}

async function follow() {
  const entries = plot("entries", "entries per second");
  const bytes = plot("bytes", "MiB in queues");
  const times = [], rates = [], sizes = [];
  let before = null;
  const look = async () => {
    try {
      const answer = await fetch("/figures");
      if (!answer.ok) return;
      const now = await answer.json();
      if (before && now.now_ms > before.now_ms) {
        times.push(now.now_ms / 1000);
        rates.push(1000 * (now.commit_index - before.commit_index) / (now.now_ms - before.now_ms));
        sizes.push(now.message_bytes / 1048576);
        for (const column of [times, rates, sizes]) if (column.length > POINTS_MAX) column.shift();
        entries.setData([times, rates]);
        bytes.setData([times, sizes]);
      }
      before = now;
    } catch (error) {
      isSilent(true);
    }
  };
  await look();
  setInterval(look, POLL_MS);
}

window.addEventListener("DOMContentLoaded", () => {
  if (document.getElementById("entries")) follow();
});
