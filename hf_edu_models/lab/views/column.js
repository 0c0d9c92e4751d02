// One model's column: its name, what it makes of the text, its checkpoints, the changes made to it, and the current view.

import { make, token } from "../../pages/assets/dom.js";
import { AttentionView } from "./attention_view.js";
import { BeamView } from "./beam_view.js";
import { ChangesView } from "./changes_view.js";
import { describeChange, visible } from "./labels.js";
import { Steps } from "./parts.js";
import { PredictionsView, softmax } from "./predictions_view.js";
import { ScoreView } from "./score_view.js";
import { StatesView } from "./states_view.js";
import { TokensView } from "./tokens_view.js";
import { ValuesView } from "./values_view.js";

export const VIEWS = [PredictionsView, AttentionView, ScoreView, StatesView, TokensView, BeamView, ChangesView, ValuesView];

export class Column {
  constructor(session, app) {
    Object.assign(this, { session, app, views: new Map() });
    this.element = make("section", "column");
    this.element.setAttribute("aria-label", session.name);
    const head = make("div", "column-head");
    const { architecture, config, idea } = session.about;
    head.append(make("h2", "", session.name), make("p", "quiet", `${config.architectures[0]}${idea ? `: ${idea}` : ""}`));
    if (architecture) head.append(drawing(architecture));
    this.output = make("p", "output");
    this.notes = make("p", "warning");
    this.changed = make("div", "changed");
    this.changed.setAttribute("role", "status");
    this.stages = new Steps("Checkpoint", (stage) => this.setStage(stage));
    this.body = make("div", "column-body");
    this.element.append(head, this.stages.element, this.output, this.notes, this.changed, this.body);
  }

  setStage(stage) {
    this.session.setStage(stage);
    this.app.run();
  }

  // Compute, and keep a failure as a sentence.
  analyse(input, needsParts) {
    try {
      this.session.analyse(input, { parts: needsParts });
      this.error = null;
    } catch (error) {
      this.error = error;
      this.session.analysis = null;
    }
  }

  needed() {
    const { analysis } = this.session;
    return analysis ? VIEWS.filter((view) => view.isNeeded(analysis)) : [];
  }

  show(view) {
    const { session } = this;
    const { analysis } = session;
    const { stages } = session.about;
    this.stages.show(stages.map(([text]) => ({ label: "", text })), session.stage);
    this.showChanges();
    this.notes.textContent = this.error ? this.error.message : analysis.notes.join(" ");
    this.notes.hidden = !this.notes.textContent;
    this.output.hidden = !analysis;
    if (!analysis) return this.body.replaceChildren();
    this.showOutput(analysis);
    if (!view.isNeeded(analysis)) return this.body.replaceChildren(make("p", "quiet", `${session.name} has ${view.absent}.`));
    if (!this.views.has(view)) this.views.set(view, new view(session, this.app));
    const made = this.views.get(view);
    if (made.element.parentNode !== this.body) this.body.replaceChildren(made.element);
    return made.update(analysis);
  }

  showOutput(analysis) {
    const [verb, text] = summary(analysis);
    const shown = token(text, "written");
    shown.dataset.text = text;
    this.output.replaceChildren(`${verb} `, shown);
    if (analysis.before) {
      const [, before] = summary(analysis.before);
      this.output.append(before === text ? " — as before the change" : " — before the change: ", ...(before === text ? [] : [token(before, "written before")]));
    }
  }

  showChanges() {
    const { session, app } = this;
    this.element.classList.toggle("is-changed", session.changes.length > 0);
    if (!session.changes.length) return this.changed.replaceChildren();
    const reset = make("button", "reset", "Reset");
    reset.type = "button";
    reset.addEventListener("click", () => app.reset(session));
    const list = session.changes.map((change) => {
      const button = make("button", "change", `${describeChange(change, session.model.changeable())} ×`);
      button.type = "button";
      button.title = "Undo this change";
      button.addEventListener("click", () => app.toggle(session, change));
      return button;
    });
    return this.changed.replaceChildren(make("b", "", "Changed model: "), ...list, reset);
  }
}

// What a model makes of the text, in a few words: [verb, text].
export function summary(analysis) {
  const { session: { kind, about, tokenizer }, record } = analysis;
  if (kind === "seq2seq") return ["writes", visibleText(analysis.written)];
  if (kind === "causal") return ["continues", visibleText(analysis.written)];
  const { logits } = record;
  if (!logits) return ["reads", `${analysis.source.length} tokens`];
  if (kind === "classifier" && about.config.problem_type !== "regression" && logits.data.length > 1) {
    const best = logits.data.indexOf(Math.max(...logits.data));
    const value = about.config.problem_type === "multi_label_classification" ? 1 / (1 + Math.exp(-logits.data[best])) : softmax(logits.data)[best];
    return ["says", `${analysis.labels[best] ?? best} (${value.toFixed(3)})`];
  }
  if (kind === "classifier") return ["says", logits.data[0].toFixed(3)];
  if (kind === "masked" || kind === "pretraining") {
    const words = analysis.entries("logits").find(({ axes }) => axes.at(-1) === "vocabulary");
    const size = words.shape.at(-1);
    const guesses = analysis.source.flatMap(({ id }, i) => (tokenizer.tokenOf(id) === analysis.session.maskToken ? [best(words.data.subarray(i * size, (i + 1) * size))] : []));
    return guesses.length ? ["guesses", guesses.map((id) => visible(tokenizer.display(id))).join(", ")] : ["reads", `${analysis.source.length} tokens`];
  }
  return ["reads", `${analysis.source.length} tokens`];
}

const best = (values) => values.reduce((most, value, i) => (value > values[most] ? i : most), 0);
const visibleText = (text) => [...text].map((character) => (/[\p{Cc}\p{Zl}\p{Zp}\u200e\u200f\u202a-\u202e\u2066-\u2069]/u.test(character) && character !== "\n" ? visible(character) : character)).join("") || "∅";

// What `hf-edu draw` shows, folded away.
function drawing(source) {
  const details = make("details");
  const picture = make("img", "architecture");
  Object.assign(picture, { src: source, alt: "Parts of the model, with sizes and residual connections" });
  details.append(make("summary", "", "Architecture"), picture);
  return details;
}
