// Small parts of views: selects, sliders, bars, token rows.

import { headColour } from "../../pages/assets/colours.js";
import { digits3, make, token } from "../../pages/assets/dom.js";

let count = 0;

// A labelled select whose options are replaced only if they change, so that the focus stays.
export class Select {
  constructor(label, choose) {
    this.element = make("label", "select", `${label} `);
    this.input = make("select");
    this.element.append(this.input);
    this.input.addEventListener("change", () => choose(this.input.value));
    this.shown = "";
  }

  // options: [[value, text]]
  show(options, value) {
    const key = JSON.stringify(options);
    if (key !== this.shown) {
      this.input.replaceChildren(...options.map(([each, text]) => new Option(text, each)));
      this.shown = key;
    }
    this.input.value = value;
    this.element.hidden = options.length < 2;
  }
}

// Forwards and back through steps, by buttons and a slider.
export class Steps {
  constructor(label, choose) {
    this.choose = choose;
    this.element = make("div", "steps");
    const id = `steps-${count++}`;
    const name = make("label", "", label);
    name.htmlFor = id;
    this.range = make("input");
    Object.assign(this.range, { type: "range", id, min: 0, step: 1 });
    const button = (text, title, step) => {
      const node = make("button", "", text);
      node.type = "button";
      node.setAttribute("aria-label", title);
      node.addEventListener("click", () => this.move(Number(this.range.value) + step));
      return node;
    };
    this.name = make("span", "step-name");
    this.element.append(name, button("‹", `${label}: back`, -1), this.range, button("›", `${label}: forwards`, 1), this.name);
    this.range.addEventListener("input", () => this.move(Number(this.range.value)));
  }

  move(step) {
    if (step >= 0 && step <= Number(this.range.max)) this.choose(step);
  }

  // texts: what each step is called, as {label, text}.
  show(texts, step) {
    this.element.hidden = texts.length < 2;
    this.range.max = texts.length - 1;
    this.range.value = step;
    const { label, text } = texts[step] ?? { label: "", text: "" };
    this.range.setAttribute("aria-valuetext", `${label} ${text}`);
    this.name.replaceChildren(`${label} `, token(text));
  }
}

// A ranking: [{text, value, note, isChosen}]; `choose` makes its rows buttons.
export function bars(rows, choose = null) {
  const list = make("ol", "bars");
  for (const { text, value, isChosen, share = value } of rows) {
    const item = make("li", isChosen ? "chosen" : "");
    const name = choose ? make("button", "name") : make("span", "name");
    name.append(token(text));
    if (choose) {
      name.type = "button";
      name.addEventListener("click", () => choose(text, rows.findIndex((row) => row.text === text)));
    }
    const meter = make("span", "meter");
    const bar = make("i");
    bar.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
    meter.append(bar);
    item.dataset.value = value;
    item.append(name, make("span", "number", digits3(value)), meter);
    list.append(item);
  }
  return list;
}

// Tokens in reading order, each with the weight of every head in the head's colour.
export class TokenRow {
  constructor(label, choose) {
    this.choose = choose;
    this.element = make("div", "token-row");
    this.element.setAttribute("role", "listbox");
    this.element.setAttribute("aria-label", label);
    this.element.addEventListener("click", (event) => this.pick(event.target.closest(".chip")));
    this.element.addEventListener("keydown", (event) => {
      const chip = event.target.closest(".chip");
      if (!chip) return;
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
      const isBackwards = getComputedStyle(this.element).direction === "rtl" && event.key.match(/Left|Right/);
      const next = this.element.children[Number(chip.dataset.index) + (isBackwards ? -step : step)];
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.pick(chip); }
      else if (step) { event.preventDefault(); next?.focus(); this.pick(next); }
    });
  }

  pick(chip) {
    if (chip) this.choose(Number(chip.dataset.index));
  }

  // tokens: [{text, isSpecial, isNew}]; heads: null or [{head, values}], one value for each token.
  show(tokens, { heads = null, selected = null, note = null, direction = "ltr" } = {}) {
    if (this.element.children.length !== tokens.length) this.element.replaceChildren(...tokens.map(() => make("button", "chip")));
    this.element.dir = direction;
    tokens.forEach((each, i) => {
      const chip = this.element.children[i];
      chip.type = "button";
      chip.dataset.index = i;
      chip.setAttribute("role", "option");
      chip.setAttribute("aria-selected", String(i === selected));
      chip.tabIndex = i === (selected ?? 0) ? 0 : -1;
      chip.className = `chip${each.isSpecial ? " special" : ""}${each.isNew ? " new" : ""}`;
      chip.replaceChildren(token(each.text));
      if (heads) {
        const mean = heads.reduce((sum, { values }) => sum + values[i], 0) / heads.length;
        const columns = make("span", "columns");
        columns.append(...heads.map(({ head, values }) => {
          const column = make("i");
          column.style.height = `${100 * Math.min(1, values[i])}%`;
          column.style.background = headColour(head);
          return column;
        }));
        chip.append(columns, make("span", "number", digits3(mean)));
        chip.dataset.value = mean;
        chip.style.setProperty("--weight", mean);
      } else delete chip.dataset.value;
      if (note) chip.append(make("span", "number", note(each, i)));
    });
  }
}
