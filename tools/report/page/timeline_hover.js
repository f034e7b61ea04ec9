// What the timeline shows of one span: which one a pointer is at, its tooltip, and arrows from the causes of waits.
import {showTooltip, hideTooltip} from "./dom.js";
import {number, time} from "./format.js";
import {NONE, TASK, ARRIVAL, PRODUCER, STUCK, STEP, spanName, isWait} from "./data.js";
import {upperBound} from "./rows.js";
import {ROW, GAP, shapeOf} from "./timeline_draw.js";

const NEAR = 3;          // pixels
const MAX_ARROWS = 200;

/** {part, at} of the span at a place of the window, or null. */
export function spanAt(timeline, x, y) {
  const box = timeline.overlay.getBoundingClientRect();
  const below = y - box.top + timeline.scroller.scrollTop, {lines} = timeline;
  const line = lines[upperBound(0, lines.length, below, i => lines[i].y) - 1];
  if (!line || !line.row || below > line.y + ROW || x < box.left) return null;
  const {report: {spans}, group} = timeline.parts[line.part], {row} = line;
  const perNs = timeline.plot / (timeline.to - timeline.from), when = timeline.from + (x - box.left) / perNs;
  const next = upperBound(row.first, row.last, when, i => spans.begin[group.order[i]]);
  let best = null, distance = NEAR / perNs;
  for (let i = Math.min(row.last - 1, next); i >= Math.max(row.first, next - (row.nested ? 64 : 2)); --i) {
    const at = group.order[i], gap = Math.max(spans.begin[at] - when, when - spans.begin[at] - spans.length[at], 0);
    if (gap < distance || (gap === 0 && best === null)) {
      best = {part: line.part, at};
      distance = gap;
      if (gap === 0) break;
    }
  }
  return best;
}

function place(report, at) {
  const {spans} = report, track = report.tracks[spans.track[at]];
  const lane = spans.lane[at] === NONE ? [] : [["lane", report.lanes[spans.lane[at]].name]];
  return [["worker", `${report.processes[track.process].name}, ${track.name}`], ...lane];
}

function taskLines(report, at) {
  const {spans} = report, ns = spans.length[at], lines = [];
  lines.push(["slot, tile", `${spans.slot[at]}, ${spans.tile[at]}`], ["rows", number(spans.rows[at])]);
  if (spans.expert[at] !== NONE) lines.push(["expert", spans.expert[at]]);
  if (report.families[spans.family[at]]) lines.push(["op", report.families[spans.family[at]].op]);
  if (spans.flops[at] > 0) lines.push(["rate", `${number(spans.flops[at] / ns)} GFLOP/s`]);
  if (spans.bytes[at] > 0) lines.push(["memory", `${number(spans.bytes[at] / ns)} GB/s`]);
  if (spans.critical[at]) lines.push("on the critical path");
  return lines;
}

function waitLines(report, at) {
  const {spans} = report, lines = [];
  if (spans.family[at] !== NONE) {
    lines.push(["for task", `${report.families[spans.family[at]].name}[${spans.slot[at]},${spans.tile[at]}]`]);
  }
  if (spans.event[at] !== NONE) lines.push(["event", `${report.events[spans.event[at]]}[${spans.index[at]}]`]);
  const cause = spans.cause[at];
  if (cause >= 0) {
    lines.push(["ended by", spanName(report, cause)], ["of", place(report, cause)[0][1]]);
  } else if ([ARRIVAL, PRODUCER, STUCK].includes(spans.kind[at])) {
    lines.push(["ended by", spans.kind[at] === STUCK ? "nothing" : "unknown"]);
  }
  return lines;
}

/** The lines of a span's tooltip. */
export function describe(report, at) {
  const {spans} = report, kind = spans.kind[at];
  const what = kind === TASK ? taskLines(report, at) : isWait(kind) ? waitLines(report, at) : [];
  return [spanName(report, at), ["length", time(spans.length[at])],
    ["from, to", `${time(spans.begin[at])}, ${time(spans.begin[at] + spans.length[at])}`], ...place(report, at), ...what];
}

export function showSpan(timeline, found, {x, y}, pinned) {
  if (found === null) hideTooltip();
  else showTooltip(describe(timeline.parts[found.part].report, found.at), x, y, pinned);
}

/** Waits that a task ended: built once per report, as lists one after the other. */
function endedBy(part, at) {
  const {count, cause} = part.report.spans;
  if (!part.starts) {
    part.starts = new Uint32Array(count + 1);
    for (let i = 0; i < count; ++i) if (cause[i] >= 0) part.starts[cause[i] + 1]++;
    for (let i = 0; i < count; ++i) part.starts[i + 1] += part.starts[i];
    const next = part.starts.slice();
    part.waits = new Uint32Array(part.starts[count]);
    for (let i = 0; i < count; ++i) if (cause[i] >= 0) part.waits[next[cause[i]]++] = i;
  }
  return part.waits.subarray(part.starts[at], Math.min(part.starts[at + 1], part.starts[at] + MAX_ARROWS));
}

function arrow(context, x1, y1, x2, y2, colour) {
  const bend = Math.min(40, Math.max(8, Math.abs(x2 - x1) / 2));
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(x1, y1);
  context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
  context.stroke();
  context.beginPath();
  context.moveTo(x2, y2);
  context.lineTo(x2 - 7, y2 - 3.5);
  context.lineTo(x2 - 7, y2 + 3.5);
  context.fill();
}

/** Outlines the span of interest, and draws arrows from its cause and to the waits that it ended. */
export function drawOverlay(timeline, view) {
  const context = timeline.overlay.getContext("2d"), {perNs, scroll, plot, from, theme} = view;
  context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  context.clearRect(0, 0, plot, view.height);
  const shown = timeline.pinned || timeline.hover;
  if (!shown) return;
  const part = timeline.parts[shown.part], {spans} = part.report, {at} = shown;
  const x = time => Math.min(plot + 50, Math.max(-50, (time - from) * perNs));
  const y = span => timeline.yOf(shown.part, span) - scroll;
  const row = part.group.rows[part.group.rowOf(at)];
  const inRow = row.nested ? part.group.order.subarray(row.first, row.last).indexOf(at) + row.first : row.first;
  const [inset, height] = shapeOf(row, inRow, spans.kind[at]), left = x(spans.begin[at]);
  context.strokeStyle = theme.accent;
  context.lineWidth = 2;
  context.strokeRect(left - 1, y(at) + inset - 1, Math.max(3, x(spans.begin[at] + spans.length[at]) - left + 2), height + 2);
  const connect = (cause, wait) => {
    const end = spans.begin[cause] + spans.length[cause];
    arrow(context, x(end), y(cause) + (ROW - GAP) / 2, x(spans.begin[wait] + spans.length[wait]),
      y(wait) + (ROW - GAP) * 0.75, theme.accent);
  };
  if (spans.cause[at] >= 0 && isWait(spans.kind[at])) connect(spans.cause[at], at);
  if (spans.kind[at] < STEP) for (const wait of endedBy(part, at)) connect(at, wait);
}
