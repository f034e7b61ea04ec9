// Finds spans by words: parts of names of families, events and entries, `family[slot,tile]`, `event[index]`, `slot 12`,
// `tile 3`, `expert 5`. All words must hold.
import {NONE, TASK, STEP, BIND, EXCHANGE} from "./data.js";

/** The conditions of a text: [{column, value}] and [{name, slot, tile}]; value, slot and tile are numbers. */
export function parseSearch(text) {
  const words = text.trim().toLowerCase().split(/\s+/).filter(word => word !== "");
  const conditions = [];
  for (let i = 0; i < words.length; ++i) {
    if (["slot", "tile", "expert"].includes(words[i]) && /^\d+$/.test(words[i + 1] || "")) {
      conditions.push({column: words[i], value: Number(words[++i])});
      continue;
    }
    const [, name, slot, tile] = /^(.*?)(?:\[(\d+)(?:,(\d+))?\])?$/.exec(words[i]);
    conditions.push({name, slot: slot === undefined ? null : Number(slot), tile: tile === undefined ? null : Number(tile)});
  }
  return conditions;
}

function namesWith(names, {name, slot}) {
  return names.map(each => {
    const lower = each.toLowerCase();
    return slot === null ? lower.includes(name) : lower === name || lower.endsWith(`/${name}`);
  });
}

/** A function at => whether the condition holds of a span. */
function test(report, condition) {
  const {spans} = report, {kind, family, event, index, entry, slot, tile} = spans;
  if (condition.column) {
    const column = spans[condition.column];
    return at => column[at] === condition.value && (kind[at] < STEP || kind[at] > EXCHANGE);
  }
  const families = namesWith(report.families.map(each => each.name), condition);
  const events = namesWith(report.events, condition), entries = namesWith(report.entries, condition);
  const kinds = ["step", "bind", "exchange"].map(word => word === condition.name);
  const named = condition.slot !== null, pair = condition.tile !== null;
  return at => {
    if (kind[at] === TASK) {
      return families[family[at]] && (!named || (slot[at] === condition.slot && (!pair || tile[at] === condition.tile)));
    }
    if (kind[at] >= STEP && kind[at] <= EXCHANGE) return !named && (entries[entry[at]] || kinds[kind[at] - STEP]);
    return event[at] !== NONE && events[event[at]] && (!named || (!pair && index[at] === condition.slot));
  };
}

/** Per span 1 or 0, and how many 1s: {match, count}; null where the text has no words. */
export function search(report, text) {
  const conditions = parseSearch(text);
  if (conditions.length === 0) return null;
  const tests = conditions.map(condition => test(report, condition)), match = new Uint8Array(report.spans.count);
  let count = 0;
  for (let at = 0; at < match.length; ++at) {
    if (!tests.every(holds => holds(at))) continue;
    match[at] = 1;
    ++count;
  }
  return {match, count};
}

/** The next match in time after `current` ({part, at} or null), or before it: {part, at, number} or null; goes round. */
export function nextMatch(parts, current, back) {
  let best = null, edge = null, before = 0;
  const key = ({part, at}) => [parts[part].report.spans.begin[at], part, at];
  const less = (a, b) => a[0] !== b[0] ? a[0] < b[0] : a[1] !== b[1] ? a[1] < b[1] : a[2] < b[2];
  const here = current ? key(current) : [-Infinity, 0, 0];
  const ahead = back ? (a, b) => less(b, a) : less;
  parts.forEach(({match}, part) => {
    if (!match) return;
    for (let at = 0; at < match.length; ++at) {
      if (!match[at]) continue;
      const each = key({part, at});
      if (edge === null || ahead(each, edge)) edge = each;
      if (ahead(here, each) && (best === null || ahead(each, best))) best = each;
    }
  });
  const found = best || edge;
  if (found === null) return null;
  parts.forEach(({match}, part) => {
    if (!match) return;
    for (let at = 0; at < match.length; ++at) if (match[at] && less(key({part, at}), found)) ++before;
  });
  return {part: found[1], at: found[2], number: before + 1};
}
