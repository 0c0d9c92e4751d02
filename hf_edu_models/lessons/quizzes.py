"""The quiz of a lesson in a notebook; in the terminal it is `hf-edu quiz`."""

from __future__ import annotations

from typing import Any

from .display import in_notebook
from .exercises import QUIZZES
from .questions import LESSONS, Question, read_letter


def find_quiz(lesson: str) -> tuple[Question, ...]:
    """The questions of a lesson, by its name or number."""
    number = lesson.removeprefix("lesson ").lstrip("0")
    name = LESSONS[int(number) - 1] if number.isdecimal() and int(number) <= len(LESSONS) else lesson
    if name not in QUIZZES:
        raise ValueError(f"there is no quiz for lesson {lesson!r}; choose one of {', '.join(list_lessons())}")
    return QUIZZES[name]


def list_lessons() -> list[str]:
    """The names of the lessons that have a quiz, in order."""
    return [name for name in LESSONS if name in QUIZZES]


def ask(lesson: str) -> str:
    """The questions as Markdown, with a letter for each choice."""
    parts = []
    for number, question in enumerate(find_quiz(lesson), 1):
        choices = (f"- {letter}) {choice}" for letter, choice in zip(question.letters, question.choices, strict=False))
        parts.append("\n".join((f"**{number}.** {question.text}", "", *choices)))
    return "\n\n".join(parts)


def grade(lesson: str, answers: str) -> list[tuple[bool, str]]:
    """For each question whether its letter is right, and why; `answers` has a letter for each, such as `abc`."""
    questions = find_quiz(lesson)
    if len(answers) != len(questions):
        raise ValueError(f"lesson {lesson} has {len(questions)} questions; give as many letters, got {answers!r}")
    letters = [read_letter(letter, question) for letter, question in zip(answers, questions, strict=True)]
    pairs = list(zip(letters, questions, strict=True))
    return [(letter == question.letter, question.check(letter)) for letter, question in pairs]


def quiz(lesson: str, answers: Any) -> None:
    """Show the questions of a lesson; with answers, such as "abc", say which are right."""
    if answers is ...:
        _show(f'{ask(lesson)}\n\nReplace the ... by a letter for each question, such as "abc", and run the cell.')
        return
    graded = grade(lesson, answers)
    for number, (_, text) in enumerate(graded, 1):
        print(f"{number}: {text}")
    print(f"{sum(is_right for is_right, _ in graded)} of {len(graded)} are right")


def _show(markdown: str) -> None:
    if in_notebook():
        from IPython.display import Markdown, display

        display(Markdown(markdown))
    else:
        print(markdown)
