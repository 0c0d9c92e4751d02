"""Pre-train BERT with a bare Accelerate loop: what Trainer does in `2019_bert_pretrain.py`, line by line.

    python recipes/2019_bert_pretrain_accelerate.py --preset smoke     # under a minute on a CPU
    torchrun --nproc_per_node 2 recipes/2019_bert_pretrain_accelerate.py --preset smoke   # two processes, CPU or GPU
    accelerate launch recipes/2019_bert_pretrain_accelerate.py --preset wikitext          # as set by accelerate config

Data, model and options are the same. Five methods of Accelerate are enough: `prepare` moves model and batches to their
device, `accumulate` does gradient accumulation, `backward` and `clip_grad_norm_` work with any number of processes,
`gather_for_metrics` collects the rows of an evaluation. After a crash or SIGTERM, the same command with --resume ends
with the same weights; only the time before it is not counted in the results.
"""

import math
import time
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader
from transformers import AutoModelForPreTraining, TrainerState, get_scheduler

from hf_edu_models import EduBertConfig
from hf_edu_models.data import DataCollatorForPreTraining
from hf_edu_models.run_folder import STATE, UNFINISHED, RunStopped, write_results
from hf_edu_models.training.arguments import PretrainingArguments, settings_of
from hf_edu_models.training.checkpointing import replace_files, replace_folder, rotate_checkpoints
from hf_edu_models.training.resumable_batches import SeededCollator
from hf_edu_models.training.run import describe_run, launch, print_results, start_run
from hf_edu_models.training.samples import filled_masks
from hf_edu_models.training.setup import corpus_for, masking_options, model_for, pairs_for, tokenizer_for
from hf_edu_models.training.termination import RunTerminated, defer_sigterm

# Trainer's options that this loop implements; any other raises an error.
SUPPORTED = {
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "learning_rate",
    "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "num_train_epochs", "max_steps",
    "lr_scheduler_type", "warmup_steps", "logging_steps", "save_strategy", "save_steps", "save_total_limit", "seed",
    "bf16", "mixed_precision", "use_cpu",
}  # fmt: skip

Arguments = PretrainingArguments


def main(args, training_args):
    if args.streaming:
        raise ValueError("--streaming is for the recipes that use Trainer; use 2019_bert_pretrain.py")
    check_options(args, training_args)
    corpus = corpus_for(args, tasks=("language_modeling", "documents"))
    run = start_run(args, training_args, task="pretraining")
    accelerator = Accelerator(
        gradient_accumulation_steps=training_args.gradient_accumulation_steps,
        mixed_precision="bf16" if training_args.bf16 else "no",
        cpu=training_args.use_cpu,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=training_args.seed),
    )
    tokenizer = tokenizer_for(args, corpus, rung="bert")
    pairs = pairs_for(args, corpus, tokenizer)
    mask = DataCollatorForPreTraining(tokenizer, **masking_options(args, corpus, training_args.output_dir))
    config = EduBertConfig.for_tokenizer(tokenizer, **{"max_position_embeddings": args.max_length} | args.model)
    model = model_for(AutoModelForPreTraining, config, args)

    began = time.monotonic()
    with defer_sigterm() as termination:
        model, state = train(run, accelerator, model, pairs, mask, termination)
    seconds = time.monotonic() - began

    held_out = [split for split in ("validation", "test") if split in pairs]
    scores = {split: evaluate(accelerator, model, pairs[split], mask, training_args) for split in held_out}
    if accelerator.is_main_process:
        trained = accelerator.unwrap_model(model)
        final = run.folder / UNFINISHED / "final"
        trained.save_pretrained(final)
        tokenizer.save_pretrained(final)
        state.save_to_json(str(final / STATE))
        replace_files(final, run.folder)
        length = {"seconds": seconds, "steps": state.global_step, "epochs": round(state.epoch, 3)}
        results = describe_run(run, trained, "pretraining", corpus, **length)
        results |= {"scores": scores, "samples": filled_masks(corpus)(trained, tokenizer)}
        write_results(run.folder, results)
        print_results(results)
    accelerator.wait_for_everyone()
    accelerator.end_training()


def prepare(args, accelerator, model, pairs, mask):
    """The seeded collator; model, optimizer and batches, prepared for any number of processes."""
    # The sampler is seeded by epoch and the collator by batch: a resumed run sees the same batches.
    collator = SeededCollator(mask, args.seed * 1_000_003 + accelerator.process_index)
    generator = torch.Generator().manual_seed(args.seed)  # else starting an epoch would advance dropout's generator
    batches = DataLoader(
        pairs, args.per_device_train_batch_size, shuffle=True, collate_fn=collator, generator=generator
    )
    optimizer = torch.optim.AdamW(
        parameter_groups(model, args.weight_decay),
        lr=args.learning_rate,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
    )
    return collator, *accelerator.prepare(model, optimizer, batches)


def train(run, accelerator, model, pairs, mask, termination):
    args = run.training_args
    collator, model, optimizer, batches = prepare(args, accelerator, model, pairs["train"], mask)
    steps_per_epoch = -(-len(batches) // args.gradient_accumulation_steps)
    last_step = args.max_steps if args.max_steps > 0 else int(args.num_train_epochs * steps_per_epoch)
    # The scheduler is not prepared: it would step once per process, and here it steps once per update.
    scheduler = get_scheduler(args.lr_scheduler_type, optimizer, args.get_warmup_steps(last_step), last_step)
    accelerator.register_for_checkpointing(scheduler)

    # A checkpoint has the weights, the optimizer, the scheduler, the random states of every process, and this state.
    state = TrainerState(max_steps=last_step, epoch=0.0)
    if run.checkpoint is not None:
        accelerator.load_state(run.checkpoint)
        state = TrainerState.load_from_json(str(Path(run.checkpoint) / STATE))

    while state.global_step < last_step:
        epoch, steps = divmod(state.global_step, steps_per_epoch)
        seen = steps * args.gradient_accumulation_steps  # batches of this epoch before resuming
        collator.set_epoch(epoch, first_batch=seen)
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
            scheduler.step()
            state.global_step += 1
            state.epoch = state.global_step / steps_per_epoch
            if state.global_step % args.logging_steps == 0:
                mean = accelerator.gather(loss.detach()).mean().item()
                log(accelerator, state, {"loss": mean, "learning_rate": scheduler.get_last_lr()[0]})
            is_terminated = termination.is_agreed(state.global_step, accelerator.device)
            if is_terminated or (args.save_strategy == "steps" and state.global_step % args.save_steps == 0):
                save(accelerator, run.folder, state, args.save_total_limit)
            if is_terminated:
                saved = run.folder / f"checkpoint-{state.global_step}"
                raise RunTerminated(f"stopped by SIGTERM, saved {saved}; the same command with --resume continues")
            if state.global_step == last_step:
                break
        scores = evaluate(accelerator, model, pairs["validation"], mask, args)
        log(accelerator, state, {f"eval_{name}": value for name, value in scores.items()})
        if args.save_strategy == "epoch":
            save(accelerator, run.folder, state, args.save_total_limit)
    return model, state


def check_options(args, training_args):
    for name in settings_of(args, training_args).keys() - vars(args).keys() - SUPPORTED:
        raise ValueError(f"this loop does not support --{name}; leave it out, or use 2019_bert_pretrain.py")
    if args.objective != "pretraining":
        raise ValueError("this loop trains MLM with NSP; for --objective masked_lm use 2019_bert_pretrain.py")


def parameter_groups(model, weight_decay):
    """Weight decay for matrices, not for biases and layer norms, as in the authors' code."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    others = [weight for weight in model.parameters() if weight.dim() == 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


@torch.no_grad()
def evaluate(accelerator, model, pairs, mask, training_args):
    """Loss and accuracies with the same masks every time; rows that pad the last batch are dropped."""
    collator = SeededCollator(mask, training_args.seed)
    loader = accelerator.prepare(DataLoader(pairs, training_args.per_device_eval_batch_size, collate_fn=collator))
    model.eval()
    rows = []
    for batch in loader:
        outputs = model(**batch)
        masked = batch["labels"] != -100  # (B, T)
        mlm_hits = (outputs.prediction_logits.argmax(-1) == batch["labels"]) & masked  # (B, T)
        nsp_hits = outputs.seq_relationship_logits.argmax(-1) == batch["next_sentence_label"]  # (B)
        loss = outputs.loss.expand(len(nsp_hits))
        row = torch.stack([loss, mlm_hits.sum(1), masked.sum(1), nsp_hits], dim=1)  # (B, 4)
        rows.append(accelerator.gather_for_metrics(row))
    loss, mlm_hits, masked, nsp_hits = torch.cat(rows).mean(0).tolist()
    return {"loss": loss, "mlm_accuracy": mlm_hits / masked, "nsp_accuracy": nsp_hits}


def log(accelerator, state, values):
    state.log_history.append(values | {"step": state.global_step, "epoch": round(state.epoch, 3)})
    if not all(map(math.isfinite, values.values())):
        raise RunStopped(f"the loss is NaN or infinite at step {state.global_step}; lower --learning_rate and --resume")
    shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
    accelerator.print(f"step {state.global_step}/{state.max_steps}  epoch {state.epoch:.2f}  {shown}")


def save(accelerator, folder, state, save_total_limit):
    """Write a checkpoint to a temporary folder, then rename it: it is complete or absent."""
    name = f"checkpoint-{state.global_step}"
    accelerator.save_state(str(folder / UNFINISHED / name), safe_serialization=False)  # tied weights stay tied
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        state.save_to_json(str(folder / UNFINISHED / name / STATE))
        replace_folder(folder / UNFINISHED / name, folder / name)
        rotate_checkpoints(folder, save_total_limit, best=None)
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    launch(main, __file__)
