// Builds the page from its data.
import {element, section, titleOf, hideTooltip} from "./dom.js";
import {readReports} from "./data.js";
import {Timeline} from "./timeline.js";
import {timelineTools} from "./timeline_tools.js";
import {makeUse, totalUse} from "./use.js";
import {makeRoofline} from "./roofline.js";
import {makeRouting} from "./routing.js";
import {makeMemory} from "./memory.js";
import {makeGraphs, makeHang} from "./graph.js";
import {makeTable, tableIds} from "./tables.js";

const state = window.sluiceReport = {ready: false, errors: [], redraws: []};

function showFacts(reports) {
  document.getElementById("facts").append(...reports.map((report, index) => {
    const facts = [["file", report.file], ...report.facts].map(([fact, value]) =>
      element("div", {}, element("dt", {}, fact), element("dd", {}, String(value))));
    return element("div", {class: "column"}, element("h2", {class: "title"}, titleOf(reports, index)),
      element("dl", {class: "facts"}, ...facts));
  }));
  document.title = `${reports.map(report => report.title).join(" and ")} \u2013 Sluice report`;
}

function timelineSection(reports) {
  const timeline = new Timeline(reports);
  if (timeline.parts.length === 0) return null;
  const {above, below} = timelineTools(timeline);
  state.timeline = timeline;
  return element("section", {id: "timeline", "aria-labelledby": "timeline-title"},
    element("h2", {id: "timeline-title"}, "Timeline"), above, timeline.element, below);
}

function tableSections(reports) {
  return tableIds(reports).map(id => {
    const tables = reports.map(report => report.tables.find(table => table.id === id));
    const {title} = tables.find(table => table);
    return section(`table-${id}`, title, "", reports, (_, index) => tables[index] ? makeTable(tables[index]) : null);
  });
}

function makeSections(reports) {
  const mostUse = Math.max(1, ...reports.flatMap(report => report.use.map(totalUse)));
  return [
    section("hang", "Waits that never ended", "An arrow leads from who waits to whom it waits for; what is missing is red.",
      reports, makeHang),
    timelineSection(reports),
    section("use", "Use per worker", "At the right, the share of tasks.", reports, report => makeUse(report, mostUse)),
    section("roofline", "Roofline", "Per core. The area of a circle is the time of its family.", reports, makeRoofline),
    section("routing", "Rows per expert and rank", "Above the columns, experts and the ranks that own them.", reports,
      report => makeRouting(report, state.redraws)),
    section("memory", "Memory plan", "Addresses grow upwards; small regions are drawn larger than they are.", reports,
      makeMemory),
    section("graph", "Families and events", "Dashed: an event at other ranks.", reports, makeGraphs),
    ...tableSections(reports),
  ];
}

/** Draws everything anew whose colours do not come from CSS. */
function takeColours() {
  for (const redraw of state.redraws) redraw();
  if (!state.timeline) return;
  state.timeline.recolour();
  state.timeline.fillLegend();
}

function watchTheme() {
  const button = document.getElementById("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const changed = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    takeColours();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    changed();
  });
  dark.addEventListener("change", changed);
  button.textContent = isDark() ? "Light" : "Dark";
}

/** Paper is light and has no window to scroll in. */
function watchPrinting() {
  let before;
  const print = on => {
    if (on) before = document.documentElement.dataset.theme;
    if (on || before) document.documentElement.dataset.theme = on ? "light" : before;
    else delete document.documentElement.dataset.theme;
    takeColours();
    if (state.timeline) state.timeline.forPaper(on);
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
}

/** For measuring: per frame of a zoom into the middle and back, the ms to draw it and the ms since the one before. */
function measureFrames(count) {
  const {timeline} = state, draws = [], intervals = [];
  return new Promise(done => {
    let last = null;
    const next = now => {
      if (last !== null) intervals.push(now - last);
      last = now;
      draws.push(timeline.frameMs);
      if (draws.length > count) {
        timeline.show(0, timeline.end);
        done({draws: draws.slice(1), intervals});
        return;
      }
      const half = timeline.end / 2 * 2 ** (-12 * Math.sin(Math.PI * draws.length / count));
      timeline.show(timeline.end / 2 - half, timeline.end / 2 + half);
      requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  });
}

function start() {
  const reports = readReports();
  showFacts(reports);
  const sections = makeSections(reports).filter(each => each !== null);
  document.getElementById("sections").replaceChildren(...sections);
  document.getElementById("contents").append(...sections.map(each =>
    element("a", {href: `#${each.id}`}, each.querySelector("h2").textContent)));
  const {timeline} = state;
  if (timeline) timeline.resize();
  watchTheme();
  watchPrinting();
  addEventListener("keydown", event => {
    if (event.key === "Escape") hideTooltip();
  });
  Object.assign(state, {reports, measureFrames, spanCount: 0, search: text => timeline.search(text)});
  for (const report of reports) state.spanCount += report.spans ? report.spans.count : 0;
  const live = (name, get) => Object.defineProperty(state, name, {get: () => timeline ? get() : null});
  live("frameMs", () => timeline.frameMs);
  live("visible", () => ({from: timeline.from, to: timeline.to, end: timeline.end}));
  live("matches", () => timeline.matches || 0);
  live("searched", () => timeline.searched || "");
  state.loadMs = performance.now();
  state.ready = true;
}

addEventListener("error", event => state.errors.push(event.message));
try {
  start();
} catch (error) {
  state.errors.push(String(error));
  document.getElementById("sections").replaceChildren(element("p", {class: "problem"},
    `This report cannot be shown: ${error.message}`));
  console.error(error);
}
