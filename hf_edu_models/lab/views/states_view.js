// States and gates over time: a heat map of tokens and units, and one unit through time with all its gates.

import { headColour } from "../../pages/assets/colours.js";
import { announce, digits3, make } from "../../pages/assets/dom.js";
import { Explanation } from "./explanation.js";
import { Heat } from "./heat.js";
import { labelsOf, titleOf } from "./labels.js";
import { Select } from "./parts.js";

const SVG = "http://www.w3.org/2000/svg";
const isTimed = ({ axes, shape }) => axes.length === 2 && ["tokens", "queries"].includes(axes[0]) && axes[1] === "units" && shape[0] > 0;

export class StatesView {
  static id = "states";
  static title = "States";
  static absent = "no states or gates";
  static isNeeded = (analysis) => analysis.entries("state", "gate").some(isTimed);

  constructor(session, app) {
    Object.assign(this, { session, app, unit: 0 });
    this.element = make("div", "view");
    this.select = new Select("Shown", (name) => { session.chosen.states = name; app.redraw(); });
    this.heat = new Heat("States over time", (row, column, isByKey) => this.choose(row, column, isByKey));
    this.readout = make("p", "readout");
    this.explanation = new Explanation(session, app);
    this.chart = make("div", "chart");
    const box = make("div", "scroller");
    box.append(this.heat.element);
    this.element.append(this.select.element, box, this.readout, this.chart, this.explanation.element);
  }

  update(analysis) {
    const { session } = this;
    const entries = analysis.entries("gate", "state").filter(isTimed);
    const entry = entries.find(({ name }) => name === session.chosen.states) ?? entries.find(({ kind }) => kind === "gate") ?? entries.at(-1);
    Object.assign(this, { analysis, entry });
    this.select.show(entries.map(({ name, kind }) => [name, `${titleOf(name)} (${kind})`]), entry.name);
    this.labels = labelsOf(analysis, entry, entry.axes[0]);
    const row = this.app.place(entry.side, entry.shape[0]);
    this.heat.show({
      values: entry.data, rows: entry.shape[0], columns: entry.shape[1], rowLabels: this.labels, columnLabels: null,
      kind: entry.kind === "gate" ? "weight" : "sign", row, column: Math.min(this.unit, entry.shape[1] - 1),
    });
    this.showCell(false);
  }

  choose(row, column, isByKey) {
    this.unit = column;
    this.app.setPlace(this.entry.side, row, false);
    this.showCell(isByKey);
  }

  showCell(isByKey) {
    const { entry, labels, heat: { row, column } } = this;
    const value = entry.data[row * entry.shape[1] + column];
    this.readout.textContent = `${labels[row]} (step ${row + 1}), unit ${column}: ${digits3(value)}`;
    this.readout.dataset.value = value;
    if (isByKey) announce(this.readout.textContent);
    this.drawChart();
    this.explanation.show(entry, [
      { label: `unit ${column}`, index: [null, column] }, { label: `from step ${row + 1} on`, index: [row], op: "freeze" },
      { label: `unit ${column} at step ${row + 1}`, index: [row, column], op: "set" }, { label: `unit ${column} at every step`, index: [null, column], op: "set" },
    ]);
  }

  // All gates and states of the same cell, for the selected unit.
  drawChart() {
    const { entry, analysis, heat: { row, column } } = this;
    const cell = entry.name.slice(0, entry.name.lastIndexOf("."));
    const lines = analysis.entries("gate", "state").filter((each) => isTimed(each) && each.name.startsWith(`${cell}.`) && each.shape.join() === entry.shape.join() && !each.name.slice(cell.length + 1).includes("."));
    const [steps] = entry.shape;
    const values = lines.map(({ data, shape }) => Array.from({ length: steps }, (_, t) => data[t * shape[1] + column]));
    const [low, high] = [Math.min(0, ...values.flat()), Math.max(1, ...values.flat())];
    const [width, height] = [Math.max(200, Math.min(this.element.clientWidth - 8, 760)), 150];
    const x = (t) => 8 + (t / Math.max(steps - 1, 1)) * (width - 16);
    const y = (value) => height - 8 - ((value - low) / (high - low || 1)) * (height - 16);
    const draw = (tag, attributes) => {
      const node = document.createElementNS(SVG, tag);
      for (const [name, each] of Object.entries(attributes)) node.setAttribute(name, each);
      return node;
    };
    const svg = draw("svg", { width, height, role: "img", "aria-label": `Unit ${column} over ${steps} steps: ${lines.map(({ name }) => titleOf(name).split(": ").at(-1)).join(", ")}` });
    for (const level of [0, 1]) svg.append(draw("line", { x1: 0, x2: width, y1: y(level), y2: y(level), class: "level" }));
    svg.append(draw("line", { x1: x(row), x2: x(row), y1: 0, y2: height, class: "now" }));
    const legend = make("p", "head-colours");
    lines.forEach(({ name }, i) => {
      const line = draw("polyline", { points: values[i].map((value, t) => `${x(t).toFixed(1)},${y(value).toFixed(1)}`).join(" "), fill: "none", "stroke-width": name === entry.name ? 3 : 1.5 });
      line.style.stroke = headColour(i);
      svg.append(line);
      const item = make("span", "", `${name.slice(cell.length + 1).replaceAll("_", " ")} ${digits3(values[i][row])}`);
      item.style.setProperty("--head", headColour(i));
      legend.append(item);
    });
    this.chart.replaceChildren(make("h3", "", `Unit ${column} over time`), svg, legend);
  }
}
