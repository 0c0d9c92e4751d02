// ELMo: the hidden states of two language models, one reading forwards and one backwards, are the word vectors.

import { ProjectedLSTMCell, unroll } from "../cells.js";
import { CharacterEmbedding } from "../characters.js";
import { Embedding } from "../embedding.js";
import { keepLabels, keepTokenLogits, tiedLinear } from "../heads.js";
import { LayerMix } from "../layer_mix.js";
import { Linear } from "../linear.js";
import { POOLINGS } from "../pooling.js";
import { add, chunk, concat, tensor } from "../tensor.js";

const HERE = "models/modeling_elmo.py:";
const ROWS = { axes: ["tokens", "units"], paper: "Peters et al. 2018, Section 3.1" };
const TOKENS = { ...ROWS, kind: "embedding", equation: "x_k", source: `${HERE}EduElmoModel.forward` };
const STATES = {
  ...ROWS,
  kind: "state",
  ops: [],
  equation: "h_kj = [forward h_kj; backward h_kj]",
  source: `${HERE}EduElmoModel.forward`,
};
const RESIDUAL = {
  ...ROWS,
  kind: "state",
  ops: [],
  equation: "x + LSTM(x), without x in the first layer",
  source: `${HERE}DirectedStack.forward`,
  paper: "Peters et al. 2018, Section 3.4",
};
const LOGITS = {
  kind: "logits",
  axes: ["tokens", "directions", "vocabulary"],
  equation: "W h_t + b, of the next token and of the previous one",
  source: `${HERE}EduElmoForPreTraining.forward`,
  paper: "Peters et al. 2018, Section 3.1",
};

/** The layers of one language model; from the second on with a residual connection. */
class DirectedStack {
  constructor(weights, config, isReversed) {
    const layers = Array.from({ length: config.num_hidden_layers }, (_, i) => weights.at(`layers.${i}`));
    this.layers = layers.map((layer) => ({ name: layer.path, cell: new ProjectedLSTMCell(layer.at("forward_cell")) }));
    this.isReversed = isReversed;
  }

  /** The hidden states of every layer, lowest first. */
  forward(states, pass) {
    return this.layers.map(({ name, cell }, i) => {
      if (i > 0 && pass.isOff(name, "layer")) return states;
      const [update] = unroll(cell, states, cell.start(), pass, this.isReversed);
      const hasResidual = i > 0 && !pass.isOff(`${name}.residual`, "residual");
      states = pass.keep(`${name}.output`, hasResidual ? add(states, update) : update, RESIDUAL);
      return states;
    });
  }
}

/** Token vectors, and above them the hidden states of both language models. */
class Elmo {
  constructor(weights, config) {
    const Vectors = config.token_encoder === "characters" ? CharacterEmbedding : Embedding;
    this.embedTokens = new Vectors(weights.at("embed_tokens"), config);
    this.forwardLM = new DirectedStack(weights.at("forward_lm"), config, false);
    this.backwardLM = new DirectedStack(weights.at("backward_lm"), config, true);
  }

  /** Layers h_k0 = [x_k; x_k], h_k1, ... */
  forward(ids, pass) {
    const embeddings = pass.keep("embed_tokens.output", this.embedTokens.forward(ids), TOKENS);
    const forwards = [embeddings, ...this.forwardLM.forward(embeddings, pass)];
    const backwards = [embeddings, ...this.backwardLM.forward(embeddings, pass)];
    return forwards.map((states, j) => pass.keep(`layers.${j}.output`, concat(states, backwards[j]), STATES));
  }
}

/** The hidden states alone. */
class ElmoModel {
  constructor(weights, config) {
    this.model = new Elmo(weights, config);
  }

  read({ inputIds }, pass) {
    this.model.forward(inputIds, pass);
    return null;
  }
}

/** Both language models, with one softmax. */
class ElmoForPreTraining {
  constructor(weights, config) {
    this.model = new Elmo(weights, config);
    this.lmHead = tiedLinear(weights.at("lm_head"), this.model.embedTokens);
  }

  read({ inputIds }, pass) {
    const directions = chunk(this.model.forward(inputIds, pass).at(-1), 2);
    const logits = concat(...directions.map((states) => this.lmHead.forward(states)));
    return pass.keep("logits", tensor([inputIds.length, 2, logits.shape[1] / 2], logits.data), LOGITS);
  }
}

/** One label for the whole text: its mixed token vectors are pooled. */
class ElmoForSequenceClassification {
  constructor(weights, config) {
    this.model = new Elmo(weights, config);
    this.layerMix = new LayerMix(weights.at("layer_mix"), config.layer_mix);
    this.pooling = new POOLINGS[config.pooling](weights.at("pooling"), true);
    this.score = new Linear(weights.at("score"));
  }

  read({ inputIds }, pass) {
    const mixed = this.layerMix.forward(this.model.forward(inputIds, pass), pass);
    const pooled = this.pooling.forward(mixed, pass);
    return keepLabels("logits", pooled, this.score, pass, `${HERE}EduElmoForSequenceClassification.predict`);
  }
}

/** One label for each token. */
class ElmoForTokenClassification {
  constructor(weights, config) {
    this.model = new Elmo(weights, config);
    this.layerMix = new LayerMix(weights.at("layer_mix"), config.layer_mix);
    this.classifier = new Linear(weights.at("classifier"));
  }

  read({ inputIds }, pass) {
    const mixed = this.layerMix.forward(this.model.forward(inputIds, pass), pass);
    return keepTokenLogits(mixed, this.classifier, pass, `${HERE}EduElmoForTokenClassification.predict`);
  }
}

export const ELMO_HEADS = {
  EduElmoModel: ElmoModel,
  EduElmoForPreTraining: ElmoForPreTraining,
  EduElmoForSequenceClassification: ElmoForSequenceClassification,
  EduElmoForTokenClassification: ElmoForTokenClassification,
};
