// Numbers, times and sizes as text.
import {format} from "d3-format";

const whole = format(",d");
const four = format(",.4~r");

/** About 4 significant digits; whole numbers are exact. */
export function number(value) {
  if (!Number.isFinite(value)) return "\u2013";
  if (Number.isInteger(value) || Math.abs(value) >= 10000) return whole(Math.round(value));
  return Math.abs(value) < 1e-4 ? value.toExponential(3) : four(value);
}

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]];

/** The unit in which lengths up to this one are best read: [nanoseconds, name]. */
export const unitOf = ns => UNITS.find(([size]) => Math.abs(ns) >= size) || UNITS[3];

export function time(ns) {
  if (ns === 0) return "0";
  const [size, name] = unitOf(ns);
  return `${number(ns / size)} ${name}`;
}

export function bytes(count) {
  for (const [size, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (count >= size) return `${number(count / size)} ${name}`;
  }
  return `${number(count)} bytes`;
}

export const percent = share => `${number(Math.round(share * 1000) / 10)}%`;
