"""Poincare embeddings against the geometry of the disc and against gensim."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from hf_edu_models.experiments.poincare import (
    make_hierarchy,
    poincare,
    poincare_distance,
    read_hierarchy,
    riemannian_step,
    score_reconstruction,
    train_poincare,
)


def points(count, size=3, seed=0):
    generator = np.random.default_rng(seed)
    directions = generator.normal(size=(count, size))
    lengths = generator.uniform(0.05, 0.95, size=(count, 1))
    return torch.from_numpy(directions / np.linalg.norm(directions, axis=1, keepdims=True) * lengths)


def test_the_distance_is_hyperbolic():
    left, right, middle = points(50), points(50, seed=1), points(50, seed=2)
    found = poincare_distance(left, right)
    assert_close(found, poincare_distance(right, left))
    assert (found <= poincare_distance(left, middle) + poincare_distance(middle, right) + 1e-9).all()
    radius = torch.tensor([[0.3, 0, 0]], dtype=torch.float64)
    assert_close(poincare_distance(torch.zeros_like(radius), radius), 2 * torch.atanh(radius[:, 0]))  # from the centre
    assert (poincare_distance(left, left) < 1e-5).all()


def test_a_step_goes_down_and_stays_in_the_ball():
    vectors, target = points(20), points(20, seed=3)
    start = vectors.clone().requires_grad_()
    (gradients,) = torch.autograd.grad(poincare_distance(start, target).sum(), start)
    riemannian_step(vectors, torch.arange(20), gradients, 1e-3)
    assert (poincare_distance(vectors, target) < poincare_distance(start, target)).all()
    moved = poincare_distance(vectors, start.detach())
    # The gradient of a distance has length one in the metric of the disc, whatever the point.
    assert_close(moved, torch.full_like(moved, 1e-3), rtol=0.01, atol=1e-6)
    riemannian_step(vectors, torch.arange(20), gradients, 1e9)
    assert (vectors.norm(dim=1) < 1).all()


def test_scores_and_distances_are_gensims(tmp_path):
    gensim = pytest.importorskip("gensim.models.poincare")
    hierarchy = read_hierarchy(branches=2, depth=3)
    vectors = points(len(hierarchy.nodes))
    keyed = gensim.PoincareKeyedVectors(3, 0, dtype=np.float64)
    keyed.add_vectors(hierarchy.nodes, vectors.numpy())
    expected = [keyed.distance(hierarchy.nodes[0], other) for other in hierarchy.nodes[1:]]
    assert_close(poincare_distance(vectors[0], vectors[1:]).tolist(), expected, rtol=1e-5, atol=1e-6)
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{hierarchy.nodes[a]}\t{hierarchy.nodes[b]}\n" for a, b in hierarchy.pairs))
    theirs = gensim.ReconstructionEvaluation(str(file), keyed).evaluate()
    ours = score_reconstruction(vectors, hierarchy)
    assert ours["mean_rank"] == pytest.approx(theirs["mean_rank"] - 1)  # gensim counts the node itself as nearest
    assert ours["map"] > theirs["MAP"]


def test_a_tree_is_learnt_with_its_root_in_the_middle():
    hierarchy = read_hierarchy(branches=2, depth=3)
    start = score_reconstruction(points(len(hierarchy.nodes), 2), hierarchy)
    vectors = train_poincare(hierarchy, epochs=60, learning_rate=0.3)
    end = score_reconstruction(vectors, hierarchy)
    assert end["mean_rank"] < 0.6 * start["mean_rank"] and end["map"] > start["map"]
    norms = vectors.norm(dim=1)
    assert norms.argmin() == hierarchy.nodes.index("0")
    assert torch.equal(vectors, train_poincare(hierarchy, epochs=60, learning_rate=0.3))


def test_files_and_mistakes(tmp_path):
    file = tmp_path / "pairs.csv"
    file.write_text("child,parent\nlion,cat\nlion,mammal\ncat,mammal\ncat,cat\n")
    hierarchy = read_hierarchy(file)
    assert hierarchy.nodes == ["cat", "lion", "mammal"] and len(hierarchy.pairs) == 3  # a node is not its own ancestor
    lesson = poincare(str(file), epochs=1)
    assert [row["node"] for row in lesson.rows] == hierarchy.nodes
    with pytest.raises(ValueError, match="nowhere is no file; give a table with the columns child and parent"):
        read_hierarchy("nowhere")
    with pytest.raises(ValueError, match="a hierarchy needs pairs of a child and another node"):
        make_hierarchy([])
    with pytest.raises(ValueError, match="every node is an ancestor of every other; no negatives are left"):
        train_poincare(make_hierarchy([("a", "b"), ("b", "a")]))
