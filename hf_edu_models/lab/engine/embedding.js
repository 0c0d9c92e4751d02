// Token embeddings: row i of a matrix is the vector of token i.

import { tensor } from "./tensor.js";

export class Embedding {
  constructor(weights) {
    this.name = weights.path;
    this.weight = weights.get("weight");
  }

  get size() {
    return this.weight.shape[1];
  }

  /** Vectors (T, E) of T ids. */
  forward(ids) {
    const size = this.size;
    const vectors = tensor([ids.length, size]);
    ids.forEach((id, t) => vectors.data.set(this.weight.data.subarray(id * size, (id + 1) * size), t * size));
    return vectors;
  }
}
