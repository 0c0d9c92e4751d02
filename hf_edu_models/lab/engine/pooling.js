// Pooling: one vector, or one for each query, of a sequence of hidden states.

import { endsOf } from "./cells.js";
import { Linear } from "./linear.js";
import { concat, concatRows, rowOf, softmax, tanh, tensor, weightedSum } from "./tensor.js";

const HERE = "models/blocks_pooling.py:";
const WEIGHTS = { kind: "weights", axes: ["heads", "queries", "keys"] };
const POOLED = { kind: "context", ops: [], axes: ["heads", "units"] };
const ATTENTION = { source: `${HERE}AttentionPooling.forward` };
const ALIGNED = {
  ...ATTENTION,
  kind: "vectors",
  axes: ["tokens", "units"],
  equation: "u_t = tanh(W h_t + b)",
  paper: "Yang et al. 2016, Eq. (5)",
};
const SCORES = { ...ATTENTION, ...WEIGHTS, kind: "score", equation: "u_t . q", paper: "Yang et al. 2016, Eq. (6)" };
const ATTENTION_WEIGHTS = {
  ...ATTENTION,
  ...WEIGHTS,
  equation: "alpha_t = softmax_t(u_t . q)",
  paper: "Yang et al. 2016, Eq. (6)",
};
const SUM = { ...ATTENTION, ...POOLED, equation: "s = sum_t alpha_t h_t", paper: "Yang et al. 2016, Eq. (7)" };
const MEAN_WEIGHTS = { ...WEIGHTS, source: `${HERE}MeanPooling.forward`, equation: "alpha_t = 1 / T", paper: "" };
const MEAN = { ...POOLED, source: `${HERE}MeanPooling.forward`, equation: "s = mean_t h_t", paper: "" };
const SHARES = {
  ...WEIGHTS,
  kind: "shares",
  source: `${HERE}MaxPooling.forward`,
  equation: "the share of the units in which h_t is the largest",
  paper: "",
};
const MAX = { ...POOLED, source: `${HERE}MaxPooling.forward`, equation: "s_d = max_t h_td", paper: "" };
const LAST = {
  ...POOLED,
  source: `${HERE}LastPooling.forward`,
  equation: "s = h_T, where each direction ends",
  paper: "",
};

const CONCAT = {
  ...POOLED,
  source: `${HERE}ConcatPooling.forward`,
  equation: "h_c = [h_T, maxpool(H), meanpool(H)]",
  paper: "Howard & Ruder 2018, Section 3.3",
};

/** u_t = tanh(W h_t + b);  alpha_t = softmax_t(u_t . q);  s = sum_t alpha_t h_t, for each learnt query q */
class AttentionPooling {
  constructor(weights) {
    this.name = weights.path;
    this.proj = new Linear(weights.at("proj")); // W, b
    this.queryProj = weights.get("query_proj.weight"); // q
  }

  forward(states, pass) {
    const aligned = pass.keep(`${this.name}.aligned`, tanh(this.proj.forward(states)), ALIGNED);
    const [count] = this.queryProj.shape;
    const [length] = states.shape;
    const scores = tensor([count, 1, length]);
    const keys = tensor([length, aligned.shape[1]], aligned.data);
    for (let q = 0; q < count; q++) {
      for (let t = 0; t < length; t++) {
        let sum = 0;
        const [query, key] = [rowOf(this.queryProj, q).data, rowOf(keys, t).data];
        for (let i = 0; i < key.length; i++) sum += query[i] * key[i];
        scores.data[q * length + t] = sum;
      }
    }
    pass.keep(`${this.name}.scores`, scores, SCORES);
    const weights = pass.keep(`${this.name}.weights`, softmax(scores), ATTENTION_WEIGHTS);
    return pass.keep(`${this.name}.pooled`, averages(weights, states), SUM);
  }
}

/** s = mean_t h_t: attention whose weights are all equal. */
export class MeanPooling {
  constructor(weights) {
    this.name = weights.path;
  }

  forward(states, pass) {
    const [length] = states.shape;
    const equal = tensor([1, 1, length], new Float32Array(length).fill(1 / length));
    const weights = pass.keep(`${this.name}.weights`, equal, MEAN_WEIGHTS);
    return pass.keep(`${this.name}.pooled`, averages(weights, states), MEAN);
  }
}

/** s_d = max_t h_td */
class MaxPooling {
  constructor(weights) {
    this.name = weights.path;
  }

  forward(states, pass) {
    const [length, size] = states.shape;
    const pooled = tensor([1, size]);
    const shares = tensor([1, 1, length]);
    for (let i = 0; i < size; i++) {
      let best = 0;
      for (let t = 1; t < length; t++) {
        if (states.data[t * size + i] > states.data[best * size + i]) best = t;
      }
      pooled.data[i] = states.data[best * size + i];
      shares.data[best] += 1 / size;
    }
    pass.keep(`${this.name}.shares`, shares, SHARES);
    return pass.keep(`${this.name}.pooled`, pooled, MAX);
  }
}

/** The hidden state where reading ends: the last token or, of the backward direction, the first. */
class LastPooling {
  constructor(weights, bidirectional) {
    this.name = weights.path;
    this.bidirectional = bidirectional;
  }

  forward(states, pass) {
    return pass.keep(`${this.name}.pooled`, endsOf(states, this.bidirectional), LAST);
  }
}

/** [h_T, max_t h_t, mean_t h_t] */
class ConcatPooling {
  constructor(weights, bidirectional) {
    this.name = weights.path;
    const part = (Part, i) => new Part(weights.at(`parts.${i}`), bidirectional);
    this.parts = [LastPooling, MaxPooling, MeanPooling].map(part);
  }

  forward(states, pass) {
    const pooled = concat(...this.parts.map((part) => part.forward(states, pass)));
    return pass.keep(`${this.name}.pooled`, pooled, CONCAT);
  }
}

/** Rows (Q, D): the states averaged by the weights (Q, 1, T) of each query. */
function averages(weights, states) {
  const [count, , length] = weights.shape;
  const rows = Array.from({ length: count }, (_, q) => {
    const row = tensor([length], weights.data.subarray(q * length, (q + 1) * length));
    return tensor([1, states.shape[1]], weightedSum(row, states).data);
  });
  return concatRows(rows);
}

export const POOLINGS = {
  last: LastPooling,
  mean: MeanPooling,
  max: MaxPooling,
  concat: ConcatPooling,
  attention: AttentionPooling,
  label_attention: AttentionPooling,
};
