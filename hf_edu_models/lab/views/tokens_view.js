// Tokens, their ids, and their vectors.

import { announce, digits3, make } from "../../pages/assets/dom.js";
import { Explanation } from "./explanation.js";
import { Heat } from "./heat.js";
import { labelsOf, titleOf } from "./labels.js";
import { Select, TokenRow } from "./parts.js";

export class TokensView {
  static id = "tokens";
  static title = "Tokens";
  static isNeeded = () => true;

  constructor(session, app) {
    Object.assign(this, { session, app });
    this.element = make("div", "view");
    this.lines = { source: new TokenRow("Tokens", (i) => this.choose(i)), target: new TokenRow("Target tokens", (i) => this.choose(i, "target")) };
    this.note = make("p", "quiet");
    this.select = new Select("Vectors", (name) => { session.chosen.tokens = name; app.redraw(); });
    this.heat = new Heat("Vectors of the tokens", (row, column, isByKey) => this.showCell(isByKey));
    this.readout = make("p", "readout");
    this.explanation = new Explanation(session, app);
    this.target = make("h3", "", "Target");
    const box = make("div", "scroller");
    box.append(this.heat.element);
    this.element.append(this.note, this.lines.source.element, this.target, this.lines.target.element, this.select.element, box, this.readout, this.explanation.element);
  }

  choose(index, side = "source") {
    this.app.setPlace(side, index);
  }

  update(analysis) {
    const { session } = this;
    const sources = analysis.source;
    const pieces = sources.filter(({ isSpecial, isNew }) => !isSpecial && !isNew);
    const words = new Set(pieces.map(({ word }) => word)).size;
    this.note.textContent = `${sources.length} tokens${words < pieces.length ? `, ${pieces.length} of them from ${words} words` : ""}; below each its id.`;
    const ids = ({ id }) => String(id);
    this.lines.source.show(sources, { note: ids, direction: analysis.direction("source"), selected: this.app.place("source", sources.length) });
    this.target.hidden = this.lines.target.element.hidden = !analysis.read;
    if (analysis.read) this.lines.target.show(analysis.target, { note: ids, direction: analysis.direction("target"), selected: this.app.place("target", analysis.target.length) });
    const entries = analysis.entries("embedding", "positions").filter(({ shape }) => shape.length === 2);
    const entry = entries.find(({ name }) => name === session.chosen.tokens) ?? entries[0];
    this.entry = entry;
    this.select.show(entries.map(({ name }) => [name, titleOf(name)]), entry?.name);
    this.heat.element.hidden = !entry;
    this.explanation.show(entry);
    if (!entry) return;
    this.labels = labelsOf(analysis, entry, entry.axes[0]);
    this.heat.show({
      values: entry.data, rows: entry.shape[0], columns: entry.shape[1], rowLabels: this.labels, columnLabels: null, kind: "sign",
      row: this.app.place(entry.side, entry.shape[0]),
    });
    this.showCell(false);
  }

  showCell(isByKey) {
    const { row, column } = this.heat;
    const value = this.entry.data[row * this.entry.shape[1] + column];
    this.readout.textContent = `${this.labels[row]}, unit ${column}: ${digits3(value)}`;
    this.readout.dataset.value = value;
    if (isByKey) announce(this.readout.textContent);
  }
}
