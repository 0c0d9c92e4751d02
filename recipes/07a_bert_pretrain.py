"""Rung 7, first half: learn from text by finding hidden words, and by telling whether two passages belong together.

    python recipes/07a_bert_pretrain.py --preset smoke       # under a minute on a CPU
    python recipes/07a_bert_pretrain.py --preset wikitext
    python recipes/07a_bert_pretrain.py --preset wikitext --objective masked_lm   # without next sentences
    python recipes/07a_bert_pretrain.py --preset wikitext --whole-word-mask       # all pieces of a word or none

A model that looks both ways would see the word that it has to guess, so the word is taken out of the text: 15% of the
tokens are to be found, of which 80% become [MASK], 10% another word, and 10% stay (Section 3.1 of the paper). Masks are
drawn anew whenever a text is seen. Half of the second passages follow the first in their document, the others come from
another document; the answer is read off [CLS].

What was learnt is used by `07b_bert_finetune.py --init-from runs/bert_pretrain-wikitext`. The same loop without
Trainer, line by line: `07a_bert_pretrain_accelerate.py`.
"""

from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

from hf_edu_models import EduBertConfig
from hf_edu_models.data import DataCollatorForPreTraining, group_into_blocks
from hf_edu_models.metrics import compute_metrics_for, preprocess_logits_for
from hf_edu_models.training import (
    EduTrainer,
    PretrainingArguments,
    corpus_for,
    filled_masks,
    finish_run,
    launch,
    model_for,
    pairs_for,
    start_run,
    token_ids,
    tokenizer_for,
)


def main(args, training_args):
    corpus = corpus_for(args)
    run = start_run(args, training_args, task=args.objective)

    tokenizer = tokenizer_for(args, corpus, rung="bert")
    settings = {"vocab_size": len(tokenizer), "max_position_embeddings": args.max_length}
    config = EduBertConfig(**settings | token_ids(tokenizer, "pad") | args.model)
    if args.objective == "pretraining":
        encoded = pairs_for(args, corpus, tokenizer)  # [CLS] a passage [SEP] the next one or another [SEP]
        model = model_for(AutoModelForPreTraining, config, args)
        training_args.label_names = ["labels", "next_sentence_label"]
    else:
        encoded = group_into_blocks(corpus, tokenizer, args.max_length)
        model = model_for(AutoModelForMaskedLM, config, args)

    trainer = EduTrainer(
        model=model,
        args=training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=DataCollatorForPreTraining(
            tokenizer, mlm_probability=args.mlm_probability, whole_word_mask=args.whole_word_mask
        ),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for(args.objective),
        preprocess_logits_for_metrics=preprocess_logits_for(args.objective),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, args.objective, corpus, encoded, tokenizer, samples=filled_masks(corpus))


if __name__ == "__main__":
    launch(main, __file__, arguments=PretrainingArguments)
