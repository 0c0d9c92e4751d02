// The score of one query and one key, element by element: what is multiplied, its sum, the score, the softmax.

import { largest, paint } from "../../pages/assets/colours.js";
import { announce, clamp, digits3, make, token } from "../../pages/assets/dom.js";
import { Explanation } from "./explanation.js";
import { labelsOf, slice, titleOf } from "./labels.js";
import { Select, Steps } from "./parts.js";

const baseOf = (name) => name.slice(0, name.lastIndexOf(".")).replace(/\.score$/, "");
const isProduct = ({ axes }) => axes.slice(-3).join() === "queries,keys,units";
const MOST_ROWS = 120;

export class ScoreView {
  static id = "score";
  static title = "Score";
  static absent = "no attention, and so no scores";
  static needsParts = true;
  static isNeeded = (analysis) => analysis.entries("weights").some(({ axes }) => axes.join() === "heads,queries,keys");

  constructor(session, app) {
    Object.assign(this, { session, app, head: 0, key: 0, unit: 0 });
    this.element = make("div", "view");
    this.select = new Select("Score of", (name) => { session.chosen.score = name; app.redraw(); });
    this.heads = new Select("Head", (head) => { this.head = Number(head); app.redraw(); });
    this.steps = new Steps("Step", (step) => app.setPlace(this.side, step));
    this.note = make("p", "quiet");
    this.table = make("table", "score-table");
    this.table.tabIndex = 0;
    this.table.addEventListener("keydown", (event) => this.listen(event));
    this.table.addEventListener("click", (event) => { const row = event.target.closest("tr[data-key]"); if (row) { this.key = Number(row.dataset.key); this.point(event); app.redraw(); } });
    this.title = make("h3");
    this.parts = make("table", "elements");
    this.explanation = new Explanation(session, app);
    const [one, other] = [make("div", "scroller"), make("div", "scroller")];
    one.append(this.table);
    other.append(this.parts);
    this.element.append(this.select.element, this.heads.element, this.steps.element, this.note, one, this.title, other, this.explanation.element);
  }

  listen(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    this.key += step[0];
    this.unit += step[1];
    this.isByKey = true;
    this.app.redraw();
  }

  point(event) {
    const canvas = event.target.closest("canvas");
    if (!canvas) return;
    const box = canvas.getBoundingClientRect();
    this.unit = Math.floor(((event.clientX - box.left) / box.width) * canvas.width);
  }

  update(analysis) {
    const { session, app } = this;
    const parts = analysis.entries("parts");
    const bases = [...new Set(parts.filter(isProduct).map(({ name }) => baseOf(name)))];
    const isCross = (base) => parts.some((each) => baseOf(each.name) === base && isProduct(each) && each.side !== each.keySide);
    const base = bases.includes(session.chosen.score) ? session.chosen.score : bases.findLast(isCross) ?? bases[0];
    for (const node of [this.table, this.parts, this.title, this.steps.element]) node.hidden = !base;
    this.select.show(bases.map((each) => [each, titleOf(`${each}.score`).replace(/: score$/, "")]), base);
    this.heads.element.hidden = true;
    if (!base) {
      this.explanation.show(null);
      this.note.textContent = analysis.tooLongForParts ? "The text is too long to show every element of every score; shorten it." : "This model's weights come from no score.";
      return;
    }
    const mine = parts.filter(({ name }) => baseOf(name) === base);
    const product = mine.find(({ name, axes }) => /\.product$/.test(name) && isProduct({ axes })) ?? mine.findLast(isProduct);
    const weights = analysis.entry(`${base}.weights`);
    const scores = analysis.entry(`${base}.scores`);
    this.side = product.side;
    const [heads, queries, keys] = weights.shape;
    this.heads.show(Array.from({ length: heads }, (_, head) => [String(head), String(head + 1)]), String(this.head));
    this.head = clamp(this.head, 0, heads - 1);
    const step = app.place(product.side, queries);
    this.key = clamp(this.key, 0, keys - 1);
    const queryLabels = labelsOf(analysis, weights, "queries");
    const keyLabels = labelsOf(analysis, weights, "keys");
    this.steps.show(queryLabels.map((text, i) => ({ label: `${i + 1} of ${queries}:`, text })), step);
    const rowOf = (entry) => slice(entry, { ...(entry.axes.includes("heads") ? { heads: this.head } : {}), queries: step });
    const products = rowOf(product);
    const [, units] = products.shape;
    this.unit = clamp(this.unit, 0, units - 1);
    this.note.textContent = `Each row is a key. The ${units} elements add up to the sum; the score, through ${/sparsemax/.test(weights.equation) ? "the sparsemax" : "the softmax"} over the keys, becomes the weight. Choose a row to read its elements.`;
    this.drawTable({ products, units, keys, keyLabels, scores: scores ? rowOf(scores).values : null, weights: rowOf(weights).values });
    this.title.textContent = `“${queryLabels[step]}” and “${keyLabels[this.key]}”, element by element`;
    this.drawParts(this.rowsOf(analysis, base, mine, product, step), units);
    this.explanation.show(product);
    if (this.isByKey) announce(`${keyLabels[this.key]}, element ${this.unit}: ${digits3(products.values[this.key * units + this.unit])}`);
    this.isByKey = false;
  }

  drawTable({ products, units, keys, keyLabels, scores, weights }) {
    const top = largest(products.values);
    const head = make("tr");
    head.append(...["key", "elements", "sum", "score", "weight"].map((name) => { const cell = make("th", "", name); cell.scope = "col"; return cell; }));
    const first = clamp(this.key - MOST_ROWS / 2, 0, Math.max(0, keys - MOST_ROWS));
    const rows = Array.from({ length: Math.min(keys, MOST_ROWS) }, (_, i) => first + i).map((key) => {
      const row = make("tr", key === this.key ? "on" : "");
      row.dataset.key = key;
      const name = make("th");
      name.scope = "row";
      name.append(token(keyLabels[key]));
      const values = products.values.subarray(key * units, (key + 1) * units);
      const strip = make("canvas", "strip");
      strip.setAttribute("aria-hidden", "true");
      paint(strip, values, 1, units, -top, top, "sign");
      const cell = make("td");
      cell.append(strip);
      const number = (value, className) => {
        const node = make("td", `number ${className}`, Number.isFinite(value) && value > -1e30 ? digits3(value) : "masked");
        node.dataset.value = value;
        return node;
      };
      row.append(name, cell, number(values.reduce((sum, value) => sum + value, 0), "sum"), number(scores ? scores[key] : NaN, "score"), number(weights[key], "weight"));
      return row;
    });
    const [headRow, body] = [make("thead"), make("tbody")];
    headRow.append(head);
    body.append(...rows);
    this.table.setAttribute("aria-label", "Score of one query with every key; arrow keys choose a key and an element");
    this.table.replaceChildren(headRow, body);
  }

  // Every part of the score at this query and key, and the query and key themselves where they are known.
  rowsOf(analysis, base, mine, product, step) {
    const vectors = ["queries", "keys"].map((name) => analysis.entry(`${base}.${name}`)).filter(Boolean);
    return [...vectors, ...mine].map((entry) => {
      const fixed = { heads: this.head, queries: step, keys: this.key };
      const { values } = slice(entry, Object.fromEntries(Object.entries(fixed).filter(([axis]) => entry.axes.includes(axis))));
      const name = entry.name.slice(entry.name.lastIndexOf(".") + 1).replaceAll("_", " ");
      return { name: { queries: "query", keys: "key" }[name] ?? name, values, isSum: entry === product, equation: entry.equation };
    });
  }

  drawParts(rows, units) {
    const line = (name, cells, isHead) => {
      const row = make("tr");
      const head = make("th", "", name);
      head.scope = "row";
      row.append(head, ...cells.map(([text, value], i) => {
        const cell = make(isHead ? "th" : "td", i === this.unit ? "on" : "", text);
        if (isHead) cell.scope = "col";
        if (value !== undefined) cell.dataset.value = value;
        return cell;
      }));
      return row;
    };
    const count = Math.min(units, 512);
    const lines = [line("element", Array.from({ length: count }, (_, i) => [String(i)]), true)];
    for (const { name, values, isSum } of rows) {
      lines.push(line(name, Array.from(values.subarray(0, count), (value) => [digits3(value), value])));
      let running = 0;
      if (isSum) lines.push(line("sum so far", Array.from(values.subarray(0, count), (value) => { running += value; return [digits3(running), running]; })));
    }
    this.parts.replaceChildren(...lines);
  }
}
