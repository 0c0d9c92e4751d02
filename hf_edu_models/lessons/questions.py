"""The quiz of a lesson: questions with choices, of which one is right."""

from __future__ import annotations

from dataclasses import dataclass

# In the order of the notebooks of `recipes/lessons`.
LESSONS = (
    *("kernel", "feedforward", "recurrent", "lstm", "word_vectors", "seq2seq"),
    *("bahdanau", "hierarchical", "transformer", "elmo", "gpt", "bert"),
)
LETTERS = "abcdefgh"


@dataclass(frozen=True)
class Question:
    """A question, its choices, the right one of them, and why it is right."""

    text: str
    choices: tuple[str, ...]
    answer: str
    why: str

    @property
    def letter(self) -> str:
        return LETTERS[self.choices.index(self.answer)]

    @property
    def letters(self) -> str:
        return LETTERS[: len(self.choices)]

    def check(self, letter: str) -> str:
        """Say whether this letter is right, and why."""
        if letter == self.letter:
            return f"right. {self.why}"
        return f"wrong, it is {self.letter}. {self.why}"


def read_letter(text: str, question: Question) -> str:
    """One of the question's letters, upper or lower case."""
    letter = text.strip().lower()
    if len(letter) != 1 or letter not in question.letters:
        raise ValueError(f"answer with one of the letters {', '.join(question.letters)}; got {text.strip()!r}")
    return letter
