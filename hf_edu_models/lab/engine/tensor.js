// Tensors: a shape and a Float32Array, the last axis fastest. A vector has shape [D], states of a text (T, D).

export function tensor(shape, data = new Float32Array(countOf(shape))) {
  return { shape, data };
}

export function countOf(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

export function zeros(...shape) {
  return tensor(shape);
}

export function fromRows(rows) {
  return concatRows(rows.map((row) => tensor([1, row.data.length], row.data)));
}

/** Row i of the first axis, without a copy. */
export function rowOf(states, i) {
  const shape = states.shape.slice(1);
  const size = countOf(shape);
  return tensor(shape, states.data.subarray(i * size, (i + 1) * size));
}

/** Rows start to end of the first axis, without a copy. */
export function rowsOf(states, start, end) {
  const size = countOf(states.shape.slice(1));
  return tensor([end - start, ...states.shape.slice(1)], states.data.subarray(start * size, end * size));
}

export function map(states, f) {
  return tensor(states.shape, states.data.map(f));
}

/** f of two tensors, element by element; the smaller one may be a vector that is repeated for every row. */
export function combine(a, b, f) {
  const result = tensor(a.shape);
  const size = b.data.length;
  for (let i = 0; i < a.data.length; i++) result.data[i] = f(a.data[i], b.data[i % size]);
  return result;
}

export function add(a, b) {
  return combine(a, b, (x, y) => x + y);
}

export function multiply(a, b) {
  return combine(a, b, (x, y) => x * y);
}

export function scale(states, factor) {
  return map(states, (x) => x * factor);
}

export function tanh(states) {
  return map(states, Math.tanh);
}

export function sigmoid(states) {
  return map(states, (x) => 1 / (1 + Math.exp(-x)));
}

/** Concatenate along the last axis. */
export function concat(...parts) {
  const widths = parts.map((part) => part.shape.at(-1));
  const width = widths.reduce((sum, size) => sum + size, 0);
  const result = tensor([...parts[0].shape.slice(0, -1), width]);
  let start = 0;
  parts.forEach((part, number) => {
    const size = widths[number];
    for (let i = 0; i * size < part.data.length; i++) {
      result.data.set(part.data.subarray(i * size, (i + 1) * size), i * width + start);
    }
    start += size;
  });
  return result;
}

/** Concatenate along the first axis. */
export function concatRows(parts) {
  const count = parts.reduce((sum, part) => sum + part.shape[0], 0);
  const result = tensor([count, ...parts[0].shape.slice(1)]);
  let start = 0;
  for (const part of parts) {
    result.data.set(part.data, start);
    start += part.data.length;
  }
  return result;
}

/** Cut the last axis into equal parts. */
export function chunk(states, count) {
  const width = states.shape.at(-1);
  const size = width / count;
  return Array.from({ length: count }, (_, part) => {
    const result = tensor([...states.shape.slice(0, -1), size]);
    for (let i = 0; i * width < states.data.length; i++) {
      const start = i * width + part * size;
      result.data.set(states.data.subarray(start, start + size), i * size);
    }
    return result;
  });
}

/** Exchange the first two of three axes: (T, H, K) to (H, T, K). */
export function swapFirst(states) {
  const [first, second, size] = states.shape;
  const result = tensor([second, first, size]);
  for (let i = 0; i < first; i++) {
    for (let j = 0; j < second; j++) {
      const start = (i * second + j) * size;
      result.data.set(states.data.subarray(start, start + size), (j * first + i) * size);
    }
  }
  return result;
}

export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** exp(x_i) / sum_j exp(x_j) along the last axis; a score of -Infinity gets a weight of 0. */
export function softmax(scores) {
  const width = scores.shape.at(-1);
  const weights = tensor(scores.shape);
  for (let start = 0; start < scores.data.length; start += width) {
    const row = scores.data.subarray(start, start + width);
    const highest = row.reduce((a, b) => Math.max(a, b), -Infinity);
    if (highest === -Infinity) continue; // nothing is visible
    let sum = 0;
    for (let i = 0; i < width; i++) sum += Math.exp(row[i] - highest);
    for (let i = 0; i < width; i++) weights.data[start + i] = Math.exp(row[i] - highest) / sum;
  }
  return weights;
}

/** sum_j weights_j rows_j: (S) and (S, D) to (D). */
export function weightedSum(weights, rows) {
  const [count, size] = rows.shape;
  const sums = new Float64Array(size);
  for (let j = 0; j < count; j++) {
    const weight = weights.data[j];
    if (weight === 0) continue;
    const start = j * size;
    for (let i = 0; i < size; i++) sums[i] += weight * rows.data[start + i];
  }
  return tensor([size], Float32Array.from(sums));
}
