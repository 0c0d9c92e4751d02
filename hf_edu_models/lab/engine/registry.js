// The class of each head, by the name of the class that saved it. A new rung is added here and in `supported.js`.

import { BAHDANAU_HEADS } from "./rungs/bahdanau.js";
import { BERT_HEADS } from "./rungs/bert.js";
import { ELMO_HEADS } from "./rungs/elmo.js";
import { FEEDFORWARD_HEADS } from "./rungs/feedforward.js";
import { GPT_HEADS } from "./rungs/gpt.js";
import { HIERARCHICAL_HEADS } from "./rungs/hierarchical.js";
import { RECURRENT_HEADS } from "./rungs/recurrent.js";
import { SEQ2SEQ_HEADS } from "./rungs/seq2seq.js";
import { TRANSFORMER_HEADS } from "./rungs/transformer.js";
import { WORD_VECTORS_HEADS } from "./rungs/word_vectors.js";

export const HEADS = {
  ...FEEDFORWARD_HEADS,
  ...RECURRENT_HEADS,
  ...WORD_VECTORS_HEADS,
  ...SEQ2SEQ_HEADS,
  ...BAHDANAU_HEADS,
  ...HIERARCHICAL_HEADS,
  ...TRANSFORMER_HEADS,
  ...ELMO_HEADS,
  ...GPT_HEADS,
  ...BERT_HEADS,
};
