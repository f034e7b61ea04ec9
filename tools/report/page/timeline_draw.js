// Paints the rows of the timeline. What is narrower than a few pixels is summed up per pixel in the mean colour, tasks in
// the whole height and waits in the lower half; everything wider is a rectangle with its name.
import {cut} from "./dom.js";
import {shortName, isWait} from "./data.js";
import {visit, upperBound, CRITICAL, MATCH} from "./rows.js";

export const ROW = 20, HEAD = 18, GAP = 3;
const WIDE = 3;  // pixels

/** The y and the height of a span in its row. */
export function shapeOf(row, i, kind) {
  if (row.nested) {
    const inset = 3 * row.depth[i - row.first];
    return [inset, ROW - GAP - inset];
  }
  return isWait(kind) ? [(ROW - GAP) / 2, (ROW - GAP) / 2] : [0, ROW - GAP];
}

class Strip {
  constructor(width) {
    this.width = width;
    this.sums = new Float32Array(8 * width);
    this.flags = new Uint8Array(width);
    this.image = new ImageData(width, 2);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.canvas = document.createElement("canvas");
    this.canvas.width = width;
    this.canvas.height = 2;
    this.context = this.canvas.getContext("2d");
  }

  clear() {
    this.sums.fill(0);
    this.flags.fill(0);
  }

  /** A block, whole, at the pixel of its middle. share: pixels per nanosecond. */
  addBlock(level, block, from, share) {
    const x = Math.floor(((level.begin[block] + level.end[block]) / 2 - from) * share);
    if (x < 0 || x >= this.width) return;
    for (let s = 0; s < 8; ++s) this.sums[8 * x + s] += share * level.sums[8 * block + s];
    this.flags[x] |= level.flags[block];
  }

  addSpan(begin, end, wait, palette, colour, flags) {
    for (let x = Math.max(0, Math.floor(begin)); x < end && x < this.width; ++x) {
      const part = Math.min(end, x + 1) - Math.max(begin, x), to = 8 * x + (wait ? 4 : 0);
      this.sums[to] += part * palette[3 * colour];
      this.sums[to + 1] += part * palette[3 * colour + 1];
      this.sums[to + 2] += part * palette[3 * colour + 2];
      this.sums[to + 3] += part;
      this.flags[x] |= flags;
    }
  }

  /** The mean colour of tasks, and of waits where asked, as a pixel; thin spans stay visible. */
  pixel(x, withWaits) {
    const at = 8 * x, s = this.sums, w = withWaits ? 1 : 0;
    const time = s[at + 3] + w * s[at + 7];
    if (time < 1e-6) return 0;
    const alpha = Math.min(255, 60 + 195 * time), r = (s[at] + w * s[at + 4]) / time;
    const g = (s[at + 1] + w * s[at + 5]) / time, b = (s[at + 2] + w * s[at + 6]) / time;
    return (alpha << 24 | Math.min(255, b) << 16 | Math.min(255, g) << 8 | Math.min(255, r)) >>> 0;
  }

  paint(context, left, y, ratio) {
    for (let x = 0; x < this.width; ++x) {
      this.pixels[x] = this.pixel(x, false);
      this.pixels[this.width + x] = this.pixel(x, true);
    }
    this.context.putImageData(this.image, 0, 0);
    context.drawImage(this.canvas, left, y, this.width / ratio, ROW - GAP);
  }

  mark(context, left, y, ratio, flag, colour) {
    context.fillStyle = colour;
    for (let x = 0; x < this.width; ++x) {
      if (!(this.flags[x] & flag)) continue;
      const first = x;
      while (x < this.width && this.flags[x] & flag) ++x;
      context.fillRect(left + first / ratio, y, Math.max(1, (x - first) / ratio), 2);
    }
  }
}

let strip = null;

function colourText(palette, colour) {
  return `rgb(${palette[3 * colour] | 0},${palette[3 * colour + 1] | 0},${palette[3 * colour + 2] | 0})`;
}

/** Where the name of a nested span may begin: after a span inside it that would cover it. */
function pastChild(view, part, row, wide, position, left) {
  const child = wide[position + 1], {spans} = part.report;
  if (child === undefined || row.depth[child - row.first] <= row.depth[wide[position] - row.first]) return left;
  const at = part.group.order[child], begin = (spans.begin[at] - view.from) * view.perNs;
  return begin < left + 80 ? Math.max(left, begin + spans.length[at] * view.perNs) : left;
}

function drawWide(view, part, row, y, wide) {
  const {context, gutter, from, perNs, theme} = view, {report, look, group} = part;
  const {spans} = report;
  context.font = "11px system-ui, sans-serif";
  for (const [position, i] of wide.entries()) {
    const at = group.order[i], kind = spans.kind[at];
    const left = Math.max(-2, (spans.begin[at] - from) * perNs);
    const right = Math.min(view.plot + 2, (spans.begin[at] + spans.length[at] - from) * perNs);
    const [inset, height] = shapeOf(row, i, kind), colour = look.paint[at];
    context.fillStyle = colourText(look.palette, colour);
    context.fillRect(gutter + left, y + inset, Math.max(1, right - left - 0.5), height);
    if (look.match && look.match[at]) {
      context.fillStyle = theme.match;
      context.fillRect(gutter + left, y + ROW - GAP, right - left - 0.5, 2);
    }
    if (view.critical && spans.critical[at]) {
      context.strokeStyle = theme.critical;
      context.lineWidth = 2;
      context.strokeRect(gutter + left + 1, y + inset + 1, Math.max(0.5, right - left - 2.5), height - 2);
    }
    const start = row.nested ? pastChild(view, part, row, wide, position, left) : left;
    if (right - start > 36 && height > 12) {
      const text = cut(shortName(report, at), right - start - 8, 6);
      const [r, g, b] = look.palette.subarray(3 * colour, 3 * colour + 3);
      context.globalAlpha = colour < look.palette.length / 6 ? 1 : 0.5;
      context.fillStyle = 0.3 * r + 0.59 * g + 0.11 * b > 140 ? "#111" : "#fff";
      if (text) context.fillText(text, gutter + start + 4, y + ROW - GAP - 5);
      context.globalAlpha = 1;
    }
  }
}

function drawNested(view, part, row, y) {
  const {spans} = part.report, wide = [];
  const past = [-Infinity, -Infinity, -Infinity, -Infinity];  // right end of what is drawn, per depth
  for (let i = row.first; i < row.last; ++i) {
    const at = part.group.order[i];
    const left = (spans.begin[at] - view.from) * view.perNs, right = left + spans.length[at] * view.perNs;
    const depth = row.depth[i - row.first];
    if (right < 0 || left > view.plot || right < past[depth] + 0.5) continue;
    past[depth] = right;
    wide.push(i);
  }
  drawWide(view, part, row, y, wide);
}

function drawRow(view, part, row, y) {
  if (row.nested) {
    drawNested(view, part, row, y);
    return;
  }
  const {from, to, perNs, ratio, context, gutter, theme} = view, {report: {spans}, look, group} = part;
  const wide = [], share = perNs * ratio;
  strip.clear();
  visit(row, from, to, 1 / share, (level, block) => strip.addBlock(level, block, from, share), i => {
    const at = group.order[i], begin = spans.begin[at], length = spans.length[at];
    if (begin > to || begin + length < from) return;
    if (length * perNs >= WIDE) {
      wide.push(i);
      return;
    }
    const flags = (spans.critical[at] ? CRITICAL : 0) | (look.match && look.match[at] ? MATCH : 0);
    strip.addSpan((begin - from) * share, (begin + length - from) * share, isWait(spans.kind[at]), look.palette,
      look.paint[at], flags);
  });
  strip.paint(context, gutter, y, ratio);
  drawWide(view, part, row, y, wide);
  if (view.critical) strip.mark(context, gutter, y, ratio, CRITICAL, theme.critical);
  if (look.match) strip.mark(context, gutter, y + ROW - GAP, ratio, MATCH, theme.match);
}

function drawLabel(view, line, y) {
  const {context, gutter, theme} = view;
  context.fillStyle = theme.chart;
  context.fillRect(0, y - 1, gutter, line.height);
  context.fillStyle = line.row ? theme.soft : theme.text;
  context.font = line.row ? "11.5px system-ui, sans-serif" : "600 12px system-ui, sans-serif";
  context.fillText(cut(line.label, line.row ? gutter - 18 : 600, 6.1), line.row ? 10 : 2, y + 13);
}

/** Draws the lines that are in view. view: {context, width, height, gutter, plot, ratio, scroll, from, to, perNs, ...}. */
export function drawTimeline(view, parts, lines) {
  const {context, ratio, width, height, gutter, plot, theme} = view;
  const pixels = Math.max(1, Math.round(plot * ratio));
  if (!strip || strip.width !== pixels) strip = new Strip(pixels);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.imageSmoothingEnabled = false;
  context.fillStyle = theme.chart;
  context.fillRect(0, 0, width, height);
  const first = Math.max(0, upperBound(0, lines.length, view.scroll, i => lines[i].y) - 1);
  for (let i = first; i < lines.length && lines[i].y < view.scroll + height; ++i) {
    const line = lines[i], y = line.y - view.scroll;
    if (line.row) {
      context.fillStyle = theme.line;
      context.fillRect(gutter, y + ROW - 1.5, plot, 0.5);
      drawRow(view, parts[line.part], line.row, y);
    }
    drawLabel(view, line, y);
  }
}
