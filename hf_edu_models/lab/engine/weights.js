// The tensors of a checkpoint, by the paths of the modules that own them.

import { tensor } from "./tensor.js";

export class Weights {
  /** `path` is that of a module in the state dict, without the `model.` that models with a head put before it. */
  constructor(tensors, path = "") {
    this.tensors = tensors;
    this.path = path;
  }

  /** The weights of a submodule: `weights.at("encoder").at("layers.0")`. */
  at(name) {
    return new Weights(this.tensors, this.nameOf(name));
  }

  nameOf(name) {
    return this.path ? `${this.path}.${name}` : name;
  }

  /** A tensor, or null if the checkpoint has none of that name. */
  find(name) {
    const full = this.nameOf(name);
    const found = this.tensors[`model.${full}`] ?? this.tensors[full];
    return found ? restore(found) : null;
  }

  get(name) {
    const found = this.find(name);
    if (!found) throw new Error(`the checkpoint has no tensor ${this.nameOf(name)}; it belongs to another model`);
    return found;
  }

  has(name) {
    const full = this.nameOf(name);
    return `model.${full}` in this.tensors || full in this.tensors;
  }
}

/** A float32 tensor; of an int8 matrix, row by row: weight_ij = scale_i * int8_ij */
function restore({ shape, data }) {
  if (!data.int8) return tensor(shape, data);
  const { int8, scales } = data;
  const size = int8.length / scales.length;
  const restored = new Float32Array(int8.length);
  for (let i = 0; i < scales.length; i++) {
    const scale = scales[i];
    for (let j = i * size; j < (i + 1) * size; j++) restored[j] = scale * int8[j];
  }
  return tensor(shape, restored);
}
