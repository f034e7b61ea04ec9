// Rows that each rank sends to each expert: a heat map per entry.
import {interpolateRgb} from "d3-interpolate";
import {max, sum} from "d3-array";
import {element, svg, variable, hints, cut} from "./dom.js";
import {number, percent} from "./format.js";

const LEFT = 90, TOP = 34, WIDTH = 760;

function heat(routing, report) {
  const {counts, owner} = routing, experts = owner.length, most = max(counts, each => max(each)) || 1;
  const cell = Math.min(46, (WIDTH - LEFT - 2) / experts), height = Math.max(16, Math.min(26, cell));
  const total = sum(counts, each => sum(each)), width = LEFT + cell * experts + 2;
  const root = svg("svg", {class: "chart", viewBox: `0 0 ${width} ${TOP + height * counts.length + 4}`, width, role: "img",
    "aria-label": `Rows per expert and rank of ${routing.entry}: ${number(total)} rows`});
  const colour = interpolateRgb(variable("--heat-low"), variable("--heat-high"));
  const nameOf = rank => report.processes[rank] ? report.processes[rank].name : `rank ${rank}`;
  counts.forEach((row, rank) => {
    const y = TOP + height * rank;
    root.append(svg("text", {x: LEFT - 8, y: y + height / 2 + 4, "text-anchor": "end"}, `from ${cut(nameOf(rank), 56, 6)}`));
    row.forEach((rows, expert) => {
      const x = LEFT + cell * expert;
      root.append(svg("rect", {x, y, width: cell - (cell > 4 ? 1 : 0), height: height - 1, fill: colour(rows / most),
        "data-hint": `${rank} ${expert}`}));
      if (cell >= 30) {
        root.append(svg("text", {x: x + cell / 2, y: y + height / 2 + 4, "text-anchor": "middle", "pointer-events": "none",
          class: rows / most > 0.45 ? "on-high" : null}, number(rows)));
      }
    });
  });
  drawOwners(root, owner, cell, nameOf);
  hints(root, hint => {
    const [rank, expert] = hint.split(" ").map(Number), all = sum(counts, row => row[expert]);
    return [`expert ${expert} of ${nameOf(owner[expert])}`, [`rows from ${nameOf(rank)}`, number(counts[rank][expert])],
      ["rows from all", `${number(all)}, ${percent(total > 0 ? all / total : 0)}`]];
  });
  return root;
}

/** Above the columns: numbers of experts where they fit, and which rank owns them. */
function drawOwners(root, owner, cell, nameOf) {
  let first = 0;
  const every = Math.ceil(22 / cell);
  for (let expert = 0; expert <= owner.length; ++expert) {
    if (expert < owner.length && expert % every === 0) {
      root.append(svg("text", {x: LEFT + cell * (expert + 0.5), y: TOP - 4, "text-anchor": "middle", class: "soft"}, expert));
    }
    if (expert < owner.length && owner[expert] === owner[first]) continue;
    const x = LEFT + cell * first, end = LEFT + cell * expert;
    root.append(svg("line", {class: "owner", x1: x + 1, x2: end - 2, y1: TOP - 17, y2: TOP - 17}));
    root.append(svg("text", {x: (x + end) / 2, y: TOP - 21, "text-anchor": "middle"}, cut(nameOf(owner[first]), end - x, 6)));
    first = expert;
  }
}

/** Drawn anew by `redraw` when the theme changes. */
export function makeRouting(report, redraws) {
  if (report.routing.length === 0) return null;
  return element("div", {}, ...report.routing.map(routing => {
    const place = element("div", {});
    const draw = () => place.replaceChildren(heat(routing, report));
    draw();
    redraws.push(draw);
    return element("div", {}, element("h3", {}, routing.entry), place);
  }));
}
