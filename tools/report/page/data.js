// Reads the data that the page carries: JSON, with the columns of the spans as base64 of little-endian arrays.

const COLUMNS = {
  begin: Float64Array, length: Float64Array,  // nanoseconds
  track: Uint16Array,                         // spans are sorted by track, then by begin
  lane: Uint16Array, kind: Uint8Array,
  family: Uint16Array,                        // of a wait: that of the task that waited
  entry: Uint16Array, slot: Uint32Array, tile: Uint32Array, rows: Uint32Array, expert: Uint16Array,
  event: Uint16Array, index: Uint32Array,     // an element of an array of events
  cause: Int32Array,                          // of a wait: the task whose signal ended it, or -1
  critical: Uint8Array,                       // 1 on the critical path
  flops: Float32Array, bytes: Float32Array,
};

export const NONE = 65535;  // no lane, family, expert or event
// kinds: a task; waits for rows of a rank, for a task of this rank, at the start, and at the end with nothing left to do;
// one run of an entry, and its binding and exchange inside of it; a wait that never ended
export const TASK = 0, ARRIVAL = 1, PRODUCER = 2, START = 3, END = 4, STEP = 5, BIND = 6, EXCHANGE = 7, STUCK = 8;

export const isWait = kind => (kind >= ARRIVAL && kind <= END) || kind === STUCK;

function decode(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let at = 0; at < bytes.length; ++at) bytes[at] = characters.charCodeAt(at);
  return bytes;
}

/** The columns as typed arrays, plus `end` of the last span; times count from the first span's begin. */
function readSpans(packed) {
  const spans = {count: packed.count, end: 0};
  for (const [name, type] of Object.entries(COLUMNS)) {
    const bytes = decode(packed[name]), expected = packed.count * type.BYTES_PER_ELEMENT;
    if (bytes.length !== expected) {
      throw new Error(`column '${name}' of the spans has ${bytes.length} bytes, expected ${expected}`);
    }
    spans[name] = new type(bytes.buffer);
    packed[name] = null;
  }
  let first = Infinity;
  for (const begin of spans.begin) first = Math.min(first, begin);
  for (let at = 0; at < spans.count; ++at) {
    spans.begin[at] -= first;
    spans.end = Math.max(spans.end, spans.begin[at] + spans.length[at]);
  }
  return spans;
}

/** The reports of the page, with lists that may be left out filled in. */
export function readReports() {
  const place = document.getElementById("report-data");
  if (!place) throw new Error("the page carries no data");
  const {reports} = JSON.parse(place.textContent);
  place.textContent = "";
  const lists = ["facts", "tables", "families", "events", "processes", "tracks", "lanes", "entries", "use", "routing",
    "memory", "graphs"];
  for (const report of reports) {
    for (const name of lists) report[name] = report[name] || [];
    report.spans = report.hasRun && report.spans ? readSpans(report.spans) : null;
  }
  return reports;
}

/** `family[slot,tile]` of a task, and a few words for every other span. */
export function spanName(report, at) {
  const {kind, family, slot, tile, entry, event, index} = report.spans;
  const familyName = family[at] === NONE ? "" : report.families[family[at]].name;
  const eventName = event[at] === NONE ? "" : `${report.events[event[at]]}[${index[at]}]`;
  switch (kind[at]) {
    case TASK: return `${familyName}[${slot[at]},${tile[at]}]`;
    case ARRIVAL: return `wait for rows: ${eventName}`;
    case PRODUCER: return `wait for a task: ${eventName}`;
    case START: return "wait at the start";
    case END: return "wait at the end: nothing left to do";
    case STEP: return `step ${report.entries[entry[at]]}`;
    case BIND: return `bind ${report.entries[entry[at]]}`;
    case EXCHANGE: return `exchange ${report.entries[entry[at]]}`;
    default: return `wait that never ended: ${eventName}`;
  }
}

/** spanName without the entry before it. */
export const shortName = (report, at) => spanName(report, at).replace(/^[^/<[]*\//, "");
