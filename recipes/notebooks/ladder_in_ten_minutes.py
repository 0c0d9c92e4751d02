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
# Seven models, each one idea above the one before. Each is trained here, a little, on text that the library makes
# itself: no download, no GPU. What a cell teaches is said before it; what came out is printed or drawn below it.
# Pictures are also kept as files in `pictures/`.
#
# Every model lives in one file, `hf_edu_models/models/modeling_<rung>.py`, to be read beside its paper.

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
from hf_edu_models.training import EduSeq2SeqTrainer, EduTrainer, RunArguments, token_ids

# %% [markdown]
# All sizes stand here. `HF_EDU_QUICK=1` in the environment makes them tiny: everything runs in seconds and nothing is
# learnt. Change them and run again: that is what the notebook is for.

# %%
QUICK = os.environ.get("HF_EDU_QUICK") == "1"
STORIES = 30 if QUICK else 1_000  # documents that the language models and BERT read
SEQUENCES = 60 if QUICK else 8_000  # rows of symbols to copy
DATES = 60 if QUICK else 12_000  # rows of dates to translate
HELD_OUT = 12 if QUICK else 400  # rows to judge by
EPOCHS = {"language": 1, "copy": 1, "dates": 1, "bert": 1} if QUICK else {}
EPOCHS = {"language": 12, "copy": 6, "dates": 3, "bert": 12} | EPOCHS
WIDTH = 16 if QUICK else 96  # size of the hidden states
set_seed(0)
datasets.disable_progress_bars()
logging.set_verbosity_error()  # a body that is loaded with another head would be reported at length; here it is meant


def arguments(name, epochs, learning_rate, batch_size=32, **more):
    """What our trainers, which are transformers' own with safer checkpoints, need to know."""
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


def show_table(rows):
    """A table of rows with the same columns."""
    lines = ["| " + " | ".join(map(str, cells)) + " |" for cells in (rows[0], *(row.values() for row in rows))]
    text = "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
    if "get_ipython" in globals():
        from IPython.display import Markdown, display

        display(Markdown(text))
    else:
        print(text)


results = {}  # for the table at the end: what each rung scored, and how long it learnt

# %% [markdown]
# ## 1. A window of words
#
# **Bengio, Ducharme, Vincent & Jauvin 2003.** Every word is a vector, learnt together with the probability of the next
# word. The model sees the last few words, here four, and nothing before them.
#
# The text: short stories, in which somebody loses a thing and finds it. A word is a token; the text is cut into blocks.
# Three rungs will read the same blocks, so their perplexities can be compared. A perplexity of 20 means: as unsure as
# if 20 words were equally likely.

# %%
stories = load_corpus("stories", train_size=STORIES, validation_size=12, test_size=HELD_OUT // 4)
words = train_tokenizer(stories, kind="word", rung="feedforward")
blocks = group_into_blocks(stories, words, 64, join=" ")
special = {"vocab_size": len(words), **token_ids(words, "pad", "bos", "eos")}
print(" ".join(stories["train"]["text"][:5]))


def learn_to_go_on(model, name, learning_rate):
    """Train a language model on the blocks, and measure it on blocks that it has not seen."""
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


config = edu.EduFeedForwardConfig(window_size=4, embedding_size=32, hidden_size=WIDTH, **special)
feedforward = AutoModelForCausalLM.from_config(config)
learn_to_go_on(feedforward, "feedforward", learning_rate=0.005)

# %% [markdown]
# Words that stand in the same places get vectors that point the same way, though nobody told the model what an animal
# is:

# %%
for word in ("fox", "lantern", "bread"):
    print(word, "is near", ", ".join(each.text for each in nearest(feedforward, words, word, k=6).neighbours))

# %% [markdown]
# The window is also the limit. To measure how far back a model can see, exchange the first word of a text and watch by
# how much each later guess of the next word moves. Beyond four words: not at all, and no training could change that.

# %%
texts = torch.tensor([row for row in blocks["test"]["input_ids"] if len(row) == 64][:40])
exchanged = torch.cat([texts.roll(1, dims=0)[:, :1], texts[:, 1:]], dim=1)  # each gets the first word of another


def reach(model):
    """By distance, the probability that moves when the word so far back is another; the mean over the texts."""
    with torch.no_grad():
        before, after = (model.eval()(each.to(model.device)).logits.softmax(-1) for each in (texts, exchanged))
    return (before - after).abs().sum(-1).mean(0).cpu() / 2


print("moved after 1, 4, 5, 20 words:", [f"{reach(feedforward)[words_read - 1]:.1%}" for words_read in (1, 4, 5, 20)])

# %% [markdown]
# ## 2. A state that carries the past
#
# **Elman 1990; Hochreiter & Schmidhuber 1997 (LSTM); Cho et al. 2014 (GRU).** Read word by word and keep a state: no
# window, no limit in principle. In practice a plain state forgets, because the gradient that should teach it to
# remember is multiplied at every step on its way back and vanishes. Gates keep the way open.
#
# First the lesson as one picture: new cells, not yet trained, and how much of the gradient reaches a state by how far
# back it lies. Left: the whole gradient. Right: the product of the gates alone.

# %%
lesson = vanishing_gradient_lesson(("rnn", "gru", "lstm"), length=20 if QUICK else 100)
show(draw_lesson(lesson), "vanishing_gradient")

# %% [markdown]
# Then the LSTM on the same blocks. Nothing but the model and its learning rate differs from rung 1. Do not expect much
# of the perplexity: in stories as simple as these, most words are settled by the few before them. What differs is the
# reach, which has no end now, but fades.

# %%
config = edu.EduRecurrentConfig(cell_type="lstm", hidden_size=WIDTH, num_hidden_layers=1, dropout=0.0, **special)
recurrent = AutoModelForCausalLM.from_config(config)
learn_to_go_on(recurrent, "recurrent", learning_rate=0.01)
print("moved after 1, 4, 5, 20 words:", [f"{reach(recurrent)[words_read - 1]:.1e}" for words_read in (1, 4, 5, 20)])

# %% [markdown]
# ## 3. Encode, then decode
#
# **Sutskever, Vinyals & Le 2014; Cho et al. 2014.** One network reads the source into its last state, another writes
# the target from it. Any sequence to any sequence, but the whole source must fit through one vector.
#
# The smallest task that shows it is to copy a row of symbols: there is nothing to learn but to remember. As in
# Sutskever's paper the source is read from its end, so that what must be written first was read last.

# %%
rows = {"train_size": SEQUENCES, "validation_size": 12, "test_size": HELD_OUT}
copies = load_corpus("copy", min_length=3, max_length=16, symbols=10, **rows)
print(copies["train"][0])


def learn_to_write(model, name, corpus, tokenizer, epochs, learning_rate):
    """Train an encoder-decoder, let it write the answers of the test split, and count those that are right."""
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
    written = trainer.predict(encoded["test"])
    score = written.metrics["test_exact_match"]
    print(f"{name}: {score:.1%} of the answers are right, after {seconds:.0f} s")
    ids = torch.tensor(written.predictions)
    said = tokenizer.batch_decode(ids.where(ids >= 0, tokenizer.pad_token_id), skip_special_tokens=True)
    answers = [
        {"source": row["source"], "reference": row["target"], "prediction": text}
        for row, text in zip(corpus["test"], said, strict=True)
    ]
    return {"score": f"{score:.0%} right", "seconds": seconds}, Predictions(name, answers)


symbols = train_tokenizer(copies, kind="word", rung="seq2seq")
ids = {"vocab_size": len(symbols), **token_ids(symbols, "pad", "bos", "eos", "decoder_start")}
config = edu.EduSeq2SeqConfig(embedding_size=32, hidden_size=WIDTH, num_hidden_layers=1, dropout=0.0, **ids)
seq2seq = AutoModelForSeq2SeqLM.from_config(config)
copied, by_seq2seq = learn_to_write(seq2seq, "seq2seq", copies, symbols, EPOCHS["copy"], 0.004)
results["seq2seq"] = {**copied, "score": f"copy: {copied['score']}"}

# %% [markdown]
# ## 4. Look back
#
# **Bahdanau, Cho & Bengio 2015.** Keep *all* states of the encoder. Before each word the decoder compares its own state
# with every one of them, turns the scores into weights that sum to one, and reads the weighted mean. No single vector
# has to hold everything.
#
# The same rows, the same number of steps, then both by length (their Figure 2 in small). What was published stands in
# grey: other data, larger models.

# %%
config = edu.EduBahdanauConfig(
    embedding_size=32, hidden_size=WIDTH, maxout_size=32, attention_size=32, dropout=0.0, initializer_range=0.1, **ids
)
bahdanau = AutoModelForSeq2SeqLM.from_config(config)
copied, by_bahdanau = learn_to_write(bahdanau, "bahdanau", copies, symbols, EPOCHS["copy"], 0.003)
results["bahdanau"] = {**copied, "score": f"copy: {copied['score']}"}
curves = scores_by_length([by_seq2seq, by_bahdanau], edges=[4, 7, 10, 13], score="exact_match")
show(draw_by_length(curves, PUBLISHED["bleu-by-length"]), "bottleneck")

# %% [markdown]
# The weights can be looked at, which is half of their fame. Copying would only draw a diagonal; dates as people write
# them, to be written the ISO way, have to be put into another order. Each row is a character that was written, each
# column one of the source: the darker, the more it was looked at. A row that is pale all over needs no one place:
# every state of the encoder has read the whole source, from both ends, and may carry the answer.

# %%
rows = {"train_size": DATES, "validation_size": 12, "test_size": HELD_OUT}
dates = load_corpus("dates", languages=("en_GB", "de", "fr", "es", "it"), **rows)
letters = train_tokenizer(dates, kind="char", rung="bahdanau")
ids = {"vocab_size": len(letters), **token_ids(letters, "pad", "bos", "eos", "decoder_start")}
config = edu.EduBahdanauConfig(
    embedding_size=32, hidden_size=WIDTH, maxout_size=32, attention_size=32, dropout=0.0, initializer_range=0.1, **ids
)
bahdanau = AutoModelForSeq2SeqLM.from_config(config)
dated, _ = learn_to_write(bahdanau, "bahdanau", dates, letters, EPOCHS["dates"], 0.003)
results["bahdanau"]["score"] += f"; dates: {dated['score']}"
results["bahdanau"]["seconds"] += dated["seconds"]

DATE = "Samstag, 16. November 2041"
maps = attention_maps(bahdanau, letters, DATE)
print(f"{DATE} -> {maps.target}")
show(draw_attention(maps), "bahdanau_attention")

# %% [markdown]
# ## 5. Attention alone
#
# **Vaswani et al. 2017.** If looking is that good, why read word by word? Take the recurrence away. Every word looks at
# every other at once, several heads look at different things, and because attention by itself knows no order, a
# vector that says where a word stands is added to it: sines and cosines of many wavelengths. The dot product of two
# such vectors depends on their distance alone, as the third panel shows: three positions, one curve.

# %%
show(draw_positions(position_vectors(WIDTH, length=60)), "positions")

# %% [markdown]
# The same dates, the same number of steps; no cell carries anything from one character to the next.

# %%
config = edu.EduTransformerConfig(
    hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, intermediate_size=2 * WIDTH, dropout=0.0, **ids
)
transformer = AutoModelForSeq2SeqLM.from_config(config)
dated, _ = learn_to_write(transformer, "transformer", dates, letters, EPOCHS["dates"], 0.002)
results["transformer"] = {**dated, "score": f"dates: {dated['score']}"}

# %% [markdown]
# Its heads, four in each of two layers, from the written date to the source. The page beside the picture has all of
# its attention, encoder and decoder too, and the product of query and key behind every weight: open it in a browser.

# %%
maps = attention_maps(transformer, letters, DATE)
print(f"{DATE} -> {maps.target}")
show(draw_attention(maps, "cross"), "transformer_heads")
print(save_attention(maps, "pictures/transformer_attention.html"))

# %% [markdown]
# ## 6. The decoder alone, on plain text
#
# **Radford et al. 2018, 2019 (GPT).** Keep the Transformer's decoder, throw away the source, and train it on plain text
# to say the next word. Every word may look at all words before it: the window of rung 1 is as long as the text, and
# nothing has to be squeezed into the state of rung 2.
#
# The same blocks as rungs 1 and 2.

# %%
config = edu.EduGPTConfig(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=256,
    max_position_embeddings=128,
    dropout=0.0,
    attention_dropout=0.0,
    **special,
)
gpt = AutoModelForCausalLM.from_config(config)
learn_to_go_on(gpt, "gpt", learning_rate=0.003)

# %% [markdown]
# And the reach of the three, in one picture. The window ends; the state fades, as the lesson of rung 2 said it would;
# to attention every word is one step away, however long ago it was.

# %%
figure, axis = new_figure(7, 4)
for name, model, width in (("window", feedforward, 6), ("state", recurrent, 3), ("attention", gpt, 2)):
    moved = reach(model)
    axis.plot(range(1, 65), moved.where(moved > 0, float("nan")), label=name, linewidth=width)
axis.set(xlabel="words ago", ylabel="probability that moves", yscale="log", title="How far back does a model see?")
axis.legend(frameon=False)
show(figure, "reach")

# %% [markdown]
# It writes with the `generate()` of transformers, as every rung but BERT does:

# %%
start = words("There was once a sailor named Ada in the harbour .", return_tensors="pt").to(gpt.device)
story = gpt.generate(**start, do_sample=True, top_k=20, max_new_tokens=16 if QUICK else 60)
print(words.decode(story[0], skip_special_tokens=True))

# %% [markdown]
# ## 7. Both directions
#
# **Devlin, Chang, Lee & Toutanova 2019 (BERT).** To understand a text one need not write it from left to right. Let
# every word see both sides, and since it would then see the word it has to guess, hide the word: 15% of the tokens are
# to be found. And from two passages, tell whether the second follows the first (next sentence prediction, NSP).

# %%
pieces = train_tokenizer(stories, kind="wordpiece", vocab_size=1_000, rung="bert")
pairs = build_nsp_pairs(stories, pieces, max_length=64)
config = edu.EduBertConfig(
    vocab_size=len(pieces),
    hidden_size=WIDTH,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=2 * WIDTH,
    max_position_embeddings=64,
    dropout=0.0,
    attention_dropout=0.0,
    **token_ids(pieces, "pad"),
)
trainer = EduTrainer(
    model=AutoModelForPreTraining.from_config(config),
    args=arguments("bert", EPOCHS["bert"], 0.002, label_names=["labels", "next_sentence_label"]),
    train_dataset=pairs["train"],
    eval_dataset=pairs["test"],
    data_collator=collator_for("pretraining", pieces),
    processing_class=pieces,
    compute_metrics=compute_metrics_for("pretraining"),
    preprocess_logits_for_metrics=preprocess_logits_for("pretraining"),
)
seconds = trainer.train().metrics["train_runtime"]
scores = trainer.evaluate()
found, told = scores["eval_mlm_accuracy"], scores["eval_nsp_accuracy"]
results["bert"] = {"score": f"hidden words {found:.0%}, next sentence {told:.0%}", "seconds": seconds}
print(f"hidden words found: {found:.1%}; next sentences told: {told:.1%}")
trainer.save_model()

# %% [markdown]
# A hidden word, and the best guesses. The folder that was saved opens with any head of the rung, here the one for
# masked words, in transformers' own pipeline:

# %%
bert = AutoModelForMaskedLM.from_pretrained("runs/bert").eval()
fill = pipeline("fill-mask", model=bert, tokenizer=pieces, top_k=4)
for text in ("Rosa was a [MASK] who lived near the lake .", "[MASK] felt happy and sat down to eat some bread ."):
    print(text, [(guess["token_str"], round(guess["score"], 2)) for guess in fill(text)])

# %% [markdown]
# Next sentence: one that goes on with the story, and one that begins another. The second is the easy kind; that people
# and things must agree takes far more reading than there is time for here.

# %%
first = "Hugo was a painter who lived near the castle . In the evening he lost his blue hat ."
for second in (
    "Hugo looked for the hat in the river , but it was not there .",
    "There was once a tailor named Zoe in the island .",
):
    inputs = pieces(first, second, return_tensors="pt").to(trainer.model.device)
    with torch.no_grad():
        follows = trainer.model.eval()(**inputs).seq_relationship_logits.softmax(-1)[0, 0].item()
    print(f"{follows:.0%} sure that it follows: {second}")

# %% [markdown]
# One word, several sentences. In a table of word vectors, as in rung 1, a word has one vector wherever it stands. BERT
# gives it one for each place, made from what stands around it. Of the four sentences below, the first two use the word
# at the beginning of an event, the last two at the end of the story.

# %%
sentences = [
    "The next day she lost her golden ring .",
    "The next day he lost his old map .",
    "From that day the baker never lost the ring again .",
    "From that day the miller never lost the map again .",
]
static = in_contexts(bert, pieces, "day", sentences, layer="static")
print(f"least cosine of two places in the table: {static.similarities.min():.2f}")
show(draw_contexts(static, "'day' in the table of word vectors"), "static_vectors")
show(draw_contexts(in_contexts(bert, pieces, "day", sentences), "'day' in BERT's last layer"), "contexts")

# %% [markdown]
# ## What each rung added

# %%
rungs = {rung.stem: rung for rung in edu.LADDER}
table = [
    {
        "rung": rungs[name].number,
        "model": name,
        "paper": rungs[name].paper,
        "what it added": rungs[name].idea,
        "here": result["score"],
        "seconds": round(result["seconds"]),
    }
    for name, result in results.items()
]
show_table(table)
print(f"processor time of everything: {time.process_time():.0f} s")

# %% [markdown]
# From here: `recipes/NN_<rung>.py` trains each rung on real data, `finetune_bert.py` beside this notebook uses what
# BERT has learnt, and `hf_edu_models/explain/README.md` has everything that can be looked at.
