// Heads: what makes predictions of the hidden states of a model.

import { Linear, linear } from "./linear.js";
import { rowsOf, tensor } from "./tensor.js";

const LOGITS = { kind: "logits", axes: ["tokens", "vocabulary"], equation: "W h_t + b", paper: "" };
const CAUSAL = { ...LOGITS, source: "models/blocks_causal_lm.py:CausalLMHead.forward" };
const SEQ2SEQ = { ...LOGITS, source: "models/blocks_seq2seq.py:Seq2SeqHead.forward" };
const LABELS = { kind: "logits", axes: ["labels"], equation: "W s + b", paper: "" };

/** A linear layer whose weight may be that of the token embeddings, and then absent from the checkpoint. */
export function tiedLinear(weights, embedding) {
  if (weights.has("weight")) return new Linear(weights);
  const bias = weights.find("bias");
  return { forward: (states) => linear(states, embedding.weight, bias) };
}

/** A vector of logits, one for each label, of the single row of `states`. */
export function keepLabels(name, states, layer, pass, source) {
  const logits = layer.forward(states);
  return pass.keep(name, tensor([logits.shape.at(-1)], logits.data), { ...LABELS, source });
}

/** What models that generate share: `advance` reads new tokens after a state and predicts the tokens that follow. */
class Generator {
  read(inputs, pass) {
    const [logits] = this.advance(this.prompt(inputs), this.start(inputs, pass), pass);
    return logits;
  }

  keepLogits(states, side, first, pass, about) {
    const [length] = states.shape;
    const skipped = pass.lastOnly ? length - 1 : 0;
    const logits = this.lmHead.forward(rowsOf(states, skipped, length));
    return pass.reading(side, first + skipped, () => pass.keep("logits", logits, about));
  }
}

/** Predicts the next token of a text; the state of `model.forward` has the `length` of what was read. */
export class CausalLM extends Generator {
  constructor(model, lmHead) {
    super();
    this.model = model;
    this.lmHead = lmHead;
  }

  prompt(inputs) {
    return inputs.inputIds;
  }

  start() {
    return this.model.start();
  }

  advance(ids, state, pass) {
    const [states, next] = pass.reading("source", state.length, () => this.model.forward(ids, state, pass));
    return [this.keepLogits(states, "source", state.length, pass, CAUSAL), next];
  }
}

/** Predicts a target token by token: `model.encode` reads the source, `model.decode` the target so far. */
export class ConditionalGeneration extends Generator {
  constructor(model, lmHead) {
    super();
    this.model = model;
    this.lmHead = lmHead;
  }

  prompt(inputs) {
    return inputs.decoderInputIds;
  }

  start(inputs, pass) {
    const source = pass.reading("source", 0, () => this.model.encode(inputs.inputIds, pass));
    return pass.reading("target", 0, () => this.model.start(source, pass));
  }

  advance(ids, state, pass) {
    const [states, next] = pass.reading("target", state.length, () => this.model.decode(ids, state, pass));
    return [this.keepLogits(states, "target", state.length, pass, SEQ2SEQ), next];
  }
}

/** The hidden states of a model without a head. */
export class CausalEncoder extends CausalLM {
  keepLogits() {
    return null;
  }
}

/** Predictions for every token of a text, from `states`. */
export function keepTokenLogits(states, layer, pass, source) {
  return pass.keep("logits", layer.forward(states), { ...LOGITS, axes: ["tokens", "labels"], source });
}

/** The hidden states of an encoder-decoder without a head. */
export class Seq2SeqEncoder extends ConditionalGeneration {
  keepLogits() {
    return null;
  }
}
