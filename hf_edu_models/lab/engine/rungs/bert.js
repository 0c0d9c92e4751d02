// BERT: every token attends to both sides; masked tokens, next sentence, and one small layer for each task.

import { activate } from "../activations.js";
import { Embedding } from "../embedding.js";
import { keepLabels, tiedLinear } from "../heads.js";
import { Linear } from "../linear.js";
import { LayerNorm } from "../norm.js";
import { add, rowsOf, tanh, tensor } from "../tensor.js";
import { TransformerStack } from "../transformer_layer.js";

const HERE = "models/modeling_bert.py:";
const ROWS = {
  axes: ["tokens", "units"],
  source: `${HERE}BertEmbeddings.forward`,
  paper: "Devlin et al. 2019, Section 3",
};
const TOKENS = { ...ROWS, kind: "embedding", equation: "E_token" };
const POSITIONS = { ...ROWS, kind: "positions", equation: "E_position" };
const SEGMENTS = { ...ROWS, kind: "embedding", equation: "E_segment" };
const SUM = { ...ROWS, kind: "state", ops: [], equation: "LayerNorm(E_token + E_position + E_segment)" };
const POOLED = {
  kind: "state",
  ops: [],
  axes: ["texts", "units"],
  equation: "tanh(W h_[CLS] + b)",
  source: `${HERE}EduBertModel.forward`,
  paper: "Devlin et al. 2019, Section 3",
};
const FEATURES = {
  ...ROWS,
  kind: "state",
  ops: [],
  equation: "LayerNorm(gelu(W h + b))",
  source: `${HERE}BertMLMHead.forward`,
  paper: "Devlin et al. 2019, Section 3.1",
};
const MLM = {
  ...FEATURES,
  kind: "logits",
  axes: ["tokens", "vocabulary"],
  equation: "E LayerNorm(gelu(W h + b)) + b'",
};
const OF_TOKENS = {
  kind: "logits",
  equation: "W h_t + b",
  source: `${HERE}BertWithLinearHead.predict`,
  paper: "Devlin et al. 2019, Section 4",
};

/** Embeddings, layers that attend to both sides, and the pooled state of [CLS]. */
class Bert {
  constructor(weights, config) {
    const embeddings = weights.at("embeddings");
    this.wordEmbeddings = new Embedding(embeddings.at("word_embeddings"));
    this.positionEmbeddings = new Embedding(embeddings.at("position_embeddings"));
    this.tokenTypeEmbeddings = new Embedding(embeddings.at("token_type_embeddings"));
    this.norm = new LayerNorm(embeddings.at("norm"), config.layer_norm_eps);
    this.stack = new TransformerStack(weights, config, config.num_hidden_layers);
    this.pooler = weights.has("pooler.weight") ? new Linear(weights.at("pooler")) : null;
    this.maxLength = config.max_position_embeddings;
  }

  forward(ids, tokenTypeIds, pass) {
    const types = tokenTypeIds ?? ids.map(() => 0);
    const keep = (what, vectors, about) => pass.keep(`embeddings.${what}.output`, vectors, about);
    const tokens = keep("word_embeddings", this.wordEmbeddings.forward(ids), TOKENS);
    const segments = keep("token_type_embeddings", this.tokenTypeEmbeddings.forward(types), SEGMENTS);
    const positions = keep("position_embeddings", rowsOf(this.positionEmbeddings.weight, 0, ids.length), POSITIONS);
    const total = add(add(tokens, segments), positions);
    const embedded = pass.keep("embeddings.output", this.norm.forward(total), SUM);
    const [states] = this.stack.forward(embedded, pass);
    return states;
  }

  /** tanh(W h_[CLS] + b) */
  pool(states, pass) {
    return pass.keep("pooler.output", tanh(this.pooler.forward(rowsOf(states, 0, 1))), POOLED);
  }
}

/** softmax(E LayerNorm(gelu(W h + b)) + b'), E tied to the token embeddings */
class MLMHead {
  constructor(weights, config, embedding) {
    this.transform = new Linear(weights.at("transform")); // W, b
    this.activation = config.hidden_act;
    this.norm = new LayerNorm(weights.at("norm"), config.layer_norm_eps);
    this.decoder = tiedLinear(weights.at("decoder"), embedding); // E, b'
  }

  forward(states, pass) {
    const features = this.norm.forward(activate(this.transform.forward(states), this.activation));
    return pass.keep("logits", this.decoder.forward(pass.keep("lm_head.features", features, FEATURES)), MLM);
  }
}

/** Hidden states, and the pooled one if the checkpoint has a pooler. */
class BertModel {
  constructor(weights, config) {
    this.model = new Bert(weights, config);
  }

  read({ inputIds, tokenTypeIds }, pass) {
    const states = this.model.forward(inputIds, tokenTypeIds, pass);
    if (this.model.pooler) this.model.pool(states, pass);
    return null;
  }
}

class BertForMaskedLM {
  constructor(weights, config) {
    this.model = new Bert(weights, config);
    this.lmHead = new MLMHead(weights.at("lm_head"), config, this.model.wordEmbeddings);
  }

  read({ inputIds, tokenTypeIds }, pass) {
    return this.lmHead.forward(this.model.forward(inputIds, tokenTypeIds, pass), pass);
  }
}

/** Masked language modelling and next sentence prediction. */
class BertForPreTraining extends BertForMaskedLM {
  constructor(weights, config) {
    super(weights, config);
    this.seqRelationship = new Linear(weights.at("seq_relationship"));
  }

  read({ inputIds, tokenTypeIds }, pass) {
    const states = this.model.forward(inputIds, tokenTypeIds, pass);
    const pooled = this.model.pool(states, pass);
    keepLabels("next_sentence_logits", pooled, this.seqRelationship, pass, `${HERE}EduBertForPreTraining.forward`);
    return this.lmHead.forward(states, pass);
  }
}

/** One linear layer on the pooled state: a label for a text or a pair of texts. */
class BertForSequenceClassification {
  constructor(weights, config) {
    this.model = new Bert(weights, config);
    this.classifier = new Linear(weights.at("classifier"));
  }

  read({ inputIds, tokenTypeIds }, pass) {
    const pooled = this.model.pool(this.model.forward(inputIds, tokenTypeIds, pass), pass);
    return keepLabels("logits", pooled, this.classifier, pass, `${HERE}BertWithLinearHead.predict`);
  }
}

/** One linear layer on every hidden state: a label for each token. */
class BertForTokenClassification {
  axes = ["tokens", "labels"];

  constructor(weights, config) {
    this.model = new Bert(weights, config);
    this.classifier = new Linear(weights.at("classifier"));
  }

  read({ inputIds, tokenTypeIds }, pass) {
    const states = this.model.forward(inputIds, tokenTypeIds, pass);
    return pass.keep("logits", this.classifier.forward(states), { ...OF_TOKENS, axes: this.axes });
  }
}

/** Where in the text the answer starts and ends. */
class BertForQuestionAnswering extends BertForTokenClassification {
  axes = ["tokens", "ends"];
}

/** A linear layer for each task, on the pooled state or on every hidden state; all of them predict. */
class BertForMultiTask {
  constructor(weights, config) {
    this.model = new Bert(weights, config);
    this.tasks = Object.entries(config.tasks).map(([name, { task }]) => {
      const classifier = new Linear(weights.at(`classifiers.${name}`));
      return { name, classifier, readsTokens: task === "token_classification" };
    });
  }

  read({ inputIds, tokenTypeIds }, pass) {
    const source = `${HERE}EduBertForMultiTask.forward`;
    const states = this.model.forward(inputIds, tokenTypeIds, pass);
    const pooled = this.model.pool(states, pass);
    for (const { name, readsTokens, classifier } of this.tasks) {
      const about = { ...OF_TOKENS, axes: ["tokens", "labels"], source };
      if (readsTokens) pass.keep(`${name}.logits`, classifier.forward(states), about);
      else keepLabels(`${name}.logits`, pooled, classifier, pass, source);
    }
    return null;
  }
}

/** One score for each choice. */
class BertForMultipleChoice extends BertForSequenceClassification {
  read({ inputIds, tokenTypeIds }, pass) {
    const scores = inputIds.map((inputs, number) => {
      const types = tokenTypeIds?.[number];
      return pass.within("choices", number, () => super.read({ inputIds: inputs, tokenTypeIds: types }, pass).data[0]);
    });
    const source = `${HERE}EduBertForMultipleChoice.predict`;
    const about = {
      kind: "logits",
      axes: ["choices"],
      equation: "w . tanh(W h_[CLS] + b)",
      paper: "Devlin et al. 2019, Section 4.4",
      source,
    };
    return pass.keep("logits", tensor([scores.length], Float32Array.from(scores)), about);
  }
}

export const BERT_HEADS = {
  EduBertModel: BertModel,
  EduBertForPreTraining: BertForPreTraining,
  EduBertForMaskedLM: BertForMaskedLM,
  EduBertForNextSentencePrediction: BertForSequenceClassification,
  EduBertForSequenceClassification: BertForSequenceClassification,
  EduBertForTokenClassification: BertForTokenClassification,
  EduBertForQuestionAnswering: BertForQuestionAnswering,
  EduBertForMultipleChoice: BertForMultipleChoice,
  EduBertForMultiTask: BertForMultiTask,
};
