"""Regression with a kernel, whose width is learnt (Nadaraya 1964, Watson 1964).

    python recipes/1964_kernel.py --preset smoke      # under a minute on a CPU
    python recipes/1964_kernel.py --preset curve      # a noisy function; --model kernel=epanechnikov to compare
    python recipes/1964_kernel.py --dataset houses.csv --columns features=rooms,age --columns value=price

A dataset has a column `features`, a list of numbers for each row, and a column `value`; without `--columns features=`
all other columns are features. Every kernel at the learnt width:

    hf-edu figure kernels --width 0.3
"""

import torch
from transformers import AutoModel

from hf_edu_models import EduKernelConfig
from hf_edu_models.data import collator_for, encode_corpus
from hf_edu_models.experiments.kernels import save_kernels_picture
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.training import EduTrainer, corpus_for, finish_run, launch, model_for, start_run


def main(args, training_args):
    corpus = corpus_for(args, tasks=("regression",))
    run = start_run(args, training_args, "regression", corpus)
    encoded = encode_corpus(corpus, None, task="regression")
    inputs, labels = (torch.tensor(encoded["train"][name][:]) for name in ("input_values", "labels"))
    model = model_for(AutoModel, EduKernelConfig(input_size=inputs.shape[1], **args.model), args)
    model.remember(inputs, labels)
    trainer = EduTrainer(
        model=model,
        args=training_args,
        # A query that is in the memory must not predict itself: the loss is the leave-one-out error.
        train_dataset=encoded["train"].add_column("memory_ids", list(range(len(inputs)))),
        eval_dataset=encoded["validation"],
        data_collator=collator_for("regression"),
        compute_metrics=compute_metrics_for("regression"),
    )
    if any(parameter.requires_grad for parameter in model.parameters()):  # a fixed width leaves nothing to train
        trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "regression", corpus, encoded, tokenizer=None)
    if trainer.is_world_process_zero():
        save_kernels_picture(model, run.folder / "pictures" / "kernels.png")


if __name__ == "__main__":
    launch(main, __file__)
