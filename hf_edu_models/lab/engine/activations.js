// Activation functions, by the names that transformers gives them (`ACT2FN`).

import { map } from "./tensor.js";

/** Abramowitz & Stegun, 7.1.26: to 1.5e-7. */
export function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const polynomial = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - polynomial * Math.exp(-x * x));
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const softplus = (x) => (x > 20 ? x : Math.log1p(Math.exp(x)));
const gelu = (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)); // x Phi(x), Hendrycks & Gimpel 2016
const geluByTanh = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const silu = (x) => x * sigmoid(x);

export const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu,
  gelu_python: gelu,
  gelu_new: geluByTanh,
  gelu_fast: geluByTanh,
  gelu_pytorch_tanh: geluByTanh,
  gelu_python_tanh: geluByTanh,
  gelu_accurate: geluByTanh,
  quick_gelu: (x) => x * sigmoid(1.702 * x),
  silu,
  swish: silu,
  mish: (x) => x * Math.tanh(softplus(x)),
  relu2: (x) => Math.max(0, x) ** 2,
  relu6: (x) => Math.min(6, Math.max(0, x)),
  leaky_relu: (x) => (x > 0 ? x : 0.01 * x),
  sigmoid,
  tanh: Math.tanh,
  linear: (x) => x,
};

export function activate(states, name) {
  return map(states, ACTIVATIONS[name]);
}
