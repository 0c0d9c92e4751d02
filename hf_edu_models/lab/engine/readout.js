// The deep output of Cho et al. 2014 and Bahdanau et al. 2015: from state, previous token and context to the softmax.

import { Linear } from "./linear.js";
import { add, tensor } from "./tensor.js";

const APPENDIX = { kind: "state", ops: [], axes: ["tokens", "units"], paper: "Bahdanau et al. 2015, App. A.2.2" };
const LINEAR = {
  ...APPENDIX,
  equation: "t_i = U_o s_i + V_o y_{i-1} + C_o c_i",
  source: "models/blocks_readout.py:LinearReadout.forward",
};
const MAXOUT = {
  ...APPENDIX,
  equation: "t_{i,j} = max(t~_{i,2j-1}, t~_{i,2j}),  t~_i = U_o s_i + V_o y_{i-1} + C_o c_i",
  source: "models/blocks_readout.py:MaxoutReadout.forward",
};

/** t_i = U_o s_i + V_o y_{i-1} + C_o c_i */
class LinearReadout {
  about = LINEAR;

  constructor(weights) {
    this.name = weights.path;
    this.stateProj = new Linear(weights.at("state_proj")); // U_o
    this.wordProj = new Linear(weights.at("word_proj")); // V_o
    this.contextProj = new Linear(weights.at("context_proj")); // C_o
  }

  forward(states, embeddings, contexts, pass) {
    const fromWords = add(this.stateProj.forward(states), this.wordProj.forward(embeddings));
    const features = this.choose(add(fromWords, this.contextProj.forward(contexts)));
    return pass.keep(`${this.name}.output`, features, this.about);
  }

  choose(features) {
    return features;
  }
}

/** Each output is the larger of two linear units (Goodfellow et al. 2013). */
class MaxoutReadout extends LinearReadout {
  about = MAXOUT;

  choose(features) {
    const [length, width] = features.shape;
    const outputs = tensor([length, width / 2]);
    for (let i = 0; i < outputs.data.length; i++) {
      outputs.data[i] = Math.max(features.data[2 * i], features.data[2 * i + 1]);
    }
    return outputs;
  }
}

export const READOUTS = { maxout: MaxoutReadout, linear: LinearReadout };
