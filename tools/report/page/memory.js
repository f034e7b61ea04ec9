// The memory plan: buffers as rectangles, time or families to the right, addresses upwards, one band per region.
import {axisBottom} from "d3-axis";
import {scaleLinear} from "d3-scale";
import {select} from "d3-selection";
import {element, svg, hints, cut} from "./dom.js";
import {number, bytes} from "./format.js";

const WIDTH = 760, LEFT = 70, RIGHT = 12, SHARED = 330, LEAST = 50, HEAD = 22;

const bandTitle = ({name, kind, bytes: size}) => `${name}: ${bytes(size)}${name === kind ? "" : `, ${kind}`}`;

function plan(memory) {
  const {regions, buffers} = memory, byFamily = memory.axis === "family";
  const all = regions.reduce((sum, region) => sum + region.bytes, 0) || 1;
  const last = byFamily ? memory.names.length : Math.max(...buffers.map(buffer => buffer.end), 1e-9);
  const x = scaleLinear([byFamily ? 0 : Math.min(0, ...buffers.map(buffer => buffer.begin)), last], [LEFT, WIDTH - RIGHT]);
  const body = svg("g", {});
  let y = 0;
  regions.forEach((region, index) => {
    const height = Math.max(LEAST, SHARED * region.bytes / all);
    body.append(svg("text", {x: LEFT, y: y + 15, class: "name"}, cut(bandTitle(region), WIDTH - LEFT, 6)));
    y += HEAD;
    body.append(svg("rect", {class: "region", x: LEFT, y, width: WIDTH - LEFT - RIGHT, height}));
    body.append(svg("text", {x: LEFT - 6, y: y + 9, "text-anchor": "end", class: "soft"}, bytes(region.bytes)));
    body.append(svg("text", {x: LEFT - 6, y: y + height, "text-anchor": "end", class: "soft"}, "0"));
    const scale = height / (region.bytes || 1);
    buffers.forEach((buffer, hint) => {
      if (buffer.region !== index) return;
      const left = x(buffer.begin), width = Math.max(1, x(buffer.end) - left), tall = Math.max(1, buffer.bytes * scale);
      const top = y + height - buffer.offset * scale - tall;
      body.append(svg("rect", {class: `buffer ${region.kind}`, x: left, y: top, width, height: tall, "data-hint": hint}));
      const text = tall >= 13 ? cut(buffer.name, width - 8, 6.2) : "";
      if (text) body.append(svg("text", {x: left + 5, y: top + Math.min(tall - 3, 14), "pointer-events": "none"}, text));
    });
    y += height + 6;
  });
  const below = drawAxis(body, memory, x, y, byFamily);
  const root = svg("svg", {class: "chart", viewBox: `0 0 ${WIDTH} ${y + below}`, width: WIDTH, role: "img",
    "aria-label": `Memory plan of ${memory.entry}: ${buffers.length} buffers in ${regions.length} regions`}, body);
  hints(root, hint => describe(memory, buffers[hint], byFamily));
  return root;
}

/** Draws the axis below everything; returns its height. */
function drawAxis(body, memory, x, y, byFamily) {
  if (!byFamily) {
    const axis = axisBottom(x).ticks(8).tickFormat(value => `${number(value)} ms`);
    select(body.appendChild(svg("g", {transform: `translate(0,${y})`}))).call(axis);
    return 26;
  }
  const step = x(1) - x(0), slanted = step < 110, every = Math.max(1, Math.ceil(12 / step));
  memory.names.forEach((name, index) => {
    const at = x(index), short = name.replace(/^[^/<]*\//, "");
    body.append(svg("line", {class: "notch", x1: at, x2: at, y1: y - 4, y2: y}));
    if (index % every !== 0) return;
    const transform = slanted ? `translate(${at + step / 2 + 4},${y + 6}) rotate(-60)` : `translate(${at + step / 2},${y + 12})`;
    body.append(svg("text", {transform, "text-anchor": slanted ? "end" : "middle"}, cut(short, slanted ? 120 : step, 6)));
  });
  return slanted ? 112 : 20;
}

function describe(memory, buffer, byFamily) {
  const when = byFamily
    ? [["from", memory.names[buffer.begin] || buffer.begin], ["to before", memory.names[buffer.end] || "the end"]]
    : [["from, to", `${number(buffer.begin)} ms, ${number(buffer.end)} ms`]];
  return [buffer.name, ["type", `${buffer.type}, ${buffer.shape}`], ["size", bytes(buffer.bytes)],
    ["offset", `${number(buffer.offset)} in ${memory.regions[buffer.region].name}`], ...when];
}

export function makeMemory(report) {
  const plans = report.memory.filter(memory => memory.regions.length > 0);
  if (plans.length === 0) return null;
  return element("div", {}, ...plans.map(memory => element("div", {}, element("h3", {}, memory.entry), plan(memory))));
}
