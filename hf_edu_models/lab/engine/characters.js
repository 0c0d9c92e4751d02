// Token vectors from characters: convolutions over a token's spelling, and highway layers.

import { Embedding } from "./embedding.js";
import { Linear, linear } from "./linear.js";
import { add, combine, concat, fromRows, map, multiply, rowOf, sigmoid, tensor, zeros } from "./tensor.js";

/** Srivastava et al. 2015, Eq. (3): y = H(x) * T(x) + x * (1 - T(x)), H a rectified layer and T its gate */
class Highway {
  constructor(weights) {
    this.transform = new Linear(weights.at("transform")); // W_H, b_H
    this.gate = new Linear(weights.at("gate")); // W_T, b_T
  }

  forward(inputs) {
    const gate = sigmoid(this.gate.forward(inputs)); // T(x)
    const transformed = relu(this.transform.forward(inputs)); // H(x)
    const carried = combine(inputs, gate, (x, g) => x * (1 - g));
    return add(multiply(transformed, gate), carried);
  }
}

function relu(states) {
  return map(states, (x) => Math.max(0, x));
}

/** One width of convolution: its filters over all windows of a spelling, and the largest value of each. */
class Convolution {
  constructor(weights) {
    const { shape, data } = weights.get("weight");
    const [count, size, width] = shape;
    this.size = size;
    this.width = width;
    this.weight = tensor([count, size * width], data);
    this.bias = weights.get("bias");
  }

  /** relu(max_p (W [e_p; ...; e_{p+width-1}] + b)) of characters (M, E); behind the end of a token there are zeros. */
  forward(embedded) {
    const [length] = embedded.shape;
    const windows = zeros(length, this.size * this.width);
    for (let p = 0; p < length; p++) {
      for (let i = 0; i < this.width && p + i < length; i++) {
        for (let e = 0; e < this.size; e++) {
          const place = p * this.size * this.width + e * this.width + i;
          windows.data[place] = embedded.data[(p + i) * this.size + e];
        }
      }
    }
    const outputs = linear(windows, this.weight, this.bias);
    const count = outputs.shape[1];
    const best = zeros(count); // relu: no largest value is below zero
    outputs.data.forEach((value, i) => {
      best.data[i % count] = Math.max(best.data[i % count], value);
    });
    return best;
  }
}

/** x_k of a token from its characters (Kim et al. 2016; Peters et al. 2018, Section 3.4). */
export class CharacterEmbedding {
  constructor(weights, config) {
    this.spellings = weights.get("spellings"); // of every token: numbers of its characters, then zeros
    this.embedCharacters = new Embedding(weights.at("embed_characters"));
    this.convolutions = config.char_filters.map((_, i) => new Convolution(weights.at(`convolutions.${i}`)));
    const layers = Array.from({ length: config.num_highway_layers }, (_, i) => `highways.${i}`);
    this.highways = layers.map((path) => new Highway(weights.at(path)));
    this.proj = new Linear(weights.at("proj"));
  }

  forward(ids) {
    return fromRows(ids.map((id) => this.encode(id)));
  }

  encode(id) {
    const characters = Array.from(rowOf(this.spellings, id).data).filter((character) => character !== 0);
    const embedded = this.embedCharacters.forward(characters);
    let vector = concat(...this.convolutions.map((convolution) => convolution.forward(embedded)));
    for (const highway of this.highways) vector = highway.forward(vector);
    return this.proj.forward(vector);
  }
}
