"""`hf-edu quiz`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text


def quiz(
    lesson: Annotated[
        str | None, typer.Argument(help="Name or number of the lesson; without it, all lessons are listed.")
    ] = None,
    answers: Annotated[
        str | None, typer.Option(help="A letter for each question, such as abc, instead of being asked.")
    ] = None,
) -> None:
    """Answer the questions of a lesson.

    hf-edu quiz lstm

    hf-edu quiz 4 --answers abc
    """
    from ..lessons.questions import LESSONS
    from ..lessons.quizzes import find_quiz, grade, list_lessons

    console = Console()
    if lesson is None:
        for name in list_lessons():
            console.print(f"{LESSONS.index(name) + 1:>2} {name}", highlight=False)
        console.print("answer one with: hf-edu quiz NAME")
        return
    questions = find_quiz(lesson)
    found = grade(lesson, answers) if answers is not None else [_ask(*each) for each in enumerate(questions, 1)]
    if answers is not None:
        for number, (_, text) in enumerate(found, 1):
            console.print(Text(f"{number}: {text}"), soft_wrap=True)
    console.print(f"{sum(is_right for is_right, _ in found)} of {len(found)} are right", highlight=False)


def _ask(number, question) -> tuple[bool, str]:
    """Print a question, read a letter until it is one of the choices, and say whether it is right."""
    from ..lessons.questions import read_letter

    console = Console()
    console.print(Text(f"{number}. {question.text}", style="bold"), soft_wrap=True)
    for letter, choice in zip(question.letters, question.choices, strict=False):
        console.print(Text(f"   {letter}) {choice}"), soft_wrap=True)
    while True:
        try:
            letter = read_letter(typer.prompt("answer"), question)
            break
        except ValueError as error:
            console.print(Text(str(error)), soft_wrap=True)
    text = question.check(letter)
    console.print(Text(f"{text}\n"), soft_wrap=True)
    return letter == question.letter, text
