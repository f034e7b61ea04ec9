// Elements, SVG and the one tooltip of the page. Text comes from files: it is only ever set as textContent.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export const element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** The value of a CSS variable of the page. */
export const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The title of a report; of two, with the letter by which the page names it. */
export const titleOf = (reports, index) => (reports.length > 1 ? `${"AB"[index]}: ` : "") + reports[index].title;

/** A section with a heading, and one column per report; fillColumn(report, index) returns its content or null. */
export function section(id, title, note, reports, fillColumn) {
  const columns = reports.map(fillColumn);
  if (columns.every(content => content === null)) return null;
  const cells = columns.map((content, index) => element("div", {class: "column"},
    reports.length > 1 ? element("h3", {class: "of"}, titleOf(reports, index)) : null,
    content || element("p", {class: "none"}, "nothing to show")));
  return element("section", {id, "aria-labelledby": `${id}-title`}, element("h2", {id: `${id}-title`}, title),
    note ? element("p", {class: "note"}, note) : null, element("div", {class: "columns"}, ...cells));
}

/** Shows the tooltip at a place of the window. lines: the title, then [name, value] pairs or plain strings. */
export function showTooltip(lines, x, y, pinned = false) {
  const tip = document.getElementById("tooltip");
  const [title, ...rest] = lines;
  const list = element("dl", {});
  for (const line of rest) {
    if (Array.isArray(line)) list.append(element("dt", {}, line[0]), element("dd", {}, line[1]));
    else list.append(element("dd", {class: "wide"}, line));
  }
  tip.replaceChildren(element("strong", {}, title), list);
  tip.classList.toggle("pinned", pinned);
  tip.hidden = false;
  const {width, height} = tip.getBoundingClientRect();
  const left = x + 14 + width > innerWidth - 4 ? x - 14 - width : x + 14;
  const top = y + 16 + height > innerHeight - 4 ? y - 12 - height : y + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

export function hideTooltip() {
  document.getElementById("tooltip").hidden = true;
}

/** Shows linesOf(hint) of a child of a chart that carries data-hint: of that under the pointer, or, by arrow keys, of any. */
export function hints(chart, linesOf) {
  let current = null;
  const show = (at, x, y) => {
    if (!at && !current) return;  // the tooltip is not of this chart
    if (current) current.classList.remove("current");
    current = at;
    if (!at) {
      hideTooltip();
      return;
    }
    at.classList.add("current");
    showTooltip(linesOf(at.dataset.hint), x, y);
  };
  chart.setAttribute("tabindex", 0);
  chart.addEventListener("pointermove", event => show(event.target.closest("[data-hint]"), event.clientX, event.clientY));
  chart.addEventListener("pointerleave", () => show(null));
  chart.addEventListener("blur", () => show(null));
  chart.addEventListener("keydown", event => {
    const step = {ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1}[event.key];
    if (event.key === "Escape") show(null);
    if (step === undefined) return;
    event.preventDefault();
    const all = [...chart.querySelectorAll("[data-hint]")], place = current ? all.indexOf(current) + step : 0;
    const at = all[(place + all.length) % all.length], box = at.getBoundingClientRect();
    show(at, box.left + box.width / 2, box.bottom);
  });
}

/** The text, cut so that it takes at most `width` pixels of a font with characters of `each` pixels. */
export function cut(text, width, each) {
  const most = Math.floor(width / each);
  return text.length <= most ? text : most < 3 ? "" : `${text.slice(0, most - 1)}\u2026`;
}
