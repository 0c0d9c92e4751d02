// Attention of the recurrent models: scores, weights made of them, and attention over a window of past states.

import { Linear, linear } from "./linear.js";
import { add, combine, concat, dot, map, multiply, rowOf, rowsOf, scale } from "./tensor.js";
import { softmax, tanh, tensor, weightedSum, zeros } from "./tensor.js";

const HERE = "models/blocks_attention.py:";
const LUONG = "Luong et al. 2015, Section 3.1";
const BAHDANAU = "Bahdanau et al. 2015, App. A.1.2";
const VASWANI = "Vaswani et al. 2017";
const PARTS = { kind: "parts", axes: ["queries", "keys", "units"], keySide: "source" };
const STATE_PART = { ...PARTS, axes: ["queries", "units"] };
const KEY_PART = { ...PARTS, axes: ["keys", "units"], side: "source" };

/** e_j = s . h_j (Luong et al. 2015, `dot`) */
class DotScore {
  static about = { equation: "e_j = s . h_j", source: `${HERE}DotScore.forward`, paper: LUONG };

  constructor(weights) {
    this.name = weights.path;
  }

  /** The keys, made of the annotations (S, C) once for a source. */
  keys(annotations) {
    return annotations;
  }

  /** What the keys are compared with, made of the decoder's state (D). */
  query(state) {
    return state;
  }

  /** Scores (S) of the keys for one query; `keep` records the terms of which each score is the sum. */
  forward(state, keys, keep) {
    const query = this.query(state);
    const [count] = keys.shape;
    if (keep) this.keepParts(query, keys, keep);
    const scores = tensor([count]);
    for (let j = 0; j < count; j++) scores.data[j] = dot(query.data, rowOf(keys, j).data);
    return scores;
  }

  keepParts(query, keys, keep) {
    const about = this.constructor.about;
    keep("state_part", query, { ...about, ...STATE_PART });
    keep("product", multiply(keys, query), { ...about, ...PARTS, equation: `${about.equation}, term by term` });
  }
}

/** e_j = s . h_j / sqrt(d); the keys carry the factor. */
class ScaledDotScore extends DotScore {
  static about = {
    equation: "e_j = s . h_j / sqrt(d)",
    source: `${HERE}ScaledDotScore.prepare`,
    paper: `${VASWANI}, Section 3.2.1`,
  };

  keys(annotations) {
    return scale(annotations, annotations.shape[1] ** -0.5);
  }
}

/** The cosine of the angle: e_j = s . h_j / (|s| |h_j|) */
class CosineScore extends DotScore {
  static about = { equation: "e_j = s . h_j / (|s| |h_j|)", source: `${HERE}CosineScore.forward`, paper: "" };

  keys(annotations) {
    return toUnitLength(annotations);
  }

  query(state) {
    return toUnitLength(state);
  }
}

/** x / |x| for every row, and zero for zero. */
function toUnitLength(states) {
  const size = states.shape.at(-1);
  const result = tensor(states.shape);
  for (let start = 0; start < states.data.length; start += size) {
    const row = states.data.subarray(start, start + size);
    const length = Math.max(Math.sqrt(dot(row, row)), 1e-12);
    for (let i = 0; i < size; i++) result.data[start + i] = row[i] / length;
  }
  return result;
}

/** e_j = s . (W_a h_j) (Luong et al. 2015, `general`) */
class GeneralScore extends DotScore {
  static about = { equation: "e_j = s . (W_a h_j)", source: `${HERE}GeneralScore.prepare`, paper: LUONG };

  constructor(weights) {
    super(weights);
    this.keyProj = new Linear(weights.at("key_proj")); // W_a
  }

  keys(annotations) {
    return this.keyProj.forward(annotations);
  }
}

/** e_j = (W_q s) . (W_k h_j): queries and keys as in Vaswani et al. 2017, with a single head */
class ProjectedScore extends DotScore {
  static about = {
    equation: "e_j = (W_q s) . (W_k h_j)",
    source: `${HERE}ProjectedScore.forward`,
    paper: `${VASWANI}, Section 3.2.2`,
  };

  constructor(weights) {
    super(weights);
    this.queryWeight = weights.get("query_weight"); // W_q
    this.keyWeight = weights.get("key_weight"); // W_k
  }

  keys(annotations) {
    return linear(annotations, this.keyWeight);
  }

  query(state) {
    return linear(state, this.queryWeight);
  }
}

/** Bahdanau et al. 2015, App. A.1.2: e_ij = v_a . tanh(W_a s_{i-1} + U_a h_j) */
class AdditiveScore extends ProjectedScore {
  static about = {
    equation: "e_ij = v_a . tanh(W_a s_{i-1} + U_a h_j)",
    source: `${HERE}AdditiveScore.forward`,
    paper: BAHDANAU,
  };

  constructor(weights) {
    super(weights); // W_a and U_a
    this.scoreVector = weights.get("score_vector"); // v_a
  }

  forward(state, keys, keep) {
    const query = this.query(state); // W_a s_{i-1}
    const sums = add(keys, query);
    const aligned = tanh(sums);
    if (keep) {
      const about = { ...AdditiveScore.about, ...PARTS };
      keep("state_part", query, { ...about, ...STATE_PART, equation: "W_a s_{i-1}" });
      keep("sum", sums, { ...about, equation: "W_a s_{i-1} + U_a h_j" });
      keep("tanh", aligned, { ...about, equation: "tanh(W_a s_{i-1} + U_a h_j)" });
      keep("product", multiply(aligned, this.scoreVector), { ...about, equation: "v_a * tanh(W_a s_{i-1} + U_a h_j)" });
    }
    const scores = tensor([keys.shape[0]]);
    for (let j = 0; j < keys.shape[0]; j++) scores.data[j] = dot(rowOf(aligned, j).data, this.scoreVector.data); // e_ij
    return scores;
  }
}

export const SCORES = {
  additive: AdditiveScore,
  dot: DotScore,
  scaled_dot: ScaledDotScore,
  general: GeneralScore,
  cosine: CosineScore,
  projected: ProjectedScore,
};

/**
 * Martins & Astudillo 2016: the weights nearest to the scores; low scores get exactly 0.
 * alpha_j = max(0, e_j - tau), tau = (sum of the k highest scores - 1) / k, k the number of weights above zero
 */
function sparsemax(scores) {
  const ordered = Array.from(scores.data).sort((a, b) => b - a); // e_(1) >= e_(2) >= ...
  let sum = 0;
  let threshold = 0; // tau
  ordered.forEach((score, i) => {
    sum += score;
    if (1 + (i + 1) * score > sum) threshold = (sum - 1) / (i + 1);
  });
  return map(scores, (score) => Math.max(0, score - threshold));
}

export const NORMALIZERS = { softmax, sparsemax };

const ROWS = { axes: ["heads", "queries", "keys"], keySide: "source", source: `${HERE}attend` };
const WEIGHTS = {
  softmax: {
    ...ROWS,
    kind: "weights",
    equation: "alpha_ij = exp(e_ij) / sum_k exp(e_ik)",
    paper: "Bahdanau et al. 2015, Eq. (6)",
  },
  sparsemax: {
    ...ROWS,
    kind: "weights",
    equation: "alpha_ij = max(0, e_ij - tau_i)",
    source: `${HERE}Sparsemax.forward`,
    paper: "Martins & Astudillo 2016",
  },
};
const CONTEXT = {
  kind: "context",
  axes: ["queries", "units"],
  equation: "c_i = sum_j alpha_ij h_j",
  source: `${HERE}attend`,
  paper: "Bahdanau et al. 2015, Eq. (5)",
};

/** The attention of a decoder: scores e_ij, weights alpha_ij, context c_i. */
export class RecurrentAttention {
  constructor(weights, config) {
    this.score = new SCORES[config.attention_score](weights.at("score"));
    this.normalizer = config.attention_normalizer ?? "softmax";
  }

  /** The keys of a source. */
  prepare(annotations, pass) {
    const keys = this.score.keys(annotations);
    const { about } = this.score.constructor;
    return pass.parts ? pass.keep(`${this.score.name}.key_part`, keys, { ...about, ...KEY_PART }) : keys;
  }

  /** The context (C) for one state of the decoder; `keep` is that of the decoder's step. */
  attend(state, keys, annotations, keep, hasParts) {
    const keepPart = hasParts ? (what, ...values) => keep(`score.${what}`, ...values) : null;
    const { about } = this.score.constructor;
    const scores = keep("scores", this.score.forward(state, keys, keepPart), { ...ROWS, ...about, kind: "score" });
    const weights = keep("weights", NORMALIZERS[this.normalizer](scores), WEIGHTS[this.normalizer]);
    return keep("context", weightedSum(weights, annotations), CONTEXT);
  }
}

const WINDOW = { source: `${HERE}WindowAttention.forward`, paper: "Daniluk et al. 2017" };
const WINDOW_WEIGHTS = {
  ...WINDOW,
  kind: "weights",
  axes: ["heads", "queries", "keys"],
  equation: "softmax_j(v . tanh(W h_t + U h_j)), j = t - window .. t - 1",
};
const LAG_WEIGHTS = {
  ...WINDOW_WEIGHTS,
  equation: "softmax_j(v . tanh(W h_t + U h_j) + b_{t-j}), j = t - window .. t - 1",
};
const WINDOW_CONTEXT = { ...WINDOW, kind: "context", axes: ["queries", "units"], equation: "c_t = sum_j alpha_tj h_j" };
const WINDOW_OUTPUT = { ...WINDOW, kind: "state", ops: [], axes: ["tokens", "units"], equation: "tanh(V [h_t; c_t])" };

/**
 * Each position attends over the `window` states before it (after Daniluk et al. 2017). With `hasLagBias` a score also
 * has a learnt number for the distance.
 */
export class WindowAttention {
  constructor(weights, window, hasLagBias = false) {
    this.name = weights.path;
    this.window = window;
    this.lagBias = hasLagBias ? weights.get("lag_bias") : null; // b_window .. b_1
    this.queryProj = new Linear(weights.at("query_proj")); // W
    this.keyProj = new Linear(weights.at("key_proj")); // U
    this.scoreProj = weights.get("score_proj.weight"); // v
    this.outputProj = new Linear(weights.at("output_proj")); // V
  }

  /** `states` are all hidden states, of which the first `past` were attended to earlier; outputs of the others. */
  forward(states, past, pass) {
    const [count, size] = states.shape;
    const length = count - past;
    const queries = this.queryProj.forward(rowsOf(states, past, count));
    const earliest = Math.max(0, past - this.window);
    const keys = this.keyProj.forward(rowsOf(states, earliest, count));
    const scores = tensor([1, length, count]);
    scores.data.fill(-Infinity);
    for (let t = 0; t < length; t++) {
      for (let j = Math.max(0, past + t - this.window); j < past + t; j++) {
        const aligned = combine(rowOf(queries, t), rowOf(keys, j - earliest), (q, k) => Math.tanh(q + k));
        const bias = this.lagBias ? this.lagBias.data[this.window - (past + t - j)] : 0; // b_{t-j}
        scores.data[t * count + j] = dot(aligned.data, this.scoreProj.data) + bias;
      }
    }
    // The first token has no past: its weights are zeros.
    const isVisible = (t, j) => j < t && j >= t - this.window;
    const about = this.lagBias ? LAG_WEIGHTS : WINDOW_WEIGHTS;
    const weights = pass.keep(`${this.name}.weights`, softmax(scores), { ...about, isVisible });
    const contexts = zeros(length, size);
    for (let t = 0; t < length; t++) {
      const row = tensor([count], weights.data.subarray(t * count, (t + 1) * count));
      contexts.data.set(weightedSum(row, states).data, t * size);
    }
    const context = pass.keep(`${this.name}.context`, contexts, WINDOW_CONTEXT);
    const outputs = tanh(this.outputProj.forward(concat(rowsOf(states, past, count), context)));
    return pass.keep(`${this.name}.output`, outputs, WINDOW_OUTPUT);
  }
}
