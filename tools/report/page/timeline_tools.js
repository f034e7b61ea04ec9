// The controls of the timeline: grouping, critical path, search, zoom and the legend.
import {element} from "./dom.js";
import {number} from "./format.js";
import {otherColours} from "./colours.js";
import {search, nextMatch} from "./search.js";

function choice(label, options, onChoose) {
  const buttons = options.map(([text, value], index) => element("button", {type: "button", class: "control",
    "aria-pressed": index === 0 ? "true" : "false", onclick: event => {
      for (const button of buttons) button.setAttribute("aria-pressed", button === event.currentTarget ? "true" : "false");
      onChoose(value);
    }}, text));
  return element("span", {class: "choice", role: "group", "aria-label": label}, ...buttons);
}

function searchBox(timeline) {
  const count = element("output", {id: "matches", "aria-live": "polite"});
  const box = element("input", {id: "search", type: "search", placeholder: "family, family[slot,tile], slot 12, expert 5, event",
    "aria-label": "Search spans", spellcheck: "false", autocomplete: "off"});
  let current = null, total = 0;
  const step = back => {
    if (total === 0) return;
    current = nextMatch(timeline.parts, current, back);
    count.textContent = `${number(current.number)} of ${number(total)}`;
    timeline.jump(current.part, current.at);
  };
  const run = () => {
    const found = timeline.parts.map(part => search(part.report, box.value));
    current = null;
    total = found.reduce((sum, each) => sum + (each ? each.count : 0), 0);
    timeline.parts.forEach((part, i) => {
      part.match = found[i] ? found[i].match : null;
    });
    Object.assign(timeline, {matches: total, searched: box.value});
    count.textContent = found[0] === null ? "" : total === 0 ? "no match" : `${number(total)} matches`;
    timeline.recolour();
    if (total > 0) step(false);
    else timeline.actions.Escape();
  };
  timeline.search = text => {
    box.value = text;
    run();
  };
  let timer = null;
  box.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(run, 150);
  });
  box.addEventListener("keydown", key => {
    if (key.key === "Enter") step(key.shiftKey);
    if (key.key === "Escape") {
      timeline.search("");
      timeline.scroller.focus();
    }
  });
  Object.assign(timeline.actions, {n: () => step(false), p: () => step(true), "/": () => box.focus()});
  document.addEventListener("keydown", key => {
    if (key.key !== "/" || key.target.tagName === "INPUT" || timeline.scroller.contains(key.target)) return;
    key.preventDefault();
    box.focus();
  });
  const button = (text, label, back) => element("button", {type: "button", class: "control", "aria-label": label,
    onclick: () => step(back)}, text);
  return element("span", {class: "search"}, box, button("\u2039", "Previous match", true),
    button("\u203a", "Next match", false), count);
}

/** Families that are chosen stay, and all else fades; none chosen: all stay. */
function legend(timeline) {
  const byName = new Map();
  timeline.parts.forEach((part, index) => part.report.families.forEach((family, id) => {
    if (!byName.has(family.name)) byName.set(family.name, {colour: family.colour, of: []});
    byName.get(family.name).of.push([index, id]);
  }));
  const swatch = colour => {
    const mark = element("i", {class: "swatch", "aria-hidden": "true"});
    mark.style.background = colour;
    return mark;
  };
  const families = [...byName].map(([name, {colour, of}]) => {
    const button = element("button", {type: "button", class: "family", "aria-pressed": "false", onclick: () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(pressed));
      for (const [part, id] of of) timeline.parts[part].chosen[pressed ? "add" : "delete"](id);
      timeline.recolour();
    }}, swatch(colour), name);
    return button;
  });
  const others = element("div", {class: "others"});
  const widest = timeline.parts.map(part => part.report).sort((a, b) => b.processes.length - a.processes.length)[0];
  const occurs = new Set();  // only these need a colour in the legend
  for (const {report, base} of timeline.parts) {
    const names = otherColours(report).map(([name]) => name), seen = new Set(base);
    for (const colour of seen) if (colour >= report.families.length) occurs.add(names[colour - report.families.length]);
  }
  timeline.fillLegend = () => others.replaceChildren(...otherColours(widest).filter(([name]) => occurs.has(name))
    .map(([name, colour]) => element("span", {class: "other"}, swatch(colour), name)));
  timeline.fillLegend();
  return element("div", {class: "legend"}, element("div", {class: "families", role: "group",
    "aria-label": "Families: those that are pressed stay, all else fades"}, ...families), others);
}

/** The tools above and below the timeline: {above, below}. */
export function timelineTools(timeline) {
  const range = element("output", {id: "range", "aria-label": "Visible range"});
  timeline.onRange = () => {
    range.textContent = timeline.rangeText();
  };
  const button = (text, label, key) => element("button", {type: "button", class: "control", "aria-label": label,
    onclick: () => timeline.actions[key](timeline.to - timeline.from)}, text);
  const critical = element("input", {type: "checkbox", id: "critical", checked: true, onchange: () => {
    timeline.critical = critical.checked;
    timeline.draw();
  }});
  const grouping = choice("Rows", [["by worker", false], ["by core and lane", true]], byLane => {
    timeline.byLane = byLane;
    timeline.group();
  });
  const above = element("div", {class: "tools"}, grouping, element("label", {}, critical, "critical path"),
    searchBox(timeline), element("span", {class: "zoom"}, button("\u2212", "Zoom out", "-"), button("+", "Zoom in", "+"),
      button("all", "Show all", "0")), range);
  const keys = element("p", {class: "keys"}, "Wheel or pinch: zoom. Drag: pan. Click: pin. Double click: fit a span. " +
    "Keys: arrows pan, + and \u2212 zoom, 0 all, / search, n and p next and previous match, Esc lets go.");
  return {above, below: element("div", {}, legend(timeline), keys)};
}
