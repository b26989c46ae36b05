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
      if (chosen) form.elements[chosen].value = "hexadecimal bytes";
    });
  }
});

// A node that is gone is said, not hidden behind old figures.
const silent = document.getElementById("silent");
const isSilent = (now) => { silent.hidden = !now; };
document.addEventListener("htmx:sendError", () => isSilent(true));
document.addEventListener("htmx:timeout", () => isSilent(true));
// It fires after errors, too.
document.addEventListener("htmx:afterOnLoad", (event) => isSilent(!event.detail.successful));

// A session that has ended leads to where another one begins.
const SIGNED_OUT = 401;
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === SIGNED_OUT) window.location.reload();
});

// Live plots of the overview.
const POLL_MS = 2000;
const POINTS_MAX = 300;

const PLOT_HEIGHT = 200;
const PLOT_WIDTH_MAX = 900;

function widthOf(place) {
  return Math.min(place.clientWidth, PLOT_WIDTH_MAX);
}

function color(place, name) {
  return getComputedStyle(place).getPropertyValue(name) || "gray";
}

function plot(id, label, others = []) {
  const place = document.getElementById(id);
  const axis = { stroke: getComputedStyle(place).color, grid: { stroke: "#8884" } };
  const options = {
    width: widthOf(place), height: PLOT_HEIGHT, title: [label, ...others.map((one) => one.label)].join(", "),
    series: [{}, { label, stroke: color(place, "--link"), width: 2 }, ...others],
    axes: [axis, axis, ...others.map((one) => ({ ...axis, scale: one.scale, side: 1, grid: { show: false } }))],
    legend: { show: false },
  };
  const made = new uPlot(options, [[], [], ...others.map(() => [])], place);
  window.addEventListener("resize", () => made.setSize({ width: widthOf(place), height: PLOT_HEIGHT }));
  return made;
}

// Bars of the time in which nothing was acknowledged, on an axis of their own.
function gapBars() {
  const bad = color(document.getElementById("entries"), "--bad");
  return {
    label: "ms without a leader or an answer", scale: "gap", stroke: bad, fill: bad,
    paths: uPlot.paths.bars({ size: [1, 12] }), points: { show: false },
  };
}

async function follow() {
  const entries = plot("entries", "entries per second", [gapBars()]);
  const bytes = plot("bytes", "MiB in queues");
  const times = [], rates = [], gaps = [], sizes = [];
  let before = null;
  const draw = (time, rate, gap, size) => {
    times.push(time); rates.push(rate); gaps.push(gap); sizes.push(size);
    for (const column of [times, rates, gaps, sizes]) if (column.length > POINTS_MAX) column.shift();
    entries.setData([times, rates, gaps]);
    bytes.setData([times, sizes]);
    document.getElementById("entries").dataset.gapMs = gaps.reduce((sum, one) => sum + one, 0);
  };
  const look = async () => {
    const asked = performance.now();
    try {
      const answer = await fetch("/figures");
      if (answer.status === SIGNED_OUT || answer.redirected) { window.location.reload(); return; }
      if (!answer.ok) throw new Error(answer.statusText);
      const now = { ...await answer.json(), asked };
      if (before && now.now_ms > before.now_ms) {
        const rate = 1000 * (now.commit_index - before.commit_index) / (now.now_ms - before.now_ms);
        // A node that restarted counts from the beginning.
        const gap = Math.max(now.leaderless_ms - before.leaderless_ms, 0);
        draw(now.now_ms / 1000, rate, gap, now.message_bytes / 1048576);
      }
      before = now;
    } catch (error) {
      isSilent(true);
      if (before) draw((before.now_ms + asked - before.asked) / 1000, null, POLL_MS, null);
    }
  };
  await look();
  setInterval(look, POLL_MS);
}

window.addEventListener("DOMContentLoaded", () => {
  if (document.getElementById("entries")) follow();
});
