// Encoder-decoder with attention: before each target token the decoder weighs every source position.

import { CELLS, RecurrentStack } from "../cells.js";
import { Embedding } from "../embedding.js";
import { ConditionalGeneration, Seq2SeqEncoder, tiedLinear } from "../heads.js";
import { Linear } from "../linear.js";
import { READOUTS } from "../readout.js";
import { RecurrentAttention } from "../scores.js";
import { chunk, concat, rowOf, tanh, zeros } from "../tensor.js";

const HERE = "models/modeling_bahdanau.py:";
const TOKENS = { kind: "embedding", axes: ["tokens", "units"], paper: "Bahdanau et al. 2015, App. A.2" };
const SOURCE = {
  ...TOKENS,
  equation: "x_j, the vector of source token j",
  source: "models/blocks_recurrent_seq2seq.py:RecurrentEncoder.forward",
};
const TARGET = {
  ...TOKENS,
  equation: "y_{i-1}, the vector of the previous target token",
  source: "models/blocks_recurrent_seq2seq.py:RecurrentSeq2SeqModel.forward",
};
const START = {
  kind: "state",
  ops: [],
  axes: ["units"],
  equation: "s_0 = tanh(W_s h_1), h_1 of the backward encoder",
  source: `${HERE}AttentiveDecoder.start`,
  paper: "Bahdanau et al. 2015, App. A.2.2",
};

/** e_ij = a(s_{i-1}, h_j);  alpha_ij = softmax_j(e_ij);  c_i = sum_j alpha_ij h_j;  s_i = f(s_{i-1}, y_{i-1}, c_i) */
class AttentiveDecoder {
  constructor(weights, config) {
    this.name = weights.path;
    this.embedTokens = new Embedding(weights.at("embed_tokens"));
    this.startProj = new Linear(weights.at("start_proj")); // W_s
    this.attention = new RecurrentAttention(weights, config);
    this.cell = new CELLS[config.cell_type](weights.at("cell"));
    this.readout = new READOUTS[config.readout](weights.at("readout"));
  }

  /** s_0 = tanh(W_s h_1), h_1 the backward encoder's state at the first token, where it ends. */
  start(annotations, pass) {
    const [, backward] = chunk(rowOf(annotations, 0), 2);
    const hidden = pass.keep(`${this.name}.start`, tanh(this.startProj.forward(backward)), START);
    return [hidden, ...this.cell.start().slice(1)];
  }

  /** Features for the softmax, and the state after the last token. */
  forward(embeddings, { state, annotations, keys }, pass) {
    const [length] = embeddings.shape;
    const steps = pass.steps(this.name, length);
    const [states, contexts] = [zeros(length, this.cell.size), zeros(length, annotations.shape[1])];
    for (let i = 0; i < length; i++) {
      const keep = (what, ...values) => steps.keep(what, i, ...values);
      const context = this.attention.attend(state[0], keys, annotations, keep, pass.parts); // of s_{i-1}
      const fromInput = this.cell.fromInput(concat(rowOf(embeddings, i), context));
      state = this.cell.step(fromInput, state, (what, ...values) => keep(`cell.${what}`, ...values)); // s_i
      states.data.set(state[0].data, i * this.cell.size);
      contexts.data.set(context.data, i * context.data.length);
    }
    return [this.readout.forward(states, embeddings, contexts, pass), state];
  }
}

/** The encoder reads in both directions: annotation h_j = [h_j forward; h_j backward]. */
class Bahdanau {
  constructor(weights, config) {
    const encoder = weights.at("encoder");
    this.embedTokens = new Embedding(encoder.at("embed_tokens"));
    this.stack = new RecurrentStack(encoder.at("stack"), config, { bidirectional: true });
    this.decoder = new AttentiveDecoder(weights.at("decoder"), config);
  }

  encode(ids, pass) {
    const embeddings = pass.keep("encoder.embed_tokens.output", this.embedTokens.forward(ids), SOURCE);
    const [annotations] = this.stack.forward(embeddings, pass);
    return annotations;
  }

  start(annotations, pass) {
    const state = this.decoder.start(annotations, pass);
    return { length: 0, state, annotations, keys: this.decoder.attention.prepare(annotations, pass) };
  }

  decode(ids, previous, pass) {
    const embeddings = pass.keep("decoder.embed_tokens.output", this.decoder.embedTokens.forward(ids), TARGET);
    const [features, state] = this.decoder.forward(embeddings, previous, pass);
    return [features, { ...previous, length: previous.length + ids.length, state }];
  }
}

class BahdanauForConditionalGeneration extends ConditionalGeneration {
  constructor(weights, config) {
    const model = new Bahdanau(weights, config);
    super(model, tiedLinear(weights.at("lm_head"), model.decoder.embedTokens));
  }
}

/** The hidden states of encoder and decoder alone. */
class BahdanauModel extends Seq2SeqEncoder {
  constructor(weights, config) {
    super(new Bahdanau(weights, config));
  }
}

export const BAHDANAU_HEADS = {
  EduBahdanauModel: BahdanauModel,
  EduBahdanauForConditionalGeneration: BahdanauForConditionalGeneration,
};
