"""ELMo: pre-train two language models, read their states as word vectors (Peters et al. 2018).

    python recipes/2018_elmo.py --preset smoke       # under a minute on a CPU
    python recipes/2018_elmo.py --preset wikitext    # one language model forwards, one backwards
    python recipes/2018_elmo.py --preset wikitext --model token_encoder=characters   # token vectors of characters
    python recipes/2018_elmo.py --preset pos --init-from runs/elmo-wikitext --freeze_body    # a tagger
    python recipes/2018_elmo.py --preset sst2 --init-from runs/elmo-wikitext                 # a classifier, fine-tuned

The columns of the dataset choose the head: text alone trains the language models, tags a tagger, labels a classifier.
The heads learn how much each layer counts and one linear layer above; `hf-edu explain layers RUN` shows the weights.
With --freeze_body nothing else is learnt, as in the paper. A recurrent tagger or classifier on top of the same vectors:
`2010_recurrent.py --features runs/elmo-wikitext`.
"""

from transformers import AutoModelForPreTraining, AutoModelForSequenceClassification, AutoModelForTokenClassification

from hf_edu_models import EduElmoConfig
from hf_edu_models.data import collator_for, encode_corpus, group_into_blocks, spellings
from hf_edu_models.metrics import compute_metrics_for, preprocess_logits_for
from hf_edu_models.training import (
    EduTrainer,
    corpus_for,
    finish_run,
    label_settings,
    launch,
    model_for,
    start_run,
    task_of,
    tokenizer_for,
    words_from_both_sides,
)

HEADS = {
    "language_modeling": AutoModelForPreTraining,
    "classification": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
}


def main(args, training_args):
    corpus = corpus_for(args, tasks=HEADS)
    found = task_of(corpus)
    task = "bidirectional_lm" if found == "language_modeling" else found
    run = start_run(args, training_args, task, corpus)

    tokenizer = tokenizer_for(args, corpus, rung="elmo")
    if found == "language_modeling":
        encoded, labels = group_into_blocks(corpus, tokenizer, args.max_length), {}
    else:
        encoded = encode_corpus(corpus, tokenizer, task=task, max_length=args.max_length, num_proc=args.num_proc)
        labels = label_settings(corpus, "label" if task == "classification" else "tags")
    model = model_for(HEADS[found], EduElmoConfig.for_tokenizer(tokenizer, **args.model | labels), args)
    if model.config.token_encoder == "characters":
        model.get_input_embeddings().spell_vocabulary(spellings(tokenizer))

    trainer = EduTrainer(
        model=model,
        args=training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=collator_for(task, tokenizer),
        processing_class=tokenizer,
        compute_metrics=scores_for(task, model),
        preprocess_logits_for_metrics=preprocess_logits_for(task),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    samples = words_from_both_sides(corpus) if found == "language_modeling" else None
    finish_run(run, trainer, task, corpus, encoded, tokenizer, samples=samples)


def scores_for(task, model):
    """Tags are scored by name."""
    options = {"tag_names": list(model.config.id2label.values())} if task == "token_classification" else {}
    return compute_metrics_for(task, **options)


if __name__ == "__main__":
    launch(main, __file__)
