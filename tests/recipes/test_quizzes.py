"""Every lesson has a quiz, in its notebook and in the terminal; right letters are right, others wrong."""

import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from hf_edu_models.cli.commands import app
from hf_edu_models.lessons import quiz
from hf_edu_models.lessons.exercises import QUIZZES
from hf_edu_models.lessons.questions import LESSONS
from hf_edu_models.lessons.quizzes import ask, find_quiz, grade, list_lessons

NOTEBOOKS = sorted((Path(__file__).parents[2] / "recipes" / "lessons").glob("*.ipynb"))


def right_letters(lesson):
    return "".join(question.letter for question in QUIZZES[lesson])


def wrong_letters(lesson):
    """For each question, the letter after the right one."""
    letters = zip(QUIZZES[lesson], right_letters(lesson), strict=True)
    return "".join(q.letters[(q.letters.index(letter) + 1) % len(q.letters)] for q, letter in letters)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_every_lesson_has_a_quiz_and_its_notebook_asks_it(file):
    number, _, lesson = file.stem.partition("_")
    assert LESSONS[int(number) - 1] == lesson
    assert find_quiz(lesson) == find_quiz(number) and len(find_quiz(lesson)) >= 3
    sources = ["".join(cell["source"]) for cell in json.loads(file.read_text("utf-8"))["cells"]]
    assert f'quiz("{lesson}", ...)' in sources


@pytest.mark.parametrize("lesson", QUIZZES)
def test_right_letters_are_right_and_others_are_wrong(lesson):
    assert all(is_right for is_right, _ in grade(lesson, right_letters(lesson).upper()))
    for (is_right, text), question in zip(grade(lesson, wrong_letters(lesson)), QUIZZES[lesson], strict=True):
        assert not is_right and f"it is {question.letter}. {question.why}" in text


@pytest.mark.parametrize("lesson", QUIZZES)
def test_a_question_has_distinct_choices_and_the_page_does_not_say_which_is_right(lesson):
    for question in QUIZZES[lesson]:
        assert len(set(question.choices)) == len(question.choices) >= 3
        assert question.text.endswith("?") and question.why.endswith(".")
        assert question.why not in ask(lesson)
    assert len(set(right_letters(lesson))) > 1  # not the same letter throughout


def test_the_terminal_lists_asks_and_grades():
    run = CliRunner().invoke
    listed = run(app, ["quiz"]).output
    assert all(f"{LESSONS.index(lesson) + 1} {lesson}" in listed for lesson in list_lessons())
    typed = "".join(f"{letter}\n" for letter in "?" + right_letters("lstm"))
    asked = run(app, ["quiz", "4"], input=typed)
    assert asked.exit_code == 0 and "one of the letters a, b, c" in asked.output and "3 of 3 are right" in asked.output
    given = run(app, ["quiz", "lstm", "--answers", wrong_letters("lstm")]).output
    assert given.count("wrong, it is") == 3 and "0 of 3 are right" in given


def test_the_notebook_asks_and_grades(capsys):
    quiz("elmo", ...)
    shown = capsys.readouterr().out
    assert all(choice in shown for question in QUIZZES["elmo"] for choice in question.choices)
    quiz("elmo", right_letters("elmo"))
    assert "3 of 3 are right" in capsys.readouterr().out


def test_wrong_input_names_what_is_allowed():
    with pytest.raises(ValueError, match="choose one of kernel, "):
        find_quiz("nothing")
    with pytest.raises(ValueError, match="has 3 questions"):
        grade("lstm", "ab")
    with pytest.raises(ValueError, match="letters a, b, c; got 'x'"):
        grade("lstm", "abx")


# What a model says, for the questions that one can answer.


def wide_kernel():
    from hf_edu_models.lessons.exercises.kernel import _kernel_model

    keys, values = torch.randn(9), torch.randn(9)
    predictions = _kernel_model(1e4, keys[:, None], values)(torch.tensor([[-3.0], [3.0]])).logits
    assert torch.allclose(predictions, values.mean().expand(2, 1), atol=1e-4)
    return "the mean of all values"


def outside_the_window():
    from hf_edu_models import EduFeedForwardConfig, EduFeedForwardForCausalLM

    model = EduFeedForwardForCausalLM(EduFeedForwardConfig(vocab_size=20, window_size=4, hidden_size=8)).eval()
    ids = torch.tensor([[5, 6, 7, 8, 9], [10, 6, 7, 8, 9]])
    one, other = model(ids).logits[:, -1]
    return "nothing" if torch.equal(one, other) else "a weakened trace of it"


def sizes_of_cells():
    from hf_edu_models.lessons.answers import count_parameters
    from hf_edu_models.lessons.exercises.recurrent import cell_of

    lstm, rnn = (count_parameters(cell_of(name, 6, 5)) for name in ("lstm", "rnn"))
    return str(lstm // rnn) if lstm % rnn == 0 else ""


def shifted_scores():
    from hf_edu_models.models.blocks_attention import NORMALIZERS, attend

    scores, annotations = torch.randn(2, 7), torch.randn(2, 7, 6)
    (_, one), (_, other) = (attend(each, annotations, None, NORMALIZERS["softmax"]()) for each in (scores, scores + 3))
    return "nothing" if torch.allclose(one, other, atol=1e-6) else ""


def layer_0_of_elmo():
    from hf_edu_models import EduElmoConfig, EduElmoModel

    model = EduElmoModel(EduElmoConfig(vocab_size=20, hidden_size=4, cell_size=6)).eval()
    layers = model(torch.tensor([[5, 9, 7], [6, 9, 8]]), output_hidden_states=True).hidden_states
    same = [torch.equal(*layer[:, 1]) for layer in layers]
    return "not at all" if same == [True, False, False] else ""


def predictions_of_gpt():
    from hf_edu_models import EduGPTConfig, EduGPTForCausalLM

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model, ids = EduGPTForCausalLM(EduGPTConfig(vocab_size=20, **sizes)).eval(), torch.randint(3, 20, (1, 7))
    outputs = model(ids, labels=ids)
    losses = -outputs.logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])
    return "T - 1" if torch.allclose(losses.sum() / 6, outputs.loss) else ""


def share_of_mask_tokens():
    from hf_edu_models.data import collator_for, load_corpus, train_tokenizer

    tokenizer = train_tokenizer(load_corpus("stories", train_size=30), kind="wordpiece", vocab_size=300, rung="bert")
    torch.manual_seed(0)
    ids = torch.randint(len(tokenizer) - 100, len(tokenizer), (200, 100))
    batch = collator_for("pretraining", tokenizer)([{"input_ids": row.tolist()} for row in ids])
    return f"{(batch['input_ids'] == tokenizer.mask_token_id).float().mean():.0%}"


PROOFS = {
    "The width grows without end.": wide_kernel,
    "The window has four words.": outside_the_window,
    "How many times the parameters of a simple": sizes_of_cells,
    "All scores of a step grow by 3.": shifted_scores,
    "Layer 0 of ELMo:": layer_0_of_elmo,
    "How many predictions does one text": predictions_of_gpt,
    "What share of all tokens becomes [MASK]?": share_of_mask_tokens,
}


@torch.no_grad()
@pytest.mark.parametrize("start", PROOFS)
def test_a_model_gives_the_answer(start):
    torch.manual_seed(0)
    (question,) = [each for each in sum(QUIZZES.values(), ()) if re.match(re.escape(start), each.text)]
    assert PROOFS[start]() == question.answer
