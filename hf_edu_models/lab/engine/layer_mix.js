// Mixing layers: one vector for each token of the hidden states of all layers.

import { add, concat, scale, softmax } from "./tensor.js";

const HERE = "models/blocks_layer_mix.py:";
const SHARES = {
  kind: "shares",
  axes: ["layers"],
  ops: ["set", "off"],
  equation: "s = softmax(w)",
  source: `${HERE}ScalarMix.weights`,
  paper: "Peters et al. 2018, Eq. (1)",
};
const MIXED = { kind: "state", ops: [], axes: ["tokens", "units"], paper: "Peters et al. 2018, Eq. (1)" };
const SCALAR = { ...MIXED, equation: "ELMo_k = gamma sum_j s_j h_kj", source: `${HERE}ScalarMix.forward` };
const SUM = { ...MIXED, equation: "the sum of the last layers", source: `${HERE}SumMix.forward`, paper: "" };
const CONCAT = { ...MIXED, equation: "the last layers side by side", source: `${HERE}ConcatMix.forward`, paper: "" };

/** The mix that `layer_mix` names: scalar, last, sumN or concatN of the last N layers. */
export class LayerMix {
  constructor(weights, name) {
    this.name = weights.path;
    const [, kind, count] = name.match(/^(scalar|sum|concat)(\d*)$/) ?? [null, "sum", "1"];
    this.kind = kind;
    this.count = Number(count);
    if (kind === "scalar") {
      this.scores = weights.get("scores"); // w
      this.factor = weights.get("scale").data[0]; // gamma
    }
  }

  forward(layers, pass) {
    const name = `${this.name}.output`;
    const chosen = layers.slice(-this.count || 0);
    if (this.kind === "concat") return pass.keep(name, concat(...chosen), CONCAT);
    if (this.kind === "sum") return pass.keep(name, chosen.reduce(add), SUM);
    const shares = pass.keep(`${this.name}.shares`, softmax(this.scores), SHARES);
    const weighted = layers.map((states, j) => scale(states, shares.data[j]));
    return pass.keep(name, scale(weighted.reduce(add), this.factor), SCALAR);
  }
}
