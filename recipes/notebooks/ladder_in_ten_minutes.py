# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The ladder in ten minutes
#
# Seven models, each with one new idea. Each is trained here for a minute or two on generated text: no download, no GPU.
# Pictures are also saved in `pictures/`.
#
# Every model is one file, `hf_edu_models/models/modeling_<rung>.py`, to be read beside its paper.

# %%
import os
import time

import datasets
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSeq2SeqLM,
    pipeline,
    set_seed,
)
from transformers.utils import logging

import hf_edu_models as edu
from hf_edu_models.data import (
    build_nsp_pairs,
    collator_for,
    encode_corpus,
    group_into_blocks,
    load_corpus,
    train_tokenizer,
)
from hf_edu_models.explain import (
    PUBLISHED,
    Predictions,
    attention_maps,
    draw_attention,
    draw_by_length,
    draw_contexts,
    draw_lesson,
    draw_positions,
    in_contexts,
    nearest,
    new_figure,
    position_vectors,
    save_attention,
    save_figure,
    scores_by_length,
    vanishing_gradient_lesson,
)
from hf_edu_models.metrics import compute_metrics_for, preprocess_logits_for
from hf_edu_models.training import EduSeq2SeqTrainer, EduTrainer, RunArguments

# %% [markdown]
# All sizes are set here. With `HF_EDU_QUICK=1` in the environment they are tiny: everything runs in seconds and nothing
# is learnt. Change them and run again: that is what the notebook is for.

# %%
QUICK = os.environ.get("HF_EDU_QUICK") == "1"
STORIES = 30 if QUICK else 1_000  # documents for the language models and BERT
SEQUENCES = 60 if QUICK else 8_000  # rows of the copy task
DATES = 60 if QUICK else 12_000  # rows of the dates task
HELD_OUT = 12 if QUICK else 400  # rows of a test split
EPOCHS = {"language": 1, "copy": 1, "dates": 1, "bert": 1} if QUICK else {}
EPOCHS = {"language": 12, "copy": 6, "dates": 3, "bert": 12} | EPOCHS
WIDTH = 16 if QUICK else 96  # hidden size
set_seed(0)
datasets.disable_progress_bars()
logging.set_verbosity_error()  # loading a checkpoint into another head would warn about it; here it is intended


def arguments(name, epochs, learning_rate, batch_size=32, **kwargs):
    """Arguments of our trainers, which are transformers' own with safer checkpoints."""
    return RunArguments(
        output_dir=f"runs/{name}",
        num_train_epochs=epochs,
        learning_rate=learning_rate,
        per_device_train_batch_size=batch_size,
        per_device_eval_batch_size=100,
        lr_scheduler_type="linear",
        warmup_steps=0.05,
        max_grad_norm=1.0,
        eval_strategy="no",
        save_strategy="no",
        logging_steps=100,
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


def show_table(rows):
    """Print a Markdown table; in Jupyter, display it."""
    lines = ["| " + " | ".join(map(str, cells)) + " |" for cells in (rows[0], *(row.values() for row in rows))]
    text = "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
    if "get_ipython" in globals():
        from IPython.display import Markdown, display

        display(Markdown(text))
    else:
        print(text)


results = {}  # score and training time of each rung, for the table at the end

# %% [markdown]
# ## 1. A fixed window
#
# **Bengio, Ducharme, Vincent & Jauvin 2003.** Word embeddings are learnt together with the probability of the next
# word. The model sees the last few words, here four, and nothing before them.
#
# The text: short stories, in which somebody loses a thing and finds it. Tokens are words; the text is split into
# blocks. Three rungs are trained on the same blocks, so their perplexities can be compared. A perplexity of 20 means:
# as uncertain as if 20 words were equally likely.

# %%
stories = load_corpus("stories", train_size=STORIES, validation_size=12, test_size=HELD_OUT // 4)
words = train_tokenizer(stories, kind="word", rung="feedforward")
blocks = group_into_blocks(stories, words, 64, join=" ")
print(" ".join(stories["train"]["text"][:5]))


def train_language_model(model, name, learning_rate):
    """Train a language model on the train blocks, and compute its perplexity on the test blocks."""
    trainer = EduTrainer(
        model=model,
        args=arguments(name, EPOCHS["language"], learning_rate, batch_size=16),
        train_dataset=blocks["train"],
        eval_dataset=blocks["test"],
        data_collator=collator_for("language_modeling", words),
        processing_class=words,
        compute_metrics=compute_metrics_for("language_modeling"),
        preprocess_logits_for_metrics=preprocess_logits_for("language_modeling"),
    )
    seconds = trainer.train().metrics["train_runtime"]
    perplexity = trainer.evaluate()["eval_perplexity"]
    results[name] = {"score": f"perplexity {perplexity:.2f}", "seconds": seconds}
    print(f"{name}: perplexity {perplexity:.2f} after {seconds:.0f} s")


config = edu.EduFeedForwardConfig.for_tokenizer(words, window_size=4, embedding_size=32, hidden_size=WIDTH)
feedforward = AutoModelForCausalLM.from_config(config)
train_language_model(feedforward, "feedforward", learning_rate=0.005)

# %% [markdown]
# Words that occur in the same contexts get similar embeddings, though nobody told the model what an animal is:

# %%
for word in ("fox", "lantern", "bread"):
    print(word, "is near", ", ".join(each.text for each in nearest(feedforward, words, word, k=6).neighbours))

# %% [markdown]
# The window is also the limit. To measure how far back a model sees, replace the first word of a text and compare the
# predicted distributions (total variation distance). Beyond four words they do not change, and no training could change
# that.

# %%
texts = torch.tensor([row for row in blocks["test"]["input_ids"] if len(row) == 64][:40])
replaced = torch.cat([texts.roll(1, dims=0)[:, :1], texts[:, 1:]], dim=1)  # each gets the first word of another


def reach(model):
    """Total variation distance of the predictions, by distance to the replaced word; mean over the texts."""
    with torch.no_grad():
        before, after = (model.eval()(each.to(model.device)).logits.softmax(-1) for each in (texts, replaced))
    return (before - after).abs().sum(-1).mean(0).cpu() / 2


print("change after 1, 4, 5, 20 words:", [f"{reach(feedforward)[distance - 1]:.1%}" for distance in (1, 4, 5, 20)])

# %% [markdown]
# ## 2. A state that carries the past
#
# **Elman 1990; Hochreiter & Schmidhuber 1997 (LSTM); Mikolov et al. 2010 (RNN language model); Cho et al. 2014 (GRU).**
# Read word by word and update a hidden state: no window, no limit in principle. In practice a simple RNN forgets,
# because its gradient is multiplied by a matrix at every step back in time and vanishes. Gates let it pass.
#
# First one picture of that: untrained cells, and the gradient of the last state with respect to earlier ones, by
# distance. Left: the whole gradient. Right: the product of the gates alone.

# %%
lesson = vanishing_gradient_lesson(("rnn", "gru", "lstm"), length=20 if QUICK else 100)
show(draw_lesson(lesson), "vanishing_gradient")

# %% [markdown]
# Then the LSTM on the same blocks. Only the model and its learning rate differ from the feed-forward model's. Do not
# expect a much lower perplexity: in stories as simple as these, the few words before a word determine most of it. What
# differs is how far back it sees: there is no limit now, but the influence decays.

# %%
config = edu.EduRecurrentConfig.for_tokenizer(
    words, cell_type="lstm", hidden_size=WIDTH, num_hidden_layers=1, dropout=0.0
)
recurrent = AutoModelForCausalLM.from_config(config)
train_language_model(recurrent, "recurrent", learning_rate=0.01)
print("change after 1, 4, 5, 20 words:", [f"{reach(recurrent)[distance - 1]:.1e}" for distance in (1, 4, 5, 20)])

# %% [markdown]
# ## 3. Encode, then decode
#
# **Sutskever, Vinyals & Le 2014; Cho et al. 2014.** An encoder reads the source into its last hidden state, a decoder
# generates the target from it. Any sequence to any sequence, but the whole source must fit into one context vector.
#
# The smallest task that shows this is to copy a sequence of symbols: there is nothing to learn but to remember. As in
# Sutskever's paper the source is reversed, so that what must be generated first was read last.

# %%
rows = {"train_size": SEQUENCES, "validation_size": 12, "test_size": HELD_OUT}
copies = load_corpus("copy", min_length=3, max_length=16, symbols=10, **rows)
print(copies["train"][0])


def train_translator(model, name, corpus, tokenizer, epochs, learning_rate):
    """Train an encoder-decoder, and compute the exact match of its outputs on the test split."""
    encoded = encode_corpus(corpus, tokenizer)
    trainer = EduSeq2SeqTrainer(
        model=model,
        args=arguments(name, epochs, learning_rate, predict_with_generate=True, generation_max_length=32),
        train_dataset=encoded["train"],
        data_collator=collator_for("translation", tokenizer),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for("translation", tokenizer),
    )
    seconds = trainer.train().metrics["train_runtime"]
    output = trainer.predict(encoded["test"])
    score = output.metrics["test_exact_match"]
    print(f"{name}: exact match {score:.1%} after {seconds:.0f} s")
    ids = torch.tensor(output.predictions)
    texts = tokenizer.batch_decode(ids.where(ids >= 0, tokenizer.pad_token_id), skip_special_tokens=True)
    rows = [
        {"source": row["source"], "reference": row["target"], "prediction": text}
        for row, text in zip(corpus["test"], texts, strict=True)
    ]
    return {"score": f"exact match {score:.0%}", "seconds": seconds}, Predictions(name, rows)


symbols = train_tokenizer(copies, kind="word", rung="seq2seq")
sizes = {"embedding_size": 32, "hidden_size": WIDTH, "dropout": 0.0}
config = edu.EduSeq2SeqConfig.for_tokenizer(symbols, num_hidden_layers=1, **sizes)
seq2seq = AutoModelForSeq2SeqLM.from_config(config)
result, by_seq2seq = train_translator(seq2seq, "seq2seq", copies, symbols, EPOCHS["copy"], 0.004)
results["seq2seq"] = {**result, "score": f"copy: {result['score']}"}

# %% [markdown]
# ## 4. Attention
#
# **Bahdanau, Cho & Bengio 2015.** Keep *all* states of the encoder. At each step the decoder scores its own state
# against every one of them; the softmax of the scores weights their mean, the context vector of this step. No single
# vector has to hold everything.
#
# The same data, the same number of steps, then the exact match of both by source length (as in their Figure 2). The
# published curves are grey: other data, larger models.

# %%
sizes |= {"maxout_size": 32, "attention_size": 32, "initializer_range": 0.1}
config = edu.EduBahdanauConfig.for_tokenizer(symbols, **sizes)
bahdanau = AutoModelForSeq2SeqLM.from_config(config)
result, by_bahdanau = train_translator(bahdanau, "bahdanau", copies, symbols, EPOCHS["copy"], 0.003)
results["bahdanau"] = {**result, "score": f"copy: {result['score']}"}
curves = scores_by_length([by_seq2seq, by_bahdanau], edges=[4, 7, 10, 13], score="exact_match")
show(draw_by_length(curves, PUBLISHED["bleu-by-length"]), "bottleneck")

# %% [markdown]
# Attention weights can be drawn. Copying would only draw a diagonal; dates in many formats, to be translated to ISO,
# have to be reordered. Each row is a generated character, each column a source character: the darker, the larger the
# weight. A row without a dark cell does not depend on one position: every state of the bidirectional encoder has read
# the whole source, and may carry the answer.

# %%
rows = {"train_size": DATES, "validation_size": 12, "test_size": HELD_OUT}
dates = load_corpus("dates", languages=("en_GB", "de", "fr", "es", "it"), **rows)
characters = train_tokenizer(dates, kind="char", rung="bahdanau")
config = edu.EduBahdanauConfig.for_tokenizer(characters, **sizes)
bahdanau = AutoModelForSeq2SeqLM.from_config(config)
result, _ = train_translator(bahdanau, "bahdanau", dates, characters, EPOCHS["dates"], 0.003)
results["bahdanau"]["score"] += f"; dates: {result['score']}"
results["bahdanau"]["seconds"] += result["seconds"]

DATE = "Samstag, 16. November 2041"
maps = attention_maps(bahdanau, characters, DATE)
print(f"{DATE} -> {maps.target}")
show(draw_attention(maps), "bahdanau_attention")

# %% [markdown]
# ## 5. Attention alone
#
# **Vaswani et al. 2017.** Attention without recurrence. Every token attends to every other at once, with several heads,
# and because attention by itself has no order, positional encodings are added to the embeddings: sines and cosines of
# many wavelengths. The dot product of two of them depends on their distance alone, as the third panel shows: three
# positions, one curve.

# %%
show(draw_positions(position_vectors(WIDTH, length=60)), "positions")

# %% [markdown]
# The same dates, the same number of steps; no state is carried from one character to the next.

# %%
config = edu.EduTransformerConfig.for_tokenizer(
    characters,
    hidden_size=WIDTH,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=2 * WIDTH,
    dropout=0.0,
)
transformer = AutoModelForSeq2SeqLM.from_config(config)
result, _ = train_translator(transformer, "transformer", dates, characters, EPOCHS["dates"], 0.002)
results["transformer"] = {**result, "score": f"dates: {result['score']}"}

# %% [markdown]
# The cross-attention of its heads, four in each of two layers. The HTML page also has the self-attention of encoder and
# decoder, and the product of query and key behind every weight: open it in a browser.

# %%
maps = attention_maps(transformer, characters, DATE)
print(f"{DATE} -> {maps.target}")
show(draw_attention(maps, "cross"), "transformer_heads")
print(save_attention(maps, "pictures/transformer_attention.html"))

# %% [markdown]
# ## 6. The decoder alone, on plain text
#
# **Radford et al. 2018, 2019 (GPT).** Keep the Transformer's decoder, drop the encoder, and train it on plain text to
# predict the next word. Every word attends to all words before it: the feed-forward model's window is as long as the
# text, and nothing has to fit into the hidden state of an LSTM.
#
# The same blocks as for the feed-forward model and the LSTM.

# %%
config = edu.EduGPTConfig.for_tokenizer(
    words,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=256,
    max_position_embeddings=128,
    dropout=0.0,
    attention_dropout=0.0,
)
gpt = AutoModelForCausalLM.from_config(config)
train_language_model(gpt, "gpt", learning_rate=0.003)

# %% [markdown]
# How far back the three see, in one picture. The window ends; the influence of a recurrent state decays, as the
# gradients of the RNN did; for attention every word is one step away, at any distance.

# %%
figure, axis = new_figure(7, 4)
for name, model, width in (("window", feedforward, 6), ("state", recurrent, 3), ("attention", gpt, 2)):
    change = reach(model)
    axis.plot(range(1, 65), change.where(change > 0, float("nan")), label=name, linewidth=width)
axis.set(
    xlabel="distance in words", ylabel="change of the prediction", yscale="log", title="How far back does a model see?"
)
axis.legend(frameon=False)
show(figure, "reach")

# %% [markdown]
# It generates text with transformers' `generate()`, as every rung but BERT does:

# %%
prompt = words("There was once a sailor named Ada in the harbour .", return_tensors="pt").to(gpt.device)
story = gpt.generate(**prompt, do_sample=True, top_k=20, max_new_tokens=16 if QUICK else 60)
print(words.decode(story[0], skip_special_tokens=True))

# %% [markdown]
# ## 7. Both directions
#
# **Devlin, Chang, Lee & Toutanova 2019 (BERT).** A model that only reads need not go from left to right. Every token
# attends to both sides, and since it would then see the token to predict, 15% of the tokens are masked (masked language
# modelling, MLM). And of two passages, predict whether the second follows the first (next sentence prediction, NSP).

# %%
subwords = train_tokenizer(stories, kind="wordpiece", vocab_size=1_000, rung="bert")
pairs = build_nsp_pairs(stories, subwords, max_length=64)
config = edu.EduBertConfig.for_tokenizer(
    subwords,
    hidden_size=WIDTH,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=2 * WIDTH,
    max_position_embeddings=64,
    dropout=0.0,
    attention_dropout=0.0,
)
trainer = EduTrainer(
    model=AutoModelForPreTraining.from_config(config),
    args=arguments("bert", EPOCHS["bert"], 0.002, label_names=["labels", "next_sentence_label"]),
    train_dataset=pairs["train"],
    eval_dataset=pairs["test"],
    data_collator=collator_for("pretraining", subwords),
    processing_class=subwords,
    compute_metrics=compute_metrics_for("pretraining"),
    preprocess_logits_for_metrics=preprocess_logits_for("pretraining"),
)
seconds = trainer.train().metrics["train_runtime"]
scores = trainer.evaluate()
mlm, nsp = scores["eval_mlm_accuracy"], scores["eval_nsp_accuracy"]
results["bert"] = {"score": f"MLM accuracy {mlm:.0%}, NSP accuracy {nsp:.0%}", "seconds": seconds}
print(f"MLM accuracy {mlm:.1%}, NSP accuracy {nsp:.1%}")
trainer.save_model()

# %% [markdown]
# Predictions for a masked token. The saved folder loads into any head of the rung, here the one for MLM, in
# transformers' own pipeline:

# %%
bert = AutoModelForMaskedLM.from_pretrained("runs/bert").eval()
fill = pipeline("fill-mask", model=bert, tokenizer=subwords, top_k=4)
for text in ("Rosa was a [MASK] who lived near the lake .", "[MASK] felt happy and sat down to eat some bread ."):
    print(text, [(each["token_str"], round(each["score"], 2)) for each in fill(text)])

# %% [markdown]
# NSP: one sentence that continues the story, and one that begins another. The second is the easy kind; that names
# and things must agree takes far more training than there is time for here.

# %%
first = "Hugo was a painter who lived near the castle . In the evening he lost his blue hat ."
for second in (
    "Hugo looked for the hat in the river , but it was not there .",
    "There was once a tailor named Zoe in the island .",
):
    inputs = subwords(first, second, return_tensors="pt").to(trainer.model.device)
    with torch.no_grad():
        follows = trainer.model.eval()(**inputs).seq_relationship_logits.softmax(-1)[0, 0].item()
    print(f"P(next) = {follows:.0%}: {second}")

# %% [markdown]
# One word, several sentences. A static embedding, as in the feed-forward model, is the same in every sentence. BERT's
# contextual embedding depends on the sentence. Of the four sentences below, the first two use the word at the beginning
# of an event, the last two at the end of the story.

# %%
sentences = [
    "The next day she lost her golden ring .",
    "The next day he lost his old map .",
    "From that day the baker never lost the ring again .",
    "From that day the miller never lost the map again .",
]
static = in_contexts(bert, subwords, "day", sentences, layer="static")
print(f"lowest cosine similarity of the static embeddings: {static.similarities.min():.2f}")
show(draw_contexts(static, "'day' in the embedding table"), "static_vectors")
show(draw_contexts(in_contexts(bert, subwords, "day", sentences), "'day' in BERT's last layer"), "contexts")

# %% [markdown]
# ## What each rung added

# %%
rungs = {rung.name: rung for rung in edu.LADDER}
table = [
    {
        "rung": number,
        "model": name,
        "paper": rungs[name].paper,
        "new idea": rungs[name].idea,
        "here": result["score"],
        "seconds": round(result["seconds"]),
    }
    for number, (name, result) in enumerate(results.items(), start=1)
]
show_table(table)
print(f"CPU time in all: {time.process_time():.0f} s")

# %% [markdown]
# Next: `recipes/YEAR_<rung>.py` trains each rung on real data, lesson 12 in `recipes/lessons` fine-tunes BERT,
# and `hf_edu_models/explain/README.md` lists all visualisations.
