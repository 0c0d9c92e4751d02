"""Rung 7, first half, without Trainer: every line of a training loop that runs on one processor or many.

    python recipes/07a_bert_pretrain_accelerate.py --preset smoke     # under a minute on a CPU
    torchrun --nproc_per_node 2 recipes/07a_bert_pretrain_accelerate.py --preset smoke   # two processes, CPU or GPU
    accelerate launch recipes/07a_bert_pretrain_accelerate.py --preset wikitext          # as you told accelerate config

The data, the model and the options are those of `07a_bert_pretrain.py`; what Trainer does there is written out here.
Five words of Accelerate are all it takes: `prepare` puts model and batches where they belong, `accumulate` makes one
step of several batches, `backward` and `clip_grad_norm_` work for any number of processes, `gather_for_metrics` brings
all rows of an evaluation together. Killed at any moment, the same command with --resume goes on as if nothing happened.
"""

import math
import shutil
import time
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader
from transformers import AutoModelForPreTraining, TrainerState, get_scheduler

from hf_edu_models import EduBertConfig
from hf_edu_models.data import DataCollatorForPreTraining
from hf_edu_models.training.arguments import PretrainingArguments, settings_of
from hf_edu_models.training.batches import SeededCollator
from hf_edu_models.training.checkpoints import ASIDE, RunStopped, checkpoints_of, put_in_place, tidy
from hf_edu_models.training.run import describe, launch, show, start_run
from hf_edu_models.training.run_folder import STATE, write_results
from hf_edu_models.training.samples import filled_masks
from hf_edu_models.training.starting import corpus_for, model_for, pairs_for, token_ids, tokenizer_for

# Trainer's options that this loop reads too; the others are refused, not forgotten.
READS = {
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "learning_rate",
    "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "num_train_epochs", "max_steps",
    "lr_scheduler_type", "warmup_steps", "logging_steps", "save_strategy", "save_steps", "save_total_limit", "seed",
    "bf16", "mixed_precision", "use_cpu",
}  # fmt: skip


def main(args, training_args):
    check(args, training_args)
    corpus = corpus_for(args)
    run = start_run(args, training_args, task="pretraining")
    accelerator = Accelerator(
        gradient_accumulation_steps=training_args.gradient_accumulation_steps,
        mixed_precision="bf16" if training_args.bf16 else "no",
        cpu=training_args.use_cpu,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=training_args.seed),
    )
    tokenizer = tokenizer_for(args, corpus, rung="bert")
    pairs = pairs_for(args, corpus, tokenizer)
    mask = DataCollatorForPreTraining(
        tokenizer, mlm_probability=args.mlm_probability, whole_word_mask=args.whole_word_mask
    )
    settings = {"vocab_size": len(tokenizer), "max_position_embeddings": args.max_length}
    config = EduBertConfig(**settings | token_ids(tokenizer, "pad") | args.model)
    model = model_for(AutoModelForPreTraining, config, args)

    began = time.monotonic()
    model, state = train(run, accelerator, model, pairs, mask)
    seconds = time.monotonic() - began

    held_out = [split for split in ("validation", "test") if split in pairs]
    scores = {split: evaluate(accelerator, model, pairs[split], mask, training_args) for split in held_out}
    if accelerator.is_main_process:
        trained = accelerator.unwrap_model(model)
        trained.save_pretrained(run.folder)
        tokenizer.save_pretrained(run.folder)
        state.save_to_json(str(run.folder / STATE))
        length = {"seconds": seconds, "steps": state.global_step, "epochs": round(state.epoch, 3)}
        results = describe(run, trained, "pretraining", corpus, **length)
        results |= {"scores": scores, "samples": filled_masks(corpus)(trained, tokenizer)}
        write_results(run.folder, results)
        show(results)
    accelerator.wait_for_everyone()
    accelerator.end_training()


def train(run, accelerator, model, pairs, mask):
    args = run.training_args
    # A sampler that knows its epoch and a collator that knows its batch: a resumed run sees what it would have seen.
    collator = SeededCollator(mask, args.seed * 1_000_003 + accelerator.process_index)
    own = torch.Generator().manual_seed(args.seed)  # or starting an epoch would draw from the dropout's numbers
    batches = DataLoader(
        pairs["train"], args.per_device_train_batch_size, shuffle=True, collate_fn=collator, generator=own
    )
    optimizer = torch.optim.AdamW(
        decayed(model, args.weight_decay),
        lr=args.learning_rate,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
    )
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    steps_each_epoch = -(-len(batches) // args.gradient_accumulation_steps)
    last_step = args.max_steps if args.max_steps > 0 else int(args.num_train_epochs * steps_each_epoch)
    # The schedule is not prepared: it would count the steps of every process, and here it counts updates.
    schedule = get_scheduler(args.lr_scheduler_type, optimizer, args.get_warmup_steps(last_step), last_step)
    accelerator.register_for_checkpointing(schedule)

    # A checkpoint has the weights, the optimizer, the schedule, the random numbers, and this state.
    state = TrainerState(max_steps=last_step, epoch=0.0)
    if run.checkpoint is not None:
        accelerator.load_state(run.checkpoint)
        state = TrainerState.load_from_json(str(Path(run.checkpoint) / STATE))

    while state.global_step < last_step:
        epoch, done = divmod(state.global_step, steps_each_epoch)
        seen = done * args.gradient_accumulation_steps  # batches of this epoch before a resumption
        collator.start(epoch, first=seen)
        rest = accelerator.skip_first_batches(batches, seen)
        rest.set_epoch(epoch)
        model.train()
        for batch in rest:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                optimizer.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue
            schedule.step()
            state.global_step += 1
            state.epoch = state.global_step / steps_each_epoch
            if state.global_step % args.logging_steps == 0:
                mean = accelerator.gather(loss.detach()).mean().item()
                log(accelerator, state, {"loss": mean, "learning_rate": schedule.get_last_lr()[0]})
            if args.save_strategy == "steps" and state.global_step % args.save_steps == 0:
                save(accelerator, run.folder, state, args.save_total_limit)
            if state.global_step == last_step:
                break
        scores = evaluate(accelerator, model, pairs["validation"], mask, args)
        log(accelerator, state, {f"eval_{name}": value for name, value in scores.items()})
        if args.save_strategy == "epoch":
            save(accelerator, run.folder, state, args.save_total_limit)
    return model, state


def check(args, training_args):
    for name in settings_of(args, training_args).keys() - vars(args).keys() - READS:
        raise ValueError(f"this loop does not read --{name}; leave it out, or use 07a_bert_pretrain.py")
    if args.objective != "pretraining":
        raise ValueError("this loop learns masked words and next sentences; for one of them use 07a_bert_pretrain.py")


def decayed(model, weight_decay):
    """Weight decay for matrices; biases and normalisations go without, as in the authors' code."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    others = [weight for weight in model.parameters() if weight.dim() == 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


@torch.no_grad()
def evaluate(accelerator, model, pairs, mask, training_args):
    """Loss and accuracies under the same masks every time; rows that only fill up a last batch are not counted."""
    collator = SeededCollator(mask, training_args.seed)
    loader = accelerator.prepare(DataLoader(pairs, training_args.per_device_eval_batch_size, collate_fn=collator))
    model.eval()
    rows = []
    for batch in loader:
        outputs = model(**batch)
        masked = batch["labels"] != -100  # (B, T)
        found = (outputs.prediction_logits.argmax(-1) == batch["labels"]) & masked  # (B, T)
        told = outputs.seq_relationship_logits.argmax(-1) == batch["next_sentence_label"]  # (B)
        loss = outputs.loss.expand(len(told))
        rows.append(accelerator.gather_for_metrics(torch.stack([loss, found.sum(1), masked.sum(1), told], dim=1)))
    loss, found, masked, told = torch.cat(rows).mean(0).tolist()
    return {"loss": loss, "mlm_accuracy": found / masked, "nsp_accuracy": told}


def log(accelerator, state, values):
    state.log_history.append(values | {"step": state.global_step, "epoch": round(state.epoch, 3)})
    if not all(map(math.isfinite, values.values())):
        raise RunStopped(f"the loss is not a number at step {state.global_step}; lower --learning_rate and --resume")
    shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
    accelerator.print(f"step {state.global_step}/{state.max_steps}  epoch {state.epoch:.2f}  {shown}")


def save(accelerator, folder, state, most):
    """Write a checkpoint aside, then give it its name: whoever looks finds a whole one or none."""
    name = f"checkpoint-{state.global_step}"
    accelerator.save_state(str(folder / ASIDE / name), safe_serialization=False)  # tied weights stay tied
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        state.save_to_json(str(folder / ASIDE / name / STATE))
        put_in_place(folder / ASIDE / name, folder / name)
        tidy(folder)
        for old in checkpoints_of(folder)[: -most if most else 0]:
            shutil.rmtree(old)
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    launch(main, __file__, arguments=PretrainingArguments)
