"""Pipelines return what the model returns by hand, at any batch size, for our models and transformers' own."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer, pipeline

import hf_edu_models
from hf_edu_models import pipelines
from hf_edu_models.data import encode_question_answering, find_answers, train_tokenizer

TEXTS = [
    "a dog runs in the park",
    "two cats sleep",
    "the old man reads a long book about a dog that runs and runs",
    "birds sing",
    "a man sleeps in the old park",
]
CONTEXT = (
    "the old man reads a long book in the park . two cats sleep on a chair . birds sing and a dog runs home . "
    "a man and a bird read about cats that sleep in a long park . the dog reads two books , and the birds run ."
)
QUESTIONS = ["who reads ?", "what do birds do ?", "where do the cats sleep ?"]
SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20, "dropout": 0.0}
RECURRENT = {"hidden_size": 12, "embedding_size": 10, "maxout_size": 9, "dropout": 0.0, "initializer_range": 0.4}
NAMES = ["EduSeq2Seq", "EduBahdanau", "EduTransformer", "Marian"]
ATTENTIVE = NAMES[1:]


def randomize(model, seed=2):
    """Random weights, large enough that different inputs have different outputs."""
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        # A bias would favour one token everywhere; sinusoids are not saved.
        if parameter.dim() > 1 and "positions" not in name:
            torch.nn.init.uniform_(parameter, -1.0, 1.0)
    return model.eval()


def marian(size):
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", 2), ("attention_heads", 3), ("ffn_dim", 20))
    }
    ids = {
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 3,
        "forced_eos_token_id": 3,
        "decoder_start_token_id": 0,
    }
    config = transformers.MarianConfig(
        vocab_size=size, d_model=12, max_position_embeddings=60, dropout=0.0, tie_word_embeddings=False, **sides, **ids
    )
    return transformers.MarianMTModel(config)


@pytest.fixture(scope="session")
def word_tokenizer():
    return train_tokenizer([*TEXTS, CONTEXT], kind="word", vocab_size=60, task="seq2seq")


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory, word_tokenizer):
    """A checkpoint folder with a tokenizer for each translation model."""
    folder = tmp_path_factory.mktemp("translators")
    ids = {
        "vocab_size": len(word_tokenizer),
        "pad_token_id": word_tokenizer.pad_token_id,
        "eos_token_id": word_tokenizer.eos_token_id,
    }
    ids |= {"bos_token_id": word_tokenizer.bos_token_id, "decoder_start_token_id": word_tokenizer.bos_token_id}
    models = {"Marian": marian(len(word_tokenizer))}
    for name, sizes in (
        ("EduSeq2Seq", RECURRENT),
        ("EduBahdanau", RECURRENT),
        ("EduTransformer", SIZES | {"tie_word_embeddings": False}),
    ):
        config = getattr(hf_edu_models, f"{name}Config")(**sizes, **ids)
        models[name] = getattr(hf_edu_models, f"{name}ForConditionalGeneration")(config)
    for name, model in models.items():
        model.generation_config.suppress_tokens = [word_tokenizer.pad_token_id]  # no trained model generates it
        randomize(model).save_pretrained(folder / name)
        word_tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture(params=NAMES)
def translate(request, checkpoints):
    """In double precision: the beam scores of a random model are so close that rounding could decide between them."""
    return pipeline("edu-translation", model=str(checkpoints / request.param), device="cpu", dtype=torch.float64)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}], ids=["greedy", "beam"])
def test_translation_equals_generate_and_decode(translate, word_tokenizer, options):
    for text in TEXTS:
        encoded = word_tokenizer(text, return_tensors="pt")
        ids = translate.model.generate(**encoded, max_new_tokens=9, **options)
        by_hand = word_tokenizer.decode(ids[0], skip_special_tokens=True).strip()
        assert translate(text, max_new_tokens=9, **options) == [{"translation_text": by_hand}]


@pytest.mark.parametrize("length", [{}, {"max_new_tokens": 7}], ids=["default-length", "max-new-tokens"])
@pytest.mark.parametrize("beams", [1, 3])
def test_batch_equals_its_rows_one_by_one(translate, monkeypatch, beams, length):
    monkeypatch.setattr(pipelines, "EXTRA_LENGTH", 3)  # random models do not stop by themselves
    alone = [translate(text, num_beams=beams, **length)[0] for text in TEXTS]
    for size in (2, 5):
        assert translate(TEXTS, batch_size=size, num_beams=beams, **length) == alone
    assert len({result["translation_text"] for result in alone}) > 1


def test_default_maximum_length_follows_the_source(checkpoints, word_tokenizer, monkeypatch):
    """A model that never generates the end token is stopped, each row by the length of its own source."""
    monkeypatch.setattr(pipelines, "EXTRA_LENGTH", 8)
    translate = pipeline("edu-translation", model=str(checkpoints / "EduBahdanau"), device="cpu")
    translate.model.generation_config.suppress_tokens = [word_tokenizer.eos_token_id, word_tokenizer.pad_token_id]
    results = translate(TEXTS[:3], batch_size=3, output_attentions=True)
    for text, result in zip(TEXTS, results, strict=False):
        assert (
            len(result["target_tokens"]) == len(word_tokenizer(text)["input_ids"]) * pipelines.SOURCE_LENGTH_FACTOR + 8
        )
    translate.model.generation_config.max_new_tokens = 4  # the checkpoint's own limit wins
    assert len(translate(TEXTS[0], output_attentions=True)[0]["target_tokens"]) == 4
    assert len(translate(TEXTS[0], output_attentions=True, max_new_tokens=6)[0]["target_tokens"]) == 6


@pytest.mark.parametrize("name", ATTENTIVE)
@pytest.mark.parametrize("beams", [1, 4])
def test_cross_attention_equals_what_generate_collects(checkpoints, word_tokenizer, name, beams):
    """The same as the weights that generate() returns, traced back through the beams."""
    exact = {"dtype": torch.float64}
    translate = pipeline("edu-translation", model=str(checkpoints / name), device="cpu", **exact)
    eager = type(translate.model).from_pretrained(checkpoints / name, attn_implementation="eager", **exact).eval()
    chosen = translate.model.config._attn_implementation
    batched = translate(TEXTS, batch_size=3, num_beams=beams, max_new_tokens=9, output_attentions=True)
    assert translate.model.config._attn_implementation == chosen
    for text, result in zip(TEXTS, batched, strict=True):
        encoded = word_tokenizer(text, return_tensors="pt")
        collect = {"return_dict_in_generate": True, "output_attentions": True, "output_scores": True}
        generated = eager.generate(**encoded, num_beams=beams, max_new_tokens=9, **collect)
        count = len(result["target_tokens"])
        assert result["source_tokens"] == word_tokenizer.convert_ids_to_tokens(encoded["input_ids"][0])
        assert result["target_tokens"] == word_tokenizer.convert_ids_to_tokens(generated.sequences[0, 1 : count + 1])
        rows = generated.beam_indices[0, :count] if beams > 1 else [0] * count
        for position, row in enumerate(rows):
            step = torch.stack([layer[int(row), :, 0] for layer in generated.cross_attentions[position]])
            torch.testing.assert_close(torch.tensor(result["cross_attention"][:, :, position]), step, atol=1e-6, rtol=0)


def test_cross_attention_equals_teacher_forcing(translate, word_tokenizer):
    if type(translate.model).__name__.startswith("EduSeq2Seq"):
        with pytest.raises(ValueError, match="has no cross-attention"):
            translate(TEXTS[0], output_attentions=True)
        return
    (result,) = translate(TEXTS[2], num_beams=3, num_return_sequences=1, max_new_tokens=8, output_attentions=True)
    source = word_tokenizer(TEXTS[2], return_tensors="pt")
    start = translate.model.generation_config.decoder_start_token_id
    fed = torch.tensor([[start, *word_tokenizer.convert_tokens_to_ids(result["target_tokens"])[:-1]]])
    translate.model.set_attn_implementation("eager")
    with torch.no_grad():
        outputs = translate.model(**source, decoder_input_ids=fed, output_attentions=True)
    expected = torch.stack(outputs.cross_attentions, dim=1)[0]
    torch.testing.assert_close(torch.tensor(result["cross_attention"]), expected, atol=1e-6, rtol=0)
    np.testing.assert_allclose(result["cross_attention"].sum(axis=-1), 1, atol=1e-5)


def test_num_return_sequences_and_input_types(translate):
    one = translate(TEXTS[0], num_beams=3, num_return_sequences=2, max_new_tokens=5)
    assert len(one) == 2
    many = translate(TEXTS[:3], num_beams=3, num_return_sequences=2, max_new_tokens=5, batch_size=2)
    assert many[0] == one and [len(result) for result in many] == [2, 2, 2]
    streamed = translate((text for text in TEXTS[:3]), max_new_tokens=5, batch_size=2)
    assert [result[0] for result in streamed] == translate(tuple(TEXTS[:3]), max_new_tokens=5)
    assert translate([]) == []


@pytest.mark.parametrize("name", ATTENTIVE)
def test_each_returned_sequence_has_its_own_attention(checkpoints, name):
    translate = pipeline("edu-translation", model=str(checkpoints / name), device="cpu", dtype=torch.float64)
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5, "output_attentions": True}
    batched = translate(TEXTS[:3], batch_size=3, **options)
    for text, results in zip(TEXTS, batched, strict=False):
        for one, other in zip(translate(text, **options), results, strict=True):
            assert one["target_tokens"] == other["target_tokens"]
            np.testing.assert_allclose(one["cross_attention"], other["cross_attention"], atol=1e-6)


def test_blank_text_has_an_empty_translation(checkpoints):
    translate = pipeline("edu-translation", model=str(checkpoints / "EduTransformer"), device="cpu")
    assert translate("") == [{"translation_text": ""}]
    results = translate([TEXTS[0], " ", TEXTS[1]], batch_size=3, max_new_tokens=5, output_attentions=True)
    assert results[1]["translation_text"] == "" and results[1]["source_tokens"] == results[1]["target_tokens"] == []
    assert results[1]["cross_attention"].shape == (2, 3, 0, 0)
    assert results[0]["translation_text"] == translate(TEXTS[0], max_new_tokens=5)[0]["translation_text"] != ""
    with pytest.raises(ValueError, match="takes a text or a list of texts, got int"):
        translate(5)


def test_options_of_the_constructor_apply_to_every_call(checkpoints):
    folder = str(checkpoints / "EduBahdanau")
    fixed = pipeline(
        "edu-translation", model=folder, device="cpu", num_beams=3, max_new_tokens=6, output_attentions=True
    )
    free = pipeline("edu-translation", model=folder, device="cpu")
    expected = free(TEXTS[0], num_beams=3, max_new_tokens=6)[0]["translation_text"]
    assert fixed(TEXTS[0])[0]["translation_text"] == expected
    assert "cross_attention" in fixed(TEXTS[0])[0] and "cross_attention" not in free(TEXTS[0], max_new_tokens=2)[0]
    config = transformers.GenerationConfig(
        **free.model.generation_config.to_dict() | {"num_beams": 3, "max_new_tokens": 6}
    )
    assert free(TEXTS[0], generation_config=config)[0]["translation_text"] == expected


def test_too_long_a_source_is_rejected_or_truncated(checkpoints):
    translate = pipeline("edu-translation", model=str(checkpoints / "Marian"), device="cpu")
    long = " ".join(["dog"] * 80)
    with pytest.raises(ValueError, match="has 81 tokens, but the model's maximum is 60"):
        translate(long)
    (result,) = translate(long, truncation=True, max_new_tokens=3, output_attentions=True)
    assert len(result["source_tokens"]) == 60


def test_target_tokenizer(checkpoints, word_tokenizer):
    other = train_tokenizer(
        ["one two three four five six seven eight nine ten eleven twelve"] * 2,
        kind="word",
        vocab_size=60,
        task="seq2seq",
    )
    translate = pipeline("edu-translation", model=str(checkpoints / "EduBahdanau"), device="cpu")
    translate.model.generation_config.suppress_tokens = list(range(len(other), len(word_tokenizer)))
    (result,) = translate(TEXTS[0], target_tokenizer=other, max_new_tokens=6, output_attentions=True)
    assert set(result["target_tokens"]) <= set(other.get_vocab()) and set(result["source_tokens"]) <= set(
        word_tokenizer.get_vocab()
    )


@pytest.fixture(scope="session")
def subword_tokenizer():
    return train_tokenizer([*TEXTS, CONTEXT, *QUESTIONS], kind="wordpiece", vocab_size=90, task="bert")


@pytest.fixture(scope="session")
def qa_checkpoints(tmp_path_factory, subword_tokenizer):
    folder = tmp_path_factory.mktemp("qa_checkpoints")
    sizes = {key: value for key, value in SIZES.items() if key != "dropout"}
    sizes |= {"vocab_size": len(subword_tokenizer), "max_position_embeddings": 40}
    heads = {
        "EduBert": hf_edu_models.EduBertForQuestionAnswering(hf_edu_models.EduBertConfig(**sizes)),
        "Bert": transformers.BertForQuestionAnswering(transformers.BertConfig(**sizes)),
        "EduBertMasked": hf_edu_models.EduBertForMaskedLM(hf_edu_models.EduBertConfig(**sizes)),
        "BertMasked": transformers.BertForMaskedLM(transformers.BertConfig(**sizes)),
    }
    for name, model in heads.items():
        randomize(model).save_pretrained(folder / name)
        subword_tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture(params=["EduBert", "Bert"])
def answer(request, qa_checkpoints):
    return pipeline("edu-question-answering", model=str(qa_checkpoints / request.param), device="cpu")


def windows_and_logits(model, tokenizer, question, context, max_length=40, stride=20):
    """The logits of each window, run alone."""
    row = {"id": [0], "question": [question], "context": [context], "answers": [{"text": [], "answer_start": []}]}
    encoded = encode_question_answering(row, tokenizer, max_length, stride)
    windows = [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]
    logits = []
    for window in windows:
        inputs = {name: torch.tensor([window[name]]) for name in tokenizer.model_input_names}
        with torch.no_grad():
            outputs = model(**inputs)
        logits.append((outputs.start_logits[0].double().numpy(), outputs.end_logits[0].double().numpy()))
    return windows, logits


def brute_force(windows, logits, max_answer_len, allow_no_answer):
    """The probability of every span, computed with loops."""
    best = {}
    for window, (starts, ends) in zip(windows, logits, strict=True):
        offsets = window["offset_mapping"]
        for first in range(len(offsets)):
            for last in range(first, min(first + max_answer_len, len(offsets))):
                if offsets[first][0] < 0 or offsets[last][0] < 0:
                    continue
                span = (offsets[first][0], offsets[last][1])
                best[span] = max(best.get(span, -np.inf), starts[first] + ends[last])
    if allow_no_answer:
        best[0, 0] = min(starts[0] + ends[0] for starts, ends in logits)
    total = sum(np.exp(score) for score in best.values())
    return sorted(((float(np.exp(score) / total), span) for span, score in best.items()), reverse=True)


@pytest.mark.parametrize("allow_no_answer", [False, True])
@pytest.mark.parametrize("max_answer_len", [4, 30])
def test_answers_equal_a_search_over_all_spans(answer, subword_tokenizer, max_answer_len, allow_no_answer):
    for question in QUESTIONS:
        windows, logits = windows_and_logits(answer.model, subword_tokenizer, question, CONTEXT)
        assert len(windows) > 2
        expected = brute_force(windows, logits, max_answer_len, allow_no_answer)
        options = {"max_answer_len": max_answer_len, "handle_impossible_answer": allow_no_answer}
        results = answer(question=question, context=CONTEXT, top_k=7, **options)
        assert [(result["start"], result["end"]) for result in results] == [span for _, span in expected[:7]]
        np.testing.assert_allclose(
            [result["score"] for result in results], [score for score, _ in expected[:7]], rtol=1e-4
        )
        for result in results:
            assert result["answer"] == CONTEXT[result["start"] : result["end"]]
        everything = answer(question=question, context=CONTEXT, top_k=100_000, **options)
        assert len(everything) == len(expected)
        np.testing.assert_allclose(sum(result["score"] for result in everything), 1)


@pytest.mark.parametrize("threshold", [None, 0.0])
def test_first_answer_equals_find_answers(answer, subword_tokenizer, threshold):
    for question in QUESTIONS:
        windows, logits = windows_and_logits(answer.model, subword_tokenizer, question, CONTEXT)
        starts, ends = zip(*logits, strict=True)
        example = [{"id": 0, "context": CONTEXT}]
        found = find_answers(starts, ends, windows, example, best=40, null_threshold=threshold)
        result = answer(question=question, context=CONTEXT, handle_impossible_answer=threshold is not None)
        assert result["answer"] == found[0]["prediction_text"]


def test_no_answer_is_one_span_among_equals(answer):
    head = [module for module in answer.model.modules() if isinstance(module, torch.nn.Linear)][-1]
    torch.nn.init.zeros_(head.weight)
    assert answer(question=QUESTIONS[0], context=CONTEXT)["answer"] != ""
    spans = answer(question=QUESTIONS[0], context=CONTEXT, top_k=100_000, handle_impossible_answer=True)
    np.testing.assert_allclose([span["score"] for span in spans], 1 / len(spans))  # a zero head scores all spans alike
    assert next(span for span in spans if span["answer"] == "")["end"] == 0


def test_batched_windows_equal_windows_one_by_one(answer):
    examples = [{"question": question, "context": CONTEXT[number:]} for number, question in enumerate(QUESTIONS)]
    alone = [answer(example, top_k=3) for example in examples]
    for size in (2, 4, 50):
        for one, other in zip(alone, answer(examples, batch_size=size, top_k=3), strict=True):
            assert [span["answer"] for span in one] == [span["answer"] for span in other]
            np.testing.assert_allclose([a["score"] for a in one], [b["score"] for b in other], rtol=1e-4)


def test_every_input_type_gives_the_same_answer(answer):
    first, second = ({"question": question, "context": CONTEXT} for question in QUESTIONS[:2])
    one = answer(first)
    assert set(one) == {"score", "start", "end", "answer"}
    assert one == answer(question=QUESTIONS[0], context=CONTEXT) == answer(QUESTIONS[0], CONTEXT)
    both = [one, answer(second)]
    assert both == answer([first, second]) == answer((first, second)) == list(answer(e for e in [first, second]))
    assert (
        both == answer(question=QUESTIONS[:2], context=[CONTEXT] * 2) == answer(question=QUESTIONS[:2], context=CONTEXT)
    )
    assert answer([first]) == [one] and answer([]) == []


def test_attention_is_of_the_window_of_the_answer(answer, subword_tokenizer):
    windows, logits = windows_and_logits(answer.model, subword_tokenizer, QUESTIONS[0], CONTEXT)
    examples = [{"question": QUESTIONS[0], "context": CONTEXT}, {"question": QUESTIONS[1], "context": "birds sing ."}]
    results, _ = answer(examples, batch_size=3, top_k=5, output_attentions=True)
    tokens = [subword_tokenizer.convert_ids_to_tokens(window["input_ids"]) for window in windows]
    options = {"handle_impossible_answer": True, "output_attentions": True, "top_k": 100_000}
    empty = next(result for result in answer(QUESTIONS[0], CONTEXT, **options) if result["answer"] == "")
    assert empty["tokens"] == tokens[np.argmin([starts[0] + ends[0] for starts, ends in logits])]
    answer.model.set_attn_implementation("eager")
    for result in results:
        window = windows[tokens.index(result["tokens"])]
        inputs = {name: torch.tensor([window[name]]) for name in subword_tokenizer.model_input_names}
        with torch.no_grad():
            expected = torch.stack(answer.model(**inputs, output_attentions=True).attentions, dim=1)[0]
        torch.testing.assert_close(torch.tensor(result["attention"]), expected, atol=1e-5, rtol=0)
        assert any(pair[0] == result["start"] for pair in window["offset_mapping"])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"question": "who ?"}, "context= is missing"),
        ({"question": "", "context": CONTEXT}, "question must be a text that is not empty"),
        ({"question": "who ?", "context": "  "}, "context must be a text that is not empty"),
        ({"question": ["who ?"] * 3, "context": [CONTEXT] * 2}, "3 questions do not match 2 contexts"),
        ({}, "pass either question= and context="),
        ({"question": "who ?", "context": CONTEXT, "top_k": 0}, "top_k must be at least 1, got 0"),
        ({"question": "who ?", "context": CONTEXT, "doc_stride": 39}, "has no room for a question"),
    ],
)
def test_invalid_questions_raise_a_clear_error(answer, inputs, message):
    with pytest.raises(ValueError, match=message):
        answer(**inputs)


def test_invalid_options_and_examples_raise_a_clear_error(answer):
    with pytest.raises(TypeError, match="has no option 'topk'"):
        answer(QUESTIONS[0], CONTEXT, topk=3)
    with pytest.raises(ValueError, match=r"got \['text'\]"):
        answer({"text": CONTEXT})


@pytest.mark.parametrize(
    ("task", "folder", "message"),
    [
        ("edu-translation", "EduBert", "needs an encoder-decoder"),
        ("edu-translation", "Bert", "needs an encoder-decoder"),
        ("edu-question-answering", "EduBertMasked", "needs a model with a trained question answering head"),
        ("edu-question-answering", "BertMasked", "needs a model with a trained question answering head"),
    ],
)
def test_a_model_of_another_task_raises_a_one_line_error(qa_checkpoints, task, folder, message):
    with pytest.raises(ValueError, match=message) as error:
        pipeline(task, model=str(qa_checkpoints / folder), device="cpu")
    assert "\n" not in str(error.value)


def test_a_model_object_is_checked_too(checkpoints, qa_checkpoints, subword_tokenizer):
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(checkpoints / "EduBahdanau")
    with pytest.raises(ValueError, match="got EduBahdanauForConditionalGeneration"):
        pipeline("edu-question-answering", model=model, tokenizer=subword_tokenizer)
    # A model object may have been trained in memory: only a checkpoint without the head is rejected.
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(qa_checkpoints / "EduBertMasked")
    assert pipeline("edu-question-answering", model=model, tokenizer=subword_tokenizer)(QUESTIONS[0], CONTEXT)["answer"]


def test_saved_pipeline_loads_without_trust_remote_code(checkpoints, qa_checkpoints, tmp_path):
    translate = pipeline("edu-translation", model=str(checkpoints / "Marian"), device="cpu")
    answer = pipeline("edu-question-answering", model=str(qa_checkpoints / "EduBert"), device="cpu")
    translate.save_pretrained(tmp_path / "translate")
    answer.save_pretrained(tmp_path / "answer")
    again = pipeline("edu-translation", model=str(tmp_path / "translate"), device="cpu")
    assert again(TEXTS, max_new_tokens=6) == translate(TEXTS, max_new_tokens=6)
    again = pipeline("edu-question-answering", model=str(tmp_path / "answer"), device="cpu")
    assert again(QUESTIONS[0], CONTEXT) == answer(QUESTIONS[0], CONTEXT)
    assert AutoTokenizer.from_pretrained(tmp_path / "answer").get_vocab() == answer.tokenizer.get_vocab()


def test_importing_the_package_registers_both_tasks_once(caplog):
    code = "import hf_edu_models, transformers; print(transformers.pipelines.get_supported_tasks())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'edu-translation'" in run.stdout and "'edu-question-answering'" in run.stdout
    pipelines.register_pipelines()
    assert "already registered" not in caplog.text
