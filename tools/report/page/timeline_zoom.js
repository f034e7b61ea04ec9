// Pan and zoom of the timeline by wheel, drag, pinch and keys; hovering and pinning by pointer.
import {zoom as d3Zoom, zoomIdentity} from "d3-zoom";
import {select, event} from "d3-selection";
import {hideTooltip} from "./dom.js";
import {showSpan} from "./timeline_hover.js";

export const SHORTEST = 50;  // nanoseconds in view at the deepest zoom

export function makeZoom(timeline) {
  const {overlay, scroller} = timeline, target = select(overlay);
  let dragged = null;
  const zoom = d3Zoom().scaleExtent([1, Math.max(1, timeline.end / SHORTEST)])
    .on("start", () => {
      dragged = event.sourceEvent && event.sourceEvent.type === "mousedown" ? event.sourceEvent.clientY : null;
    })
    .on("zoom", () => {
      const {k, x} = event.transform, each = timeline.end / timeline.plot;
      timeline.from = Math.max(0, -x / k * each);
      timeline.to = Math.min(timeline.end, timeline.from + timeline.end / k);
      const y = event.sourceEvent && event.sourceEvent.clientY;
      if (dragged !== null && y !== undefined) {
        scroller.scrollTop += dragged - y;
        dragged = y;
      }
      if (timeline.pinned === null) hideTooltip();
      timeline.redraw();
    });

  const show = (from, to) => {
    const length = Math.min(timeline.end, Math.max(SHORTEST, to - from));
    const begin = Math.min(timeline.end - length, Math.max(0, from));
    const k = timeline.end / length;
    target.call(zoom.transform, zoomIdentity.scale(k).translate(-begin / timeline.end * timeline.plot, 0));
  };
  const resize = () => {
    const {plot, height, from, to} = timeline;
    zoom.extent([[0, 0], [plot, height]]).translateExtent([[0, -Infinity], [plot, Infinity]]);
    show(from, to);
  };
  target.call(zoom).on("dblclick.zoom", null);
  hover(timeline, show);
  keys(timeline, show);
  return {show, resize};
}

function unpin(timeline) {
  timeline.pinned = null;
  hideTooltip();
  timeline.redraw();
}

function hover(timeline, show) {
  const {overlay} = timeline;
  overlay.addEventListener("pointermove", move => {
    if (move.buttons !== 0) return;
    timeline.hover = timeline.find(move.clientX, move.clientY);
    if (timeline.pinned === null) showSpan(timeline, timeline.hover, {x: move.clientX, y: move.clientY}, false);
    timeline.redraw(false);
  });
  overlay.addEventListener("pointerleave", () => {
    timeline.hover = null;
    if (timeline.pinned === null) hideTooltip();
    timeline.redraw(false);
  });
  overlay.addEventListener("click", click => {
    timeline.pinned = timeline.find(click.clientX, click.clientY);
    if (timeline.pinned === null) hideTooltip();
    timeline.draw();
  });
  overlay.addEventListener("dblclick", click => {
    const found = timeline.find(click.clientX, click.clientY);
    if (!found) return;
    const {begin, length} = timeline.parts[found.part].report.spans;
    show(begin[found.at] - length[found.at] / 4, begin[found.at] + length[found.at] * 1.25);
  });
}

function keys(timeline, show) {
  const actions = {
    ArrowLeft: range => show(timeline.from - range / 5, timeline.to - range / 5),
    ArrowRight: range => show(timeline.from + range / 5, timeline.to + range / 5),
    "+": range => show(timeline.from + range / 4, timeline.to - range / 4),
    "-": range => show(timeline.from - range / 2, timeline.to + range / 2),
    0: () => show(0, timeline.end),
    Escape: () => unpin(timeline),
  };
  actions["="] = actions["+"];
  timeline.scroller.addEventListener("keydown", key => {
    if (key.ctrlKey || key.altKey || key.metaKey || !actions[key.key]) return;
    key.preventDefault();
    actions[key.key](timeline.to - timeline.from);
  });
  timeline.actions = actions;
}
