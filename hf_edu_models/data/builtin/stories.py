"""Built-in corpus `stories`: short English stories from a small grammar, one sentence per row.

The people, the place and the lost object stay the same throughout a story, so a model can learn to predict the next
sentence and masked tokens from the context.
"""

# ruff: noqa: SIM905 (word lists read better as words)
from __future__ import annotations

import random

_HEROES = [
    *[(name, "she", "her") for name in "Ada Mina Rosa Ines Olga Lucy Vera Nora Hana Zoe Clara Edith".split()],
    *[(name, "he", "his") for name in "Tom Ivan Hugo Omar Felix Leo Emil Karl Jonas Paul Ravi Max".split()],
]
_FRIENDS = "Anna Bruno Carla Dan Elsa Frank Greta Henry Iris Jack Kira Luis Marta Nils Petra Rita Sam Tina".split()
_JOBS = "baker sailor teacher painter gardener clockmaker fisher tailor doctor miller shepherd singer".split()
_HOMES = "village harbour mountain island forest valley desert city lake castle market garden".split()
_THINGS = "key ring map lantern violin letter coin book hat clock feather shell compass basket mirror drum".split()
_ADJECTIVES = "old golden small broken silver strange heavy blue red wooden green shining".split()
_ANIMALS = "cat dog fox crow horse goat owl rabbit bear duck hedgehog donkey".split()
_FOODS = "bread soup apples cheese honey fish nuts cake rice plums".split()
_WEATHERS = "rain snow wind fog sun storm frost thunder".split()
_FEELINGS = "happy sad angry tired afraid proud curious lonely calm hungry".split()
_HIDING = ["under a stone", "behind the door", "in the river", "on the roof", "inside a tree", "below the bridge"]
_TIMES = ["One morning", "At noon", "In the evening", "Late at night", "The next day", "After a while"]

OPENINGS = [
    "{hero} was a {job} who lived near the {home} .",
    "There was once a {job} named {hero} in the {home} .",
    "In the {home} lived {hero} , a {feeling} {job} .",
]
LOSSES = [
    "{time} {pronoun} lost {own} {kind} {thing} .",
    "{time} the {kind} {thing} of {hero} was gone .",
    "{time} a {animal} took the {kind} {thing} away .",
]
MIDDLES = [
    "{hero} looked for the {thing} {spot} , but it was not there .",
    "{pronoun} asked {friend} about the {kind} {thing} .",
    "{friend} had not seen any {thing} near the {home} .",
    "The {animal} of {friend} followed {hero} through the {weather} .",
    "{time} the {weather} came over the {home} .",
    "{pronoun} felt {feeling} and sat down to eat some {food} .",
    "{friend} gave {hero} some {food} and a little hope .",
    "The {animal} wanted {food} , so {friend} shared it .",
    "{hero} and {friend} walked around the {home} together .",
    "Without the {thing} a {job} could not work .",
    "{friend} said that the {animal} knew more than people think .",
    "{time} {pronoun} dreamed of the {kind} {thing} .",
]
FINDINGS = [
    "{time} the {animal} found the {thing} {spot} .",
    "{time} {friend} saw the {kind} {thing} {spot} .",
    "At last {pronoun} found the {thing} {spot} .",
]
ENDINGS = [
    "{hero} thanked {friend} and was {feeling} no more .",
    "From that day the {job} never lost the {thing} again .",
    "{hero} , {friend} and the {animal} shared the {food} and went home .",
]
_MIN_SENTENCES = 4


def generate(sizes: dict[str, int], seed: int, min_sentences: int = 6, max_sentences: int = 14):
    """Rows by split, `sizes` counted in stories; no story is in two splits."""
    if not _MIN_SENTENCES <= min_sentences <= max_sentences:
        raise ValueError(
            f"stories need {_MIN_SENTENCES} <= min_sentences <= max_sentences, got {min_sentences}, {max_sentences}"
        )
    rng = random.Random(seed)
    seen: set[str] = set()
    rows = {}
    for split, size in sizes.items():
        columns: dict[str, list[str]] = {"document": [], "text": []}
        for number in range(size):
            story = _new_story(rng, min_sentences, max_sentences, seen)
            columns["document"] += [f"{split}-{number}"] * len(story)
            columns["text"] += story
        rows[split] = columns
    return rows


def _tell(rng: random.Random, length: int) -> list[str]:
    """One story of `length` sentences: opening, loss, middle, finding, ending."""
    cast = _cast(rng)
    middles = [rng.choice(MIDDLES) for _ in range(length - _MIN_SENTENCES)]
    order = [rng.choice(OPENINGS), rng.choice(LOSSES), *middles, rng.choice(FINDINGS), rng.choice(ENDINGS)]
    story = []
    for template in order:
        sentence = template.format(time=rng.choice(_TIMES), spot=rng.choice(_HIDING), **cast)
        story.append(sentence[0].upper() + sentence[1:])
    return story


def _cast(rng: random.Random) -> dict[str, str]:
    hero, pronoun, own = rng.choice(_HEROES)
    lists = {"friend": _FRIENDS, "job": _JOBS, "home": _HOMES, "thing": _THINGS, "kind": _ADJECTIVES}
    lists |= {"animal": _ANIMALS, "food": _FOODS, "weather": _WEATHERS, "feeling": _FEELINGS}
    return {"hero": hero, "pronoun": pronoun, "own": own} | {name: rng.choice(words) for name, words in lists.items()}


def _new_story(rng: random.Random, min_sentences: int, max_sentences: int, seen: set[str]) -> list[str]:
    while True:
        story = _tell(rng, rng.randint(min_sentences, max_sentences))
        text = " ".join(story)
        if text not in seen:
            seen.add(text)
            return story
