// Fetches the main part of the open page again after each new snapshot, and draws the charts.
"use strict";

const live = document.getElementById("live");
let isStale = false;

function showState(text, kind) {
  if (!live) return;
  if (live.textContent !== text) live.textContent = text;
  live.className = "live " + kind;
}

function isTyping() {
  const focused = document.activeElement;
  return focused !== null && ["INPUT", "TEXTAREA", "SELECT"].includes(focused.tagName);
}

function refresh() {
  const marker = document.getElementById("refresh");
  // A form keeps what the user types.
  if (!marker || document.querySelector("form.confirm")) return;
  if (document.hidden || isTyping()) { isStale = true; return; }
  isStale = false;
  htmx.ajax("GET", marker.dataset.address, { target: "#main", swap: "innerMorph" });
}

function listen() {
  const events = new EventSource("/events?after=" + encodeURIComponent(document.body.dataset.number || ""));
  events.addEventListener("snapshot", (event) => {
    const found = JSON.parse(event.data);
    showState(found.error ? "no answer" : "live", found.error ? "error" : "fine");
    refresh();
  });
  events.addEventListener("ping", (event) => {
    const found = JSON.parse(event.data);
    showState(found.error ? "no answer" : "live", found.error ? "error" : "fine");
  });
  events.addEventListener("ended", () => { events.close(); location.reload(); });
  events.onopen = () => showState("live", "fine");
  events.onerror = () => showState("console gone", "error");
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && isStale) refresh(); });
document.addEventListener("focusout", () => { if (isStale) setTimeout(refresh, 200); });

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  navigator.clipboard.writeText(button.dataset.copy).then(() => { button.textContent = "Copied"; });
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping()) return;
  if (event.key === "o") location.assign("/");
  if (event.key === "t") location.assign("/topics");
  if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search) { search.focus(); event.preventDefault(); } else location.assign("/topics");
  }
});

// -- charts

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function sizeText(value) {
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return value.toFixed(unit ? (value < 100 ? 1 : 2) : 0) + " " + UNITS[unit];
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function chart(parent, title, times, series, text) {
  const options = {
    title,
    width: Math.max(260, parent.clientWidth / 2 - 12),
    height: 200,
    legend: { live: false },
    cursor: { drag: { x: false, y: false } },
    axes: [
      { stroke: colour("--quiet"), grid: { stroke: colour("--edge"), width: 1 } },
      { stroke: colour("--quiet"), grid: { stroke: colour("--edge"), width: 1 }, size: 92,
        values: (_, ticks) => ticks.map(text) },
    ],
    series: [{}, ...series.map(([label, name]) => ({ label, stroke: colour(name), width: 2 }))],
  };
  return (data) => new uPlot(options, [times, ...data], parent);
}

function drawCharts() {
  const parent = document.getElementById("charts");
  if (!parent || !window.uPlot || parent.dataset.drawn === parent.dataset.chart) return;
  const data = JSON.parse(parent.dataset.chart);
  parent.replaceChildren();
  parent.dataset.drawn = parent.dataset.chart;
  if (data.time_s.length < 2) { parent.textContent = "The history begins now."; return; }
  chart(parent, "Used", data.time_s, [["used", "--accent"]], sizeText)([data.used_bytes]);
  if (data.write_bytes_per_second.some((value) => value !== null)) {
    chart(parent, "Traffic", data.time_s, [["read", "--accent"], ["write", "--warning-bar"]],
      (value) => sizeText(value) + "/s")([data.read_bytes_per_second, data.write_bytes_per_second]);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  drawCharts();
  new MutationObserver(drawCharts).observe(document.getElementById("main"), {
    subtree: true, childList: true, attributes: true, attributeFilter: ["data-chart"] });
  listen();
});
