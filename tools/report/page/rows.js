// The rows of the timeline, and trees of blocks above the spans of each row, so that a row costs its width to draw.
import {NONE, isWait, STEP} from "./data.js";

const FAN = 8;                       // children of a block
export const CRITICAL = 1, MATCH = 2;  // flags

function labels(report, byLane) {
  const rows = [], ofTrack = [], ofLane = [];
  const {spans} = report;
  const used = new Uint8Array(report.tracks.length), usedLane = new Uint8Array(report.lanes.length);
  for (let at = 0; at < spans.count; ++at) {
    if (byLane && spans.lane[at] !== NONE) usedLane[spans.lane[at]] = 1;
    else used[spans.track[at]] = 1;
  }
  report.processes.forEach((_, process) => {
    report.tracks.forEach((track, id) => {
      if (track.process !== process || (byLane && !used[id])) return;
      ofTrack[id] = rows.length;
      rows.push({process, label: track.name, first: 0, last: 0});
    });
    report.lanes.forEach((lane, id) => {
      if (!usedLane[id] || lane.process !== process) return;
      ofLane[id] = rows.length;
      rows.push({process, label: lane.name, first: 0, last: 0});
    });
  });
  return {rows, rowOf: at => byLane && spans.lane[at] !== NONE ? ofLane[spans.lane[at]] : ofTrack[spans.track[at]]};
}

/** Rows by worker, or by core and lane: {rows, order, rowOf}; row r holds the spans order[r.first .. r.last), by begin. */
export function groupSpans(report, byLane) {
  const {spans} = report;
  const {rows, rowOf} = labels(report, byLane);
  for (let at = 0; at < spans.count; ++at) rows[rowOf(at)].last++;
  let sum = 0;
  for (const row of rows) {
    row.first = sum;
    sum += row.last;
    row.last = row.first;
  }
  const order = new Uint32Array(spans.count);
  for (let at = 0; at < spans.count; ++at) order[rows[rowOf(at)].last++] = at;
  for (const row of rows) {
    const part = order.subarray(row.first, row.last);
    if (!part.every((at, i) => i === 0 || spans.begin[part[i - 1]] <= spans.begin[at])) {
      part.sort((a, b) => spans.begin[a] - spans.begin[b] || a - b);
    }
    row.nested = part.some(at => spans.kind[at] >= STEP && !isWait(spans.kind[at]));
    if (row.nested) setDepths(row, part, spans);
  }
  return {rows, order, rowOf};
}

function setDepths(row, part, spans) {
  const open = [];
  row.depth = new Uint8Array(part.length);
  part.forEach((at, i) => {
    while (open.length > 0 && open[open.length - 1] <= spans.begin[at]) open.pop();
    row.depth[i] = Math.min(open.length, 3);
    open.push(spans.begin[at] + spans.length[at]);
  });
}

function makeLevel(count) {
  return {begin: new Float64Array(count), end: new Float64Array(count), flags: new Uint8Array(count),
    sums: new Float32Array(8 * count)};
}

/** The sums of the lowest blocks: time times colour of tasks (0-2, time 3) and of waits (4-6, time 7). */
function fillLowest(level, row, spans, order, look) {
  const {begin, length, kind, critical} = spans;
  const {paint, palette, match} = look;
  for (let i = row.first; i < row.last; ++i) {
    const at = order[i], block = (i - row.first) / FAN | 0, to = 8 * block + (isWait(kind[at]) ? 4 : 0);
    if ((i - row.first) % FAN === 0) level.begin[block] = begin[at];
    const time = length[at], colour = 3 * paint[at];
    level.end[block] = Math.max(level.end[block], begin[at] + time);
    level.flags[block] |= (critical[at] ? CRITICAL : 0) | (match && match[at] ? MATCH : 0);
    level.sums[to] += time * palette[colour];
    level.sums[to + 1] += time * palette[colour + 1];
    level.sums[to + 2] += time * palette[colour + 2];
    level.sums[to + 3] += time;
  }
}

function raise(below) {
  const count = below.begin.length, level = makeLevel(Math.ceil(count / FAN));
  for (let i = 0; i < count; ++i) {
    const block = i / FAN | 0;
    if (i % FAN === 0) level.begin[block] = below.begin[i];
    level.end[block] = Math.max(level.end[block], below.end[i]);
    level.flags[block] |= below.flags[i];
    for (let s = 0; s < 8; ++s) level.sums[8 * block + s] += below.sums[8 * i + s];
  }
  return level;
}

/** Builds the blocks of all rows anew: after a change of grouping, colours or matches. look: {paint, palette, match}. */
export function buildBlocks(group, spans, look) {
  for (const row of group.rows) {
    row.levels = [];
    if (row.nested || row.first === row.last) continue;
    let level = makeLevel(Math.ceil((row.last - row.first) / FAN));
    fillLowest(level, row, spans, group.order, look);
    row.levels.push(level);
    while (level.begin.length > FAN) row.levels.push(level = raise(level));
  }
}

/** First i of [first, last) whose begin is above the time; begins(i) ascends. */
export function upperBound(first, last, time, begins) {
  while (first < last) {
    const middle = (first + last) >>> 1;
    if (begins(middle) > time) last = middle;
    else first = middle + 1;
  }
  return first;
}

/** Walks the blocks that overlap [from, to]: onBlock(level, block) for those at most `limit` long, onSpan(i) else. */
export function visit(row, from, to, limit, onBlock, onSpan) {
  const down = (height, block) => {
    const level = row.levels[height];
    if (level.end[block] < from || level.begin[block] > to) return;
    if (level.end[block] - level.begin[block] <= limit) {
      onBlock(level, block);
      return;
    }
    const count = height === 0 ? row.last - row.first : row.levels[height - 1].begin.length;
    const last = Math.min(count, (block + 1) * FAN);
    for (let child = block * FAN; child < last; ++child) {
      if (height === 0) onSpan(row.first + child);
      else down(height - 1, child);
    }
  };
  const top = row.levels.length - 1;
  if (top < 0) return;
  for (let block = 0; block < row.levels[top].begin.length; ++block) down(top, block);
}
