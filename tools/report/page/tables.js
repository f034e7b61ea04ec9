// Tables of any columns: sorted by a click on a column's name.
import {element} from "./dom.js";
import {number} from "./format.js";

const FIRST_ROWS = 100;

const textOf = cell => typeof cell === "number" ? number(cell) : cell === null ? "" : String(cell);

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? 1 : -1;
  return String(a).localeCompare(String(b), "en", {numeric: true});
}

/** One table with its title, note and rows. */
export function makeTable(table) {
  let sorted = null, descending = false, all = table.rows.length <= FIRST_ROWS;
  const body = element("tbody", {});
  const more = element("button", {type: "button", class: "control more", onclick: () => {
    all = true;
    fill();
  }}, `Show all ${number(table.rows.length)} rows`);
  const heads = table.columns.map((column, index) => element("th", {scope: "col", class: column.numeric ? "number" : null},
    element("button", {type: "button", onclick: () => sort(index)}, column.name)));

  function fill() {
    const rows = table.rows.slice();
    if (sorted !== null) rows.sort((a, b) => (descending ? -1 : 1) * compare(a[sorted], b[sorted]));
    body.replaceChildren(...(all ? rows : rows.slice(0, FIRST_ROWS)).map(row => element("tr", {},
      ...row.map((cell, index) => element("td", {class: table.columns[index].numeric ? "number" : null}, textOf(cell))))));
    more.hidden = all;
  }

  /** Numbers begin with the largest, words with the first. */
  function sort(index) {
    descending = sorted === index ? !descending : table.columns[index].numeric === true;
    sorted = index;
    heads.forEach((head, each) => {
      if (each === index) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    fill();
  }

  fill();
  const scroll = element("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": table.title},
    element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
  return element("div", {class: "table", "data-table": table.id}, table.note ? element("p", {class: "note"}, table.note)
    : null, scroll, more);
}

/** The ids of the tables of all reports, in the order in which they first stand. */
export function tableIds(reports) {
  return [...new Set(reports.flatMap(report => report.tables.map(table => table.id)))];
}
