// GPT: the decoder alone, pre-trained to predict the next token.

import { Embedding } from "../embedding.js";
import { CausalEncoder, CausalLM, keepLabels, tiedLinear } from "../heads.js";
import { Linear } from "../linear.js";
import { add, rowsOf } from "../tensor.js";
import { TransformerStack } from "../transformer_layer.js";

const HERE = "models/modeling_gpt.py:";
const ROWS = { axes: ["tokens", "units"], source: `${HERE}EduGPTModel.forward`, paper: "Radford et al. 2018, Eq. (2)" };
const TOKENS = { ...ROWS, kind: "embedding", equation: "U W_e" };
const POSITIONS = { ...ROWS, kind: "positions", equation: "W_p" };
const SUM = { ...ROWS, kind: "state", ops: [], equation: "h_0 = U W_e + W_p" };

/** Token and position embeddings, and layers in which every token attends to itself and those before it. */
class GPT {
  constructor(weights, config) {
    this.embedTokens = new Embedding(weights.at("embed_tokens"));
    this.embedPositions = new Embedding(weights.at("embed_positions"));
    this.stack = new TransformerStack(weights, config, config.num_hidden_layers, { isCausal: true });
    this.maxLength = config.max_position_embeddings;
  }

  start() {
    return { length: 0, pasts: this.stack.start() };
  }

  forward(ids, { length, pasts }, pass) {
    const total = length + ids.length;
    const tokens = pass.keep("embed_tokens.output", this.embedTokens.forward(ids), TOKENS);
    const positions = pass.keep("embed_positions.output", rowsOf(this.embedPositions.weight, length, total), POSITIONS);
    const embedded = pass.keep("embed.output", add(tokens, positions), SUM);
    const [states, presents] = this.stack.forward(embedded, pass, pasts);
    return [states, { length: total, pasts: presents }];
  }
}

class GPTForCausalLM extends CausalLM {
  constructor(weights, config) {
    const model = new GPT(weights, config);
    super(model, tiedLinear(weights.at("lm_head"), model.embedTokens));
  }
}

/** A label for the whole text, from its last token, the only one that attends to everything. */
class GPTForSequenceClassification {
  constructor(weights, config) {
    this.model = new GPT(weights, config);
    this.score = new Linear(weights.at("score"));
  }

  read({ inputIds }, pass) {
    const [states] = this.model.forward(inputIds, this.model.start(), pass);
    const last = rowsOf(states, inputIds.length - 1, inputIds.length);
    return keepLabels("logits", last, this.score, pass, `${HERE}EduGPTForSequenceClassification.forward`);
  }
}

/** The hidden states alone. */
class GPTModel extends CausalEncoder {
  constructor(weights, config) {
    super(new GPT(weights, config));
  }
}

export const GPT_HEADS = {
  EduGPTModel: GPTModel,
  EduGPTForCausalLM: GPTForCausalLM,
  EduGPTForSequenceClassification: GPTForSequenceClassification,
};
