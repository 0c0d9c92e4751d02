// Everything that can be changed, as switches: heads, layers, gates, positions, residual connections, weights, states.

import { make } from "../../pages/assets/dom.js";
import { titleOf } from "./labels.js";

const GROUPS = {
  layer: "Layers", residual: "Residual connections", positions: "Positions", embedding: "Embeddings", head: "Heads",
  weights: "Attention weights", gate: "Gates", state: "States (frozen: the state keeps its first value)", context: "Context vectors",
};

export class ChangesView {
  static id = "changes";
  static title = "Change";
  static absent = "nothing that can be changed";
  static isNeeded = (analysis) => analysis.session.model.changeable().length > 0;

  constructor(session, app) {
    Object.assign(this, { session, app });
    this.element = make("div", "view changes");
    this.switches = [];
    this.element.append(make("p", "quiet", "Switch parts of the model off and see what follows. The other tabs offer more for what they show: one unit, one weight, one step."));
    const known = session.model.changeable();
    const kinds = [...Object.keys(GROUPS), ...new Set(known.map(({ kind }) => kind).filter((kind) => !GROUPS[kind]))];
    for (const kind of kinds) {
      const mine = known.filter((each) => each.kind === kind);
      if (mine.length) this.element.append(this.group(GROUPS[kind] ?? kind, mine));
    }
  }

  group(title, mine) {
    const box = make("fieldset", "group");
    box.append(make("legend", "", title));
    for (const { name, kind, shape, axes, ops } of mine) {
      const op = ops.includes("off") ? "off" : ops.includes("freeze") ? "freeze" : null;
      if (!op) continue;
      const row = make("div", "switches");
      row.append(make("span", "name", titleOf(name)));
      row.append(this.toggle(op === "freeze" ? "frozen" : "off", { name, op, index: [] }));
      if (axes[0] === "heads" && shape[0] > 1 && kind === "head") {
        for (let head = 0; head < shape[0]; head++) row.append(this.toggle(`head ${head + 1}`, { name, op, index: [head] }));
      }
      box.append(row);
    }
    return box;
  }

  toggle(text, change) {
    const button = make("button", "toggle", text);
    button.type = "button";
    button.setAttribute("aria-label", `${titleOf(change.name)} ${text}`);
    button.dataset.name = change.name;
    button.addEventListener("click", () => this.app.toggle(this.session, change));
    this.switches.push([button, JSON.stringify(change)]);
    return button;
  }

  update() {
    const made = new Set(this.session.changes.map(({ name, op, index }) => JSON.stringify({ name, op, index })));
    for (const [button, key] of this.switches) button.setAttribute("aria-pressed", String(made.has(key)));
  }
}
