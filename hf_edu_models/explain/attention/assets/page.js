// The attention page: links, heat maps, all heads, query x key, and a table of the weights.

import { announce, byId, bytesOf, clamp, digits3, exact, fillChoices, listenToTabs, listenToTheme, make, quoted, theme, token } from "../../../pages/assets/dom.js";
import { css, headColour, largest, paint } from "../../../pages/assets/colours.js";

const data = JSON.parse(byId("data").textContent);
const short = digits3;

// Three digits to read; the element holds the number itself.
function shownWeight(tag, className, weight) {
  const node = make(tag, className, digits3(weight));
  node.dataset.value = exact(weight);
  return node;
}

// Arrays

const decoded = {};
function numbers(id) {
  if (!decoded[id]) {
    decoded[id] = new Float32Array(bytesOf(id).buffer);
  }
  return decoded[id];
}

const state = { map: 0, layer: 0, head: 0, view: "links", active: null, isPinned: false, row: 0, column: 0, element: 0 };
const map = () => data.maps[state.map];
const isMean = () => state.head === "mean";

function weightsOf(layer, head) {
  const { name, shape: [, heads, rows, columns] } = map();
  const all = numbers(`${name}-weights`), size = rows * columns;
  if (head !== "mean") return all.subarray((layer * heads + head) * size, (layer * heads + head + 1) * size);
  const mean = new Float32Array(size);
  for (let h = 0; h < heads; h++) {
    const one = all.subarray((layer * heads + h) * size, (layer * heads + h + 1) * size);
    for (let i = 0; i < size; i++) mean[i] += one[i] / heads;
  }
  return mean;
}
let selected = null; // (rows x columns) of the selected head
const at = (row, column) => selected[row * map().shape[3] + column];

function linksOf(active) {
  const { shape: [, , rows, columns] } = map(), links = [];
  const span = (side, length) => (active && active.side === side ? [active.index, active.index + 1] : [0, length]);
  const [top, bottom] = span("row", rows), [left, right] = span("column", columns);
  for (let row = top; row < bottom; row++) for (let column = left; column < right; column++) links.push({ row, column, weight: at(row, column) });
  return links;
}
const strongest = (active, count) => linksOf(active).sort((one, other) => other.weight - one.weight).slice(0, count);

// Links

function buildTokens() {
  for (const side of ["rows", "columns"]) {
    const list = byId(side), texts = map()[side], wordIds = map()[side === "rows" ? "rowWordIds" : "columnWordIds"];
    const isSubword = (index) => index > 0 && wordIds[index] === wordIds[index - 1];
    // With a character tokenizer nearly every token would be marked.
    const hasMarks = texts.some((text, index) => isSubword(index) && [...text].length > 1);
    list.replaceChildren(...texts.map((text, index) => {
      const item = make("li", hasMarks && isSubword(index) ? "subword" : "");
      item.setAttribute("role", "option");
      item.tabIndex = index ? -1 : 0;
      item.dataset.index = index;
      item.append(token(text), make("span", "number"));
      return item;
    }));
  }
  document.querySelector(".links").classList.toggle("many", Math.max(map().rows.length, map().columns.length) > 30);
  byId("rows-name").textContent = map().rowName;
  byId("columns-name").textContent = map().columnName;
}

function describeTokens() {
  for (const side of ["row", "column"]) {
    for (const item of byId(side + "s").children) {
      const index = Number(item.dataset.index);
      item.setAttribute("aria-label", `${index}: ${sentence({ side, index }, 1)}`);
    }
  }
}

function sizeLines() {
  const box = document.querySelector(".lines").getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  for (const id of ["all-lines", "active-lines"]) {
    const canvas = byId(id);
    canvas.width = Math.round(box.width * ratio);
    canvas.height = Math.round(box.height * ratio);
    canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  return box;
}

let lineBox = null;
function drawLines(canvas, links, colour, relative, clears = true) {
  const context = canvas.getContext("2d"), { width, height } = lineBox, step = byId("rows").firstChild.getBoundingClientRect().height;
  if (clears) context.clearRect(0, 0, width, height);
  context.strokeStyle = colour;
  // The links of one token are shown relative to its strongest, those of a whole head by their weight.
  const most = relative * links.reduce((top, { weight }) => Math.max(top, weight), 0);
  for (const { row, column, weight } of links) {
    if (weight < 0.004) continue;
    const from = (row + 0.5) * step, to = (column + 0.5) * step;
    context.globalAlpha = clamp(Math.max(0.8 * weight, most && (0.75 * weight) / most) + 0.03, 0, 1);
    context.lineWidth = 0.75 + 4 * weight;
    context.beginPath();
    context.moveTo(0, from);
    context.bezierCurveTo(width * 0.45, from, width * 0.55, to, width, to);
    context.stroke();
  }
}

// The mean shows where each head's links go: one colour for each.
function drawAllHeads() {
  const mean = selected;
  const heads = Array.from({ length: map().shape[1] }, (_, head) => head);
  byId("all-lines").getContext("2d").clearRect(0, 0, lineBox.width, lineBox.height);
  for (const head of heads) {
    selected = weightsOf(state.layer, head);
    drawLines(byId("all-lines"), linksOf(null), headColour(head), 0, false);
  }
  selected = mean;
  byId("head-colours").replaceChildren(...heads.map((head) => {
    const item = make("span", "", `head ${head}`);
    item.style.setProperty("--head", headColour(head));
    return item;
  }));
}

function drawLinks() {
  lineBox = sizeLines();
  byId("head-colours").hidden = !isMean();
  if (isMean()) drawAllHeads();
  else drawLines(byId("all-lines"), linksOf(null), css("--query"), 0);
  describeTokens();
  showActive();
}

function showActive() {
  const { active } = state, box = document.querySelector(".links");
  box.classList.toggle("has-active", Boolean(active));
  for (const side of ["row", "column"]) {
    for (const item of byId(side + "s").children) {
      const index = Number(item.dataset.index), isActive = active && active.side === side && active.index === index;
      item.classList.toggle("active", Boolean(isActive));
      item.classList.toggle("pinned", Boolean(isActive && state.isPinned));
      item.setAttribute("aria-selected", String(Boolean(isActive)));
      const isOther = active && active.side !== side;
      const weight = !isOther ? 0 : side === "row" ? at(index, active.index) : at(active.index, index);
      item.style.setProperty("--weight", weight);
      item.lastChild.textContent = isOther ? short(weight) : "";
      if (isOther) item.dataset.weight = exact(weight);
      else delete item.dataset.weight;
    }
  }
  if (lineBox && state.view === "links") {
    const links = active ? linksOf(active) : [];
    drawLines(byId("active-lines"), links, css(active && active.side === "column" ? "--key" : "--query"), 1);
  }
}

function activate(active, isPinned = false) {
  state.active = active;
  state.isPinned = isPinned;
  if (active) state[active.side] = active.index;
  showActive();
  summarize();
}

// Summary and screen reader

// A token that occurs twice is named with its position.
const isRepeated = (side, index) => map()[side + "s"].filter((text) => text === map()[side + "s"][index]).length > 1;
const spoken = (side, index) => quoted(map()[side + "s"][index]) + (isRepeated(side, index) ? ` at ${index}` : "");
function labelled(side, index) {
  const node = make("span");
  node.append(token(map()[side + "s"][index]));
  if (isRepeated(side, index)) node.append(make("span", "position", `#${index}`));
  return node;
}

function sentence(active, count) {
  const links = strongest(active, count);
  if (!active) return "Strongest links: " + links.map(({ row, column, weight }) => `${spoken("row", row)} to ${spoken("column", column)} ${short(weight)}`).join(", ");
  const name = spoken(active.side, active.index);
  if (!links.some(({ weight }) => weight > 0)) return active.side === "row" ? `${name} attends to nothing` : `${name} receives no attention`;
  return active.side === "row"
    ? `${name} attends most to ` + links.map(({ column, weight }) => `${spoken("column", column)} ${short(weight)}`).join(", ")
    : `${name} receives most attention from ` + links.map(({ row, weight }) => `${spoken("row", row)} ${short(weight)}`).join(", ");
}

const headName = () => (map().shape[0] * map().shape[1] === 1 ? "" : `Layer ${state.layer}, ${isMean() ? "mean of all heads" : `head ${state.head}`}. `);

function summarize() {
  const { active } = state, { columns } = map(), title = byId("summary-title");
  const links = strongest(active, 8).filter(({ weight }) => weight > 0);
  title.replaceChildren();
  if (!active) title.append("Strongest links of this head");
  else if (active.side === "row") title.append(labelled("row", active.index), " attends to");
  else title.append(labelled("column", active.index), " receives attention from");
  byId("summary").className = active && active.side === "column" ? "by-column" : "";
  byId("summary").replaceChildren(...links.map(({ row, column, weight }) => {
    const item = make("li"), name = make("span", "name"), meter = make("span", "meter"), bar = make("i");
    if (!active) name.append(labelled("row", row), " → ", labelled("column", column));
    else name.append(active.side === "row" ? labelled("column", column) : labelled("row", row));
    bar.style.width = `${100 * weight}%`;
    meter.append(bar);
    item.append(name, shownWeight("span", "number", weight), meter);
    item.dataset.row = row;
    item.dataset.column = column;
    return item;
  }));
  let sum = 0;
  if (active && active.side === "row") columns.forEach((_, column) => { sum += at(active.index, column); });
  byId("summary-sum").textContent = active && active.side === "row" ? `All ${columns.length} weights of this row sum to ${sum.toFixed(4)}.` : "";
  announce(headName() + sentence(active, 3));
}

// Heat map

function drawHeat() {
  const { rows, columns } = map(), width = Math.min(byId("views").clientWidth - 160, 900);
  const cell = clamp(Math.floor(Math.min(width / columns.length, 640 / Math.min(rows.length, 24))), 11, 34);
  const heat = byId("heat"), top = largest(selected);
  heat.style.setProperty("--cell", `${cell}px`);
  heat.style.setProperty("--letter", `${clamp(cell * 0.62, 9, 15)}px`);
  for (const [id, texts] of [["heat-rows", rows], ["heat-columns", columns]]) {
    byId(id).replaceChildren(...texts.map((text) => { const span = make("span"); span.append(token(text)); return span; }));
  }
  [...byId("heat-columns").children].forEach((span, index) => span.classList.toggle("upright", [...columns[index]].length <= 2));
  const canvas = byId("heat-canvas");
  paint(canvas, selected, rows.length, columns.length, 0, top, "weight");
  canvas.style.width = `${cell * columns.length}px`;
  canvas.style.height = `${cell * rows.length}px`;
  byId("heat-field").setAttribute("aria-label", `${headName()}Heat map of ${rows.length} rows and ${columns.length} columns; arrow keys move from cell to cell`);
  paint(byId("heat-scale"), Float32Array.from({ length: 200 }, (_, i) => i), 1, 200, 0, 199, "weight");
  byId("heat-top").textContent = exact(top);
  showCell();
}

function showCell(isAnnounced = false) {
  const { row, column } = state, cursor = byId("heat-cursor");
  const cell = parseFloat(byId("heat").style.getPropertyValue("--cell"));
  cursor.hidden = false;
  cursor.style.left = `${column * cell}px`;
  cursor.style.top = `${row * cell}px`;
  for (const [id, index] of [["heat-rows", row], ["heat-columns", column]]) {
    [...byId(id).children].forEach((span, position) => span.classList.toggle("on", position === index));
  }
  const readout = byId("heat-readout");
  readout.replaceChildren(labelled("row", row), " → ", labelled("column", column), "\u2003", make("b", "number", exact(at(row, column))));
  if (isAnnounced) announce(`${spoken("row", row)} to ${spoken("column", column)}: ${exact(at(row, column))}`);
}

function moveCell(row, column, isAnnounced) {
  state.row = clamp(row, 0, map().rows.length - 1);
  state.column = clamp(column, 0, map().columns.length - 1);
  state.active = { side: "row", index: state.row };
  summarize();
  showCell(isAnnounced);
}

// All heads

let tilesFor = "";
function drawHeads() {
  const { name, shape: [layers, heads, rows, columns] } = map(), box = byId("tiles");
  const top = largest(numbers(`${name}-weights`)), isOwn = byId("own-scale").checked, key = `${name} ${theme()} ${isOwn}`;
  if (tilesFor !== key) {
    const available = Math.min(byId("views").clientWidth - 40, 1000), width = clamp(Math.floor(available / heads) - 8, 44, 220);
    const height = Math.round(width * clamp(rows / columns, 0.5, 1.6));
    box.style.gridTemplateColumns = `max-content repeat(${heads}, ${width}px)`;
    const nodes = [make("span")];
    for (let head = 0; head < heads; head++) nodes.push(make("span", "name", heads > 1 ? `head ${head}` : ""));
    for (let layer = 0; layer < layers; layer++) {
      nodes.push(make("span", "name", `layer ${layer}`));
      for (let head = 0; head < heads; head++) nodes.push(tile(layer, head, isOwn ? 0 : top, height));
    }
    box.replaceChildren(...nodes);
    tilesFor = key;
  }
  for (const button of box.querySelectorAll("button")) {
    const isSelected = Number(button.dataset.layer) === state.layer && Number(button.dataset.head) === state.head;
    button.setAttribute("aria-pressed", String(isSelected));
    button.tabIndex = isSelected || (isMean() && button.dataset.layer === "0" && button.dataset.head === "0") ? 0 : -1;
  }
  byId("heads-note").textContent = `${layers} ${layers > 1 ? "layers" : "layer"}, ${heads} ${heads > 1 ? "heads" : "head"}. ${isOwn ? "The colour scale of each head ends at its largest weight." : `The colour scale ends at ${exact(top)}.`} Select a tile to enlarge it.`;
}

function tile(layer, head, top, height) {
  const button = make("button"), canvas = make("canvas");
  button.type = "button";
  button.dataset.layer = layer;
  button.dataset.head = head;
  button.setAttribute("aria-label", `Layer ${layer}, head ${head}`);
  button.style.height = `${height}px`;
  const weights = weightsOf(layer, head);
  paint(canvas, weights, map().shape[2], map().shape[3], 0, top || largest(weights), "weight");
  button.append(canvas);
  return button;
}

// Query x key

function vector(kind, position) {
  const { name, shape: [, heads], size } = map(), length = map()[kind === "queries" ? "rows" : "columns"].length;
  const start = ((state.layer * heads + state.head) * length + position) * size;
  return numbers(`${name}-${kind}`).subarray(start, start + size);
}

function drawProduct() {
  const { size, rows } = map(), reason = isMean() ? "A mean over heads is not a dot product: select one head." : "";
  byId("product").hidden = Boolean(reason);
  byId("product-note").textContent = reason || `A score is the dot product of query and key (${size} elements), times ${map().scaling[state.layer].toFixed(4)}; the softmax over the keys gives the attention weights.`;
  if (reason) return;
  const select = byId("product-query");
  if (select.dataset.map !== map().name) {
    select.replaceChildren(...rows.map((text, index) => new Option(`${index}: ${text}`, index)));
    select.dataset.map = map().name;
  }
  select.value = state.row;
  byId("score-name").textContent = `× ${map().scaling[state.layer].toFixed(3)} = score`;
  const q = vector("queries", state.row), keys = map().columns.map((_, column) => vector("keys", column));
  const maxValue = Math.max(largest(q), ...keys.map(largest));
  const products = keys.map((k) => k.map((value, i) => value * q[i])), maxProduct = Math.max(...products.map(largest));
  strip(byId("product-q"), q, maxValue);
  byId("product-rows").replaceChildren(...keys.map((k, column) => productRow(column, k, products[column], maxValue, maxProduct)));
  showElement();
}

function strip(canvas, values, maxValue) {
  canvas.setAttribute("aria-hidden", "true");
  paint(canvas, values, 1, values.length, -maxValue, maxValue, "sign");
}

function productRow(column, k, product, maxValue, maxProduct) {
  const line = make("tr"), head = make("th"), sum = product.reduce((total, value) => total + value, 0);
  const isMasked = map().isCausal && column > state.row, weight = at(state.row, column);
  head.scope = "row";
  head.append(token(map().columns[column]));
  line.append(head);
  for (const [values, most] of [[k, maxValue], [product, maxProduct]]) {
    const cell = make("td"), canvas = make("canvas", "strip");
    strip(canvas, values, most);
    cell.append(canvas);
    line.append(cell);
  }
  const score = isMasked ? "masked" : (sum * map().scaling[state.layer]).toFixed(4);
  const last = make("td", "number softmax"), meter = make("span", "meter"), bar = make("i");
  bar.style.width = `${100 * weight}%`;
  meter.append(bar);
  last.append(meter, shownWeight("span", "weight", weight));
  line.append(make("td", "number", sum.toFixed(4)), make("td", "number score", score), last);
  line.dataset.column = column;
  return line;
}

function showElement(isAnnounced = false) {
  if (!map().size || isMean()) return;
  const column = state.column, q = vector("queries", state.row), k = vector("keys", column);
  state.element = clamp(state.element, 0, q.length - 1);
  const i = state.element, text = `element ${i}: q ${q[i].toFixed(4)} × k ${k[i].toFixed(4)} = ${(q[i] * k[i]).toFixed(4)}`;
  for (const line of byId("product-rows").children) line.classList.toggle("on", Number(line.dataset.column) === column);
  byId("product-readout").replaceChildren(labelled("row", state.row), " · ", labelled("column", column), `\u2003${text}`);
  drawElements(q, k);
  if (isAnnounced) announce(`${spoken("column", column)}, ${text}`);
}

function drawElements(q, k) {
  byId("elements-name").replaceChildren("Element by element: ", labelled("row", state.row), " and ", labelled("column", state.column));
  let running = 0;
  const lines = { element: [], q: [], k: [], "q × k": [], "cumulative sum": [] };
  q.forEach((value, i) => {
    running += value * k[i];
    [i, value.toFixed(3), k[i].toFixed(3), (value * k[i]).toFixed(3), running.toFixed(3)].forEach((text, row) => Object.values(lines)[row].push(text));
  });
  byId("elements").replaceChildren(...Object.entries(lines).map(([name, cells], row) => {
    const line = make("tr"), head = make("th", "", name);
    head.scope = "row";
    line.append(head, ...cells.map((text, i) => {
      const cell = make(row ? "td" : "th", i === state.element ? "on" : "", text);
      if (!row) cell.scope = "col";
      return cell;
    }));
    return line;
  }));
}

// Table

let tableFor = "";
function drawTable() {
  const { name, title, rows, columns } = map(), key = `${name} ${state.layer} ${state.head}`;
  if (tableFor === key) return;
  tableFor = key;
  const box = make("table", "weights"), head = make("tr"), body = make("tbody");
  box.append(make("caption", "", `${title}. ${headName()}Rows are queries, columns are keys.`));
  const heading = (text, scope) => { const cell = make("th"); cell.scope = scope; cell.append(token(text)); return cell; };
  head.append(make("td"), ...columns.map((text) => heading(text, "col")));
  rows.forEach((text, row) => {
    const line = make("tr");
    line.append(heading(text, "row"), ...columns.map((_, column) => shownWeight("td", "", at(row, column))));
    body.append(line);
  });
  const top = make("thead");
  top.append(head);
  box.append(top, body);
  byId("table-scroller").replaceChildren(box);
}

// Map, layer, head and view

const VIEWS = { links: drawLinks, heat: drawHeat, heads: drawHeads, product: drawProduct, table: drawTable };

const choices = (id, ...rest) => fillChoices(byId(id), ...rest);

function choose(changes) {
  Object.assign(state, changes);
  const [layers, heads] = map().shape, counted = (count) => Array.from({ length: count }, (_, i) => [i, String(i)]);
  if ("map" in changes) {
    state.layer = clamp(state.layer, 0, layers - 1);
    state.head = isMean() && heads > 1 ? "mean" : clamp(isMean() ? 0 : state.head, 0, heads - 1);
    state.row = clamp(state.row, 0, map().rows.length - 1);
    state.column = clamp(state.column, 0, map().columns.length - 1);
    state.active = null;
    state.isPinned = false;
    buildTokens();
    byId("description").textContent = `${data.model}. ${map().description}`;
    choices("layer-choice", counted(layers), state.layer, (layer) => choose({ layer }));
    choices("head-choice", heads > 1 ? [...counted(heads), ["mean", "mean"]] : [], state.head, (head) => choose({ head }));
  }
  for (const [id, value] of [["layer-choice", state.layer], ["head-choice", state.head]]) {
    for (const input of byId(id).querySelectorAll("input")) input.checked = input.value === String(value);
  }
  selected = weightsOf(state.layer, state.head);
  show(state.view);
}

// Tabs without content are hidden: one head needs no overview, and some scores are no products.
const views = () => Object.keys(VIEWS).filter((name) => (name !== "product" || map().size) && (name !== "heads" || map().shape[0] * map().shape[1] > 1));

function show(wanted) {
  const view = views().includes(wanted) ? wanted : "links";
  state.view = view;
  // The heat map and the product always have one active row.
  if (view === "heat" || view === "product") state.active = { side: "row", index: state.row };
  else if (!state.isPinned) state.active = null;
  for (const name of Object.keys(VIEWS)) {
    const tab = byId(`tab-${name}`);
    tab.hidden = !views().includes(name);
    tab.setAttribute("aria-selected", String(name === view));
    tab.tabIndex = name === view ? 0 : -1;
    byId(`panel-${name}`).hidden = name !== view;
  }
  VIEWS[view]();
  summarize();
}

// Events

const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function listenToTokens() {
  for (const side of ["row", "column"]) {
    const list = byId(side + "s"), item = (event) => event.target.closest("li");
    list.addEventListener("pointerover", (event) => {
      if (item(event) && !state.isPinned) activate({ side, index: Number(item(event).dataset.index) });
    });
    list.addEventListener("pointerleave", () => { if (!state.isPinned) activate(focused()); });
    list.addEventListener("focusin", (event) => activate({ side, index: Number(item(event).dataset.index) }, state.isPinned));
    list.addEventListener("focusout", (event) => { if (!event.relatedTarget?.closest?.(".tokens") && !state.isPinned) activate(null); });
    list.addEventListener("click", (event) => { if (item(event)) pin(side, Number(item(event).dataset.index)); });
    list.addEventListener("keydown", (event) => moveToken(event, side, Number(item(event).dataset.index)));
  }
}
function focused() {
  const item = document.activeElement?.closest?.(".tokens li");
  return item ? { side: item.parentNode.id.slice(0, -1), index: Number(item.dataset.index) } : null;
}
function pin(side, index) {
  const isSame = state.isPinned && state.active?.side === side && state.active.index === index;
  activate({ side, index }, !isSame);
}
function moveToken(event, side, index) {
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); return pin(side, index); }
  if (event.key === "Escape") return activate(focused(), false);
  const isAcross = event.key === "ArrowLeft" || event.key === "ArrowRight";
  const to = isAcross ? (event.key === "ArrowLeft" ? "row" : "column") : side;
  const items = byId(to + "s").children, last = items.length - 1;
  const position = { ArrowUp: index - 1, ArrowDown: index + 1, Home: 0, End: last, ArrowLeft: index, ArrowRight: index }[event.key];
  if (position === undefined) return;
  event.preventDefault();
  const next = items[clamp(isAcross && to !== side ? state[to] : position, 0, last)];
  for (const item of items) item.tabIndex = item === next ? 0 : -1;
  state.isPinned = false;
  next.focus();
}

function listenToHeat() {
  const field = byId("heat-field");
  field.addEventListener("pointermove", (event) => {
    const box = byId("heat-canvas").getBoundingClientRect(), { rows, columns } = map();
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows.length);
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns.length);
    if (row !== state.row || column !== state.column) moveCell(row, column, false);
  });
  field.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    moveCell(state.row + step[0], state.column + step[1], true);
  });
}

function listenToTiles() {
  byId("own-scale").addEventListener("change", drawHeads);
  byId("tiles").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    choose({ layer: Number(button.dataset.layer), head: Number(button.dataset.head) });
    show("heat");
    byId("heat-field").focus({ preventScroll: true });
  });
  byId("tiles").addEventListener("keydown", (event) => {
    const button = event.target.closest("button"), step = steps[event.key];
    if (!button || !step) return;
    event.preventDefault();
    const [layers, heads] = map().shape;
    const layer = clamp(Number(button.dataset.layer) + step[0], 0, layers - 1), head = clamp(Number(button.dataset.head) + step[1], 0, heads - 1);
    byId("tiles").querySelector(`[data-layer="${layer}"][data-head="${head}"]`).focus();
  });
}

function listenToProduct() {
  byId("product-query").addEventListener("change", (event) => {
    state.row = Number(event.target.value);
    state.active = { side: "row", index: state.row };
    drawProduct();
    summarize();
  });
  byId("product-rows").addEventListener("pointermove", (event) => {
    const line = event.target.closest("tr"), canvas = event.target.closest("canvas");
    if (!line) return;
    const box = canvas?.getBoundingClientRect();
    const element = box ? Math.floor(((event.clientX - box.left) / box.width) * map().size) : state.element;
    if (Number(line.dataset.column) === state.column && element === state.element) return;
    state.column = Number(line.dataset.column);
    state.element = element;
    showElement();
  });
  byId("product-table").addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    state.column = clamp(state.column + step[0], 0, map().columns.length - 1);
    state.element += step[1];
    showElement(true);
  });
}

// Start

function showTexts() {
  byId("title").textContent = data.heading;
  document.title = data.heading;
  for (const [name, text] of data.texts) {
    const line = make("dd", "", text);
    line.dir = "auto";
    byId("texts").append(make("dt", "", name), line);
  }
}

byId("controls").addEventListener("submit", (event) => event.preventDefault());
let resizing = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(resizing); resizing = requestAnimationFrame(() => { tilesFor = ""; VIEWS[state.view](); }); });
listenToTheme(() => { if (selected) VIEWS[state.view](); });
showTexts();
listenToTokens();
listenToHeat();
listenToTiles();
listenToProduct();
listenToTabs(byId("tabs"), views, () => state.view, show);
choices("map-choice", data.maps.map(({ title }, index) => [index, title]), data.start.map, (index) => choose({ map: index }));
state.layer = data.start.layer;
state.head = data.start.head;
choose({ map: data.start.map });
show("links");
