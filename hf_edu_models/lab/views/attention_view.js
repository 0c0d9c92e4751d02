// Attention at each step: the keys in reading order with the weight of every head, and all steps as a heat map.

import { headColour } from "../../pages/assets/colours.js";
import { announce, digits3, fillChoices, make, quoted } from "../../pages/assets/dom.js";
import { Explanation } from "./explanation.js";
import { Heat } from "./heat.js";
import { labelsOf, slice, titleOf } from "./labels.js";
import { Select, Steps, TokenRow } from "./parts.js";

const isAttention = ({ axes }) => axes.join() === "heads,queries,keys";
let count = 0;

export class AttentionView {
  static id = "attention";
  static title = "Attention";
  static absent = "no attention";
  static isNeeded = (analysis) => analysis.entries("weights").some(isAttention);

  constructor(session, app) {
    Object.assign(this, { session, app, head: "all", key: null });
    this.element = make("div", "view");
    this.select = new Select("Shown", (name) => { session.chosen.attention = name; app.redraw(); });
    this.heads = make("fieldset");
    this.heads.id = `heads-${count++}`;
    this.heads.append(make("legend", "", "Head"));
    this.steps = new Steps("Step", (step) => app.setPlace(this.entry.side, step));
    this.line = make("p", "step-line");
    this.tokens = new TokenRow("Attention to each token", (key) => { this.key = key; app.redraw(); });
    this.legend = make("p", "head-colours");
    this.heat = new Heat("Attention of all steps", (row, column) => { this.key = column; app.setPlace(this.entry.side, row); });
    this.explanation = new Explanation(session, app);
    const box = make("div", "scroller");
    box.append(this.heat.element);
    const caption = make("h3", "", "All steps");
    this.element.append(this.select.element, this.heads, this.steps.element, this.line, this.tokens.element, this.legend, caption, box, this.explanation.element);
  }

  update(analysis) {
    const { session, app } = this;
    const entries = analysis.entries("weights").filter(isAttention);
    const isCross = ({ side, keySide }) => side !== keySide;
    const entry = entries.find(({ name }) => name === session.chosen.attention) ?? entries.findLast(isCross) ?? entries[0];
    this.entry = entry;
    this.select.show(entries.map(({ name }) => [name, titleOf(name)]), entry.name);
    const [heads, queries, keys] = entry.shape;
    if (this.head !== "all" && this.head >= heads) this.head = "all";
    const choices = [["all", "all"], ...Array.from({ length: heads }, (_, head) => [head, String(head + 1)])];
    fillChoices(this.heads, heads > 1 ? choices : [], this.head, (head) => { this.head = head; app.redraw(); this.heads.querySelector(":checked").focus(); });
    const rowLabels = labelsOf(analysis, entry, "queries");
    const keyLabels = labelsOf(analysis, entry, "keys");
    const step = app.place(entry.side, queries);
    this.steps.show(rowLabels.map((text, i) => ({ label: `${i + 1} of ${queries}: ${isCross(entry) ? "predicts" : "from"}`, text })), step);
    const shown = this.head === "all" ? Array.from({ length: heads }, (_, head) => head) : [this.head];
    const rows = shown.map((head) => ({ head, values: slice(entry, { heads: head, queries: step }).values }));
    const tokens = keyLabels.map((text) => ({ text }));
    const mean = new Float32Array(queries * keys);
    for (const head of shown) slice(entry, { heads: head }).values.forEach((value, i) => { mean[i] += value / shown.length; });
    const row = mean.subarray(step * keys, (step + 1) * keys);
    const key = this.key === null ? row.indexOf(Math.max(...row)) : Math.min(this.key, keys - 1); // the strongest, until one is chosen
    this.tokens.show(tokens, { heads: rows, selected: key, direction: analysis.direction(entry.keySide) });
    this.showLegend(shown, heads);
    this.heat.show({ values: mean, rows: queries, columns: keys, rowLabels, columnLabels: keyLabels, kind: "weight", row: step, column: key });
    this.describe(row, rowLabels[step], keyLabels);
    const head = this.head === "all" ? (heads === 1 ? 0 : null) : this.head;
    const headName = heads > 1 && head !== null ? `head ${head + 1}` : "";
    const places = headName ? [{ label: headName, index: [head] }] : [];
    this.explanation.show(entry, [...places, { label: `the weight of “${keyLabels[key]}” at step ${step + 1}${headName ? ` in ${headName}` : ""}`, index: [head, step, key], op: "set" }]);
  }

  showLegend(shown, heads) {
    this.legend.hidden = heads === 1;
    this.legend.replaceChildren(...shown.map((head) => {
      const item = make("span", "", `head ${head + 1}`);
      item.style.setProperty("--head", headColour(head));
      return item;
    }), ...(shown.length > 1 ? ["the number is the mean over heads"] : []));
  }

  describe(weights, from, keys) {
    const order = [...weights.keys()].sort((one, other) => weights[other] - weights[one]).slice(0, 3).filter((key) => weights[key] > 0);
    const sum = weights.reduce((total, weight) => total + weight, 0);
    const text = order.length ? `${quoted(from)} looks most at ${order.map((key) => `${quoted(keys[key])} ${digits3(weights[key])}`).join(", ")}.` : `${quoted(from)} looks at nothing.`;
    this.line.textContent = `${text} The ${weights.length} weights sum to ${digits3(sum)}.`;
    if (this.app.isMoving) announce(`${this.session.name}: ${text}`);
  }
}
