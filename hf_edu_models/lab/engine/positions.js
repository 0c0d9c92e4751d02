// Sinusoidal position encodings.

import { tensor } from "./tensor.js";

/**
 * Vaswani et al. 2017, Section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i / d)), and its cosine at 2i + 1.
 * With the layout `halves` all sines come first.
 */
export function sinusoids(first, count, size, layout) {
  const encodings = tensor([count, size]);
  for (let t = 0; t < count; t++) {
    for (let i = 0; i < size / 2; i++) {
      const angle = (first + t) * 10000 ** ((-2 * i) / size);
      const [sine, cosine] = layout === "halves" ? [i, size / 2 + i] : [2 * i, 2 * i + 1];
      encodings.data[t * size + sine] = Math.sin(angle);
      encodings.data[t * size + cosine] = Math.cos(angle);
    }
  }
  return encodings;
}
