// The Transformer: attention alone, several heads at once, position encodings.

import { Embedding } from "../embedding.js";
import { ConditionalGeneration, Seq2SeqEncoder, tiedLinear } from "../heads.js";
import { sinusoids } from "../positions.js";
import { add, rowsOf, scale } from "../tensor.js";
import { TransformerStack } from "../transformer_layer.js";

const HERE = "models/modeling_transformer.py:TransformerEmbeddings.forward";
const ROWS = { axes: ["tokens", "units"], source: HERE };
const TOKENS = { ...ROWS, kind: "embedding", equation: "sqrt(d) * E(x_t)", paper: "Vaswani et al. 2017, Section 3.4" };
const POSITIONS = { ...ROWS, kind: "positions", equation: "PE(t)", paper: "Vaswani et al. 2017, Section 3.5" };
const SUM = {
  ...ROWS,
  kind: "state",
  ops: [],
  equation: "sqrt(d) * E(x_t) + PE(t)",
  paper: "Vaswani et al. 2017, Section 3.5",
};

/** sqrt(d) * E(x_t) + PE(t) */
class TransformerEmbeddings {
  constructor(weights, config) {
    this.name = weights.path;
    this.scale = config.scale_embeddings ? config.hidden_size ** 0.5 : 1;
    this.layout = config.sinusoid_layout;
    this.learned = config.position_embedding_type === "learned" ? new Embedding(weights.at("positions")) : null;
  }

  forward(embeddings, first, pass) {
    const [length, size] = embeddings.shape;
    const encodings = this.learned
      ? rowsOf(this.learned.weight, first, first + length)
      : sinusoids(first, length, size, this.layout);
    const tokens = pass.keep(`${this.name}.tokens`, scale(embeddings, this.scale), TOKENS);
    const positions = pass.keep(`${this.name}.positions`, encodings, POSITIONS);
    return pass.keep(`${this.name}.output`, add(tokens, positions), SUM);
  }
}

/** Encoder and decoder. */
class Transformer {
  constructor(weights, config) {
    const [encoder, decoder] = [weights.at("encoder"), weights.at("decoder")];
    this.encoderTokens = new Embedding(encoder.at("embed_tokens"));
    this.decoderTokens = config.share_embeddings ? this.encoderTokens : new Embedding(decoder.at("embed_tokens"));
    this.encoderEmbed = new TransformerEmbeddings(encoder.at("embed"), config);
    this.decoderEmbed = new TransformerEmbeddings(decoder.at("embed"), config);
    this.encoder = new TransformerStack(encoder, config, config.num_hidden_layers);
    const decoderLayers = config.decoder_layers ?? config.num_hidden_layers;
    this.decoder = new TransformerStack(decoder, config, decoderLayers, { isCausal: true, hasCross: true });
    this.maxLength = config.position_embedding_type === "learned" ? config.max_position_embeddings : null;
  }

  encode(ids, pass) {
    const embedded = this.encoderEmbed.forward(this.encoderTokens.forward(ids), 0, pass);
    const [states] = this.encoder.forward(embedded, pass);
    return states;
  }

  /** The source as keys and values of every decoder layer. */
  start(source) {
    const sources = this.decoder.layers.map((layer) => layer.crossAttention.keysAndValues(source));
    return { length: 0, sources, pasts: this.decoder.start() };
  }

  decode(ids, { length, sources, pasts }, pass) {
    const embedded = this.decoderEmbed.forward(this.decoderTokens.forward(ids), length, pass);
    const [states, presents] = this.decoder.forward(embedded, pass, pasts, sources);
    return [states, { length: length + ids.length, sources, pasts: presents }];
  }
}

class TransformerForConditionalGeneration extends ConditionalGeneration {
  constructor(weights, config) {
    const model = new Transformer(weights, config);
    super(model, tiedLinear(weights.at("lm_head"), model.decoderTokens));
  }
}

/** The hidden states of encoder and decoder alone. */
class TransformerModel extends Seq2SeqEncoder {
  constructor(weights, config) {
    super(new Transformer(weights, config));
  }
}

export const TRANSFORMER_HEADS = {
  EduTransformerModel: TransformerModel,
  EduTransformerForConditionalGeneration: TransformerForConditionalGeneration,
};
