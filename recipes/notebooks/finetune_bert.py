# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Fine-tune BERT and look at its attention
#
# **Devlin, Chang, Lee & Toutanova 2019**, small and from scratch: we pre-train a BERT on plain text, fine-tune it on a
# few labelled sentences, and compare it with the same model without pre-training. Then we look at the attention of its
# heads, and probe its layers. No download and no GPU; pictures are also saved in `pictures/`.
#
# The model is one file, `hf_edu_models/models/modeling_bert.py`.

# %%
import json
import os
import time
from itertools import groupby
from pathlib import Path

import datasets
import torch
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    pipeline,
    set_seed,
)
from transformers.utils import logging

import hf_edu_models as edu
from hf_edu_models.data import build_nsp_pairs, collator_for, encode_corpus, load_corpus, train_tokenizer
from hf_edu_models.explain import attention_maps, draw_attention, draw_probe, probe, save_attention, save_figure
from hf_edu_models.hub import push_run
from hf_edu_models.metrics import compute_metrics_for, preprocess_logits_for
from hf_edu_models.training import EduTrainer, RunArguments, label_settings

# %% [markdown]
# All sizes are set here. With `HF_EDU_QUICK=1` in the environment they are tiny: everything runs in seconds and nothing
# is learnt.

# %%
QUICK = os.environ.get("HF_EDU_QUICK") == "1"
STORIES = 30 if QUICK else 1_500  # to pre-train on
TEST_STORIES = 6 if QUICK else 100
PRETRAINING_EPOCHS = 1 if QUICK else 15
STEPS = 2 if QUICK else 60  # of each fine-tuning run
SEEDS = 1 if QUICK else 3
WIDTH = 16 if QUICK else 96  # hidden size
set_seed(0)
datasets.disable_progress_bars()
logging.set_verbosity_error()  # loading a checkpoint into another head would warn about it; here it is intended


def arguments(name, learning_rate, **kwargs):
    """Arguments of our trainers, which are transformers' own with safer checkpoints."""
    return RunArguments(
        output_dir=f"runs/{name}",
        learning_rate=learning_rate,
        per_device_eval_batch_size=100,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        eval_strategy="no",
        save_strategy="no",
        disable_tqdm=False,
        **kwargs,
    )


def show(figure, name):
    """Save a figure; in Jupyter, also display it."""
    path = save_figure(figure, f"pictures/{name}.png")
    if "get_ipython" in globals():
        from IPython.display import Image, display

        display(Image(str(path)))
    else:
        print(path)


# %% [markdown]
# ## Pre-train
#
# The text: stories in which somebody loses a thing and finds it. BERT has two objectives, and neither needs labels.
# *Masked language modelling* (MLM): predict 15% of the tokens from both sides; of these 80% are replaced by `[MASK]`,
# 10% by a random token, and 10% stay. *Next sentence prediction* (NSP): half of the second passages follow the first in
# their story, the others come from another one.

# %%
stories = load_corpus("stories", train_size=STORIES, validation_size=20, test_size=TEST_STORIES)
tokenizer = train_tokenizer(stories, kind="wordpiece", vocab_size=1_000, rung="bert")
pairs = build_nsp_pairs(stories, tokenizer, max_length=64)
print(tokenizer.decode(pairs["train"][0]["input_ids"]))

config = edu.EduBertConfig.for_tokenizer(
    tokenizer,
    hidden_size=WIDTH,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=2 * WIDTH,
    max_position_embeddings=64,
    dropout=0.0,
    attention_dropout=0.0,
)
label_names = ["labels", "next_sentence_label"]
trainer = EduTrainer(
    model=AutoModelForPreTraining.from_config(config),
    args=arguments(
        "pretrained",
        learning_rate=0.002,
        num_train_epochs=PRETRAINING_EPOCHS,
        per_device_train_batch_size=32,
        label_names=label_names,
    ),
    train_dataset=pairs["train"],
    eval_dataset=pairs["test"],
    data_collator=collator_for("pretraining", tokenizer),
    processing_class=tokenizer,
    compute_metrics=compute_metrics_for("pretraining"),
    preprocess_logits_for_metrics=preprocess_logits_for("pretraining"),
)
seconds = trainer.train().metrics["train_runtime"]
scores = trainer.evaluate()
trainer.save_final()  # weights, tokenizer, code and log: `from_pretrained` loads the folder anywhere
print(f"after {seconds:.0f} s: MLM accuracy {scores['eval_mlm_accuracy']:.1%}, NSP {scores['eval_nsp_accuracy']:.1%}")

# %% [markdown]
# Its predictions for a masked token. Not every one can be predicted: any thing may be lost, and only the rest of
# the story says which.

# %%
fill = pipeline(
    "fill-mask", model=AutoModelForMaskedLM.from_pretrained("runs/pretrained"), tokenizer=tokenizer, top_k=3
)
for text in (
    "Hugo was a [MASK] who lived near the castle .",
    "One morning she lost [MASK] golden key .",
    "In the evening he lost his blue hat . At last he found the [MASK] in the river .",
):
    print(text, [(each["token_str"], round(each["score"], 2)) for each in fill(text)])

# %% [markdown]
# ## A small task
#
# Which part of a story is a sentence from: the opening, the loss, the middle, the finding or the ending? The order of
# the sentences gives the labels. The train split has only a few, from stories that are not in the pre-training data,
# and the test split is from other stories again. `load_corpus` reads it from files with the columns `text` and `label`,
# as it would read yours.

# %%
PARTS = ["opening", "loss", "middle", "finding", "ending"]


def sentences_with_parts(split):
    """One sentence of each part from every story."""
    for number, (_, rows) in enumerate(groupby(stories[split], key=lambda row: row["document"])):
        texts = [row["text"] for row in rows]
        middle = texts[2 + number % (len(texts) - 4)]
        yield from zip((texts[0], texts[1], middle, texts[-2], texts[-1]), PARTS, strict=True)


Path("parts").mkdir(exist_ok=True)
for name, split in {"train": "validation", "test": "test"}.items():
    rows = [json.dumps({"text": text, "label": part}) for text, part in sentences_with_parts(split)]
    Path(f"parts/{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
parts = load_corpus("parts", label_names=PARTS)
encoded = encode_corpus(parts, tokenizer, task="classification")
for row in parts["train"].select(range(5)):
    print(f"{PARTS[row['label']]:8} {row['text']}")

# %% [markdown]
# ## Fine-tune, with and without pre-training
#
# A new linear layer classifies `[CLS]`, and all weights are trained. `from_pretrained` starts from the pre-trained
# weights, `from_config` from a random initialisation. Everything else is the same, also the number of steps. With so
# few labels the seed matters: each number is the mean of several seeds, with the lowest and the highest.

# %%
settings = label_settings(parts)


def new_classifier(is_pretrained):
    if is_pretrained:
        return AutoModelForSequenceClassification.from_pretrained("runs/pretrained", **settings)
    return AutoModelForSequenceClassification.from_config(edu.EduBertConfig(**{**config.to_dict(), **settings}))


def fine_tune(is_pretrained, num_labels, seed):
    """Train on the first `num_labels` sentences; return the trainer and the test accuracy."""
    set_seed(seed)
    trainer = EduTrainer(
        model=new_classifier(is_pretrained),
        args=arguments("parts", 0.001, max_steps=STEPS, per_device_train_batch_size=10, seed=seed, quiet=True),
        train_dataset=encoded["train"].select(range(num_labels)),
        data_collator=collator_for("classification", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("classification"),
    )
    trainer.train()
    return trainer, trainer.evaluate(encoded["test"])["eval_accuracy"]


lines = ["| labelled sentences | from scratch | pre-trained |", "|---|---|---|"]
for num_labels in (10, 25, 100):
    cells = []
    for is_pretrained in (False, True):
        runs = [fine_tune(is_pretrained, num_labels, seed) for seed in range(SEEDS)]
        scores = [accuracy for _, accuracy in runs]
        cells.append(f"{sum(scores) / len(scores):.1%} ({min(scores):.0%} to {max(scores):.0%})")
    lines.append(f"| {num_labels} | {' | '.join(cells)} |")
trainer, accuracy = runs[-1]  # the last run is pre-trained and has the most labels
trainer.save_final()
if "get_ipython" in globals():
    from IPython.display import Markdown, display

    display(Markdown("\n".join(lines)))
else:
    print("\n".join(lines))

# %% [markdown]
# ## Its attention
#
# A row is a query token, a column a key token; every row sums to one. First the pre-trained model, on two sentences
# with a masked token. Its neighbours tell what kind of word it is, and only the first sentence tells which one. Below
# the picture of the last layer: the token with the highest attention weight from `[MASK]`, per head. Does any find the
# `hat`?

# %%
pretrained = AutoModelForMaskedLM.from_pretrained("runs/pretrained").eval()
maps = attention_maps(
    pretrained,
    tokenizer,
    "In the evening he lost his blue hat .",
    text_pair="At last he found the [MASK] in the river .",
)
attention = maps["self"]
show(draw_attention(maps, layer=2), "attention")
position = attention.query_tokens.index("[MASK]")
for layer in range(3):
    keys = [attention.key_tokens[column] for column in attention.weights[layer, :, position].argmax(axis=-1)]
    print(f"layer {layer}: " + ", ".join(f"head {head} at {token!r}" for head, token in enumerate(keys)))

# %% [markdown]
# The same as an HTML page: hover over a token, choose a layer and a head, and see the product of query and key behind
# each weight. One file for any browser, without a network.
#
# A caution (Jain & Wallace 2019; Wiegreffe & Pinter 2019): attention weights do not by themselves explain a prediction.

# %%
page = save_attention(maps, "pictures/attention.html", layer=2)
if "get_ipython" in globals():
    from IPython.display import IFrame, display

    display(IFrame(str(page), width="100%", height=700))
else:
    print(page)

# %% [markdown]
# And the classifier: it classifies `[CLS]`, so the first row shows what `[CLS]` attends to in the last layer.

# %%
classifier = trainer.model.eval()
text = parts["test"][3]["text"]
maps = attention_maps(classifier, tokenizer, text)
with torch.no_grad():
    logits = classifier(**tokenizer(text, return_tensors="pt").to(classifier.device)).logits
print(f"{text} -> {classifier.config.id2label[logits.argmax().item()]}, is {PARTS[parts['test'][3]['label']]}")
show(draw_attention(maps, layer=2), "attention_of_the_classifier")

# %% [markdown]
# ## Probing its layers
#
# A linear probe (a logistic regression) predicts from the hidden state of one word which part of the story its sentence
# is from. Layer 0 has the token and position embeddings; what a higher layer adds was brought by attention. The control
# task gives every word a random label, which a probe can only memorise (Hewitt & Liang 2019). The second picture is the
# same model before pre-training: it separates what pre-training adds from what the words alone tell.

# %%
labelled = {
    name: [{"tokens": text.split(), "tags": [part] * len(text.split())} for text, part in sentences_with_parts(split)]
    for name, split in {"train": "train", "test": "test"}.items()
}
sizes = {"train_size": 20 if QUICK else 300, "test_size": 10 if QUICK else 200}
for name, model in {
    "probe": AutoModel.from_pretrained("runs/pretrained"),
    "probe_from_scratch": AutoModel.from_config(config),
}.items():
    result = probe(model, tokenizer, labelled, **sizes)
    print(f"{name}: " + ", ".join(f"layer {each.layer} {each.accuracy:.1%}" for each in result.layers))
    show(draw_probe(result), name)

# %% [markdown]
# ## Share it
#
# What would be uploaded to the Hub, and what would not. `dry_run=True` checks everything and uploads nothing; without
# it, and after `hf auth login`, this is the push, model card included.

# %%
push = push_run("runs/parts", "your-name/story-parts", dry_run=True)
print("uploads: ", ", ".join(push.files))
print("left out:", ", ".join(push.left_out))

# %% [markdown]
# How to load it: from the folder, or from the Hub by its id. Without this package installed,
# `trust_remote_code=True` runs the code that was uploaded with the weights.

# %%
name = "runs/parts"  # or "your-name/story-parts"
model = AutoModelForSequenceClassification.from_pretrained(name)
classify = pipeline("text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(name))
for text in ("Nora was a singer who lived near the desert .", "At night a crow took the silver drum away ."):
    print(text, classify(text)[0])
print(f"CPU time in all: {time.process_time():.0f} s")

# %% [markdown]
# Next: `recipes/2019_bert_pretrain.py` and `2019_bert_finetune.py` do the same on real data, for every task, and
# `hf-edu convert` converts published BERT weights.
