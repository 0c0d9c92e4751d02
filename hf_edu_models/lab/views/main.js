// The lab: reads the page's data, runs the models on what is typed, and shows one view of each.

import { announce, byId, bytesOf, clamp, fillChoices, listenToTabs, listenToTheme, make } from "../../pages/assets/dom.js";
import { Column, VIEWS, summary } from "./column.js";
import { Session } from "./session.js";

const data = JSON.parse(byId("data").textContent);
const MOST_COLUMNS = 3;
const PAIR_NAMES = { question_answering: ["Question", "Context"], multiple_choice: ["Context", "Choices, one a line"], next_sentence: ["Text", "Second text"] };

class App {
  constructor() {
    this.sources = data.sources;
    this.input = { text: data.text, pair: "", target: "", search: "greedy", beams: 3, length: 20, seed: 0, temperature: 1, topK: 0 };
    this.places = { source: null, target: null };
    this.view = null;
    this.columns = new Map();
    this.errors = new Map();
    this.shown = [];
  }

  get sessions() {
    return this.shown.map((name) => this.columns.get(name).session);
  }

  // The place along one side that every view shows: the last token at first.
  place(side, length) {
    return clamp(this.places[side] ?? (side === "target" ? 0 : length - 1), 0, Math.max(length - 1, 0));
  }

  setPlace(side, place, redraws = true) {
    this.places[side] = place;
    this.isMoving = true;
    if (redraws) this.redraw();
    this.isMoving = false;
  }

  setInput(changes, runs = true) {
    Object.assign(this.input, changes);
    for (const name of ["text", "pair", "target"]) if (byId(name).value !== this.input[name]) byId(name).value = this.input[name];
    if (this.input.target) byId("writing").open = true; // where it is seen, and emptied
    if (runs) this.run();
    else this.redraw();
  }

  column(name) {
    if (!this.columns.has(name)) this.columns.set(name, new Column(new Session(data.models.find((model) => model.name === name), bytesOf), this));
    return this.columns.get(name);
  }

  show(names) {
    this.shown = names;
    byId("columns").replaceChildren(...names.map((name) => this.column(name).element));
    byId("columns").style.setProperty("--columns", names.length);
    this.showFields();
    this.run();
  }

  // Only what one of the models uses.
  showFields() {
    const { sessions } = this;
    const writers = sessions.filter(({ writes }) => writes);
    const pair = sessions.find(({ takesPair }) => takesPair);
    byId("pair-field").hidden = !pair;
    const [textName, pairName] = PAIR_NAMES[pair?.kind] ?? ["Text", "Second text (optional)"];
    byId("text-name").textContent = textName;
    byId("pair-name").textContent = pairName;
    byId("target-field").hidden = !sessions.some(({ kind }) => kind === "seq2seq");
    byId("length-field").hidden = !sessions.some(({ kind }) => kind === "causal");
    const searches = [["greedy", "the likeliest token"], ["beam", "beam search"], ["sample", "sampling"]];
    fillChoices(byId("search"), writers.length ? searches : [], this.input.search, (search) => {
      this.input.search = search;
      this.showFields();
      this.run();
      if (search === "beam") this.open("beam");
      byId("search").querySelector(":checked").focus();
    });
    byId("writing").hidden = !writers.length;
    byId("beams-field").hidden = !writers.length || this.input.search !== "beam";
    byId("seed-field").hidden = !writers.length || this.input.search !== "sample";
  }

  // Compute with every model that is shown.
  run() {
    this.isWaiting = false;
    const start = performance.now();
    for (const name of this.shown) this.column(name).analyse(this.input, Boolean(this.view?.needsParts));
    this.milliseconds = performance.now() - start;
    const title = this.input.text.trim().replace(/\s+/g, " ") || "Lab";
    byId("title").textContent = title;
    document.title = title;
    this.showTabs();
    this.redraw();
    announce(this.shown.map((name) => {
      const { analysis } = this.column(name).session;
      return `${name}${this.column(name).session.changes.length ? ", changed," : ""} ${analysis ? summary(analysis).join(" ") : this.column(name).error.message}`;
    }).join(". "));
  }

  showTabs() {
    const needed = VIEWS.filter((view) => this.shown.some((name) => this.column(name).needed().includes(view)));
    if (!needed.includes(this.view)) this.view = needed[0] ?? VIEWS[0];
    const key = needed.map(({ id }) => id).join();
    if (key !== this.tabs) {
      const focused = document.activeElement?.id;
      byId("tabs").replaceChildren(...needed.map(({ id, title }) => {
        const tab = make("button", "", title);
        Object.assign(tab, { type: "button", id: `tab-${id}` });
        tab.setAttribute("role", "tab");
        tab.setAttribute("aria-controls", "columns");
        return tab;
      }));
      if (focused?.startsWith("tab-")) byId(focused)?.focus();
      this.tabs = key;
    }
    this.names = needed.map(({ id }) => id);
    for (const tab of byId("tabs").children) {
      const isShown = tab.id === `tab-${this.view.id}`;
      tab.setAttribute("aria-selected", String(isShown));
      tab.tabIndex = isShown ? 0 : -1;
    }
  }

  open(id) {
    const view = VIEWS.find((each) => each.id === id);
    if (!this.names.includes(id)) return;
    const needsRun = view.needsParts && !this.view.needsParts;
    this.view = view;
    if (needsRun) return this.run();
    this.showTabs();
    this.redraw();
  }

  redraw() {
    if (this.view) for (const name of this.shown) this.column(name).show(this.view);
  }

  // A change replaces the one at the same place.
  change(session, change) {
    const isSame = (each) => each.name === change.name && each.op === change.op && JSON.stringify(each.index) === JSON.stringify(change.index);
    session.changes = [...session.changes.filter((each) => !isSame(each)), change];
    this.run();
  }

  toggle(session, change) {
    const key = JSON.stringify([change.name, change.op, change.index]);
    const kept = session.changes.filter((each) => JSON.stringify([each.name, each.op, each.index]) !== key);
    session.changes = kept.length < session.changes.length ? kept : [...kept, change];
    this.run();
  }

  reset(session) {
    session.changes = [];
    this.run();
  }
}

const app = new App();
window.lab = app; // for the console

function fillModels() {
  const box = byId("models");
  box.hidden = data.models.length < 2;
  for (const { name } of data.models) {
    const label = make("label", "choice");
    const input = make("input");
    Object.assign(input, { type: "checkbox", value: name, checked: app.shown.includes(name) });
    input.addEventListener("change", () => {
      const chosen = [...box.querySelectorAll("input:checked")].map(({ value }) => value);
      if (!chosen.length) input.checked = true;
      else if (chosen.length > MOST_COLUMNS) input.checked = false;
      else app.show(data.models.map((model) => model.name).filter((each) => chosen.includes(each)));
    });
    label.append(input, make("span", "", name));
    box.append(label);
  }
}

// Type, and the models follow; slow ones wait for a pause.
let typing = 0;
function listenToInput() {
  for (const name of ["text", "pair", "target"]) {
    byId(name).value = app.input[name];
    byId(name).addEventListener("input", () => {
      app.input[name] = byId(name).value;
      if (name !== "target" && app.input.target && byId("target").value) { app.input.target = ""; byId("target").value = ""; }
      app.isWaiting = true;
      clearTimeout(typing);
      typing = setTimeout(() => app.run(), app.milliseconds > 150 ? 600 : 60);
    });
  }
  for (const name of ["beams", "length", "seed"]) {
    byId(name).addEventListener("change", () => {
      const { min, max, value } = byId(name);
      app.input[name] = clamp(Math.round(Number(value) || 0), Number(min), Number(max));
      byId(name).value = app.input[name];
      app.run();
    });
  }
  byId("form").addEventListener("submit", (event) => event.preventDefault());
}

byId("precision").textContent = data.precision === "float32" ? "The weights are the model's own." : `The weights are rounded to ${data.precision}.`;
listenToTheme(() => app.redraw());
listenToInput();
listenToTabs(byId("tabs"), () => app.names, () => app.view.id, (id) => app.open(id));
let resizing = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(resizing); resizing = requestAnimationFrame(() => app.redraw()); });
const isWide = window.innerWidth >= 960;
byId("writing").open = isWide;
app.show((isWide ? data.models.slice(0, MOST_COLUMNS) : data.models.slice(-1)).map(({ name }) => name)); // a phone starts with the last
fillModels();
