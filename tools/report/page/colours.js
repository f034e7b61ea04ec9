// Colours of spans: of families as the report gives them, of waits by their cause.
import {rgb} from "d3-color";
import {variable} from "./dom.js";
import {NONE, TASK, ARRIVAL, PRODUCER, START, END, STUCK, isWait} from "./data.js";

// waits for rows, by the rank that sent them
const RANKS = ["#c9a227", "#a0522d", "#d98880", "#8c8c3d", "#b5838d", "#e0c06a", "#7d5a3c", "#c77966"];

export const rankColour = rank => RANKS[rank % RANKS.length];

/** The kinds of spans that are not tasks, for legends: [name, colour]. */
export function otherColours(report) {
  const ranks = report.processes.map((process, rank) => [`wait for rows of ${process.name}`, rankColour(rank)]);
  return [...ranks, ["wait for rows, sender unknown", variable("--wait-arrival")],
    ["wait for a task of this rank", variable("--wait-producer")], ["wait at the start", variable("--wait-start")],
    ["wait at the end", variable("--wait-end")], ["wait that never ended", variable("--bad")],
    ["step, bind, exchange", variable("--step")]];
}

/** The place of a span in the list: families, then otherColours. */
function colourOf(report, at) {
  const {spans, families, processes} = report;
  const others = families.length, fixed = others + processes.length;
  switch (spans.kind[at]) {
    case TASK: return spans.family[at] === NONE ? fixed + 5 : spans.family[at];
    case ARRIVAL: return spans.cause[at] < 0 ? fixed : others + report.tracks[spans.track[spans.cause[at]]].process;
    case PRODUCER: return fixed + 1;
    case START: return fixed + 2;
    case END: return fixed + 3;
    case STUCK: return fixed + 4;
    default: return fixed + 5;
  }
}

/** colourOf of all spans. */
export function paintSpans(report) {
  return Uint16Array.from({length: report.spans.count}, (_, at) => colourOf(report, at));
}

/** All colours as numbers, then the same faded into the background: {palette, faded: index of the first faded one}. */
export function makePalette(report) {
  const list = [...report.families.map(family => family.colour), ...otherColours(report).map(([, colour]) => colour)];
  const back = rgb(variable("--chart"));
  const palette = new Float32Array(6 * list.length);
  list.forEach((text, i) => {
    const {r, g, b} = rgb(text);
    const colour = [r, g, b].map(value => Number.isFinite(value) ? value : 128);
    palette.set(colour, 3 * i);
    palette.set(colour.map((value, c) => 0.18 * value + 0.82 * [back.r, back.g, back.b][c]), 3 * (list.length + i));
  });
  return {palette, faded: list.length};
}

/** Per span, its colour in the palette: faded unless its family is among `chosen` (if any is) and it is a match. */
export function lookOf(report, base, {palette, faded}, chosen, match) {
  const {kind, family} = report.spans;
  if (chosen.size === 0 && !match) return {paint: base, palette, match: null};
  const paint = base.slice();
  for (let at = 0; at < paint.length; ++at) {
    const shown = (chosen.size === 0 || (chosen.has(family[at]) && !isWait(kind[at]))) && (!match || match[at]);
    if (!shown) paint[at] += faded;
  }
  return {paint, palette, match};
}
