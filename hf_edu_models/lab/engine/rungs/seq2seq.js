// Sequence to sequence: one network encodes the source into a vector, another decodes the target from it.

import { RecurrentStack } from "../cells.js";
import { Embedding } from "../embedding.js";
import { ConditionalGeneration, Seq2SeqEncoder, tiedLinear } from "../heads.js";
import { Linear } from "../linear.js";
import { READOUTS } from "../readout.js";
import { concat, concatRows, tanh, tensor, zeros } from "../tensor.js";

const HERE = "models/modeling_seq2seq.py:";
const TOKENS = { kind: "embedding", axes: ["tokens", "units"], paper: "Sutskever et al. 2014, Section 2" };
const SOURCE = {
  ...TOKENS,
  equation: "x_t, the vector of source token t",
  source: "models/blocks_recurrent_seq2seq.py:RecurrentEncoder.forward",
};
const TARGET = {
  ...TOKENS,
  equation: "y_{t-1}, the vector of the previous target token",
  source: "models/blocks_recurrent_seq2seq.py:RecurrentSeq2SeqModel.forward",
};
const CONTEXT = {
  kind: "context",
  axes: ["units"],
  equation: "c = h_S, the last state of the encoder",
  source: `${HERE}ChoDecoder.forward`,
  paper: "Cho et al. 2014, Section 2.2",
};
const START = {
  kind: "state",
  ops: [],
  axes: ["layers", "units"],
  equation: "s_0 = tanh(V c)",
  source: `${HERE}ChoDecoder.start`,
  paper: "Cho et al. 2014, Section 2.2",
};

/** Sutskever et al. 2014: s_0 = h_S;  s_t = f(y_{t-1}, s_{t-1}) */
class SutskeverDecoder {
  constructor(weights, config) {
    this.embedTokens = new Embedding(weights.at("embed_tokens"));
    this.stack = new RecurrentStack(weights.at("stack"), config);
  }

  /** The state after nothing, made of the encoder's last states. */
  start(finalStates) {
    return { states: finalStates };
  }

  forward(embeddings, { states }, pass) {
    return this.stack.forward(embeddings, pass, states);
  }
}

/** Cho et al. 2014: c = h_S;  s_0 = tanh(V c);  s_t = f(y_{t-1}, s_{t-1}, c); a maxout of s_t, y_{t-1} and c */
class ChoDecoder extends SutskeverDecoder {
  constructor(weights, config) {
    super(weights, config);
    this.startProj = new Linear(weights.at("start_proj")); // V
    this.readout = new READOUTS.maxout(weights.at("readout"));
  }

  start(finalStates, pass) {
    const context = pass.keep("decoder.context", finalStates.at(-1)[0][0], CONTEXT); // c
    const layers = this.stack.layers.length;
    const hidden = tanh(this.startProj.forward(context));
    const kept = pass.keep("decoder.start", tensor([layers, hidden.data.length / layers], hidden.data), START);
    const size = kept.shape[1];
    const states = finalStates.map(([parts], layer) => {
      const start = tensor([size], kept.data.subarray(layer * size, (layer + 1) * size));
      return [[start, ...parts.slice(1).map(() => zeros(size))]]; // the cell state starts at zero
    });
    return { states, context };
  }

  forward(embeddings, { states, context }, pass) {
    const [length] = embeddings.shape;
    const row = tensor([1, context.data.length], context.data);
    const contexts = concatRows(Array(length).fill(row)); // (T, D)
    const [outputs, newStates] = this.stack.forward(concat(embeddings, contexts), pass, states);
    return [this.readout.forward(outputs, embeddings, contexts, pass), newStates];
  }
}

/** Encoder and decoder, with a bottleneck between them. */
class Seq2Seq {
  constructor(weights, config) {
    const encoder = weights.at("encoder");
    this.embedTokens = new Embedding(encoder.at("embed_tokens"));
    this.stack = new RecurrentStack(encoder.at("stack"), config, { isReversed: config.reverse_source });
    const Decoder = config.context_every_step ? ChoDecoder : SutskeverDecoder;
    this.decoder = new Decoder(weights.at("decoder"), config);
  }

  /** The last state of every layer: all that the decoder gets of the source. */
  encode(ids, pass) {
    const embeddings = pass.keep("encoder.embed_tokens.output", this.embedTokens.forward(ids), SOURCE);
    const [, states] = this.stack.forward(embeddings, pass);
    return states;
  }

  start(source, pass) {
    return { length: 0, ...this.decoder.start(source, pass) };
  }

  decode(ids, state, pass) {
    const embeddings = pass.keep("decoder.embed_tokens.output", this.decoder.embedTokens.forward(ids), TARGET);
    const [features, states] = this.decoder.forward(embeddings, state, pass);
    return [features, { ...state, length: state.length + ids.length, states }];
  }
}

class Seq2SeqForConditionalGeneration extends ConditionalGeneration {
  constructor(weights, config) {
    const model = new Seq2Seq(weights, config);
    super(model, tiedLinear(weights.at("lm_head"), model.decoder.embedTokens));
  }
}

/** The hidden states of encoder and decoder alone. */
class Seq2SeqModel extends Seq2SeqEncoder {
  constructor(weights, config) {
    super(new Seq2Seq(weights, config));
  }
}

export const SEQ2SEQ_HEADS = {
  EduSeq2SeqModel: Seq2SeqModel,
  EduSeq2SeqForConditionalGeneration: Seq2SeqForConditionalGeneration,
};
