"""Word vectors: skip-gram and CBOW (Mikolov et al. 2013), GloVe (Pennington et al. 2014), n-grams (Bojanowski 2017).

    python recipes/2013_word_vectors.py --preset smoke                              # under a minute on a CPU
    python recipes/2013_word_vectors.py --preset wikipedia --dataset my_texts/      # .txt or .parquet files
    python recipes/2013_word_vectors.py --preset wikipedia --objective cbow --learning_rate 0.05
    python recipes/2013_word_vectors.py --preset wikipedia --objective glove --learning_rate 0.05
    python recipes/2013_word_vectors.py --preset wikipedia --model num_buckets=100000     # fastText: vectors of n-grams
    python recipes/2013_word_vectors.py --preset smoke --updates autograd --model window_implementation=eager
    python recipes/2013_word_vectors.py --preset smoke --updates autograd --model hierarchical_softmax=true
    python recipes/2013_word_vectors.py --preset node2vec                           # the nodes of a graph (karate)
    python recipes/2013_word_vectors.py --preset node2vec --dataset cora/ --model hidden_size=64

Skip-gram predicts the words around a word from its vector, CBOW a word from the mean of those around it, GloVe how
often two words occur near each other. What they learn is the same table: `hf-edu explain neighbours RUN king`.

node2vec (Grover & Leskovec 2016, arXiv:1607.00653) is skip-gram on random walks: a node is known by those around it.

`--updates sparse` is the fast form: stochastic gradient descent that touches only the vectors of a few blocks of text
at a time. `--updates autograd` is the readable one, with Trainer's optimizer: each step updates all vectors.
"""

from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoModelForTextEncoding

from hf_edu_models import EduWordVectorsConfig
from hf_edu_models.data import collator_for, count_pairs, count_words, encode_words, plain_words, read_graph
from hf_edu_models.models.blocks_subwords import subword_table
from hf_edu_models.training import (
    EduTrainer,
    WordVectorsArguments,
    WordVectorsTrainer,
    corpus_for,
    finish_run,
    graph_corpus,
    launch,
    model_for,
    nearest_words,
    report_node_scores,
    start_run,
    tokenizer_for,
)

Arguments = WordVectorsArguments
HEADS = {"skip_gram": AutoModelForPreTraining, "cbow": AutoModelForMaskedLM, "glove": AutoModelForTextEncoding}


def main(args, training_args):
    graph = read_graph(args.dataset) if args.graph else None
    if graph is None:
        corpus = corpus_for(args, tasks=("language_modeling",))
    else:
        corpus = graph_corpus(args, graph, training_args.seed)
    training_args.prediction_loss_only = True
    run = start_run(args, training_args, args.objective)
    tokenizer = tokenizer_for(args, corpus, rung="word_vectors", min_frequency=args.min_count)
    texts = encode_words(corpus, tokenizer, args.max_length, num_proc=args.num_proc)
    counts = count_words(texts["train"], len(tokenizer))

    config = EduWordVectorsConfig.for_tokenizer(tokenizer, **args.model)
    ngrams = subword_table(plain_words(tokenizer), config) if config.num_buckets else None
    if ngrams is not None:
        config.num_ngrams = len(ngrams[0])
    model = model_for(HEADS[args.objective], config, args)
    if args.init_from is None and ngrams is not None:
        model.model.embed_tokens.set_words(*ngrams)
    if args.init_from is None and config.hierarchical_softmax:
        model.tree.set_counts(counts.tolist())  # frequent words get short paths

    if args.objective == "glove":
        texts = {split: count_pairs(rows, len(tokenizer), config.window_size) for split, rows in texts.items()}
        collator = collator_for("glove", tokenizer)
    else:
        options = {"window_size": config.window_size, "sample": args.sample, "block_size": args.block_size}
        negatives = 0 if config.hierarchical_softmax else args.negatives
        collator = collator_for(args.objective, tokenizer, counts=counts, negatives=negatives, **options)
    trainer_class = WordVectorsTrainer if args.updates == "sparse" else EduTrainer
    trainer = trainer_class(
        model=model,
        args=training_args,
        train_dataset=texts["train"],
        eval_dataset=texts["validation"],
        data_collator=collator,
        processing_class=tokenizer,
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    words = [word for word in plain_words(tokenizer) if word is not None]
    frequent = [word for word in words if len(word) > 3 and word.isalpha()] or words
    finish_run(run, trainer, args.objective, corpus, texts, tokenizer, samples=nearest_words(frequent))
    if graph is not None:
        report_node_scores(run, model, tokenizer, graph)


if __name__ == "__main__":
    launch(main, __file__)
