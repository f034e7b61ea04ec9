// Graphs: families and the events between them, and who waits for whom in a run that hangs.
import {line, curveMonotoneY} from "d3-shape";
import {element, svg, cut} from "./dom.js";
import {layOut} from "./layers.js";

const LINE = 15, PAD = 8, GAP = 26, BETWEEN = 46;
let markers = 0;

function nodeBox(node, x, y, width, height) {
  const group = svg("g", {class: "node", transform: `translate(${x - width / 2},${y})`}, svg("title", {}, node.name));
  group.append(svg("rect", {width, height, rx: 3}));
  if (node.colour) group.append(svg("rect", {width: 5, height, rx: 2, fill: node.colour, class: "colour"}));
  group.append(svg("text", {x: PAD + 4, y: 16, class: "name"}, cut(node.short, width - 16, 6.3)));
  node.lines.forEach((text, index) =>
    group.append(svg("text", {x: PAD + 4, y: 16 + LINE * (index + 1), class: "soft"}, cut(text, width - 16, 6))));
  return group;
}

/** Per edge how far from the middle of its nodes it leaves and arrives: side by side, in the order of where they lead. */
function portsOf(count, plan, widths) {
  const ports = plan.routes.map(() => [0, 0]), ends = Array.from({length: 2 * count}, () => []);
  plan.routes.forEach((route, edge) => {
    const {upper, lower} = plan.ends[edge];
    ends[2 * upper].push([route[1][0], edge, 0, widths[upper]]);
    ends[2 * lower + 1].push([route[route.length - 2][0], edge, 1, widths[lower]]);
  });
  for (const side of ends) {
    side.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    side.forEach(([, edge, end, width], index) => {
      ports[edge][end] = (index - (side.length - 1) / 2) * Math.min(36, width / (side.length + 1));
    });
  }
  return ports;
}

/** nodes: {name, short, lines, colour}; edges: {from, to, label, class}. */
function draw(nodes, edges, label) {
  const widths = nodes.map(node => Math.min(240, 34 + 6.4 * Math.max(node.short.length, ...node.lines.map(text => text.length))));
  const heights = nodes.map(node => 24 + LINE * node.lines.length);
  const plan = layOut(widths, edges, GAP), tall = Array.from({length: plan.depth}, () => 24), top = [];
  nodes.forEach((_, id) => {
    tall[plan.layer[id]] = Math.max(tall[plan.layer[id]], heights[id]);
  });
  let y = 4;
  tall.forEach((height, level) => {
    top[level] = y;
    y += height + BETWEEN;
  });
  const id = `arrow-${++markers}`, height = y - BETWEEN + 8;
  let width = plan.width + 4;
  const root = svg("svg", {height, role: "img", "aria-label": label},
    svg("defs", {}, svg("marker", {id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7,
      orient: "auto-start-reverse"}, svg("path", {d: "M0,0.5L8,4L0,7.5Z", fill: "context-stroke"}))));
  const ports = portsOf(nodes.length, plan, widths);
  const curve = line().curve(curveMonotoneY), texts = svg("g", {}), taken = [];
  edges.forEach((edge, number) => {
    const route = plan.routes[number], points = [], back = plan.back.has(number);
    const upper = back ? edge.to : edge.from;
    route.forEach(([x, level], i) => {
      if (i === 0) points.push([x + ports[number][0], top[level] + heights[upper]]);
      else if (i === route.length - 1) points.push([x + ports[number][1], top[level] - 1]);
      else points.push([x, top[level]], [x, top[level] + tall[level]]);
    });
    if (back) points[0][1] += 1;
    root.append(svg("path", {class: `edge ${edge.class}`, d: curve(points),
      [back ? "marker-start" : "marker-end"]: `url(#${id})`}));
    const [[x1, y1], [x2, y2]] = points, place = [(x1 + x2) / 2 + 6, (y1 + y2) / 2 + 4];
    const covers = ([x, y]) => Math.abs(y - place[1]) < 11 && Math.abs(x - place[0]) < 6.2 * edge.label.length;
    while (taken.some(covers)) place[1] += 11;
    taken.push(place);
    width = Math.max(width, place[0] + 6.3 * edge.label.length);
    texts.append(svg("text", {x: place[0], y: place[1], class: `label halo ${edge.class}`}, edge.label));
  });
  nodes.forEach((node, at) => root.append(nodeBox(node, plan.x[at], top[plan.layer[at]], widths[at], heights[at])));
  root.append(texts);
  root.setAttribute("width", width);
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return element("div", {class: "scroll graph", tabindex: 0, role: "region", "aria-label": label}, root);
}

export function makeGraphs(report) {
  const graphs = report.graphs.filter(graph => graph.nodes.length > 0);
  if (graphs.length === 0) return null;
  return element("div", {}, ...graphs.map(graph => {
    const nodes = graph.nodes.map(({family, lines}) => {
      const {name, colour} = report.families[family];
      return {name, short: name.startsWith(`${graph.entry}/`) ? name.slice(graph.entry.length + 1) : name, lines, colour};
    });
    const edges = graph.edges.map(({from, to, event, remote}) => ({from, to, label: event, class: remote ? "remote" : "near"}));
    return element("div", {}, element("h3", {}, graph.entry),
      draw(nodes, edges, `Families and events of ${graph.entry}: ${nodes.length} families`));
  }));
}

export function makeHang(report) {
  if (!report.hang) return null;
  const names = [...new Set(report.hang.edges.flatMap(({from, to}) => [from, to]))];
  const nodes = names.map(name => {
    const [who, ...what] = name.split(": ");
    return {name, short: who, lines: what.length > 0 ? [what.join(": ")] : []};
  });
  const edges = report.hang.edges.map(({from, to, label, missing}) =>
    ({from: names.indexOf(from), to: names.indexOf(to), label, class: missing ? "missing" : "near"}));
  return element("div", {}, element("p", {class: "hang"}, report.hang.text),
    nodes.length > 0 ? draw(nodes, edges, "Who waits for whom") : null);
}
