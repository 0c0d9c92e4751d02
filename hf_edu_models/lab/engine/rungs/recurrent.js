// Recurrent language model and classifiers.

import { ACTIVATIONS } from "../activations.js";
import { RecurrentStack } from "../cells.js";
import { Embedding } from "../embedding.js";
import { CausalEncoder, CausalLM, keepLabels, keepTokenLogits, tiedLinear } from "../heads.js";
import { Linear } from "../linear.js";
import { BatchNorm } from "../norm.js";
import { POOLINGS } from "../pooling.js";
import { WindowAttention } from "../scores.js";
import { concatRows, map, rowOf, tensor, zeros } from "../tensor.js";

const HERE = "models/modeling_recurrent.py:";
const TOKENS = {
  kind: "embedding",
  axes: ["tokens", "units"],
  equation: "x_t, the vector of token t",
  source: `${HERE}EduRecurrentModel.forward`,
  paper: "Mikolov et al. 2010",
};
const HIDDEN = {
  kind: "vectors",
  axes: ["texts", "units"],
  equation: "relu(W norm(h_c) + b)",
  source: `${HERE}EduRecurrentForSequenceClassification.predict`,
  paper: "Howard & Ruder 2018, Section 3.3",
};
const OF_LABELS = { kind: "logits", axes: ["labels"], equation: "w_l . s_l + b_l", paper: "" };

/** Embeddings, recurrent layers and, with `attention_window`, attention over the last states. */
class Recurrent {
  constructor(weights, config) {
    const bidirectional = config.bidirectional;
    this.embedTokens = new Embedding(weights.at("embed_tokens"));
    this.stack = new RecurrentStack(weights.at("stack"), config, { bidirectional });
    const window = config.attention_window ?? 0;
    const hasLagBias = config.attention_lag_bias ?? false;
    this.windowAttention = window ? new WindowAttention(weights.at("window_attention"), window, hasLagBias) : null;
    this.size = config.hidden_size;
  }

  start() {
    return { length: 0, states: this.stack.start(), past: zeros(0, this.size) };
  }

  forward(ids, { length, states, past }, pass) {
    const embeddings = pass.keep("embed_tokens.output", this.embedTokens.forward(ids), TOKENS);
    const [outputs, newStates] = this.stack.forward(embeddings, pass, states);
    const next = { length: length + ids.length, states: newStates, past };
    if (!this.windowAttention) return [outputs, next];
    const all = concatRows([past, outputs]);
    return [this.windowAttention.forward(all, length, pass), { ...next, past: all }];
  }
}

/** p(w_{t+1} | w_1 .. w_t) = softmax(W h_t) */
class RecurrentForCausalLM extends CausalLM {
  constructor(weights, config) {
    const model = new Recurrent(weights, config);
    super(model, tiedLinear(weights.at("lm_head"), model.embedTokens));
  }
}

/** Batch norm and a linear layer. */
class LinearBlock {
  constructor(weights) {
    this.norm = new BatchNorm(weights.at("norm"));
    this.linear = new Linear(weights.at("linear"));
  }

  forward(features) {
    return this.linear.forward(this.norm.forward(features));
  }
}

/** A label for the whole text, from its pooled states; with `label_attention` each label has a query of its own. */
class RecurrentForSequenceClassification {
  constructor(weights, config) {
    this.model = new Recurrent(weights, config);
    this.kindOfPooling = config.pooling ?? "last";
    this.pooling = new POOLINGS[this.kindOfPooling](weights.at("pooling"), config.bidirectional);
    const hasBlocks = (config.classifier_hidden_size ?? null) !== null;
    this.hidden = hasBlocks ? new LinearBlock(weights.at("hidden")) : null;
    this.score = hasBlocks ? new LinearBlock(weights.at("score")) : new Linear(weights.at("score"));
  }

  read({ inputIds }, pass) {
    const source = `${HERE}EduRecurrentForSequenceClassification.predict`;
    const [states] = this.model.forward(inputIds, this.model.start(), pass);
    const pooled = this.pooling.forward(states, pass); // (Q, D)
    if (this.kindOfPooling !== "label_attention") {
      const flat = tensor([1, pooled.data.length], pooled.data); // hops side by side
      if (!this.hidden) return keepLabels("logits", flat, this.score, pass, source);
      const hidden = pass.keep("hidden", map(this.hidden.forward(flat), ACTIVATIONS.relu), HIDDEN);
      return keepLabels("logits", hidden, this.score, pass, source);
    }
    const scores = this.score.forward(pooled); // (Q, V), of which row l is read at label l: logit_l = w_l . s_l + b_l
    const labels = scores.shape[1];
    const diagonal = tensor([labels], Float32Array.from({ length: labels }, (_, l) => rowOf(scores, l).data[l]));
    return pass.keep("logits", diagonal, { ...OF_LABELS, source });
  }
}

/** One label for each token. */
class RecurrentForTokenClassification {
  constructor(weights, config) {
    this.model = new Recurrent(weights, config);
    this.classifier = new Linear(weights.at("classifier"));
  }

  read({ inputIds }, pass) {
    const [states] = this.model.forward(inputIds, this.model.start(), pass);
    return keepTokenLogits(states, this.classifier, pass, `${HERE}EduRecurrentForTokenClassification.predict`);
  }
}

/** The hidden states alone. */
class RecurrentModel extends CausalEncoder {
  constructor(weights, config) {
    super(new Recurrent(weights, config));
  }
}

export const RECURRENT_HEADS = {
  EduRecurrentModel: RecurrentModel,
  EduRecurrentForCausalLM: RecurrentForCausalLM,
  EduRecurrentForSequenceClassification: RecurrentForSequenceClassification,
  EduRecurrentForTokenClassification: RecurrentForTokenClassification,
};
