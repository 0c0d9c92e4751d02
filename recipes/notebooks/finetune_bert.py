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
# **Devlin, Chang, Lee & Toutanova 2019**, in small and from the beginning: a BERT reads plain text, then learns a task
# from a handful of labelled sentences, beside a twin that has read nothing. Then we look inside: where its heads look,
# and what its layers know. No download and no GPU; pictures are also kept as files in `pictures/`.
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
from hf_edu_models.training import EduTrainer, RunArguments, label_settings, token_ids

# %% [markdown]
# All sizes stand here. `HF_EDU_QUICK=1` in the environment makes them tiny: everything runs in seconds and nothing is
# learnt.

# %%
QUICK = os.environ.get("HF_EDU_QUICK") == "1"
STORIES = 30 if QUICK else 1_500  # to read without labels
TEST_STORIES = 6 if QUICK else 100
READING_EPOCHS = 1 if QUICK else 15
STEPS = 2 if QUICK else 60  # of every fine-tuning
SEEDS = 1 if QUICK else 3
WIDTH = 16 if QUICK else 96  # size of the hidden states
set_seed(0)
datasets.disable_progress_bars()
logging.set_verbosity_error()  # a body that is loaded with another head would be reported at length; here it is meant


def arguments(name, learning_rate, **more):
    """What our trainers, which are transformers' own with safer checkpoints, need to know."""
    return RunArguments(
        output_dir=f"runs/{name}",
        learning_rate=learning_rate,
        per_device_eval_batch_size=100,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        eval_strategy="no",
        save_strategy="no",
        disable_tqdm=False,
        **more,
    )


def show(figure, name):
    """Keep a picture as a file; in Jupyter, show it too."""
    path = save_figure(figure, f"pictures/{name}.png")
    if "get_ipython" in globals():
        from IPython.display import Image, display

        display(Image(str(path)))
    else:
        print(path)


# %% [markdown]
# ## Read
#
# The text: stories in which somebody loses a thing and finds it. BERT has two exercises on it, and neither needs a
# label. *Masked words*: 15% of the tokens are to be found, from both sides; of these 80% are replaced by `[MASK]`, 10%
# by another word, and 10% stay. *Next sentence*: half of the second passages follow the first in their story, the
# others come from another one.

# %%
stories = load_corpus("stories", train_size=STORIES, validation_size=20, test_size=TEST_STORIES)
tokenizer = train_tokenizer(stories, kind="wordpiece", vocab_size=1_000, rung="bert")
pairs = build_nsp_pairs(stories, tokenizer, max_length=64)
print(tokenizer.decode(pairs["train"][0]["input_ids"]))

config = edu.EduBertConfig(
    vocab_size=len(tokenizer),
    hidden_size=WIDTH,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=2 * WIDTH,
    max_position_embeddings=64,
    dropout=0.0,
    attention_dropout=0.0,
    **token_ids(tokenizer, "pad"),
)
names = ["labels", "next_sentence_label"]
trainer = EduTrainer(
    model=AutoModelForPreTraining.from_config(config),
    args=arguments("read", 0.002, num_train_epochs=READING_EPOCHS, per_device_train_batch_size=32, label_names=names),
    train_dataset=pairs["train"],
    eval_dataset=pairs["test"],
    data_collator=collator_for("pretraining", tokenizer),
    processing_class=tokenizer,
    compute_metrics=compute_metrics_for("pretraining"),
    preprocess_logits_for_metrics=preprocess_logits_for("pretraining"),
)
seconds = trainer.train().metrics["train_runtime"]
scores = trainer.evaluate()
trainer.save_final()  # weights, tokenizer, code and log: a folder that opens anywhere
print(f"after {seconds:.0f} s: {scores['eval_mlm_accuracy']:.1%} of the hidden words found,")
print(f"{scores['eval_nsp_accuracy']:.1%} of the next sentences told")

# %% [markdown]
# What it has learnt, in its own words. Not every hidden word can be found: any thing may be lost, and only the rest of
# the story says which.

# %%
fill = pipeline("fill-mask", model=AutoModelForMaskedLM.from_pretrained("runs/read"), tokenizer=tokenizer, top_k=3)
for text in (
    "Hugo was a [MASK] who lived near the castle .",
    "One morning she lost [MASK] golden key .",
    "In the evening he lost his blue hat . At last he found the [MASK] in the river .",
):
    print(text, [(guess["token_str"], round(guess["score"], 2)) for guess in fill(text)])

# %% [markdown]
# ## A small task
#
# Which part of a story is a sentence from: the opening, the loss, the middle, the finding or the ending? A story's
# order gives the labels. Only a few are used to learn, from stories that were not read above; the test is on others
# again. The task goes through a file, as yours would: rows with `text` and `label` are all that `load_corpus` needs.

# %%
PARTS = ["opening", "loss", "middle", "finding", "ending"]


def sentences_with_parts(split):
    """One sentence of each part from every story."""
    for number, (_, rows) in enumerate(groupby(stories[split], key=lambda row: row["document"])):
        told = [row["text"] for row in rows]
        middle = told[2 + number % (len(told) - 4)]
        yield from zip((told[0], told[1], middle, told[-2], told[-1]), PARTS, strict=True)


Path("parts").mkdir(exist_ok=True)
for name, split in {"train": "validation", "test": "test"}.items():
    rows = [json.dumps({"text": text, "label": part}) for text, part in sentences_with_parts(split)]
    Path(f"parts/{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
parts = load_corpus("parts", label_names=PARTS)
encoded = encode_corpus(parts, tokenizer, task="classification")
for row in parts["train"].select(range(5)):
    print(f"{PARTS[row['label']]:8} {row['text']}")

# %% [markdown]
# ## Fine-tune, with and without having read
#
# One new layer on top of `[CLS]`, and the whole body goes on learning. `from_pretrained` starts from the body that has
# read; `from_config` starts from nothing. Everything else is the same, also the number of steps. With so few labels,
# luck matters: each number is the mean of several seeds, with the lowest and the highest beside it.

# %%
settings = label_settings(parts)


def new_classifier(has_read):
    if has_read:
        return AutoModelForSequenceClassification.from_pretrained("runs/read", **settings)
    return AutoModelForSequenceClassification.from_config(edu.EduBertConfig(**{**config.to_dict(), **settings}))


def fine_tune(has_read, labels, seed):
    """Learn from the first so many sentences, and say how many of the test's are right."""
    set_seed(seed)
    trainer = EduTrainer(
        model=new_classifier(has_read),
        args=arguments("parts", 0.001, max_steps=STEPS, per_device_train_batch_size=10, seed=seed, quiet=True),
        train_dataset=encoded["train"].select(range(labels)),
        data_collator=collator_for("classification", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("classification"),
    )
    trainer.train()
    return trainer, trainer.evaluate(encoded["test"])["eval_accuracy"]


lines = ["| labelled sentences | from scratch | after reading |", "|---|---|---|"]
for labels in (10, 25, 100):
    cells = []
    for has_read in (False, True):
        trained = [fine_tune(has_read, labels, seed) for seed in range(SEEDS)]
        found = [accuracy for _, accuracy in trained]
        cells.append(f"{sum(found) / len(found):.1%} ({min(found):.0%} to {max(found):.0%})")
    lines.append(f"| {labels} | {' | '.join(cells)} |")
trainer, accuracy = trained[-1]  # the last one has read, and learnt from the most labels
trainer.save_final()
if "get_ipython" in globals():
    from IPython.display import Markdown, display

    display(Markdown("\n".join(lines)))
else:
    print("\n".join(lines))

# %% [markdown]
# ## Its attention
#
# A row is a token that looks, a column one that is looked at; every row sums to one. First the body that has read, on
# two sentences with a hidden word. The words beside it tell what kind of word it is, and only the first sentence tells
# which one. Below the picture of the last layer: where each head looks most from `[MASK]`. Has any found the `hat`?

# %%
reader = AutoModelForMaskedLM.from_pretrained("runs/read").eval()
maps = attention_maps(
    reader, tokenizer, "In the evening he lost his blue hat .", text_pair="At last he found the [MASK] in the river ."
)
attention = maps["self"]
show(draw_attention(maps, layer=2), "attention")
place = attention.query_tokens.index("[MASK]")
for layer in range(3):
    looked = [attention.key_tokens[column] for column in attention.weights[layer, :, place].argmax(axis=-1)]
    print(f"layer {layer}: " + ", ".join(f"head {head} at {token!r}" for head, token in enumerate(looked)))

# %% [markdown]
# The same as a page: hover over a token, choose a layer and a head, and see the product of query and key behind each
# weight. One file, to be opened in any browser, with no network.
#
# A caution that has its own literature (Jain & Wallace 2019; Wiegreffe & Pinter 2019): where a head looks is not yet
# why the model answers as it does.

# %%
page = save_attention(maps, "pictures/attention.html", layer=2)
if "get_ipython" in globals():
    from IPython.display import IFrame, display

    display(IFrame(str(page), width="100%", height=700))
else:
    print(page)

# %% [markdown]
# And the classifier: its answer is read off `[CLS]`, so the first row says what flows into it in the last layer.

# %%
classifier = trainer.model.eval()
text = parts["test"][3]["text"]
maps = attention_maps(classifier, tokenizer, text)
with torch.no_grad():
    logits = classifier(**tokenizer(text, return_tensors="pt").to(classifier.device)).logits
print(f"{text} -> {classifier.config.id2label[logits.argmax().item()]}, is {PARTS[parts['test'][3]['label']]}")
show(draw_attention(maps, layer=2), "attention_of_the_classifier")

# %% [markdown]
# ## What its layers know
#
# A linear probe (a logistic regression) is asked, from the vector of one word alone, which part of the story the word's
# sentence is from. Layer 0 is the word and its place; whatever a higher layer knows beyond it was brought by attention.
# The control has a random label for every word, which a probe can only learn by heart (Hewitt & Liang 2019). The second
# picture is the same body before it read anything: it tells what is owed to the reading and what to the words alone.

# %%
labelled = {
    name: [{"tokens": text.split(), "tags": [part] * len(text.split())} for text, part in sentences_with_parts(split)]
    for name, split in {"train": "train", "test": "test"}.items()
}
how_many = {"train_size": 20 if QUICK else 300, "test_size": 10 if QUICK else 200}
for name, body in {
    "probe": AutoModel.from_pretrained("runs/read"),
    "probe_of_a_new_body": AutoModel.from_config(config),
}.items():
    result = probe(body, tokenizer, labelled, **how_many)
    print(f"{name}: " + ", ".join(f"layer {each.layer} {each.accuracy:.1%}" for each in result.layers))
    show(draw_probe(result), name)

# %% [markdown]
# ## Share it
#
# What would be sent to the Hub, and what stays here. `dry_run=True` checks everything and sends nothing; without it,
# and after `hf auth login`, this is the push, card included.

# %%
push = push_run("runs/parts", "your-name/story-parts", dry_run=True)
print("goes: ", ", ".join(push.files))
print("stays:", ", ".join(push.left_out))

# %% [markdown]
# And how anybody loads it: from the folder here, from the Hub by its name. Where this package is not installed,
# `trust_remote_code=True` runs the code that travels with the weights.

# %%
name = "runs/parts"  # or "your-name/story-parts"
model = AutoModelForSequenceClassification.from_pretrained(name)
classify = pipeline("text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(name))
for text in ("Nora was a singer who lived near the desert .", "At night a crow took the silver drum away ."):
    print(text, classify(text)[0])
print(f"processor time of everything: {time.process_time():.0f} s")

# %% [markdown]
# From here: `recipes/07a_bert_pretrain.py` and `07b_bert_finetune.py` do the same on real data, for every kind of task,
# and `hf-edu convert` brings published BERT weights.
