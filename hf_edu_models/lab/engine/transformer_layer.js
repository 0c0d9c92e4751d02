// The layers of the Transformer, GPT and BERT: attention and a feed-forward network, each with a residual connection.

import { activate } from "./activations.js";
import { MultiHeadAttention } from "./attention.js";
import { Linear } from "./linear.js";
import { LayerNorm } from "./norm.js";
import { add, zeros } from "./tensor.js";

const HERE = "models/blocks_transformer.py:";
const STATES = { kind: "state", axes: ["tokens", "units"], ops: [], paper: "Vaswani et al. 2017, Section 3.1" };
const POST_NORM = { ...STATES, equation: "LayerNorm(x + Sublayer(x))", source: `${HERE}PostNorm.after` };
const PRE_NORM = {
  ...STATES,
  equation: "x + Sublayer(LayerNorm(x))",
  source: `${HERE}PreNorm.after`,
  paper: "Xiong et al. 2020",
};
const INNER = {
  ...STATES,
  equation: "f(x W_1 + b_1), f the activation function",
  source: `${HERE}FeedForward.forward`,
  paper: "Vaswani et al. 2017, Eq. (2)",
};
const FINAL = {
  ...STATES,
  equation: "LayerNorm(x)",
  source: "models/blocks_transformer_stack.py:final_norm",
  paper: "Xiong et al. 2020",
};

/** FFN(x) = f(x W_1 + b_1) W_2 + b_2 */
class FeedForward {
  constructor(weights, config) {
    this.name = weights.path;
    this.innerProj = new Linear(weights.at("inner_proj")); // W_1, b_1
    this.outerProj = new Linear(weights.at("outer_proj")); // W_2, b_2
    this.activation = config.hidden_act;
  }

  forward(states, pass) {
    if (pass.isOff(this.name, "layer")) return zeros(...states.shape);
    const inner = pass.keep(`${this.name}.inner`, activate(this.innerProj.forward(states), this.activation), INNER);
    return this.outerProj.forward(inner);
  }
}

/** LayerNorm(x + Sublayer(x)) or, with `norm_first`, x + Sublayer(LayerNorm(x)). */
class Residual {
  constructor(weights, config) {
    this.name = weights.path;
    this.norm = new LayerNorm(weights.at("norm"), config.layer_norm_eps);
    this.isFirst = config.norm_first;
  }

  before(states) {
    return this.isFirst ? this.norm.forward(states) : states;
  }

  after(states, update, pass) {
    const sum = pass.isOff(this.name, "residual") ? update : add(states, update);
    const output = this.isFirst ? sum : this.norm.forward(sum);
    return pass.keep(`${this.name}.output`, output, this.isFirst ? PRE_NORM : POST_NORM);
  }
}

/** Self-attention and a feed-forward network; a decoder layer has cross-attention between them. */
export class TransformerLayer {
  constructor(weights, config, { isCausal = false, hasCross = false } = {}) {
    this.name = weights.path;
    this.selfAttention = new MultiHeadAttention(weights.at("self_attention"), config, { isCausal });
    this.selfResidual = new Residual(weights.at("self_residual"), config);
    if (hasCross) {
      this.crossAttention = new MultiHeadAttention(weights.at("cross_attention"), config, { isCross: true });
      this.crossResidual = new Residual(weights.at("cross_residual"), config);
    }
    this.feedForward = new FeedForward(weights.at("feed_forward"), config);
    this.feedResidual = new Residual(weights.at("feed_residual"), config);
  }

  /** New states, and keys and values for the tokens that follow; `source` is of `keysAndValues`. */
  forward(states, pass, past, source = null) {
    if (pass.isOff(this.name, "layer")) return [states, past];
    const [update, present] = this.selfAttention.forward(this.selfResidual.before(states), pass, past);
    states = this.selfResidual.after(states, update, pass);
    if (source) {
      const crossUpdate = this.crossAttention.crossAttend(this.crossResidual.before(states), source, pass);
      states = this.crossResidual.after(states, crossUpdate, pass);
    }
    const transformed = this.feedForward.forward(this.feedResidual.before(states), pass);
    return [this.feedResidual.after(states, transformed, pass), present];
  }
}

/** Layers one after the other, and with `norm_first` a last layer norm. */
export class TransformerStack {
  constructor(weights, config, count, options) {
    this.name = weights.path;
    const paths = Array.from({ length: count }, (_, i) => `layers.${i}`);
    this.layers = paths.map((path) => new TransformerLayer(weights.at(path), config, options));
    this.finalNorm = config.norm_first ? new LayerNorm(weights.at("final_norm"), config.layer_norm_eps) : null;
    this.about = config.norm_first ? PRE_NORM : POST_NORM;
  }

  /** The state before the first token: no keys and values. */
  start() {
    return this.layers.map(() => null);
  }

  forward(states, pass, pasts = this.start(), sources = []) {
    const presents = [];
    this.layers.forEach((layer, i) => {
      const [output, present] = layer.forward(states, pass, pasts[i], sources[i]);
      states = pass.keep(`${layer.name}.output`, output, this.about);
      presents.push(present);
    });
    if (this.finalNorm) {
      const name = this.name ? `${this.name}.final_norm.output` : "final_norm.output";
      states = pass.keep(name, this.finalNorm.forward(states), FINAL);
    }
    return [states, presents];
  }
}
