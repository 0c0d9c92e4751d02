// Static word vectors: skip-gram, continuous bag of words and GloVe.

import { Embedding } from "../embedding.js";
import { tiedLinear } from "../heads.js";
import { linear } from "../linear.js";
import { fromRows, rowOf, rowsOf, tensor, weightedSum, zeros } from "../tensor.js";

const HERE = "models/modeling_word_vectors.py:";
const VECTORS = {
  kind: "embedding",
  axes: ["tokens", "units"],
  equation: "v_w",
  source: `${HERE}EduWordVectorsModel.forward`,
  paper: "Mikolov et al. 2013b, Section 2",
};
const WINDOW = { source: `${HERE}EduWordVectorsForCBOW.hidden_states`, paper: "Mikolov et al. 2013a, Section 3.1" };
const WEIGHTS = {
  ...WINDOW,
  kind: "weights",
  axes: ["heads", "queries", "keys"],
  equation: "1 / n for the n words around a position, 0 for the word itself",
};
const CONTEXT = { ...WINDOW, kind: "context", axes: ["queries", "units"], equation: "h = mean of v_j around t" };
const LOGITS = { kind: "logits", axes: ["tokens", "vocabulary"] };
const SOFTMAX = {
  ...LOGITS,
  equation: "v'_w . h",
  source: `${HERE}WindowHead.predict`,
  paper: "Mikolov et al. 2013b, Eq. (2)",
};
const TREE = {
  ...LOGITS,
  equation: "log p(w | h) = sum over the path of log sigmoid(turn * u_n . h)",
  source: "models/blocks_huffman.py:HuffmanTree.forward",
  paper: "Mikolov et al. 2013b, Eq. (3)",
};
const GLOVE = {
  ...LOGITS,
  equation: "w_i . w~_j + b~_j",
  source: `${HERE}EduWordVectorsForGloVe.forward`,
  paper: "Pennington et al. 2014, Section 3",
};

/** The mean of a word's own vector and of the vectors of its character n-grams (Bojanowski et al. 2017). */
class SubwordEmbedding extends Embedding {
  constructor(weights) {
    super(weights);
    this.ngrams = new Embedding(weights.at("ngrams"));
    this.ids = weights.get("ngram_ids").data; // of all words in a row
    this.starts = weights.get("ngram_starts").data; // where those of each word start
  }

  forward(ids) {
    return fromRows(ids.map((id) => this.meanOf(id)));
  }

  meanOf(id) {
    const own = rowsOf(this.weight, id, id + 1);
    const isKnown = id + 1 < this.starts.length; // tokens that were added later have no n-grams
    const parts = isKnown ? Array.from(this.ids.subarray(this.starts[id], this.starts[id + 1])) : [];
    const all = fromRows([own, ...parts.map((part) => rowOf(this.ngrams.weight, part))]);
    return weightedSum(tensor([all.shape[0]], new Float32Array(all.shape[0]).fill(1 / all.shape[0])), all);
  }
}

/** The vectors: the same for a word in every text. */
class WordVectors {
  constructor(weights, config) {
    const Vectors = config.num_buckets ? SubwordEmbedding : Embedding;
    this.embedTokens = new Vectors(weights.at("embed_tokens"));
  }

  read({ inputIds }, pass) {
    this.vectors(inputIds, pass);
    return null;
  }

  vectors(ids, pass) {
    return pass.keep("embed_tokens.output", this.embedTokens.forward(ids), VECTORS);
  }
}

/** log p(w | h) = sum over the path of log sigmoid(turn * u_n . h) */
class HuffmanTree {
  constructor(weights) {
    this.nodeProj = weights.get("node_proj.weight"); // u_n
    this.nodes = weights.get("nodes"); // on the way to each word
    this.codes = weights.get("codes"); // the turn at each: 1 or -1, 0 beyond the end
  }

  forward(states) {
    const scores = linear(states, this.nodeProj);
    const [length, inner] = scores.shape;
    const [words, longest] = this.nodes.shape;
    const result = zeros(length, words);
    for (let t = 0; t < length; t++) {
      for (let place = 0; place < words * longest; place++) {
        const turn = this.codes.data[place];
        if (turn === 0) continue;
        const score = turn * scores.data[t * inner + this.nodes.data[place]];
        result.data[t * words + Math.floor(place / longest)] -= Math.log1p(Math.exp(-score));
      }
    }
    return result;
  }
}

/** A word predicts the words around it. */
class SkipGram extends WordVectors {
  constructor(weights, config) {
    super(weights, config);
    this.isTree = config.hierarchical_softmax;
    this.head = this.isTree ? new HuffmanTree(weights.at("tree")) : tiedLinear(weights.at("lm_head"), this.embedTokens);
    this.windowSize = config.window_size;
  }

  read({ inputIds }, pass) {
    const states = this.states(this.vectors(inputIds, pass), pass);
    return pass.keep("logits", this.head.forward(states), this.isTree ? TREE : SOFTMAX);
  }

  /** What predicts. */
  states(vectors) {
    return vectors;
  }
}

/** The words around a position predict the word there: their mean is the state. */
class CBOW extends SkipGram {
  states(vectors, pass) {
    const [length] = vectors.shape;
    const isVisible = (t, j) => j !== t && Math.abs(j - t) <= this.windowSize;
    const weights = zeros(1, length, length);
    for (let t = 0; t < length; t++) {
      const visible = Array.from({ length }, (_, j) => j).filter((j) => isVisible(t, j));
      for (const j of visible) weights.data[t * length + j] = 1 / visible.length;
    }
    const kept = pass.keep("window.weights", weights, { ...WEIGHTS, isVisible });
    const rows = tensor([length, length], kept.data);
    const contexts = Array.from({ length }, (_, t) => weightedSum(rowOf(rows, t), vectors));
    return pass.keep("window.context", fromRows(contexts), CONTEXT);
  }
}

/** log P(j | i) up to a constant: w_i . w~_j + b~_j */
class GloVe extends WordVectors {
  constructor(weights, config) {
    super(weights, config);
    this.head = tiedLinear(weights.at("lm_head"), this.embedTokens); // w~_j, b~_j
  }

  read({ inputIds }, pass) {
    return pass.keep("logits", this.head.forward(this.vectors(inputIds, pass)), GLOVE);
  }
}

export const WORD_VECTORS_HEADS = {
  EduWordVectorsModel: WordVectors,
  EduWordVectorsForSkipGram: SkipGram,
  EduWordVectorsForCBOW: CBOW,
  EduWordVectorsForGloVe: GloVe,
};
