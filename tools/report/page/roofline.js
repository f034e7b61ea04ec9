// Rate of each family over its intensity, both on logarithmic axes, below the roofs of one core.
import {axisBottom, axisLeft} from "d3-axis";
import {extent} from "d3-array";
import {scaleLog} from "d3-scale";
import {select} from "d3-selection";
import {svg, hints, cut} from "./dom.js";
import {number} from "./format.js";

const WIDTH = 760, HEIGHT = 380, LEFT = 64, RIGHT = 20, TOP = 14, BOTTOM = 44;

function scales(points, flat, slopes) {
  const ridges = slopes.flatMap(slope => flat.map(roof => roof.gflops / slope.gbytes));
  const [low, high] = extent([...points.map(point => point.intensity), ...ridges]);
  const [slow, fast] = extent([...points.map(point => point.gflops), ...flat.map(roof => roof.gflops)]);
  return {x: scaleLog([low / 3, high * 4], [LEFT, WIDTH - RIGHT]), y: scaleLog([slow / 3, fast * 2], [HEIGHT - BOTTOM, TOP])};
}

/** Ticks at powers of ten only where the range is wide, so that labels do not run into each other. */
function ticksOf(scale) {
  const [low, high] = scale.domain(), wide = high / low > 1000;
  const steps = high / low > 30 ? [1] : [1, 2, 5];
  const every = wide ? Math.ceil(Math.log10(high / low) / 8) : 1, ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every) {
    for (const step of steps) if (step * 10 ** power >= low && step * 10 ** power <= high) ticks.push(step * 10 ** power);
  }
  return ticks;
}

function drawRoofs(root, {x, y}, flat, slopes) {
  const [low, high] = x.domain(), [bottom] = y.domain();
  const peak = Math.max(...flat.map(roof => roof.gflops), -Infinity), steepest = Math.max(...slopes.map(roof => roof.gbytes));
  const line = (x1, y1, x2, y2) => root.append(svg("line", {class: "roof", x1: x(x1), y1: y(y1), x2: x(x2), y2: y(y2)}));
  for (const {name, gflops} of flat) {
    const ridge = slopes.length > 0 ? Math.max(low, gflops / steepest) : low;
    line(ridge, gflops, high, gflops);
    root.append(svg("text", {x: WIDTH - RIGHT - 4, y: y(gflops) - 6, "text-anchor": "end", class: "soft"},
      `${name}: ${number(gflops)} GFLOP/s`));
  }
  for (const {name, gbytes} of slopes) {
    const top = Number.isFinite(peak) ? peak : y.domain()[1], from = Math.max(low, bottom / gbytes);
    const to = Math.min(high, top / gbytes);
    if (to <= from) continue;
    line(from, from * gbytes, to, to * gbytes);
    const middle = Math.sqrt(from * to), x0 = x(middle), y0 = y(middle * gbytes);
    const angle = Math.atan2(y(to * gbytes) - y(from * gbytes), x(to) - x(from)) * 180 / Math.PI;
    root.append(svg("text", {transform: `translate(${x0},${y0}) rotate(${angle}) translate(0,-6)`, "text-anchor": "middle",
      class: "soft"}, `${name}: ${number(gbytes)} GB/s`));
  }
}

export function makeRoofline(report) {
  if (!report.roofline) return null;
  const points = report.roofline.points.filter(point => point.intensity > 0 && point.gflops > 0);
  if (points.length === 0) return null;
  const flat = report.roofline.roofs.filter(roof => roof.gflops > 0);
  const slopes = report.roofline.roofs.filter(roof => roof.gbytes > 0);
  const both = scales(points, flat, slopes), {x, y} = both;
  const root = svg("svg", {class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, role: "img",
    "aria-label": `Roofline of ${points.length} families`});
  const axes = [[axisBottom(x), `translate(0,${HEIGHT - BOTTOM})`, x], [axisLeft(y), `translate(${LEFT},0)`, y]];
  for (const [axis, transform, scale] of axes) {
    axis.tickValues(ticksOf(scale)).tickFormat(number);
    select(root.appendChild(svg("g", {transform}))).call(axis);
  }
  root.append(svg("text", {x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "soft"},
    "floating point operations per byte"));
  root.append(svg("text", {transform: `translate(14,${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle",
    class: "soft"}, "GFLOP/s per core"));
  drawRoofs(root, both, flat, slopes);
  const longest = Math.max(...points.map(point => point.ms));
  points.forEach((point, index) => {
    const family = report.families[point.family], radius = 4 + 8 * Math.sqrt(point.ms / longest);
    root.append(svg("circle", {cx: x(point.intensity), cy: y(point.gflops), r: radius, fill: family.colour,
      "data-hint": index, class: "point"}));
    const right = x(point.intensity) > WIDTH * 0.7;
    root.append(svg("text", {x: x(point.intensity) + (right ? -1 : 1) * (radius + 4), y: y(point.gflops) + 16,
      "text-anchor": right ? "end" : "start", class: "name halo"}, cut(family.name.replace(/^[^/<]*\//, ""), 260, 6)));
  });
  hints(root, hint => {
    const point = points[hint], family = report.families[point.family];
    return [family.name, ["op", family.op], ["rate", `${number(point.gflops)} GFLOP/s`],
      ["intensity", `${number(point.intensity)} per byte`], ["time", `${number(point.ms)} ms`]];
  });
  return root;
}
