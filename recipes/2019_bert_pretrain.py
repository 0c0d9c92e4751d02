"""Pre-train BERT by masked language modelling and next sentence prediction (Devlin et al. 2019).

    python recipes/2019_bert_pretrain.py --preset smoke       # under a minute on a CPU
    python recipes/2019_bert_pretrain.py --preset wikitext
    python recipes/2019_bert_pretrain.py --preset wikitext --objective masked_lm   # without next sentence prediction
    python recipes/2019_bert_pretrain.py --preset wikitext --masking words         # all subwords of a word or none
    python recipes/2019_bert_pretrain.py --preset wikitext --masking phrases       # all words of a phrase (ERNIE)
    python recipes/2019_bert_pretrain.py --preset wikitext --masking spans         # several words in a row (SpanBERT)

MLM: a bidirectional model would see the token that it has to predict, so tokens are masked. Of the 15% to predict, 80%
become [MASK], 10% a random token, and 10% stay (Section 3.1). Masks are drawn anew whenever a text is seen.
NSP: half of the second passages follow the first in their document, the others come from another document; [CLS] is
classified.

Continued pre-training (BioBERT, Lee et al. 2020), `--init-from RUN --dataset my/domain.txt --objective masked_lm`
starts from the weights of a run, keeps its tokenizer, and reads the texts of a domain; give a lower `--learning_rate`.

Fine-tune with `2019_bert_finetune.py --init-from runs/bert_pretrain-wikitext`. The same training loop without Trainer:
`2019_bert_pretrain_accelerate.py`.
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
    masking_options,
    model_for,
    pairs_for,
    start_run,
    tokenizer_for,
)

Arguments = PretrainingArguments


def main(args, training_args):
    corpus = corpus_for(args, tasks=("language_modeling", "documents"))
    run = start_run(args, training_args, task=args.objective)

    tokenizer = tokenizer_for(args, corpus, rung="bert")
    config = EduBertConfig.for_tokenizer(tokenizer, **{"max_position_embeddings": args.max_length} | args.model)
    if args.objective == "pretraining":
        encoded = pairs_for(args, corpus, tokenizer)  # [CLS] passage [SEP] next or random passage [SEP]
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
        data_collator=DataCollatorForPreTraining(tokenizer, **masking_options(args, corpus, training_args.output_dir)),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for(args.objective),
        preprocess_logits_for_metrics=preprocess_logits_for(args.objective),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, args.objective, corpus, encoded, tokenizer, samples=filled_masks(corpus))


if __name__ == "__main__":
    launch(main, __file__)
