// Feed-forward language model, and the text classifier that averages its embeddings.

import { Embedding } from "../embedding.js";
import { CausalEncoder, CausalLM, keepLabels } from "../heads.js";
import { Linear } from "../linear.js";
import { MeanPooling } from "../pooling.js";
import { concat, concatRows, rowsOf, tanh, tensor, zeros } from "../tensor.js";

const HERE = "models/modeling_feedforward.py:";
const BENGIO = "Bengio et al. 2003, Section 2";
const TOKENS = {
  kind: "embedding",
  axes: ["tokens", "units"],
  equation: "C(w_t)",
  source: `${HERE}EduFeedForwardModel.forward`,
  paper: BENGIO,
};
const LAYER = { source: `${HERE}WindowLayer.forward`, paper: BENGIO };
const WINDOWS = {
  ...LAYER,
  kind: "embedding",
  axes: ["tokens", "window", "units"],
  equation: "x = [C(w_{t-n+2}); ...; C(w_t)]",
};
const FEATURES = { ...LAYER, kind: "state", ops: [], axes: ["tokens", "units"], equation: "tanh(d + H x)" };
const DIRECT = { ...LAYER, kind: "residual", axes: ["tokens", "units"], equation: "x, straight to the output" };
const HIDDEN = {
  kind: "state",
  ops: [],
  axes: ["texts", "units"],
  equation: "z_i = tanh(W_i z_{i-1} + b_i)",
  source: `${HERE}HiddenLayer.forward`,
  paper: "Iyyer et al. 2015",
};

/** tanh(d + H x), x the embeddings of a window; with direct connections [x; tanh(d + H x)]. */
class FeedForward {
  constructor(weights, config) {
    this.embedTokens = new Embedding(weights.at("embed_tokens")); // C
    this.windowSize = config.window_size;
    this.hasDirect = config.direct_connections;
    this.hiddenProj = new Linear(weights.at("layer.hidden_proj")); // H, d
  }

  /** What the first window reaches back to before the first token: zeros. */
  start() {
    return { length: 0, past: zeros(this.windowSize - 1, this.embedTokens.size) };
  }

  forward(ids, { length, past }, pass) {
    const size = this.windowSize;
    const embeddings = pass.keep("embed_tokens.output", this.embedTokens.forward(ids), TOKENS);
    const history = concatRows([past, embeddings]);
    const rows = concatRows(ids.map((_, t) => rowsOf(history, t, t + size)));
    const shape = [ids.length, size, this.embedTokens.size];
    const windows = pass.keep("layer.windows", tensor(shape, rows.data), WINDOWS);
    const inputs = tensor([ids.length, size * this.embedTokens.size], windows.data); // x
    const features = pass.keep("layer.output", tanh(this.hiddenProj.forward(inputs)), FEATURES);
    const next = { length: length + ids.length, past: rowsOf(history, ids.length, history.shape[0]) };
    return [this.hasDirect ? concat(pass.keep("layer.direct", inputs, DIRECT), features) : features, next];
  }
}

/** softmax(b + W x + U tanh(d + H x)) */
class FeedForwardForCausalLM extends CausalLM {
  constructor(weights, config) {
    super(new FeedForward(weights, config), new Linear(weights.at("lm_head"))); // [W, U], b
  }
}

/** z_0 = mean_t v_t;  z_i = tanh(W_i z_{i-1} + b_i);  p = softmax(W_s z_n + b) */
class FeedForwardForSequenceClassification {
  constructor(weights, config) {
    this.embedTokens = new Embedding(weights.at("embed_tokens"));
    this.pooling = new MeanPooling(weights.at("pooling"));
    const paths = Array.from({ length: config.classifier_layers }, (_, i) => `layers.${i}.proj`);
    this.layers = paths.map((path) => new Linear(weights.at(path)));
    this.score = new Linear(weights.at("score")); // W_s, b
  }

  read({ inputIds }, pass) {
    const embeddings = pass.keep("embed_tokens.output", this.embedTokens.forward(inputIds), TOKENS);
    let states = this.pooling.forward(embeddings, pass); // z_0
    this.layers.forEach((layer, i) => {
      states = pass.keep(`layers.${i}.output`, tanh(layer.forward(states)), HIDDEN); // z_i
    });
    return keepLabels("logits", states, this.score, pass, `${HERE}EduFeedForwardForSequenceClassification.predict`);
  }
}

/** The hidden states alone. */
class FeedForwardModel extends CausalEncoder {
  constructor(weights, config) {
    super(new FeedForward(weights, config));
  }
}

export const FEEDFORWARD_HEADS = {
  EduFeedForwardModel: FeedForwardModel,
  EduFeedForwardForCausalLM: FeedForwardForCausalLM,
  EduFeedForwardForSequenceClassification: FeedForwardForSequenceClassification,
};
