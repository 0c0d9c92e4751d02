// Hierarchical attention network: documents of sentences of words.

import { RecurrentLayer } from "../cells.js";
import { Embedding } from "../embedding.js";
import { keepLabels } from "../heads.js";
import { Linear } from "../linear.js";
import { POOLINGS } from "../pooling.js";
import { concatRows } from "../tensor.js";

const HERE = "models/modeling_hierarchical.py:";
const TOKENS = {
  kind: "embedding",
  axes: ["tokens", "units"],
  equation: "x_it = W_e w_it",
  source: `${HERE}EduHierarchicalModel.forward`,
  paper: "Yang et al. 2016, Section 2.2",
};

/** Reads a sequence in both directions, h_t = [forward h_t; backward h_t], and pools it: s = sum_t alpha_t h_t */
class AttentiveReader {
  constructor(weights, config) {
    this.layer = new RecurrentLayer(weights.at("layer"), config.cell_type, { bidirectional: true });
    this.pooling = new POOLINGS[config.pooling](weights.at("pooling"));
  }

  forward(inputs, pass) {
    const [states] = this.layer.forward(inputs, pass);
    return this.pooling.forward(states, pass);
  }
}

/** From words to sentences, from sentences to a document. */
class Hierarchical {
  constructor(weights, config) {
    this.embedTokens = new Embedding(weights.at("embed_tokens"));
    this.wordReader = new AttentiveReader(weights.at("word_reader"), config);
    this.sentenceReader = new AttentiveReader(weights.at("sentence_reader"), config);
  }

  /** The document v, of lists of token ids. */
  forward(sentences, pass) {
    const vectors = sentences.map((ids, number) =>
      pass.within("sentences", number, () => {
        const embeddings = pass.keep("embed_tokens.output", this.embedTokens.forward(ids), TOKENS);
        return this.wordReader.forward(embeddings, pass);
      }),
    );
    return this.sentenceReader.forward(concatRows(vectors), pass);
  }
}

/** The document alone. */
class HierarchicalModel {
  constructor(weights, config) {
    this.model = new Hierarchical(weights, config);
  }

  read({ inputIds }, pass) {
    this.model.forward(inputIds, pass);
    return null;
  }
}

/** p = softmax(W v + b) */
class HierarchicalForSequenceClassification {
  constructor(weights, config) {
    this.model = new Hierarchical(weights, config);
    this.classifier = new Linear(weights.at("classifier"));
  }

  read({ inputIds }, pass) {
    const document = this.model.forward(inputIds, pass);
    const source = `${HERE}EduHierarchicalForSequenceClassification.predict`;
    return keepLabels("logits", document, this.classifier, pass, source);
  }
}

export const HIERARCHICAL_HEADS = {
  EduHierarchicalModel: HierarchicalModel,
  EduHierarchicalForSequenceClassification: HierarchicalForSequenceClassification,
};
