"""Forecast a time series with a recurrent network, with or without attention over the states before.

    python recipes/2010_recurrent_forecast.py --preset smoke            # under a minute on a CPU
    python recipes/2010_recurrent_forecast.py --preset seasons          # known lags, which the weights must find
    python recipes/2010_recurrent_forecast.py --preset etth1 --dataset etth1   # a folder with train, validation, test
    python recipes/2010_recurrent_forecast.py --preset etth1 --dataset sales.csv --columns values=shop1,shop2

A dataset has a column of dates; all others are values unless `--columns values=` names some. `--model
attention_window=0` leaves attention out. A forecast, and the weight of each lag:

    hf-edu forecast runs/recurrent_forecast-seasons series.csv --steps 24 --picture forecast.png
"""

from transformers import AutoModelForTimeSeriesPrediction

from hf_edu_models import EduRecurrentConfig
from hf_edu_models.data import collator_for, fit_scale, make_windows
from hf_edu_models.metrics import compute_metrics_for
from hf_edu_models.training import EduTrainer, corpus_for, finish_run, launch, model_for, start_run


def main(args, training_args):
    args.task = None if args.dataset == "seasons" else "time_series"
    corpus = corpus_for(args, tasks=("time_series",))
    run = start_run(args, training_args, "time_series", corpus)
    scale = fit_scale(corpus["train"])  # of what is known when the forecasts are made
    channels = {"num_input_channels": len(scale["input_mean"])}
    model = model_for(AutoModelForTimeSeriesPrediction, EduRecurrentConfig(**channels, **scale, **args.model), args)
    windows = make_windows(corpus, model.config)
    training_args.label_names = ["future_values"]
    trainer = EduTrainer(
        model=model,
        args=training_args,
        train_dataset=windows["train"],
        eval_dataset=windows["validation"],
        data_collator=collator_for("time_series"),
        compute_metrics=compute_metrics_for("time_series"),
    )
    trainer.train(resume_from_checkpoint=run.checkpoint)
    finish_run(run, trainer, "time_series", corpus, windows, tokenizer=None)


if __name__ == "__main__":
    launch(main, __file__)
