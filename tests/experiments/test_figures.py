"""Figures of the papers: scores equal sacrebleu's own, sweeps are resumable, variants differ in one setting."""

import csv
import json
import math
import random

import pytest
import sacrebleu
import torch
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models.cli import app
from hf_edu_models.data import collator_for, encode_corpus, load_corpus, train_tokenizer
from hf_edu_models.experiments import by_length as curves
from hf_edu_models.experiments import pretraining as sweep_pretraining
from hf_edu_models.experiments import sweep as sweeps
from hf_edu_models.experiments import sweep_tables as sweep_figures
from hf_edu_models.experiments import translation as sweep_translation
from hf_edu_models.experiments.pictures import draw_by_length, draw_sweep
from hf_edu_models.experiments.published import PUBLISHED
from hf_edu_models.run_folder import write_predictions, write_results

WORDS = "the cat sat on a mat and The Dog ran home".split()  # noqa: SIM905


def translations(name="run", rows=60, seed=0, lowercase=False):
    rng, found = random.Random(seed), []
    for _ in range(rows):
        reference = rng.choices(WORDS, k=rng.randint(2, 23))
        prediction = [word if rng.random() < 0.7 else rng.choice(WORDS) for word in reference]
        source = " ".join(rng.choices("abcd", k=len(reference) + 1))
        found.append({"source": source, "reference": " ".join(reference), "prediction": " ".join(prediction)})
    return curves.Predictions(name, found, lowercase)


@pytest.mark.parametrize("lowercase", [False, True])
def test_every_bucket_has_the_score_of_sacrebleu_and_no_sentence_is_lost(lowercase):
    run = translations(lowercase=lowercase)
    scores = curves.scores_by_length([run], edges=[5, 11, 17], resamples=20)
    assert [(score.low, score.high) for score in scores] == [(1, 5), (6, 11), (12, 17), (18, None)]
    assert sum(score.sentences for score in scores) == len(run.rows)
    for score in scores:
        inside = [row for row in run.rows if score.low <= len(row["source"].split()) <= (score.high or 99)]
        predictions, references = [row["prediction"] for row in inside], [row["reference"] for row in inside]
        assert score.sentences == len(inside)
        expected = sacrebleu.corpus_bleu(predictions, [references], lowercase=lowercase).score
        assert score.score == pytest.approx(expected)
        assert score.interval_low < score.interval_high and f"case:{'lc' if lowercase else 'mixed'}" in score.signature
        assert "bs:" not in score.signature, "the signature is that of the score, not of the resampling"


def test_one_bucket_is_the_whole_corpus_whatever_the_score():
    run = translations()
    predictions, references = [row["prediction"] for row in run.rows], [row["reference"] for row in run.rows]
    for name, expected in (
        ("bleu", sacrebleu.corpus_bleu(predictions, [references]).score),
        ("chrf", sacrebleu.corpus_chrf(predictions, [references]).score),
        ("exact_match", 100 * sum(map(str.__eq__, predictions, references)) / len(predictions)),
    ):
        (score,) = curves.scores_by_length([run], edges=[], score=name, resamples=20)
        assert score.score == pytest.approx(expected)
        assert score.interval_low <= score.score <= score.interval_high


def test_intervals_are_narrower_with_more_sentences_and_nothing_for_perfection():
    few, many = (curves.scores_by_length([translations(rows=rows)], edges=[])[0] for rows in (20, 600))
    assert many.interval_high - many.interval_low < 0.5 * (few.interval_high - few.interval_low)
    perfect = [row | {"prediction": row["reference"]} for row in translations(rows=20).rows]
    (score,) = curves.scores_by_length([curves.Predictions("perfect", perfect)], edges=[], resamples=20)
    assert (score.score, score.interval_low, score.interval_high) == pytest.approx((100, 100, 100))


@pytest.mark.parametrize("longest", [3, 7, 15, 40, 120, 3000])
def test_chosen_buckets_are_few_and_hold_every_length(longest):
    lengths = list(range(1, longest + 1))
    edges = curves.bucket_edges(lengths)
    assert edges == sorted(set(edges)) and 1 <= len(edges) + 1 <= max(curves.MAX_BUCKETS + 1, longest // 100 + 2)
    assert edges[0] >= 1 and edges[-1] < longest


def test_lengths_may_be_characters():
    rows = [{"source": "ab cd", "reference": "x", "prediction": "x"}]
    (score,) = curves.scores_by_length([curves.Predictions("r", rows)], [4, 9], "exact_match", "characters")
    assert (score.low, score.high, score.mean_length, score.score) == (5, 9, 5.0, 100.0)


def test_wrong_arguments_raise_an_error():
    run = translations(rows=3)
    for arguments, message in (
        ({"score": "ter"}, "bleu, chrf, exact_match"),
        ({"unit": "tokens"}, "words, characters"),
    ):
        with pytest.raises(ValueError, match=message):
            curves.scores_by_length([run], **arguments)
    with pytest.raises(ValueError, match="increasing lengths"):
        curves.scores_by_length([run], edges=[10, 5])
    with pytest.raises(ValueError, match="no sentence"):
        curves.scores_by_length([curves.Predictions("empty", [])])


def new_run(folder, rows, lowercase=False, **results):
    folder.mkdir(parents=True)
    write_predictions(folder, rows)
    write_results(folder, {"settings": {"lowercase": lowercase}, "data": {"name": "copy"}, "scores": {}} | results)
    return folder


def test_saved_predictions_are_read_with_the_runs_lowercase_setting(tmp_path):
    rows = translations(rows=5).rows
    found = curves.predictions_of(new_run(tmp_path / "one", rows, lowercase=True))
    assert (found.run, found.rows, found.lowercase) == ("one", rows, True)
    assert curves.predictions_of(tmp_path / "one", rows=2, lowercase=False) == curves.Predictions("one", rows[:2])
    new_run(tmp_path / "other", [{"text": "x", "label": 1}])
    with pytest.raises(ValueError, match="no 'source'"):
        curves.predictions_of(tmp_path / "other")
    (tmp_path / "bare").mkdir()
    with pytest.raises(ValueError, match="add --dataset"):
        curves.predictions_of(tmp_path / "bare")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An untrained translation model for the `copy` corpus, its tokenizer and data."""
    folder = tmp_path_factory.mktemp("checkpoint") / "seq2seq"
    corpus = load_corpus("copy", train_size=30, validation_size=0, test_size=11)
    tokenizer = train_tokenizer(corpus, "word", 60, rung="seq2seq")
    torch.manual_seed(3)
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "initializer_range": 0.8, "vocab_size": len(tokenizer)}
    ids = {"decoder_start_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = hf_edu_models.EduSeq2SeqConfig(**sizes, **ids, pad_token_id=tokenizer.pad_token_id)
    model = hf_edu_models.EduSeq2SeqForConditionalGeneration(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model.eval(), tokenizer, corpus


def test_a_batch_translates_as_its_rows(checkpoint):
    folder, model, tokenizer, corpus = checkpoint
    sources = corpus["test"]["source"][:7]
    found = curves.translate_all(str(folder), list(sources), num_beams=2, batch_size=3)
    assert found == curves.translate_all(str(folder), list(sources), num_beams=2, batch_size=1)
    greedy = curves.translate_all(str(folder), list(sources), num_beams=1, batch_size=3)
    for source, text in zip(sources, greedy, strict=True):
        ids = model.generate(**tokenizer(source, return_tensors="pt"), max_new_tokens=200)
        assert tokenizer.decode(ids[0], skip_special_tokens=True).startswith(text)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        curves.translate_all(str(folder / "nothing"), ["a"])


def test_the_perplexity_of_uniform_predictions_is_the_vocabulary_size(checkpoint, tmp_path):
    from transformers import Trainer, TrainingArguments

    _, model, tokenizer, corpus = checkpoint
    encoded = encode_corpus(corpus, tokenizer, task="translation")
    arguments = TrainingArguments(str(tmp_path), report_to="none", per_device_eval_batch_size=4, use_cpu=True)
    trainer = Trainer(model=model, args=arguments, data_collator=collator_for("translation", tokenizer))
    labels = [label for row in encoded["test"]["labels"] for label in row]
    with torch.no_grad():
        total = sum(
            float(model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss)
            * len(row["labels"])
            for row in encoded["test"]
        )
        assert sweep_translation.perplexity(trainer, encoded["test"]) == pytest.approx(math.exp(total / len(labels)))
        trained = model.lm_head.weight.clone()
        model.lm_head.weight.zero_()
        assert sweep_translation.perplexity(trainer, encoded["test"]) == pytest.approx(len(tokenizer), rel=1e-5)
        model.lm_head.weight.copy_(trained)


def test_a_sweep_trains_each_once_and_resumes(tmp_path):
    variants = [sweeps.Variant("one head", {"heads": 1, "sizes": (2, 3)}), sweeps.Variant("two/heads", {"heads": 2})]
    calls, lines = [], []

    def train(settings, seed, folder):
        calls.append((settings["heads"], seed))
        assert folder.is_dir()
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {"score": 10.0 * settings["heads"] + seed}

    with pytest.raises(KeyboardInterrupt):
        sweeps.sweep("test", variants, train, tmp_path, seeds=(0, 1))
    assert calls == [(1, 0), (2, 0), (1, 1)], "every variant has one seed before one has two"
    rows = sweeps.sweep("test", variants, train, tmp_path, seeds=(0, 1), report=lines.append)
    assert calls[3:] == [(1, 1), (2, 1)] and [line.endswith("(read back)") for line in lines] == [
        True,
        True,
        False,
        False,
    ]
    assert {(row["variant"], row["seed"]): row["score"] for row in rows} == {
        ("one head", 0): 10.0,
        ("two/heads", 0): 20.0,
        ("one head", 1): 11.0,
        ("two/heads", 1): 21.0,
    }
    with open(tmp_path / "results.csv") as file:
        assert [row["score"] for row in csv.DictReader(file)] == ["10.0", "20.0", "11.0", "21.0"]
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == rows
    changed = [sweeps.Variant("one head", {"heads": 1, "sizes": (2, 4)}), variants[1]]
    sweeps.sweep("test", changed, train, tmp_path, seeds=(0,))
    assert calls[5:] == [(1, 0)], "other settings are trained again"
    with pytest.raises(ValueError, match="must all differ"):
        sweeps.sweep("test", [variants[0]] * 2, train, tmp_path)


def flat(settings, prefix=""):
    for name, value in settings.items():
        yield from flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]


@pytest.mark.parametrize(
    "make, changed",
    [
        (sweep_translation.reversal_variants, {"config.reverse_source"}),
        (sweep_translation.heads_variants, {"config.num_attention_heads"}),
        (sweep_translation.positions_variants, {"config.position_embedding_type"}),
        (sweep_pretraining.masking_variants, {"mask", "random"}),
        (sweep_pretraining.nsp_variants, {"next_sentence", "left_to_right"}),
    ],
)
@pytest.mark.parametrize("quick", [True, False])
def test_variants_differ_in_one_setting(make, changed, quick):
    found = [dict(flat(variant.settings)) for variant in make(quick)]
    differing = {name for one in found for name in one if any(one[name] != other.get(name) for other in found)}
    assert differing == changed
    assert sweep_figures.about_sweep(make(quick), 2).endswith(".")


@pytest.fixture(scope="module")
def stories():
    corpus = load_corpus("stories", train_size=30, validation_size=0, test_size=12)
    return corpus, train_tokenizer(corpus, "wordpiece", 400, lowercase=True, rung="bert")


@pytest.mark.parametrize("next_sentence", [True, False])
def test_mlm_scores_use_the_same_masked_tokens(stories, next_sentence):
    from hf_edu_models.data import build_nsp_pairs

    corpus, tokenizer = stories
    pairs = build_nsp_pairs(corpus["test"], tokenizer, max_length=48)
    settings = sweep_pretraining.BASE | {"next_sentence": next_sentence, "max_length": 48}
    model = sweep_pretraining.new_bert(settings, tokenizer)
    first = sweep_pretraining.mlm_scores(model, tokenizer, pairs)
    assert first == sweep_pretraining.mlm_scores(model, tokenizer, pairs), "the same tokens are masked each time"
    assert ("nsp_accuracy" in first) == next_sentence
    with torch.no_grad():
        model.lm_head.decoder.weight.zero_()
        model.lm_head.decoder.bias.zero_()
    uniform = sweep_pretraining.mlm_scores(model, tokenizer, pairs)
    assert uniform["mlm_loss"] == pytest.approx(math.log(len(tokenizer)), rel=1e-5)


def test_the_left_to_right_variant_has_the_same_sizes_and_sees_no_future(stories):
    _, tokenizer = stories
    bert, *_, left_to_right = (
        sweep_pretraining.new_bert(variant.settings, tokenizer).eval() for variant in sweep_pretraining.nsp_variants()
    )
    for name in (*sweep_pretraining.BASE["config"], "norm_first"):
        assert getattr(bert.config, name) == getattr(left_to_right.config, name)
    ids = tokenizer("one sentence and another one", return_tensors="pt")["input_ids"]
    changed = ids.clone()
    changed[:, 4:] = tokenizer.mask_token_id
    found = [model(input_ids=each)[0][:, :4] for model in (left_to_right,) for each in (ids, changed)]
    torch.testing.assert_close(*found)
    both = [bert(input_ids=each).prediction_logits[:, :4] for each in (ids, changed)]
    assert not torch.allclose(*both)


def test_fine_tuning_pairs_have_true_labels_and_are_not_adjacent(stories):
    corpus, _ = stories
    found = sweep_pretraining.same_story_pairs(corpus, 60)
    homes = {}
    for story, sentence in zip(corpus["test"]["document"], corpus["test"]["text"], strict=True):
        homes.setdefault(sentence, set()).add(story)
    labels = found["test"]["label"]
    assert sum(labels) * 2 == len(labels) == 60
    follows = set(zip(corpus["test"]["text"][:-1], corpus["test"]["text"][1:], strict=True))
    for row in found["test"]:
        first, second = homes[row["text"]], homes[row["text_pair"]]
        if row["label"]:
            assert first & second and row["text"] != row["text_pair"]
            assert (row["text"], row["text_pair"]) not in follows or len(first) > 1
        else:
            assert len(first | second) > 1


def test_pictures_show_every_number_and_keep_the_published_ones_apart():
    scores = curves.scores_by_length([translations("a"), translations("b", seed=1)], [5, 11], resamples=10)
    figure = draw_by_length(scores, PUBLISHED["bleu-by-length"])
    curve, beside = figure.axes[:2]
    assert [line.get_label() for line in curve.lines] == ["a", "b"] and "Published" in beside.get_title()
    assert list(curve.lines[1].get_ydata()) == [score.score for score in scores if score.run == "b"]
    shown = [text.get_text() for text in beside.texts]
    assert shown == ["13.93", "17.82", "21.50", "26.75"]
    rows = [{"variant": name, "seed": seed, "perplexity": 2.0 + seed} for name in ("x", "y") for seed in (0, 1)]
    figure = draw_sweep("t", rows, ("perplexity", "bleu"), PUBLISHED["reversal"], "few.")
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["Ours", "Published (other data)", "Published (other data)"], "no panel for a score we do not have"
    assert [bar.get_height() for bar in figure.axes[0].patches] == [2.5, 2.5]


def test_published_tables_are_complete():
    for table in PUBLISHED.values():
        assert table.rows and table.source and table.data
        assert all(len(numbers) == len(table.metrics) for numbers in table.rows.values())


def reversal_run(folder, is_reversed, **scores):
    new_run(folder, [], scores={"test": scores}, seed=4)
    (folder / "config.json").write_text(json.dumps({"model_type": "edu_seq2seq", "reverse_source": is_reversed}))
    return folder


def test_finished_runs_are_compared_by_their_config(tmp_path):
    one = reversal_run(tmp_path / "one", False, bleu=20.0, loss=2.0)
    two = reversal_run(tmp_path / "two", True, bleu=25.0, perplexity=6.0)
    rows = sweep_figures.rows_of_runs([two, one])
    assert [(row["variant"], row["bleu"], row["perplexity"]) for row in rows] == [
        ("source as it is", 20.0, math.exp(2.0)),
        ("source reversed", 25.0, 6.0),
    ]
    out = tmp_path / "r.svg"
    run = CliRunner().invoke(app, ["figure", "reversal", str(one), str(two), "--out", str(out)])
    assert run.exit_code == 0, run.output + str(run.exception)
    assert out.exists() and "source reversed" in out.with_suffix(".csv").read_text()
    three = reversal_run(tmp_path / "three", True, bleu=1.0)
    for runs, message in (([one], "two or more"), ([two, three], "reverse_source"), ([one, tmp_path], "results.json")):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            sweep_figures.rows_of_runs(runs)


def problem(*arguments):
    return str(CliRunner().invoke(app, ["figure", *map(str, arguments)]).exception)


def test_the_command_draws_runs_by_length(tmp_path, checkpoint):
    runs = [new_run(tmp_path / name / "run", translations(seed=seed).rows) for seed, name in enumerate("ab")]
    out = tmp_path / "length.png"
    options = ["--score", "chrf", "--edges", "5,10", "--resamples", "10", "--out", str(out)]
    run = CliRunner().invoke(app, ["figure", "bleu-by-length", *map(str, runs), *options])
    assert run.exit_code == 0, run.output + str(run.exception)
    with open(out.with_suffix(".csv")) as file:
        rows = list(csv.DictReader(file))
    assert out.stat().st_size > 1000 and {row["run"] for row in rows} == set(map(str, runs)), "same names, whole paths"
    translated = [
        "figure",
        "bleu-by-length",
        str(checkpoint[0]),
        "--dataset",
        "copy",
        "--rows",
        "6",
        "--num-beams",
        "1",
    ]
    run = CliRunner().invoke(app, [*translated, "--resamples", "5", "--out", str(out)])
    assert run.exit_code == 0, run.output + str(run.exception)
    assert "integers" in problem("bleu-by-length", runs[0], "--edges", "a,b")
    assert ".png or .svg" in problem("bleu-by-length", runs[0], "--out", "x.jpg")
    assert "listed twice" in problem("bleu-by-length", runs[0], runs[0])
    assert "--train" in problem("reversal") and "--train" in problem("reversal", runs[0], "--train")
    assert "no split 'dev'" in problem("bleu-by-length", checkpoint[0], "--dataset", "copy", "--split", "dev")


def test_a_quick_sweep_trains_draws_and_is_not_trained_again(tmp_path):
    arguments = ["figure", "positions", "--quick", "--folder", str(tmp_path)]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output + str(run.exception)
    assert (tmp_path / "positions.png").stat().st_size > 1000
    with open(tmp_path / "positions.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == ["sinusoidal", "learned"]
    assert all(float(row["perplexity"]) > 1 for row in rows)
    loaded = hf_edu_models.EduTransformerForConditionalGeneration.from_pretrained(tmp_path / "learned-seed0")
    assert loaded.config.position_embedding_type == "learned"
    assert CliRunner().invoke(app, arguments).output.count("read back") == 2


def test_the_overlap_of_heads_is_the_penalty_computed_pair_by_pair(tmp_path):
    run = CliRunner().invoke(app, ["figure", "diversity", "4 5", "--quick", "--folder", str(tmp_path)])
    assert run.exit_code == 0, run.output + str(run.exception)
    assert (tmp_path / "diversity.png").read_bytes().startswith(b"\x89PNG")
    with open(tmp_path / "diversity.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == ["no penalty", "penalty, weight 0.1"]
    model, tokenizer = sweep_translation._read_translator(tmp_path / "no-penalty-seed0")
    corpus = load_corpus("numbers", train_size=64, test_size=16, languages=["en"])["test"]
    penalties = []
    for row in corpus:
        labels = tokenizer(text_target=row["target"], return_tensors="pt")["input_ids"]
        with torch.no_grad():
            outputs = model(**tokenizer(row["source"], return_tensors="pt"), labels=labels, output_attentions=True)
        total = 0.0
        for layers in (outputs.encoder_attentions, outputs.decoder_attentions, outputs.cross_attentions):
            for layer in layers:
                heads, positions = layer.shape[1:3]
                for one in range(heads):
                    for other in range(heads):
                        products = (layer[0, one] * layer[0, other]).sum(-1) - float(one == other)
                        total += float(products.square().sum()) / positions / len(layers)
        penalties.append(total)
    assert float(rows[0]["head_overlap"]) == pytest.approx(sum(penalties) / 16, rel=1e-4)
    assert "--weight must be above 0" in problem("diversity", "--weight", "0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heads", "scores", "masking", "nsp"])
def test_the_other_quick_sweeps(tmp_path, name):
    run = CliRunner().invoke(app, ["figure", name, "--quick", "--folder", str(tmp_path)])
    assert run.exit_code == 0, run.output + str(run.exception)
    assert (tmp_path / f"{name}.png").stat().st_size > 1000


@pytest.mark.slow
def test_reversal_helps_on_a_task_that_goes_from_left_to_right(tmp_path):
    run = CliRunner().invoke(app, ["figure", "reversal", "--train", "--folder", str(tmp_path)])
    assert run.exit_code == 0, run.output + str(run.exception)
    rows = {row["variant"]: row for row in json.loads((tmp_path / "results.json").read_text())["rows"]}
    assert rows["source reversed"]["perplexity"] < rows["source as it is"]["perplexity"]
    assert rows["source reversed"]["bleu"] > rows["source as it is"]["bleu"]
