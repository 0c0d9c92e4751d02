// Layer normalisation, and batch normalisation with the statistics of training.

import { rowOf, tensor } from "./tensor.js";

/** Ba et al. 2016: y = (x - mean(x)) / sqrt(var(x) + eps) * g + b, for each row. */
export class LayerNorm {
  constructor(weights, eps) {
    this.gain = weights.get("weight"); // g
    this.bias = weights.get("bias"); // b
    this.eps = eps;
  }

  forward(states) {
    const [rows, size] = states.shape;
    const result = tensor(states.shape);
    for (let t = 0; t < rows; t++) {
      const { data } = rowOf(states, t);
      const mean = data.reduce((sum, x) => sum + x, 0) / size;
      const variance = data.reduce((sum, x) => sum + (x - mean) ** 2, 0) / size;
      const factor = 1 / Math.sqrt(variance + this.eps);
      for (let i = 0; i < size; i++) {
        result.data[t * size + i] = (data[i] - mean) * factor * this.gain.data[i] + this.bias.data[i];
      }
    }
    return result;
  }
}

/** Ioffe & Szegedy 2015: y = (x - mean) / sqrt(var + eps) * g + b, mean and var of each unit over the training set. */
export class BatchNorm {
  constructor(weights) {
    [this.gain, this.bias] = [weights.get("weight"), weights.get("bias")]; // g, b
    [this.mean, this.variance] = [weights.get("running_mean"), weights.get("running_var")];
  }

  forward(states) {
    const size = states.shape.at(-1);
    const normed = (x, i) => (x - this.mean.data[i]) / Math.sqrt(this.variance.data[i] + 1e-5);
    const values = states.data.map((x, n) => normed(x, n % size) * this.gain.data[n % size] + this.bias.data[n % size]);
    return tensor(states.shape, values);
  }
}
