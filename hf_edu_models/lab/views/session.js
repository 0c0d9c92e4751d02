// One model in the page: its tokenizer, its engine, the changes made to it, and what it does with a text. No DOM.

import { loadModel } from "../engine/model.js";
import { readSafetensors } from "../engine/safetensors.js";
import { Tokenizer } from "../tokenizer/tokenizer.js";
import { directionOf, visible } from "./labels.js";

const MOST_TOKENS = 400; // of a model without a limit of its own: the page stays quick
const MOST_PARTS = 6_000_000; // values of scores element by element
const SENTENCE = /\S.*?(?:[.!?。！？…]+["'”’»)\]]*(?=\s)|$)/gsu; // as data/sentences.py cuts them
const PAIRS = ["next_sentence", "question_answering", "multiple_choice", "pretraining"];

export class Session {
  // about: a model as page.py describes it; bytesOf: the bytes of a block of weights by its name.
  constructor(about, bytesOf) {
    Object.assign(this, { about, bytesOf, name: about.name, changes: [], chosen: {}, models: new Map() });
    this.tokenizer = new Tokenizer(about.tokenizer);
    this.setStage(about.stages.length - 1);
  }

  // One of the checkpoints, or the finished model.
  setStage(stage) {
    this.stage = stage;
    const block = this.about.stages[stage][1];
    if (!this.models.has(block)) {
      this.models.clear(); // one at a time: the weights of a large model fill the memory
      this.models.set(block, loadModel(this.about.config, readSafetensors(this.bytesOf(block).buffer)));
    }
    this.model = this.models.get(block);
    this.unchanged = null;
  }

  get kind() {
    return this.model.kind;
  }

  get writes() {
    return this.kind === "seq2seq" || this.kind === "causal";
  }

  get takesPair() {
    return PAIRS.includes(this.kind) || (this.model.modelType === "edu_bert" && this.kind === "classifier");
  }

  get maskToken() {
    const { tokens } = this.tokenizer;
    return ["masked", "pretraining"].includes(this.kind) ? tokens.find((token) => token === "[MASK]" || token === "<mask>") ?? null : null;
  }

  get limit() {
    return Math.min(this.model.maxLength ?? MOST_TOKENS, this.about.maxLength ?? Infinity);
  }

  // A token that stands in no text.
  plain(id) {
    const { tokenizer } = this;
    return { id, token: tokenizer.tokenOf(id), start: 0, end: 0, isSpecial: tokenizer.isSpecial(id), typeId: 0 };
  }

  // Tokens that were chosen one by one; a text of them may be cut into others.
  keep(field, ids) {
    this.kept = { field, text: this.tokenizer.decode(ids), ids };
    return this.kept.text;
  }

  keptTokens(field, text) {
    return this.kept?.field === field && this.kept.text === text ? this.kept.ids.map((id) => this.plain(id)) : null;
  }

  // input: {text, pair, target, search: "greedy" | "beam" | "sample", beams, length, seed, temperature, topK}
  analyse(input, { parts = false } = {}) {
    const start = performance.now();
    const analysis = new Analysis(this, input, this.changes, parts);
    analysis.milliseconds = performance.now() - start;
    if (this.changes.length) {
      const key = JSON.stringify(input);
      if (this.unchanged?.key !== key) this.unchanged = { key, analysis: new Analysis(this, input, [], false) };
      analysis.before = this.unchanged.analysis;
    }
    this.analysis = analysis;
    return analysis;
  }
}

export class Analysis {
  constructor(session, input, changes, parts) {
    Object.assign(this, { session, input, notes: [], generation: null, groups: null, source: [], target: null, read: null });
    this.labels = session.about.config.id2label ?? {};
    const { model } = session;
    const inputs = this.encode(input);
    if (session.writes) this.write(inputs, input, changes);
    const size = this.source.length * (this.target ? Math.max(this.source.length, this.target.length) : this.source.length);
    this.tooLongForParts = parts && size * (session.about.config.hidden_size ?? 1) * (session.about.config.num_hidden_layers ?? 1) > MOST_PARTS;
    this.hasParts = parts && !this.tooLongForParts;
    this.record = model.run(inputs, changes, { parts: this.hasParts });
    this.inputs = inputs;
  }

  encode({ text, pair }) {
    const { session } = this;
    const { tokenizer, kind, model } = session;
    if (model.modelType === "edu_hierarchical") {
      this.groups = (text.trimEnd().match(SENTENCE) ?? []).map((sentence) => this.tokens(this.cut(tokenizer.encode(sentence)), sentence));
    } else if (kind === "multiple_choice") {
      const choices = (pair || text).split("\n").filter((line) => line.trim());
      this.groups = choices.map((choice) => this.tokens(this.cut(tokenizer.encode(text, choice)), text));
    }
    if (this.groups) {
      if (!this.groups.length) throw new Error("the text is empty; type at least one word");
      this.source = this.groups.flat();
      const inputs = { inputIds: this.groups.map((tokens) => tokens.map(({ id }) => id)) };
      return kind === "multiple_choice" ? { ...inputs, tokenTypeIds: this.groups.map((tokens) => tokens.map(({ typeId }) => typeId)) } : inputs;
    }
    const hasPair = session.takesPair && (pair || PAIRS.slice(0, 2).includes(kind));
    this.source = this.tokens(this.cut(session.keptTokens("text", text) ?? tokenizer.encode(text, hasPair ? pair : null)), text);
    if (!this.source.length) {
      const { config } = session.about;
      if (kind !== "causal" || config.bos_token_id == null) throw new Error("the text is empty; type at least one word");
      this.source = this.tokens([session.plain(config.bos_token_id)], text);
    }
    const inputs = { inputIds: this.source.map(({ id }) => id) };
    if (model.modelType === "edu_bert") inputs.tokenTypeIds = this.source.map(({ typeId }) => typeId);
    return inputs;
  }

  // The tokens that fit; a special token at the end stays there.
  cut(tokens) {
    const { limit } = this.session;
    if (tokens.length <= limit) return tokens;
    const note = `The text has ${tokens.length.toLocaleString("en")} tokens; ${this.session.model.maxLength === limit ? "the model" : "this page"} reads the first ${limit}.`;
    if (!this.notes.includes(note)) this.notes.push(note);
    const last = tokens.at(-1).isSpecial ? [tokens.at(-1)] : [];
    return [...tokens.slice(0, limit - last.length), ...last];
  }

  tokens(encoded, text) {
    const { tokenizer } = this.session;
    return encoded.map((each) => ({ ...each, text: visible(tokenizer.display(each.id)), from: text }));
  }

  write(inputs, input, changes) {
    const { session } = this;
    const { model, tokenizer, about } = session;
    const isTranslation = session.kind === "seq2seq";
    this.prompt = this.source.length;
    // A target that was typed is where the model goes on; its end token is the model's to write.
    const typed = isTranslation && input.target ? session.keptTokens("target", input.target) ?? this.cut(tokenizer.encode(input.target)).filter(({ isSpecial }) => !isSpecial) : [];
    const forced = this.tokens(typed, input.target);
    if (isTranslation) inputs.decoderInputIds = [about.config.decoder_start_token_id, ...forced.map(({ id }) => id)];
    const { generation } = about;
    const maxNewTokens = isTranslation ? Math.min(generation.max_new_tokens ?? generation.max_length ?? 60, 200) : input.length;
    const searches = { beam: { numBeams: input.beams }, sample: { temperature: input.temperature, topK: input.topK || null, seed: input.seed } };
    const options = { lengthPenalty: generation.length_penalty ?? 1, earlyStopping: generation.early_stopping ?? false, ...searches[input.search] };
    if (maxNewTokens > 0) this.generation = model.generate(inputs, { maxNewTokens, changes, ...options });
    const written = (this.generation?.tokens ?? []).map((id) => session.plain(id));
    this.target = [...forced, ...this.tokens(written, "").map((token) => ({ ...token, isNew: forced.length > 0 || !isTranslation }))];
    const ids = this.target.map(({ id }) => id);
    this.written = tokenizer.decode(ids);
    if (isTranslation) {
      inputs.decoderInputIds = [about.config.decoder_start_token_id, ...ids.slice(0, -1)];
      this.read = this.tokens(inputs.decoderInputIds.map((id) => session.plain(id)), "");
      return;
    }
    this.source = [...this.source, ...this.target].slice(0, model.maxLength ?? undefined);
    inputs.inputIds = this.source.map(({ id }) => id);
  }

  // The tokens of one side; of the target those that the decoder reads or, `isPredicted`, those it predicts.
  tokensOf(side, group = null, isPredicted = false) {
    if (side === "target") return isPredicted ? this.target : this.read;
    return this.groups && group !== null ? this.groups[group] : this.source;
  }

  // Which way the tokens of one side are read.
  direction(side) {
    return directionOf(side === "target" ? this.written : this.input.text);
  }

  entries(...kinds) {
    return this.record.entries.filter(({ kind }) => kinds.includes(kind));
  }

  entry(name) {
    return this.record.get(name);
  }

  // The rows of the predictions, and what each stands behind.
  get steps() {
    if (this.session.kind === "seq2seq") return this.target.map(({ text }, i) => ({ label: `step ${i + 1}: predicts`, text }));
    return this.source.map(({ text }, i) => ({ label: `${i + 1}: after`, text }));
  }
}
