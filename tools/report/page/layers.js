// Places the nodes of a graph in layers, from the top: each below all that come before it by an edge.

/** Edges that close a cycle, found in depth first order. */
function backEdges(count, edges) {
  const out = Array.from({length: count}, () => []), state = new Uint8Array(count), back = new Set();
  edges.forEach((edge, id) => out[edge.from].push(id));
  const enter = node => {
    state[node] = 1;
    for (const id of out[node]) {
      const {to} = edges[id];
      if (state[to] === 1) back.add(id);
      else if (state[to] === 0) enter(to);
    }
    state[node] = 2;
  };
  for (let node = 0; node < count; ++node) if (state[node] === 0) enter(node);
  return back;
}

/** The layer of each node: the longest path to it. */
function longestPaths(count, edges) {
  const layer = new Array(count).fill(0);
  for (let round = 0, changed = true; changed && round <= count; ++round) {
    changed = false;
    for (const {from, to} of edges) {
      if (layer[to] > layer[from]) continue;
      layer[to] = layer[from] + 1;
      changed = true;
    }
  }
  return layer;
}

/** Sorts each layer by the mean place of the neighbours, down and up a few times. */
function orderLayers(layers, links) {
  const place = [];
  const number = layer => layer.forEach((node, index) => {
    place[node] = index - layer.length / 2;
  });
  layers.forEach(number);
  for (let round = 0; round < 8; ++round) {
    const down = round % 2 === 0, sequence = down ? layers : layers.slice().reverse();
    for (const layer of sequence) {
      const mean = new Map(layer.map(node => {
        const near = links.filter(link => (down ? link[1] : link[0]) === node).map(link => place[down ? link[0] : link[1]]);
        return [node, near.length > 0 ? near.reduce((sum, each) => sum + each, 0) / near.length : place[node]];
      }));
      layer.sort((a, b) => mean.get(a) - mean.get(b) || place[a] - place[b]);
      number(layer);
    }
  }
}

/** Moves the nodes of each layer near their neighbours' middle, without overlap. */
function spread(layers, links, widths, gap) {
  const x = [];
  for (const layer of layers) {
    let at = -layer.reduce((sum, node) => sum + widths[node] + gap, -gap) / 2;
    for (const node of layer) {
      x[node] = at + widths[node] / 2;
      at += widths[node] + gap;
    }
  }
  for (let round = 0; round < 6; ++round) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : layers.slice().reverse()) {
      const wish = layer.map(node => {
        const near = links.filter(link => (down ? link[1] : link[0]) === node).map(link => x[down ? link[0] : link[1]]);
        return near.length > 0 ? near.reduce((sum, each) => sum + each, 0) / near.length : x[node];
      });
      const room = (a, b) => (widths[layer[a]] + widths[layer[b]]) / 2 + gap;
      for (let i = 1; i < layer.length; ++i) wish[i] = Math.max(wish[i], wish[i - 1] + room(i - 1, i));
      for (let i = layer.length - 2; i >= 0; --i) wish[i] = Math.min(wish[i], wish[i + 1] - room(i, i + 1));
      for (let i = 1; i < layer.length; ++i) wish[i] = Math.max(wish[i], wish[i - 1] + room(i - 1, i));
      layer.forEach((node, i) => {
        x[node] = wish[i];
      });
    }
  }
  return x;
}

/**
 * Lays out nodes of given widths. Returns {x, layer, depth, width, routes, ends, back}: middles and layers of the nodes,
 * and per edge the [x, layer] of its way from its upper to its lower end; ends names these; back holds the edges that lead upwards.
 */
export function layOut(widths, edges, gap) {
  const count = widths.length, back = backEdges(count, edges);
  const turned = edges.map(({from, to}, id) => back.has(id) ? {from: to, to: from} : {from, to});
  const layer = longestPaths(count, turned.filter(({from, to}) => from !== to)), size = widths.slice();
  const links = [], chains = turned.map(({from, to}) => {
    const chain = [from];
    for (let level = layer[from] + 1; level < layer[to]; ++level) {  // a place on each layer between
      chain.push(size.length);
      layer.push(level);
      size.push(90);
    }
    chain.push(to);
    for (let i = 1; i < chain.length; ++i) links.push([chain[i - 1], chain[i]]);
    return chain;
  });
  const depth = Math.max(0, ...layer) + 1, layers = Array.from({length: depth}, () => []);
  layer.forEach((level, node) => layers[level].push(node));
  orderLayers(layers, links);
  const x = spread(layers, links, size, gap), left = Math.min(...x.map((at, node) => at - size[node] / 2));
  const moved = x.map(at => at - left);
  return {x: moved.slice(0, count), layer: layer.slice(0, count), depth, back,
    ends: turned.map(({from, to}) => ({upper: from, lower: to})),
    width: Math.max(0, ...moved.map((at, node) => at + size[node] / 2)),
    routes: chains.map(chain => chain.map(node => [moved[node], layer[node]]))};
}
