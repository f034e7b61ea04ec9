// How each worker spent its time: stacked bars.
import {axisTop} from "d3-axis";
import {scaleLinear} from "d3-scale";
import {select} from "d3-selection";
import {element, svg, hints, cut} from "./dom.js";
import {number, time, percent, unitOf} from "./format.js";

const PARTS = [["busy", "tasks", "--busy"], ["overhead", "overhead", "--overhead"],
  ["arrival", "wait for rows of a rank", "--wait-arrival"], ["producer", "wait for a task of this rank", "--wait-producer"],
  ["start", "wait at the start", "--wait-start"], ["end", "wait at the end", "--wait-end"]];
const WIDTH = 760, LEFT = 150, RIGHT = 60, ROW = 18, BAR = 14, TOP = 26;

export const totalUse = worker => PARTS.reduce((sum, [part]) => sum + (worker[part] || 0), 0);

/** `most` is the time of the full width, so that two reports compare. */
export function makeUse(report, most) {
  if (report.use.length === 0) return null;
  const x = scaleLinear([0, most], [LEFT, WIDTH - RIGHT]), texts = [];
  const root = svg("svg", {class: "chart", viewBox: `0 0 ${WIDTH} ${TOP + ROW * report.use.length + 4}`, width: WIDTH,
    role: "img", "aria-label": `Use per worker: ${report.use.length} workers`});
  report.use.forEach((worker, index) => {
    const y = TOP + ROW * index, total = totalUse(worker);
    let at = 0;
    root.append(svg("text", {x: LEFT - 8, y: y + 11, "text-anchor": "end"}, cut(worker.name, LEFT - 10, 6)));
    for (const [part, name, colour] of PARTS) {
      const length = worker[part] || 0;
      if (length <= 0) continue;
      const bar = svg("rect", {x: x(at), y, width: Math.max(0.3, x(at + length) - x(at)), height: BAR,
        "data-hint": texts.length});
      bar.style.fill = `var(${colour})`;
      root.append(bar);
      texts.push([worker.name, [name, `${time(length)}, ${percent(length / total)}`]]);
      at += length;
    }
    root.append(svg("text", {x: x(at) + 6, y: y + 11, class: "soft"}, total > 0 ? percent((worker.busy || 0) / total) : ""));
  });
  const [size, unit] = unitOf(most);
  const axis = axisTop(scaleLinear([0, most / size], x.range())).ticks(6).tickFormat(value => `${number(value)} ${unit}`);
  select(root.appendChild(svg("g", {transform: `translate(0,${TOP - 4})`}))).call(axis);
  hints(root, hint => texts[hint]);
  const legend = PARTS.filter(([part]) => report.use.some(worker => worker[part] > 0)).map(([, name, colour]) => {
    const mark = element("i", {class: "swatch", "aria-hidden": "true"});
    mark.style.background = `var(${colour})`;
    return element("span", {}, mark, name);
  });
  return element("div", {}, root, element("div", {class: "others"}, ...legend));
}
