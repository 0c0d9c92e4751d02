// Multi-head attention, of the Transformer, GPT and BERT.

import { Linear } from "./linear.js";
import { chunk, concatRows, swapFirst, softmax, tensor } from "./tensor.js";

const HERE = "models/blocks_transformer.py:";
const HEADS = {
  source: `${HERE}MultiHeadAttention.split_heads`,
  paper: "Vaswani et al. 2017, Section 3.2.2",
  kind: "vectors",
};
const QUERIES = { ...HEADS, axes: ["heads", "queries", "units"], equation: "Q W_i^Q" };
const KEYS = { ...HEADS, axes: ["heads", "keys", "units"], equation: "K W_i^K" };
const VALUES = { ...HEADS, axes: ["heads", "keys", "units"], equation: "V W_i^V" };
const EAGER = {
  source: `${HERE}eager_attention`,
  paper: "Vaswani et al. 2017, Eq. (1)",
  axes: ["heads", "queries", "keys"],
};
const PRODUCT = { ...EAGER, kind: "parts", axes: [...EAGER.axes, "units"], equation: "q_k * k_k, for each element k" };
const SCORES = { ...EAGER, kind: "score", equation: "Q K^T / sqrt(d_k)" };
const WEIGHTS = { ...EAGER, kind: "weights", equation: "softmax(Q K^T / sqrt(d_k))" };
const OUTPUTS = {
  ...EAGER,
  kind: "head",
  axes: ["heads", "queries", "units"],
  equation: "head_i = softmax(Q K^T / sqrt(d_k)) V",
};

/** head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V); MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O */
export class MultiHeadAttention {
  constructor(weights, config, { isCausal = false, isCross = false } = {}) {
    this.name = weights.path;
    this.isCausal = isCausal;
    this.isCross = isCross;
    this.numHeads = config.num_attention_heads;
    this.headSize = config.hidden_size / this.numHeads;
    this.scaling = this.headSize ** -0.5;
    if (isCross) {
      this.qProj = new Linear(weights.at("q_proj")); // W^Q
      this.kvProj = new Linear(weights.at("kv_proj")); // W^K, W^V
    } else {
      this.qkvProj = new Linear(weights.at("qkv_proj")); // W^Q, W^K, W^V in one product
    }
    this.aggregation = config.head_aggregation ?? "project";
    this.output = this.aggregation === "concat" ? null : new Linear(weights.at("output")); // W^O
  }

  /** Self-attention after `past`, the keys and values of earlier tokens; returns the update and those of all tokens. */
  forward(states, pass, past) {
    const [query, ...own] = chunk(this.qkvProj.forward(states), 3);
    const [key, value] = past ? own.map((part, i) => concatRows([past[i], part])) : own;
    return [this.attend(query, key, value, pass), [key, value]];
  }

  /** Cross-attention over the keys and values of another text. */
  crossAttend(states, [key, value], pass) {
    return this.attend(this.qProj.forward(states), key, value, pass);
  }

  /** Another text as `crossAttend` takes it. */
  keysAndValues(source) {
    return chunk(this.kvProj.forward(source), 2);
  }

  attend(query, key, value, pass) {
    const keep = (what, values, about) =>
      pass.keep(`${this.name}.${what}`, values, this.isCross ? { ...about, keySide: "source" } : about);
    const queries = keep("queries", this.splitHeads(query), QUERIES); // (H, T, K)
    const keys = keep("keys", this.splitHeads(key), KEYS); // (H, S, K)
    const values = keep("values", this.splitHeads(value), VALUES); // (H, S, K)
    if (pass.parts) keep("product", termsOf(queries, keys), PRODUCT);
    const isVisible = (t, s) => !this.isCausal || s <= t;
    const products = scaledProducts(queries, keys, this.scaling, pass.first, isVisible); // (H, T, S)
    const scores = keep("scores", products, SCORES);
    const weights = keep("weights", softmax(scores), { ...WEIGHTS, isVisible }); // (H, T, S)
    const heads = keep("heads", weightedValues(weights, values), OUTPUTS); // (H, T, K)
    const aggregated = this.aggregate(swapFirst(heads));
    return this.output ? this.output.forward(aggregated) : aggregated;
  }

  splitHeads(states) {
    const [length] = states.shape;
    return swapFirst(tensor([length, this.numHeads, this.headSize], states.data));
  }

  /** Heads (T, H, K) side by side, or their mean. */
  aggregate(heads) {
    const [length, count, size] = heads.shape;
    if (this.aggregation !== "mean") return tensor([length, count * size], heads.data);
    const mean = tensor([length, size]);
    for (let t = 0; t < length; t++) {
      for (let h = 0; h < count; h++) {
        for (let i = 0; i < size; i++) mean.data[t * size + i] += heads.data[(t * count + h) * size + i] / count;
      }
    }
    return mean;
  }
}

/** Q K^T / sqrt(d_k) of every head, -Infinity where a key is hidden; the first query is that of position `first`. */
function scaledProducts(queries, keys, scaling, first, isVisible) {
  const [heads, length, size] = queries.shape;
  const count = keys.shape[1];
  const scores = tensor([heads, length, count]);
  for (let h = 0; h < heads; h++) {
    for (let t = 0; t < length; t++) {
      for (let s = 0; s < count; s++) {
        const q = (h * length + t) * size;
        const k = (h * count + s) * size;
        let sum = 0;
        for (let i = 0; i < size; i++) sum += queries.data[q + i] * keys.data[k + i];
        scores.data[(h * length + t) * count + s] = isVisible(first + t, s) ? sum * scaling : -Infinity;
      }
    }
  }
  return scores;
}

/** The terms of which Q K^T is the sum: (H, T, S, K). */
function termsOf(queries, keys) {
  const [heads, length, size] = queries.shape;
  const count = keys.shape[1];
  const terms = tensor([heads, length, count, size]);
  for (let place = 0; place < terms.data.length; place++) {
    const i = place % size;
    const s = Math.floor(place / size) % count;
    const t = Math.floor(place / (size * count)) % length;
    const h = Math.floor(place / (size * count * length));
    terms.data[place] = queries.data[(h * length + t) * size + i] * keys.data[(h * count + s) * size + i];
  }
  return terms;
}

/** softmax(Q K^T / sqrt(d_k)) V of every head. */
function weightedValues(weights, values) {
  const [heads, length, count] = weights.shape;
  const size = values.shape[2];
  const outputs = tensor([heads, length, size]);
  const sums = new Float64Array(size);
  for (let h = 0; h < heads; h++) {
    for (let t = 0; t < length; t++) {
      sums.fill(0);
      for (let s = 0; s < count; s++) {
        const weight = weights.data[(h * length + t) * count + s];
        const v = (h * count + s) * size;
        for (let i = 0; i < size; i++) sums[i] += weight * values.data[v + i];
      }
      outputs.data.set(sums, (h * length + t) * size);
    }
  }
  return outputs;
}
