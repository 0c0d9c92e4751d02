// What the engine computes: of each model type its heads, and the fields of its configuration. `values` lists the
// values that a field may have; `computed` fields may have any; `training` fields change nothing when one of these
// heads runs. `numeric` heads read numbers instead of text and are rejected. Between the braces is JSON, which Python
// reads, too.

export const SUPPORTED = {
  "edu_feedforward": {
    "heads": {
      "EduFeedForwardModel": "encoder",
      "EduFeedForwardForCausalLM": "causal",
      "EduFeedForwardForSequenceClassification": "classifier"
    },
    "values": {},
    "computed": ["embedding_size", "hidden_size", "window_size", "direct_connections", "classifier_layers"],
    "training": ["word_dropout"]
  },
  "edu_recurrent": {
    "heads": {
      "EduRecurrentModel": "encoder",
      "EduRecurrentForCausalLM": "causal",
      "EduRecurrentForSequenceClassification": "classifier",
      "EduRecurrentForTokenClassification": "tagger"
    },
    "values": {
      "cell_type": ["rnn", "gru", "lstm"],
      "pooling": ["last", "mean", "max", "concat", "attention", "label_attention"],
      "features": [null]
    },
    "computed": [
      "embedding_size", "hidden_size", "num_hidden_layers", "bidirectional", "attention_size", "num_hops",
      "attention_window", "attention_lag_bias", "feature_mix", "classifier_hidden_size"
    ],
    "training": [
      "redundancy_weight", "forget_gate_bias", "initializer_range", "recurrent_implementation", "num_input_channels",
      "context_length", "prediction_length", "input_mean", "input_std", "input_dropout", "layer_dropout",
      "lock_dropout_masks", "embedding_dropout", "weight_dropout", "activation_regularization",
      "temporal_activation_regularization"
    ]
  },
  "edu_seq2seq": {
    "heads": { "EduSeq2SeqModel": "encoder", "EduSeq2SeqForConditionalGeneration": "seq2seq" },
    "values": { "cell_type": ["rnn", "gru", "lstm"] },
    "computed": [
      "embedding_size", "hidden_size", "num_hidden_layers", "reverse_source", "context_every_step", "maxout_size",
      "is_encoder_decoder", "decoder_start_token_id"
    ],
    "training": [
      "teacher_forcing_ratio", "label_smoothing", "forget_gate_bias", "initializer_range", "recurrent_implementation"
    ]
  },
  "edu_bahdanau": {
    "heads": { "EduBahdanauModel": "encoder", "EduBahdanauForConditionalGeneration": "seq2seq" },
    "values": {
      "cell_type": ["rnn", "gru", "lstm"],
      "attention_score": ["additive", "dot", "scaled_dot", "general", "cosine", "projected"],
      "attention_normalizer": ["softmax", "sparsemax"],
      "readout": ["maxout", "linear"]
    },
    "computed": [
      "embedding_size", "hidden_size", "encoder_hidden_size", "num_hidden_layers", "attention_size", "maxout_size",
      "is_encoder_decoder", "decoder_start_token_id"
    ],
    "training": ["label_smoothing", "forget_gate_bias", "initializer_range", "recurrent_implementation"]
  },
  "edu_hierarchical": {
    "heads": {
      "EduHierarchicalModel": "encoder",
      "EduHierarchicalForSequenceClassification": "classifier"
    },
    "values": { "cell_type": ["rnn", "gru", "lstm"], "pooling": ["attention", "mean", "max"] },
    "computed": ["embedding_size", "hidden_size", "attention_size"],
    "training": ["forget_gate_bias", "initializer_range", "recurrent_implementation"]
  },
  "edu_transformer": {
    "heads": {
      "EduTransformerModel": "encoder",
      "EduTransformerForConditionalGeneration": "seq2seq"
    },
    "values": {
      "position_embedding_type": ["sinusoidal", "learned"],
      "sinusoid_layout": ["interleaved", "halves"],
      "head_aggregation": ["project", "concat", "mean"]
    },
    "computed": [
      "hidden_size", "num_hidden_layers", "decoder_layers", "num_attention_heads", "intermediate_size", "hidden_act",
      "max_position_embeddings", "norm_first", "layer_norm_eps", "scale_embeddings", "share_embeddings",
      "attention_bias", "logits_bias", "is_encoder_decoder", "decoder_start_token_id"
    ],
    "training": ["attention_dropout", "activation_dropout", "label_smoothing", "head_diversity_weight"]
  },
  "edu_word_vectors": {
    "heads": {
      "EduWordVectorsModel": "encoder",
      "EduWordVectorsForSkipGram": "context_words",
      "EduWordVectorsForCBOW": "masked",
      "EduWordVectorsForGloVe": "context_words"
    },
    "values": {},
    "computed": [
      "hidden_size", "window_size", "hierarchical_softmax", "max_code_length", "num_buckets", "num_ngrams",
      "min_ngram", "max_ngram"
    ],
    "training": ["num_negatives", "count_limit", "count_power", "window_implementation"]
  },
  "edu_elmo": {
    "heads": {
      "EduElmoModel": "encoder",
      "EduElmoForPreTraining": "bidirectional",
      "EduElmoForSequenceClassification": "classifier",
      "EduElmoForTokenClassification": "tagger"
    },
    "values": {
      "token_encoder": ["embedding", "characters"],
      "pooling": ["last", "mean", "max", "attention"]
    },
    "computed": [
      "hidden_size", "cell_size", "num_hidden_layers", "char_embedding_size", "char_filters", "num_highway_layers",
      "max_characters", "layer_mix", "attention_size"
    ],
    "training": ["forget_gate_bias", "initializer_range", "recurrent_implementation"]
  },
  "edu_gpt": {
    "heads": {
      "EduGPTModel": "encoder",
      "EduGPTForCausalLM": "causal",
      "EduGPTForSequenceClassification": "classifier"
    },
    "values": { "head_aggregation": ["project", "concat", "mean"] },
    "computed": [
      "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
      "max_position_embeddings", "layer_norm_eps", "norm_first"
    ],
    "training": ["attention_dropout", "initializer_range", "lm_loss_weight", "head_diversity_weight"]
  },
  "edu_bert": {
    "heads": {
      "EduBertModel": "encoder",
      "EduBertForPreTraining": "pretraining",
      "EduBertForMaskedLM": "masked",
      "EduBertForNextSentencePrediction": "next_sentence",
      "EduBertForSequenceClassification": "classifier",
      "EduBertForTokenClassification": "tagger",
      "EduBertForQuestionAnswering": "question_answering",
      "EduBertForMultipleChoice": "multiple_choice",
      "EduBertForMultiTask": "multi_task"
    },
    "values": { "head_aggregation": ["project", "concat", "mean"] },
    "computed": [
      "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
      "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "norm_first", "tasks"
    ],
    "training": [
      "attention_dropout", "classifier_dropout", "initializer_range", "position_init", "mlm_weight", "nsp_weight",
      "head_diversity_weight", "window_stride", "window_pooling"
    ]
  },
  "shared": {
    "numeric": ["EduKernelForRegression", "EduRecurrentForTimeSeriesPrediction"],
    "values": {
      "hidden_act": [
        "relu", "gelu", "gelu_python", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh",
        "gelu_accurate", "quick_gelu", "silu", "swish", "mish", "relu2", "relu6", "leaky_relu", "sigmoid", "tanh",
        "linear"
      ]
    },
    "computed": ["vocab_size", "eos_token_id", "tie_word_embeddings"],
    "training": ["pad_token_id", "bos_token_id", "use_cache", "dropout"]
  }
};
