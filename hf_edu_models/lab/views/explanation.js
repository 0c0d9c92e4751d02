// What an entry is, beside its view: the equation, the file and line that computes it, the paper; and what can be changed.

import { make } from "../../pages/assets/dom.js";
import { titleOf } from "./labels.js";

export class Explanation {
  constructor(session, app) {
    Object.assign(this, { session, app });
    this.element = make("aside", "explanation");
    this.facts = make("dl");
    this.changes = make("div", "change-box");
    this.element.append(this.facts, this.changes);
  }

  // places: [{label, index, op: what else than "off" is offered}] of the entry that is shown.
  show(entry, places = []) {
    this.element.hidden = !entry;
    if (!entry) return;
    const line = this.app.sources[entry.source];
    const [file, code] = (entry.source ?? "").split(":");
    const facts = [["Shown", titleOf(entry.name)], ["Equation", entry.equation], ["Computed in", entry.source && `${file}${line ? `:${line}` : ""}, ${code}`], ["Paper", entry.paper]];
    this.element.setAttribute("aria-label", `About ${titleOf(entry.name)}`);
    this.facts.replaceChildren(...facts.filter(([, text]) => text).flatMap(([name, text]) => {
      const value = make("dd", name === "Equation" || name === "Computed in" ? "code" : "", text);
      return [make("dt", "", name), value];
    }));
    this.showChanges(entry, places);
  }

  showChanges(entry, places) {
    const name = entry.name.replace(/^(sentences|choices)\.\d+\./, "");
    const about = this.session.model.changeable().find((each) => each.name === name);
    const rows = [{ label: "all of it", index: [] }, ...places].flatMap(({ label, index, op = "off" }) => {
      if (!about?.ops.includes(op)) return [];
      return [{ label, index, op }];
    });
    const key = JSON.stringify([name, rows]); // a slider that is being moved is kept
    if (key === this.shownChanges) return;
    this.shownChanges = key;
    const buttons = rows.map(({ label, index, op }) => (op === "set" ? this.setter(name, label, index) : this.button(name, label, index, op)));
    this.changes.replaceChildren(...(buttons.length ? [make("h3", "", "Change"), ...buttons] : []));
  }

  button(name, label, index, op) {
    const button = make("button", "", op === "freeze" ? `Freeze ${label}` : `Switch off ${label}`);
    button.type = "button";
    button.dataset.op = op;
    button.addEventListener("click", () => this.app.change(this.session, { name, op, index }));
    return button;
  }

  // A weight is forced with a slider, other values with a number.
  setter(name, label, index) {
    const box = make("div", "setter");
    const caption = make("label", "", `Force ${label} to `);
    const input = make("input");
    const isWeight = /weights$/.test(name);
    const shown = make("output", "number");
    const forced = this.session.changes.find((each) => each.op === "set" && each.name === name && JSON.stringify(each.index) === JSON.stringify(index));
    Object.assign(input, isWeight ? { type: "range", min: 0, max: 1, step: 0.01 } : { type: "number", step: 0.1 });
    input.value = forced?.value ?? (isWeight ? 1 : 0);
    shown.textContent = forced ? Number(forced.value).toFixed(2) : "";
    input.addEventListener("input", () => { shown.textContent = Number(input.value).toFixed(2); });
    input.addEventListener("change", () => {
      if (input.value !== "") this.app.change(this.session, { name, op: "set", index, value: Number(input.value) });
    });
    const button = make("button", "", "Force");
    button.type = "button";
    button.dataset.op = "set";
    button.addEventListener("click", () => this.app.change(this.session, { name, op: "set", index, value: Number(input.value) }));
    caption.append(input);
    box.append(caption, shown, button);
    return box;
  }
}
