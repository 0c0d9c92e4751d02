// Linear layers: y = W x + b for every row x. Weights are stored (out, in), as in torch, so that each output reads one
// row from start to end. Four rows of W meet two rows of x at a time: a value read from memory is used several times.

import { tensor } from "./tensor.js";

export class Linear {
  constructor(weights) {
    this.weight = weights.get("weight");
    this.bias = weights.find("bias");
  }

  forward(states) {
    return linear(states, this.weight, this.bias);
  }
}

/** Rows (..., I) times the transpose of a matrix (O, I), plus a bias (O): (..., O). */
export function linear(states, weight, bias = null) {
  const [outputs, inputs] = weight.shape;
  const result = tensor([...states.shape.slice(0, -1), outputs]);
  multiplyRows(states.data, weight.data, result.data, inputs, outputs);
  if (bias) {
    for (let i = 0; i < result.data.length; i++) result.data[i] += bias.data[i % outputs];
  }
  return result;
}

/** result[row][output] = sum_i states[row][i] * matrix[output][i]; sums are in double precision. */
function multiplyRows(states, matrix, result, size, width) {
  const rows = states.length / size;
  let output = 0;
  for (; output + 4 <= width; output += 4) {
    const a = output * size;
    const b = a + size;
    const c = b + size;
    const d = c + size;
    let row = 0;
    for (; row + 2 <= rows; row += 2) {
      const x = row * size;
      const y = x + size;
      let xa = 0, xb = 0, xc = 0, xd = 0, ya = 0, yb = 0, yc = 0, yd = 0;
      for (let i = 0; i < size; i++) {
        const p = states[x + i];
        const q = states[y + i];
        const wa = matrix[a + i];
        const wb = matrix[b + i];
        const wc = matrix[c + i];
        const wd = matrix[d + i];
        xa += p * wa;
        xb += p * wb;
        xc += p * wc;
        xd += p * wd;
        ya += q * wa;
        yb += q * wb;
        yc += q * wc;
        yd += q * wd;
      }
      const target = row * width + output;
      result[target] = xa;
      result[target + 1] = xb;
      result[target + 2] = xc;
      result[target + 3] = xd;
      result[target + width] = ya;
      result[target + width + 1] = yb;
      result[target + width + 2] = yc;
      result[target + width + 3] = yd;
    }
    if (row < rows) {
      const x = row * size;
      let xa = 0, xb = 0, xc = 0, xd = 0;
      for (let i = 0; i < size; i++) {
        const p = states[x + i];
        xa += p * matrix[a + i];
        xb += p * matrix[b + i];
        xc += p * matrix[c + i];
        xd += p * matrix[d + i];
      }
      const target = row * width + output;
      result[target] = xa;
      result[target + 1] = xb;
      result[target + 2] = xc;
      result[target + 3] = xd;
    }
  }
  for (; output < width; output++) {
    for (let row = 0; row < rows; row++) {
      let sum = 0;
      for (let i = 0; i < size; i++) sum += states[row * size + i] * matrix[output * size + i];
      result[row * width + output] = sum;
    }
  }
}
