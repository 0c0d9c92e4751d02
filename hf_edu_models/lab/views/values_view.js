// Every number of the forward pass: any entry of the record as a heat map and a table.

import { digits3, exact, make, token } from "../../pages/assets/dom.js";
import { Explanation } from "./explanation.js";
import { Heat } from "./heat.js";
import { labelsOf, slice, titleOf } from "./labels.js";
import { Select } from "./parts.js";

const [MOST_ROWS, MOST_COLUMNS] = [100, 64]; // of the table; the heat map has all

export class ValuesView {
  static id = "values";
  static title = "All values";
  static isNeeded = () => true;

  constructor(session, app) {
    Object.assign(this, { session, app, fixed: {} });
    this.element = make("div", "view");
    this.select = new Select("Shown", (name) => { session.chosen.values = name; this.fixed = {}; app.redraw(); });
    this.axes = make("div", "row");
    this.note = make("p", "quiet");
    this.heat = new Heat("Values", () => this.showCell());
    this.readout = make("p", "readout");
    this.table = make("table", "values");
    this.explanation = new Explanation(session, app);
    const [one, other] = [make("div", "scroller"), make("div", "scroller tall")];
    one.append(this.heat.element);
    other.append(this.table);
    other.tabIndex = 0;
    other.setAttribute("role", "region");
    other.setAttribute("aria-label", "Table of values");
    this.element.append(this.select.element, this.axes, this.note, one, this.readout, other, this.explanation.element);
  }

  update(analysis) {
    const { session } = this;
    const { entries } = analysis.record;
    const entry = entries.find(({ name }) => name === session.chosen.values) ?? entries[0];
    this.select.show(entries.map(({ name, kind }) => [name, `${titleOf(name)} (${kind})`]), entry.name);
    const outer = entry.axes.slice(0, -2);
    for (const axis of outer) this.fixed[axis] = Math.min(this.fixed[axis] ?? 0, entry.shape[entry.axes.indexOf(axis)] - 1);
    if (this.shownFor !== `${entry.name} ${entry.shape}`) this.fillAxes(analysis, entry, outer);
    this.shownFor = `${entry.name} ${entry.shape}`;
    const { values, shape } = slice(entry, Object.fromEntries(outer.map((axis) => [axis, this.fixed[axis]])));
    const [rows, columns] = shape.length === 2 ? shape : [1, shape[0] ?? 1];
    const [rowAxis, columnAxis] = shape.length === 2 ? entry.axes.slice(-2) : [null, entry.axes.at(-1)];
    this.labels = { rows: rowAxis ? labelsOf(analysis, entry, rowAxis) : [""], columns: columnAxis === "vocabulary" ? null : labelsOf(analysis, entry, columnAxis) };
    Object.assign(this, { values, rows, columns, columnAxis });
    this.note.textContent = `${entry.shape.join(" × ")} values: ${entry.axes.join(" × ")}`;
    const isPositive = values.every((value) => value >= 0);
    const named = ["keys", "tokens", "labels"].includes(columnAxis) ? this.labels.columns : null;
    this.heat.show({ values: values.map((value) => (Number.isFinite(value) && value > -1e30 ? value : 0)), rows, columns, rowLabels: this.labels.rows, columnLabels: named, kind: isPositive ? "weight" : "sign" });
    this.showCell();
    this.drawTable();
    this.explanation.show(entry);
  }

  fillAxes(analysis, entry, outer) {
    this.axes.replaceChildren(...outer.map((axis) => {
      const select = new Select(axis, (value) => { this.fixed[axis] = Number(value); this.app.redraw(); });
      select.show(labelsOf(analysis, entry, axis).map((label, i) => [String(i), `${i + 1}: ${label}`]), String(this.fixed[axis]));
      return select.element;
    }));
  }

  nameOf(column) {
    return this.labels.columns ? this.labels.columns[column] : this.session.tokenizer.tokenOf(column) ?? String(column);
  }

  showCell() {
    const { row, column } = this.heat;
    const value = this.values[row * this.columns + column];
    this.readout.textContent = `${this.labels.rows[row]} ${this.columnAxis} ${this.nameOf(column)}: ${exact(value)}`;
    this.readout.dataset.value = value;
  }

  drawTable() {
    const head = make("tr");
    const columns = Math.min(this.columns, MOST_COLUMNS);
    const heading = (text, scope) => { const cell = make("th"); cell.scope = scope; cell.append(token(text)); return cell; };
    head.append(make("td"), ...Array.from({ length: columns }, (_, column) => heading(this.nameOf(column), "col")));
    const rows = Array.from({ length: Math.min(this.rows, MOST_ROWS) }, (_, row) => {
      const line = make("tr");
      line.append(heading(this.labels.rows[row] ?? "", "row"), ...Array.from({ length: columns }, (_, column) => {
        const value = this.values[row * this.columns + column];
        const cell = make("td", "", Number.isFinite(value) && value > -1e30 ? digits3(value) : "masked");
        cell.dataset.value = value;
        return cell;
      }));
      return line;
    });
    const [top, body] = [make("thead"), make("tbody")];
    top.append(head);
    body.append(...rows);
    this.table.replaceChildren(top, body);
  }
}
