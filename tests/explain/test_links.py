"""Links: extracted from weights, symmetrized, written and read."""

import numpy as np
import pytest

from hf_edu_models.explain import diagonal_links, from_pharaoh, merge_links, to_pharaoh
from hf_edu_models.explain.alignment.links import extract_links

WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.4], [0.0, 0.0, 0.0], [0.2, 0.5, 0.2]])


def test_every_target_word_is_linked_to_its_largest_weight():
    assert extract_links(WEIGHTS) == [(0, 0), (1, 3), (2, 1)]  # the third row has no attention


def test_a_threshold_leaves_out_weak_links():
    assert extract_links(WEIGHTS, threshold=0.5) == [(0, 0), (1, 3)]
    assert extract_links(WEIGHTS, threshold=0.8) == []


def test_no_words_give_no_links():
    assert extract_links(np.zeros((0, 3))) == extract_links(np.zeros((3, 0))) == []
    assert diagonal_links(0, 3) == diagonal_links(3, 0) == []


@pytest.mark.parametrize("source, target", [(5, 5), (3, 7), (7, 3), (1, 4)])
def test_the_diagonal_is_even_and_monotone(source, target):
    links = sorted(diagonal_links(source, target), key=lambda link: link[1])
    assert [j for _, j in links] == list(range(target))
    sources = [i for i, _ in links]
    assert sources == sorted(sources) and sources[0] >= 0 and sources[-1] < source
    assert abs(sources[0] - (source - 1 - sources[-1])) <= 1
    if source == target:
        assert sources == list(range(source))


def random_links(rng, source=6, target=5, count=8):
    return {(int(rng.integers(source)), int(rng.integers(target))) for _ in range(count)}


@pytest.mark.parametrize("seed", range(20))
def test_symmetrizations_are_nested_and_symmetric(seed):
    rng = np.random.default_rng(seed)
    forward, backward = random_links(rng), random_links(rng)
    methods = ("intersect", "grow-diag", "grow-diag-final", "union")
    sets = [set(merge_links(forward, backward, method)) for method in methods]
    assert sets[0] == forward & backward and sets[3] == forward | backward
    assert sets[0] <= sets[1] <= sets[2] <= sets[3]
    if sets[0]:
        assert sets[1] == set(merge_links(backward, forward, "grow-diag"))
    words = [{("source", i) for i, _ in links} | {("target", j) for _, j in links} for links in sets]
    assert words[2] == words[3]  # after the last step every word that a direction links is linked


@pytest.mark.parametrize("method", ["intersect", "union", "grow-diag", "grow-diag-final"])
def test_equal_directions_stay_as_they_are(method):
    links = [(0, 1), (1, 0), (3, 3)]
    assert merge_links(links, links, method) == links


def test_growing_by_hand():
    # (0, 0) is common. (1, 1) touches it at a corner and both its words are new; (2, 2) touches (1, 1). (0, 1) touches
    # too, but its words are linked by then only if (1, 1) came first: (0, 0)'s straight neighbours come first.
    forward, backward = [(0, 0), (1, 1), (5, 5)], [(0, 0), (2, 2)]
    assert merge_links(forward, backward, "grow-diag") == [(0, 0), (1, 1), (2, 2)]
    assert merge_links(forward, backward, "grow-diag-final") == [(0, 0), (1, 1), (2, 2), (5, 5)]
    assert merge_links([(0, 0), (1, 1), (0, 1)], [(0, 0), (1, 1)], "grow-diag") == [(0, 0), (1, 1)]  # no new word


def test_an_unknown_method_raises_an_error():
    with pytest.raises(ValueError, match="grow-diag"):
        merge_links([], [], "grow")


def test_links_are_written_and_read():
    links = [(0, 0), (1, 2), (10, 3)]
    assert to_pharaoh(links) == "0-0 1-2 10-3"
    assert from_pharaoh(to_pharaoh(links)) == links and from_pharaoh("") == []
    with pytest.raises(ValueError, match="source word first"):
        from_pharaoh("0-0 1:2")
