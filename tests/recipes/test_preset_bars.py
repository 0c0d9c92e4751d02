"""Presets of classifiers state what counting words reaches; a preset that extends another one is not changed unseen."""

import pytest

from hf_edu_models.training import load_preset, preset_names, recipe_files
from hf_edu_models.training import presets as module
from hf_edu_models.training.arguments import section_of

SECTIONS = {section: preset_names(section) for section in map(section_of, map(str, recipe_files().values()))}
# Each needs a number for a text or a pair of texts; the bars of other tasks are not words that are counted.
CLASSIFIERS = {
    "sst2", "cola", "mrpc", "rte", "stsb", "qqp", "mnli", "qnli", "wnli", "boolq", "cb", "wic", "terra", "goemotions",
    "imdb", "danetqa", "multirc", "muserc", "rcb", "russe", "rwsd", "wsc",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CLASSIFIERS))
def test_a_preset_states_the_bar_of_its_own_data(name):
    """`bar: null` only where a comment says why; what a preset inherits is the bar of other data."""
    for section in (each for each, names in SECTIONS.items() if name in names):
        settings, notes = load_preset(name, section)
        assert "bar" in notes, f"{name} states no bar"
        bar, own = notes["bar"], {name, settings.get("dataset_config"), settings["dataset"]}
        if bar is None:
            text = (module.recipes_folder() / "presets" / f"{name}.yaml").read_text()
            assert "bar: null  # " in text
            continue
        assert bar.keys() == {"data", "split", "metric", "score", "system"} and bar["data"] in own | {
            f"{name}_ru",
            f"{name}_small",
        }
        assert bar["metric"] == settings.get("metric_for_best_model", "accuracy") and 0 <= bar["score"] < 1


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_has_not_changed_through_the_one_that_it_extends(name):
    assert module.find_stale_digest(name) is None


def test_a_change_of_the_extended_preset_is_noticed(tmp_path, monkeypatch):
    folder = tmp_path / "presets"
    folder.mkdir()
    monkeypatch.setattr(module, "recipes_folder", lambda: tmp_path)
    (folder / "base.yaml").write_text("common: {max_length: 64}\ngpt: {learning_rate: 0.1, published: []}\n")
    (folder / "child.yaml").write_text("extends: base\ngpt: {learning_rate: 0.2}\n")
    digest = module.find_stale_digest("child").rpartition("extends_digest: ")[2].strip("'")
    (folder / "child.yaml").write_text(f"extends: base\nextends_digest: {digest!r}\ngpt: {{learning_rate: 0.2}}\n")
    assert module.find_stale_digest("child") is None and module.find_stale_digest("base") is None
    assert module.load_preset("child", "gpt")[0] == {"max_length": 64, "learning_rate": 0.2}
    (folder / "base.yaml").write_text("common: {max_length: 64}\ngpt: {learning_rate: 0.1, published: [1]}\n")
    assert module.find_stale_digest("child") is None  # no setting
    (folder / "base.yaml").write_text("common: {max_length: 32}\ngpt: {learning_rate: 0.1}\n")
    assert "see whether what is said about child still holds" in module.find_stale_digest("child")
