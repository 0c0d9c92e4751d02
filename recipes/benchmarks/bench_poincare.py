"""Poincare embeddings beside gensim's: mean rank, MAP and CPU seconds on one hierarchy, with the same settings.

    python recipes/benchmarks/bench_poincare.py --dataset pairs.csv      # columns child and parent (any ancestor)

Both train with 10 negatives, 10 epochs of burn-in at a tenth of the learning rate, and are scored by the same function.
Batches are each one's own (gensim 10 pairs, ours 20). Without --dataset: a tree of 121 nodes.
"""

import argparse
import time

import numpy as np
import torch

from hf_edu_models.experiments.poincare import read_hierarchy, score_reconstruction, train_poincare


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 10])
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--without-gensim", action="store_true")
    return parser.parse_args()


def train_gensim(hierarchy, size, args, seed):
    from gensim.models.poincare import PoincareModel

    pairs = [(hierarchy.nodes[child], hierarchy.nodes[parent]) for child, parent in hierarchy.pairs]
    model = PoincareModel(pairs, size=size, alpha=args.learning_rate, negative=10, burn_in=10, seed=seed)
    model.train(epochs=args.epochs, print_every=10**9)
    return torch.from_numpy(np.stack([model.kv[node] for node in hierarchy.nodes])).double()


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    hierarchy = read_hierarchy(args.dataset)
    print(f"{len(hierarchy.nodes):,} nodes, {len(hierarchy.pairs):,} pairs, {args.epochs} epochs")
    print("| dimensions | seed | system | mean rank | MAP | CPU seconds |\n|---|---|---|---|---|---|")
    for size in args.sizes:
        for seed in args.seeds:
            for system in ["ours"] if args.without_gensim else ["gensim", "ours"]:
                start = time.process_time()
                if system == "ours":
                    vectors = train_poincare(hierarchy, size, args.epochs, args.learning_rate, seed=seed)
                else:
                    vectors = train_gensim(hierarchy, size, args, seed)
                seconds = time.process_time() - start
                scores = score_reconstruction(vectors, hierarchy)
                figures = f"{scores['mean_rank']:.2f} | {scores['map']:.3f} | {seconds:.1f}"
                print(f"| {size} | {seed} | {system} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
