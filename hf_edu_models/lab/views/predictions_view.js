// What the model predicts: the next token at each step, a masked token, labels, tags, a span, the next sentence, a choice.

import { nextTokens } from "../engine/search.js";
import { announce, digits3, make, quoted, token } from "../../pages/assets/dom.js";
import { Explanation } from "./explanation.js";
import { labelsOf, slice, titleOf, visible } from "./labels.js";
import { Steps, TokenRow, bars } from "./parts.js";

const MOST_SHOWN = 12;

export function softmax(logits) {
  const top = Math.max(...logits);
  const powers = Array.from(logits, (logit) => Math.exp(logit - top));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

export class PredictionsView {
  static id = "predictions";
  static title = "Predictions";
  static absent = "no head that predicts";
  static isNeeded = (analysis) => analysis.record.entries.some(({ kind }) => kind === "logits");

  constructor(session, app) {
    Object.assign(this, { session, app });
    this.element = make("div", "view");
    this.steps = new Steps("Step", (step) => app.setPlace(this.side, step));
    this.heat = this.range("Temperature", "temperature", { min: 0.1, max: 3, step: 0.1 });
    this.top = this.range("Top-k (0: all)", "topK", { min: 0, max: 50, step: 1 });
    this.dials = make("div", "row");
    this.dials.append(this.heat.element, this.top.element);
    this.tokens = new TokenRow("Tokens", (i) => this.pick(i));
    this.note = make("p", "quiet");
    this.body = make("div");
    this.explanation = new Explanation(session, app);
    this.element.append(this.steps.element, this.dials, this.note, this.tokens.element, this.body, this.explanation.element);
  }

  // One of the settings of all models.
  range(label, name, limits) {
    const element = make("label", "dial", `${label} `);
    const input = make("input");
    const shown = make("output", "number");
    Object.assign(input, { type: "range", ...limits });
    input.addEventListener("input", () => this.app.setInput({ [name]: Number(input.value) }, this.app.input.search === "sample"));
    element.append(input, shown);
    return { element, show: (value) => { input.value = value; shown.textContent = String(value); } };
  }

  update(analysis) {
    const { kind, writes } = this.session;
    const entry = analysis.record.logits ?? analysis.entries("logits")[0];
    this.analysis = analysis;
    const isWords = entry.axes.at(-1) === "vocabulary" || kind === "pretraining";
    this.steps.element.hidden = !writes;
    this.dials.hidden = !isWords;
    this.heat.show(this.app.input.temperature);
    this.top.show(this.app.input.topK);
    this.note.textContent = "";
    this.tokens.element.hidden = writes || !analysis.entries("logits").some(({ axes }) => axes[0] === "tokens");
    this.body.replaceChildren(...this.rows(analysis, entry));
    this.explanation.show(entry);
  }

  // By what the logits are of; some kinds of model have a form of their own.
  rows(analysis, entry) {
    const { kind, writes, maskToken } = this.session;
    if (writes) return this.next(analysis, entry);
    if (maskToken) return this[kind](analysis, entry);
    if (["question_answering", "next_sentence", "multiple_choice"].includes(kind)) return this[kind](analysis, entry);
    if (entry.axes.at(-1) === "vocabulary") return this.everywhere(analysis);
    return entry.axes[0] === "tokens" ? this.tagger(analysis, entry) : this.labels(analysis, entry);
  }

  // What each of the predictions expects at one token.
  everywhere(analysis) {
    const place = this.app.place("source", analysis.source.length);
    this.tokens.show(analysis.source, { direction: analysis.direction("source"), selected: place });
    return analysis.entries("logits").filter(({ axes }) => axes.at(-1) === "vocabulary").flatMap((entry) => {
      const [other] = entry.axes.filter((axis) => !["tokens", "vocabulary"].includes(axis)); // such as the two directions
      const rows = other ? labelsOf(analysis, entry, other) : [""];
      return rows.flatMap((row, i) => {
        const at = entry.axes.includes("tokens") ? { tokens: Math.min(place, entry.shape[entry.axes.indexOf("tokens")] - 1) } : {};
        const { values } = slice(entry, { ...at, ...(other ? { [other]: i } : {}) });
        const title = make("h3", "", `${titleOf(entry.name)}${other ? `, ${other} ${row}` : ""} at ${place + 1}: `);
        title.append(token(analysis.source[place].text));
        return [title, bars(this.ranking(values))];
      });
    });
  }

  ranking(logits, chosen = null) {
    const { temperature, topK } = this.app.input;
    const ranked = nextTokens(logits, { temperature, topK: topK || null });
    const shown = ranked.slice(0, topK ? Math.min(topK, 50) : MOST_SHOWN);
    const isShown = chosen === null || shown.some((each) => each.token === chosen);
    const all = isShown ? shown : [...shown, ranked.find((each) => each.token === chosen) ?? { token: chosen, probability: 0 }];
    return all.map((each) => ({ id: each.token, text: visible(this.session.tokenizer.display(each.token)), value: each.probability, isChosen: each.token === chosen }));
  }

  // The next token at each step; a click continues the text with another one.
  next(analysis, entry) {
    const [rows, size] = entry.shape;
    this.side = entry.side;
    const step = this.app.place(entry.side, rows);
    this.steps.show(analysis.steps, step);
    const follows = entry.side === "target" ? analysis.target : analysis.source.slice(1);
    const ranked = this.ranking(entry.data.subarray(step * size, (step + 1) * size), follows[step]?.id ?? null);
    this.note.textContent = follows[step] ? "The marked token is what follows here. Choose another one to go on with it." : "Choose a token to go on with it.";
    if (this.app.isMoving) announce(`${this.session.name}: most likely ${ranked.slice(0, 3).map(({ text, value }) => `${quoted(text)} ${digits3(value)}`).join(", ")}`);
    return [bars(ranked, (_, i) => this.continueWith(analysis, step, ranked[i].id))];
  }

  continueWith(analysis, step, id) {
    const isTranslation = this.session.kind === "seq2seq";
    const before = isTranslation ? analysis.target.slice(0, step) : analysis.source.slice(0, step + 1);
    const field = isTranslation ? "target" : "text";
    this.app.setInput({ [field]: this.session.keep(field, [...before.map((each) => each.id), id]) });
  }

  // A mask put anywhere: a click on a token hides it, a click on a mask does nothing but choose it.
  masked(analysis, entry) {
    const { maskToken, tokenizer } = this.session;
    const maskId = tokenizer.idOf(maskToken);
    const masks = analysis.source.map(({ id }, i) => (id === maskId ? i : -1)).filter((i) => i >= 0);
    const place = this.app.place("source", analysis.source.length);
    this.tokens.show(analysis.source, { direction: analysis.direction("source"), selected: place });
    this.note.textContent = masks.length ? "Choose a token to put a mask there; edit the text to fill it." : `There is no ${maskToken}: choose a token to put one there. Below, what the model expects at “${analysis.source[place].text}”.`;
    const size = entry.shape.at(-1);
    return (masks.length ? masks : [place]).flatMap((i) => {
      const title = make("h3", "", masks.length ? `${maskToken} at ${i + 1}: ` : `at ${i + 1}: `);
      title.append(token(analysis.source[i - 1]?.text ?? ""), " _ ", token(analysis.source[i + 1]?.text ?? ""));
      const ranked = this.ranking(entry.data.subarray(i * size, (i + 1) * size));
      return [title, bars(ranked, (_, row) => this.fill(analysis, i, ranked[row].id))];
    });
  }

  pretraining(analysis) {
    const entries = analysis.entries("logits");
    const words = entries.find(({ axes }) => axes.at(-1) === "vocabulary");
    const follows = entries.find((entry) => entry !== words);
    return [...this.masked(analysis, words), ...(follows && analysis.input.pair ? this.next_sentence(analysis, follows) : [])];
  }

  pick(index) {
    const { analysis, session } = this;
    const each = analysis.source[index];
    if (session.maskToken && !each.isSpecial && each.typeId === 0) this.replace(analysis.input.text, each, session.maskToken);
    else this.app.setPlace("source", index);
  }

  fill(analysis, index, id) {
    const each = analysis.source[index];
    if (each.typeId === 0) this.replace(analysis.input.text, each, this.session.tokenizer.display(id).replace(/^##/, ""));
  }

  replace(text, { start, end }, inserted) {
    const characters = [...text];
    const blank = (character) => (character && !/\s/.test(character) && inserted === this.session.maskToken ? " " : "");
    const isPart = start > 0 && blank(characters[start - 1]);
    this.app.setInput({ text: [...characters.slice(0, start), isPart ? " " : "", inserted, ...characters.slice(end)].join("") });
  }

  labels(analysis, entry) {
    const { config } = this.session.about;
    const names = Array.from(entry.data, (_, i) => analysis.labels[i] ?? `label ${i}`);
    if (config.problem_type === "regression" || entry.data.length === 1) {
      return [bars(Array.from(entry.data, (value, i) => ({ text: names[i], value, share: 0 })))];
    }
    const isMany = config.problem_type === "multi_label_classification";
    const values = isMany ? Array.from(entry.data, (logit) => 1 / (1 + Math.exp(-logit))) : softmax(entry.data);
    return [bars(names.map((text, i) => ({ text, value: values[i] })).sort((one, other) => other.value - one.value))];
  }

  next_sentence(analysis, entry) {
    const [follows, random] = softmax(entry.data);
    return [make("h3", "", "Next sentence"), bars([{ text: "the second text follows the first", value: follows }, { text: "it is another text", value: random }])];
  }

  multiple_choice(analysis, entry) {
    const values = softmax(entry.data);
    const choices = analysis.input.pair.split("\n").filter((line) => line.trim());
    return [bars(values.map((value, i) => ({ text: choices[i] ?? `choice ${i + 1}`, value })))];
  }

  tagger(analysis, entry) {
    const [, size] = entry.shape;
    const place = this.app.place("source", analysis.source.length);
    const best = analysis.source.map((_, i) => softmax(entry.data.subarray(i * size, (i + 1) * size)));
    const labelOf = (row) => analysis.labels[row.indexOf(Math.max(...row))] ?? "";
    this.tokens.show(analysis.source, { direction: analysis.direction("source"), selected: place, note: (each, i) => (each.isSpecial ? "" : labelOf(best[i])) });
    const title = make("h3", "", "Tags of ");
    title.append(token(analysis.source[place].text));
    const ranked = best[place].map((value, i) => ({ text: analysis.labels[i] ?? `label ${i}`, value })).sort((one, other) => other.value - one.value);
    return [title, bars(ranked)];
  }

  question_answering(analysis) {
    const [starts, ends] = ["start", "end"].map((side) => this.positions(analysis, side));
    const context = analysis.source.map(({ typeId, isSpecial }, i) => (typeId === 1 && !isSpecial ? i : -1)).filter((i) => i >= 0);
    let best = { value: 0, start: context[0] ?? 0, end: context[0] ?? 0 };
    for (const start of context) for (const end of context) if (end >= start && end - start < 30 && starts[start] * ends[end] > best.value) best = { value: starts[start] * ends[end], start, end };
    this.tokens.show(analysis.source, { direction: analysis.direction("source"), heads: [{ head: 0, values: starts }, { head: 1, values: ends }] });
    const { start, end } = best;
    const answer = [...analysis.input.pair].slice(analysis.source[start].start, analysis.source[end].end).join("");
    this.note.textContent = "The bars are the probabilities that the answer starts and ends at a token.";
    return [make("h3", "", "Answer"), bars([{ text: answer || "∅", value: best.value }])];
  }

  positions(analysis, side) {
    const entry = analysis.entries("logits").find(({ name }) => name.includes(side));
    if (entry) return softmax(entry.data);
    const both = analysis.record.logits; // (tokens, 2): start and end side by side
    return softmax(Array.from({ length: both.shape[0] }, (_, i) => both.data[i * both.shape[1] + (side === "start" ? 0 : 1)]));
  }
}
