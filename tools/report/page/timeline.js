// The timeline: its rows, its visible range and its state. Reports that are shown together share the range.
import {axisTop} from "d3-axis";
import {scaleLinear} from "d3-scale";
import {select} from "d3-selection";
import {element, svg, variable, titleOf} from "./dom.js";
import {number, time, unitOf} from "./format.js";
import {groupSpans, buildBlocks} from "./rows.js";
import {makePalette, paintSpans, lookOf} from "./colours.js";
import {drawTimeline, ROW, HEAD} from "./timeline_draw.js";
import {drawOverlay, spanAt, showSpan} from "./timeline_hover.js";
import {makeZoom, SHORTEST} from "./timeline_zoom.js";

const GUTTER = 150;  // pixels

export class Timeline {
  constructor(reports) {
    this.parts = reports.map((report, index) => ({report, title: titleOf(reports, index), chosen: new Set(), match: null}))
      .filter(({report}) => report.spans && report.spans.count > 0);
    for (const part of this.parts) part.base = paintSpans(part.report);
    this.several = reports.length > 1;
    this.end = Math.max(SHORTEST, ...this.parts.map(part => part.report.spans.end));
    Object.assign(this, {byLane: false, critical: true, hover: null, pinned: null, from: 0, to: this.end, frameMs: 0});
    this.onRange = () => {};
    this.makeElements();
    this.group();
    this.zoom = makeZoom(this);
  }

  makeElements() {
    this.canvas = element("canvas", {"aria-hidden": "true"});
    this.overlay = element("canvas", {class: "overlay", "aria-hidden": "true"});
    this.sticky = element("div", {class: "timeline-view"}, this.canvas, this.overlay);
    this.body = element("div", {class: "timeline-body"}, this.sticky);
    this.axis = svg("svg", {class: "axis", height: 24, "aria-hidden": "true"}, svg("g", {}));
    this.scroller = element("div", {class: "timeline-scroll", tabindex: 0, role: "application",
      "aria-label": "Timeline. Arrow keys pan, plus and minus zoom, 0 shows all, slash searches, n and p step " +
        "through matches, Escape lets go."}, this.body);
    this.element = element("div", {class: "timeline"}, this.axis, this.scroller);
    this.scroller.addEventListener("scroll", () => this.redraw());
    addEventListener("scroll", () => this.pinned && this.placePinned(), {passive: true});
    new ResizeObserver(() => this.element.style.width === "" && this.resize()).observe(this.element);
  }

  /** Lays the rows out anew. */
  group() {
    this.lines = [];
    let y = 2;
    const push = line => {
      this.lines.push({...line, y});
      y += line.height;
    };
    this.parts.forEach((part, index) => {
      part.group = groupSpans(part.report, this.byLane);
      part.yOf = [];
      if (this.several) push({label: part.title, height: HEAD + 2});
      let process = -1;
      part.group.rows.forEach((row, number) => {
        if (row.process !== process) push({label: part.report.processes[process = row.process].name, height: HEAD});
        part.yOf[number] = y;
        push({label: row.label, height: ROW, row, part: index});
      });
      y += 6;
    });
    this.fullHeight = y;
    this.recolour();
    this.resize();
  }

  /** Takes the colours from the page's theme, the chosen families and the matches. */
  recolour() {
    for (const part of this.parts) {
      part.look = lookOf(part.report, part.base, makePalette(part.report), part.chosen, part.match);
      buildBlocks(part.group, part.report.spans, part.look);
    }
    const names = ["chart", "text", "soft", "line", "critical", "match", "accent"];
    this.theme = Object.fromEntries(names.map(name => [name, variable(`--${name}`)]));
    this.redraw();
  }

  resize(most = Math.max(240, Math.round(innerHeight * 0.7))) {
    const width = this.scroller.clientWidth;
    if (width === 0) return;
    const height = Math.min(this.fullHeight, most);
    this.body.style.height = `${this.fullHeight}px`;
    this.scroller.style.height = this.sticky.style.height = `${height}px`;
    const ratio = devicePixelRatio || 1, plot = Math.max(50, this.scroller.clientWidth - GUTTER);
    Object.assign(this, {width: GUTTER + plot, height, plot, ratio});
    for (const [canvas, pixels] of [[this.canvas, this.width], [this.overlay, plot]]) {
      canvas.width = Math.round(pixels * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${pixels}px`;
      canvas.style.height = `${height}px`;
    }
    this.overlay.style.left = `${GUTTER}px`;
    this.axis.setAttribute("width", this.width);
    if (this.zoom) this.zoom.resize();
    this.draw();
  }

  /** Draws with the next frame; rows: false where only the outline and the arrows have changed. */
  redraw(rows = true) {
    this.stale = this.stale || rows;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.stale) this.draw();
      else drawOverlay(this, this.view());
    });
  }

  view() {
    return {context: this.canvas.getContext("2d", {alpha: false}), width: this.width, height: this.height,
      gutter: GUTTER, plot: this.plot, ratio: this.ratio, scroll: this.scroller.scrollTop, from: this.from, to: this.to,
      perNs: this.plot / (this.to - this.from), critical: this.critical, theme: this.theme};
  }

  draw() {
    if (!this.plot || !this.theme) return;
    const start = performance.now(), view = this.view();
    this.stale = false;
    drawTimeline(view, this.parts, this.lines);
    this.drawAxis();
    drawOverlay(this, view);
    if (this.pinned) this.placePinned();
    this.frameMs = performance.now() - start;
    this.onRange();
  }

  drawAxis() {
    const [size, unit] = unitOf(this.to - this.from);
    const scale = scaleLinear([this.from / size, this.to / size], [0, this.plot]);
    const ticks = Math.max(2, Math.floor(this.plot / 110));
    const axis = axisTop(scale).ticks(ticks).tickFormat(value => `${number(value)} ${unit}`);
    select(this.axis.firstChild).attr("transform", `translate(${GUTTER},22)`).call(axis).selectAll(".tick text")
      .attr("text-anchor", value => scale(value) > this.plot - 24 ? "end" : "middle");
  }

  /** Shows a range of time, in nanoseconds since the first span. */
  show(from, to) {
    this.zoom.show(from, to);
  }

  /** Brings a span into view, with its tooltip. */
  jump(part, at) {
    const {spans} = this.parts[part].report, middle = spans.begin[at] + spans.length[at] / 2;
    const wanted = Math.max(SHORTEST, spans.length[at] * 8);
    const range = Math.min(this.to - this.from, Math.max(wanted, (this.to - this.from) / 4));
    const inView = spans.begin[at] >= this.from && spans.begin[at] + spans.length[at] <= this.to;
    const shown = spans.length[at] * this.plot / (this.to - this.from) >= 4;
    if (!inView || !shown) this.show(middle - (shown ? range : wanted) / 2, middle + (shown ? range : wanted) / 2);
    const y = this.yOf(part, at);
    if (y < this.scroller.scrollTop || y + ROW > this.scroller.scrollTop + this.height) {
      this.scroller.scrollTop = y - this.height / 2;
    }
    this.pinned = {part, at};
    this.draw();
  }

  /** Puts the tooltip of the pinned span at its place, or hides it if that is outside of the window. */
  placePinned() {
    const place = this.placeOf(this.pinned.part, this.pinned.at);
    showSpan(this, place.y < 0 || place.y > innerHeight ? null : this.pinned, place, true);
  }

  yOf(part, at) {
    return this.parts[part].yOf[this.parts[part].group.rowOf(at)];
  }

  /** The middle of a span in the window, for tooltips and tests. */
  placeOf(part, at) {
    const {spans} = this.parts[part].report, box = this.scroller.getBoundingClientRect();
    const x = (spans.begin[at] + spans.length[at] / 2 - this.from) * this.plot / (this.to - this.from);
    return {x: box.left + GUTTER + Math.min(this.plot, Math.max(0, x)),
      y: box.top + this.yOf(part, at) - this.scroller.scrollTop + ROW * 0.7};
  }

  find(x, y) {
    return spanAt(this, x, y);
  }

  /** Lays the timeline out for paper, or for the window again. */
  forPaper(on) {
    this.element.style.width = on ? "1000px" : "";
    this.resize(on ? 1500 : undefined);
  }

  rangeText() {
    return `${time(this.from)} to ${time(this.to)} of ${time(this.end)}`;
  }
}

