"""Model cards: their facts are those of the run, nothing on them is private, and their code runs."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from finished_run import RESULTS, SIGNATURE
from huggingface_hub import ModelCard
from loopback_hub import card_errors
from markdown_it import MarkdownIt
from typer.testing import CliRunner

import hf_edu_models
from hf_edu_models import LADDER
from hf_edu_models.cli import app
from hf_edu_models.data import train_tokenizer
from hf_edu_models.hub import make_card, write_card
from hf_edu_models.hub.cards.card import read_template
from hf_edu_models.hub.cards.loss_curve import points
from hf_edu_models.hub.cards.snippets import PLACEHOLDER
from hf_edu_models.redaction import clean_command, redact_text
from hf_edu_models.run_folder import write_results

HEADS = [(rung, auto) for rung in LADDER for auto in rung.config.heads]
HUB = Path(hf_edu_models.hub.__file__).parent
TEXTS = ["The sun went down and it was dark soon.", "Where did Ada live? Ada Lovelace lived in London."]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A folder with model and tokenizer for every head of every rung."""
    checkpoints, parent = {}, tmp_path_factory.mktemp("heads")
    for rung, auto in HEADS:
        checkpoints[rung.name, auto] = folder = parent / f"{rung.name}-{auto}"
        torch.manual_seed(0)
        if rung.tokenizer is None:
            model = rung.head(auto)(rung.config(**rung.tiny))
            for buffer in model.buffers():
                torch.nn.init.uniform_(buffer)
            model.save_pretrained(folder)
            continue
        tokenizer = train_tokenizer(TEXTS, kind="char", rung=rung.name, cache_dir=parent / "cache")
        ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
        if rung.config().is_encoder_decoder:
            ids["decoder_start_token_id"] = tokenizer.bos_token_id
        model = rung.head(auto)(rung.config(**{**rung.tiny, "vocab_size": len(tokenizer), **ids}))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return checkpoints


def python_blocks(card: ModelCard) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card.text, flags=re.DOTALL)


def test_the_code_on_a_card_runs_for_every_head(checkpoints, tmp_path, capsys):
    """With the package in this process; without it in a process that cannot import it, once for each Auto class."""
    programs = {}
    for rung, auto in HEADS:
        folder = checkpoints[rung.name, auto]
        with_package, without, usage = (
            code.replace(PLACEHOLDER, str(folder)) for code in python_blocks(make_card(folder))
        )
        assert "import hf_edu_models" in with_package and "trust_remote_code=True" in without
        names = {}
        exec(with_package + usage, names)
        assert type(names["model"]).__name__ == rung.config.heads[auto]
        assert capsys.readouterr().out.strip(), f"{rung.name} {auto} prints nothing"
        programs[auto] = without + usage
    run_without_package(list(programs.values()), tmp_path)


def run_without_package(programs, folder):
    block = "class NoPackage:\n    def find_spec(self, name, path=None, target=None):\n"
    block += "        if name.partition('.')[0] == 'hf_edu_models':\n            raise ImportError('not installed')\n"
    main = f"import json, sys\n{block}sys.meta_path.insert(0, NoPackage())\n"
    main += "for program in json.load(open('programs.json')):\n    exec(program, {})\n"
    (folder / "programs.json").write_text(json.dumps(programs))
    environment = {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", "PATH": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", main]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= len(programs) and "Do you wish" not in done.stdout


@pytest.mark.parametrize(
    ("settings", "num_labels", "output"),
    [
        ({"problem_type": "regression"}, 1, r"-?\d+\.\d+"),
        ({"problem_type": "multi_label_classification"}, 3, r"\[.*\]"),
        ({"problem_type": "single_label_classification"}, 3, r"LABEL_\d"),
    ],
)
def test_a_classifier_prints_what_its_problem_type_predicts(
    settings, num_labels, output, checkpoints, tmp_path, capsys
):
    source = checkpoints["bert", "AutoModelForSequenceClassification"]
    config = transformers.AutoConfig.from_pretrained(source, num_labels=num_labels, **settings)
    hf_edu_models.EduBertForSequenceClassification(config).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path)
    load, _, usage = (code.replace(PLACEHOLDER, str(tmp_path)) for code in python_blocks(make_card(tmp_path)))
    exec(load + usage, {})
    assert re.fullmatch(output, capsys.readouterr().out.strip())


def test_the_hub_accepts_every_card_and_it_renders(checkpoints):
    for rung, auto in HEADS:
        card = make_card(checkpoints[rung.name, auto])
        assert card_errors(str(card)) == [], rung.name
        prose = re.sub(r"```.*?```", "", card.text, flags=re.DOTALL)
        assert not re.search(r"\{\{|\{%|\bNone\b|\brung\b", prose), f"{rung.name} {auto}"
        html = MarkdownIt("commonmark").enable("table").render(card.text)
        headings = re.findall(r"<h2>(.*?)</h2>", html)
        expected = ["Model description", "How to use", "Evaluation", "Limitations", "Files", "Licence", "Citation"]
        assert headings == expected, f"{rung.name} {auto}"


@pytest.mark.parametrize("rung", LADDER, ids=[rung.name for rung in LADDER])
def test_a_card_cites_the_papers_of_the_modeling_file(rung):
    """And no others; the braces of its BibTeX are balanced."""
    header = sys.modules[rung.head(next(iter(rung.config.heads))).__module__].__doc__
    template = read_template(rung)
    number = r"arXiv:(\d{4}\.\d{4,5})"
    assert set(re.findall(number, template)) == set(re.findall(number, header))
    (bibtex,) = re.findall(r"macro citation\(\) -%}\n(.*?)\{%- endmacro", template, flags=re.DOTALL)
    assert bibtex.count("{") == bibtex.count("}") and bibtex.count("@") >= 1
    for year in re.findall(r"\d{4}", rung.paper):
        assert re.search(rf"year\s*= \{{{year}\}}", bibtex), year


def test_the_metadata_of_a_run_has_its_scores(run):
    card = ModelCard.load(write_card(run))
    data = card.data
    assert (data.library_name, data.pipeline_tag, data.license) == ("transformers", "translation", "apache-2.0")
    assert {"hf_edu_models", "edu_bahdanau", "bahdanau", "translation"} <= set(data.tags)
    assert data.model_name == run.name
    results = {result.metric_type: result for result in data.eval_results}
    scores = RESULTS["scores"]["test"]
    assert results["bleu"].metric_value == scores["bleu"]
    assert results["bleu"].metric_args == {"signature": SIGNATURE, "interval": scores["bleu_interval"]}
    assert results["exact_match"].metric_value == scores["exact_match"]
    assert {(each.dataset_type, each.dataset_split) for each in data.eval_results} == {("dates", "test")}
    assert set(results) == {"bleu", "exact_match"}, "the runtime of an evaluation is not a score"
    assert data.datasets is None and data.base_model is None, "dates is not a dataset on the Hub"


def test_the_score_is_compared_with_published_results(run):
    text = make_card(run).text
    ours, theirs = re.findall(r"^\| (\*\*this model\*\*|RNNsearch) \| (\S+) \|", text, flags=re.MULTILINE)
    assert ours == ("**this model**", "**34.22**") and theirs == ("RNNsearch", "28.3")
    for fact in (
        "34.22 (33.1 to 35.2)",
        SIGNATURE,
        "12.3 million",
        "14 minutes",
        "--preset dates --seed 1",
        "lowercased",
    ):
        assert fact in text, fact


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"data": {"name": "bentrevett/multi30k", "source": "de", "target": "en"}},
            {"datasets": ["bentrevett/multi30k"], "language": ["de", "en"]},
        ),
        ({"data": {"name": "train.tsv", "source": "src", "target": "tgt"}}, {"datasets": None, "language": None}),
        ({"init_from": "google-bert/bert-base-uncased"}, {"base_model": "google-bert/bert-base-uncased"}),
        ({"init_from": "bert-small"}, {"base_model": None}),
        ({"init_from": "/home/jones/runs/bert"}, {"base_model": None}),
        ({"licence": "CC-BY-4.0"}, {"license": "cc-by-4.0"}),
        ({"licence": "My Own Licence 2"}, {"license": "other", "license_name": "my-own-licence-2"}),
        ({"licence": None}, {"license": None}),
        ({"scores": {"test": {"bleu": float("nan")}}}, {"eval_results": None}),
        ({"scores": {}}, {"eval_results": None}),
    ],
)
def test_results_are_translated_to_metadata(change, expected, run):
    write_results(run, RESULTS | change)
    card = make_card(run)
    assert {name: getattr(card.data, name, None) for name in expected} == expected
    assert card_errors(str(card)) == []


SECRET = "hf_" + "aB3" * 11


def test_nothing_private_is_on_a_card(run):
    home = "/home/jones/private"
    write_results(
        run,
        RESULTS
        | {
            "command": f"python recipes/2015_bahdanau.py --dataset {home}/letters.tsv --output_dir={home}/runs/x "
            f"--hub_token {SECRET} --init-from ~/secret/bert --preset dates",
            "data": {"name": f"{home}/letters.tsv", "sizes": {"train": 3}},
            "init_from": "../jones/runs/bert",
            "settings": {
                "hub_token": "s3cr3t",
                "output_dir": "runs/x",
                "dataset": f"{home}/letters.tsv",
                "deep": {"api_key": "s3cr3t", "path": "C:\\Users\\jones\\x.txt", "lines": [f"{home}/a.txt"]},
                "note": f"use {SECRET} from {home}/notes.txt",
            },
            "published": [{"system": "x", "score": 1.0, "metric": "bleu", "source": f"{home}/a.pdf", "note": ""}],
            "license_of_data": f"see {home}/LICENCE",
        },
    )
    text = str(make_card(run))
    for private in ("jones", "/home", "private", SECRET, "s3cr3t", str(run.parent), "Users", "secret"):
        assert private not in text, private
    for kept in ("letters.tsv", "--preset dates", "a.pdf", "recipes/2015_bahdanau.py"):
        assert kept in text, kept


def test_links_and_hub_ids_are_not_redacted():
    for text in ("https://huggingface.co/datasets/a/b", "see a/b and c.py", "arXiv:1409.0473", "1/2 and 3/4"):
        assert redact_text(text) == text
    command = "accelerate launch recipes/2015_bahdanau.py --dataset bentrevett/multi30k --note 'a b'"
    assert clean_command(command) == command
    assert clean_command("python x.py --token=abc --password abc --seed 1") == (
        "python x.py --token=(hidden) --password (hidden) --seed 1"
    )


def test_special_characters_in_samples_are_escaped(run):
    nasty = [
        "a | b",
        "line\nbreak",
        "<script>alert(1)</script>",
        "`code` *b* [l](http://x)",
        "# head",
        "---",
        "x" * 9999,
    ]
    write_results(run, RESULTS | {"samples": [{"source": text, "prediction": text} for text in nasty]})
    card = make_card(run)
    html = MarkdownIt("commonmark").enable("table").render(card.text)
    table = html.partition("Example predictions")[2].partition("</table>")[0]
    assert table.count("<tr>") == len(nasty) + 1 and table.count("<td>") == 2 * len(nasty)
    assert "<script>" not in html and "<code>" not in table and "<a " not in table
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert len(card.text) < 20_000
    compile(python_blocks(card)[-1], "card", "exec")  # its example is the first sample


def test_a_folder_without_a_run_gets_a_shorter_card(run):
    for name in ("results.json", "settings.yaml", "trainer_state.json"):
        (run / name).unlink()
    card = make_card(run)
    assert card.data.eval_results is None and "model-index" not in str(card)
    assert "not recorded" in card.text and "no record of an evaluation" in card.text
    assert "## Training procedure" not in card.text and "loss.png" not in card.text
    counted = sum(weight.numel() for weight in transformers.AutoModel.from_pretrained(run).parameters())
    whole = sum(weight.numel() for weight in transformers.AutoModelForSeq2SeqLM.from_pretrained(run).parameters())
    assert counted < whole and f"{whole:,} parameters" in card.text


@pytest.mark.parametrize(("saved", "shown"), [(1, ""), (5, ""), (None, ", num_beams=4")])
def test_the_snippet_searches_as_the_run_was_scored(saved, shown, run):
    config = transformers.GenerationConfig(num_beams=saved, max_new_tokens=9)
    config.save_pretrained(run)
    assert f"model.generate(**inputs{shown})" in make_card(run).text


def test_the_card_shows_the_pictures_that_exist(run):
    text = write_card(run).read_text()
    assert (run / "pictures/loss.png").read_bytes().startswith(b"\x89PNG")
    assert "(pictures/loss.png)" in text and "attention.png" not in text and "architecture.png" not in text
    (run / "pictures/architecture.png").write_bytes(b"x")
    assert "(pictures/architecture.png)" in make_card(run).text
    (run / "pictures/attention.png").write_bytes(b"x")
    assert "(pictures/attention.png)" in make_card(run).text


def test_points_of_a_loss_curve():
    """A step that is logged twice by a resumed run counts once; non-finite values are left out."""
    history = [{"loss": 3.0, "step": 1}, {"loss": 2.0, "step": 2}, {"eval_loss": 9.0, "step": 2}]
    history += [{"loss": 1.5, "step": 2}, {"loss": float("nan"), "step": 3}, {"train_loss": 7.0, "step": 3}]
    assert points(history, "loss") == ([1, 2], [3.0, 1.5])
    assert points(history, "eval_loss") == ([2], [9.0])


def test_a_card_that_was_edited_by_hand_is_not_overwritten(run):
    card = run / "README.md"
    card.write_text("my own words")
    with pytest.raises(ValueError, match="--force"):
        write_card(run)
    assert card.read_text() == "my own words" and not (run / "pictures").exists()
    write_card(run, force=True)
    first = card.read_text()
    write_results(run, RESULTS | {"seed": 77})
    write_card(run)  # generated and not edited: replaced
    assert card.read_text() != first and "seed 77" in card.read_text()
    card.write_text(card.read_text().replace("## Limitations", "## My limitations"))
    with pytest.raises(ValueError, match="changed"):
        write_card(run)
    assert "## My limitations" in card.read_text()


def test_a_failed_write_leaves_the_old_card(run, monkeypatch):
    file = write_card(run)
    before, names = file.read_bytes(), sorted(os.listdir(run))
    write_results(run, RESULTS | {"seed": 77})

    def full(*paths):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_card(run)
    assert file.read_bytes() == before and sorted(os.listdir(run)) == names


def test_the_readme_runs_and_lists_every_file(tmp_path, monkeypatch, capsys):
    readme = (HUB / "README.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", readme, flags=re.DOTALL).group(1), {})
    printed = capsys.readouterr().out
    assert "license: apache-2.0" in printed and "'modeling_bahdanau.py'" in printed
    files = [file.relative_to(HUB).as_posix() for file in HUB.rglob("*.py") if file.name != "__init__.py"]
    assert sorted(files) == sorted(re.findall(r"^\| `([\w/]+\.py)` \|", readme, flags=re.MULTILINE))


def test_the_command_writes_the_card_to_out(run, tmp_path):
    out = tmp_path / "cards/card.md"
    done = CliRunner().invoke(app, ["card", str(run), "--out", str(out), "--licence", "mit"])
    assert done.exit_code == 0, done.output
    assert ModelCard.load(out).data.license == "mit" and not (run / "README.md").exists()


@pytest.mark.parametrize("problem", ["no folder", "no config", "no rung", "bad json", "no head"])
def test_a_folder_without_a_valid_model_raises_one_sentence(problem, run):
    config = json.loads((run / "config.json").read_text())
    if problem == "no folder":
        run = run / "nowhere"
    elif problem == "no config":
        (run / "config.json").unlink()
    elif problem == "bad json":
        (run / "config.json").write_text("{")
    elif problem == "no rung":
        (run / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
    else:
        (run / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    done = CliRunner().invoke(app, ["card", str(run)])
    assert isinstance(done.exception, ValueError | FileNotFoundError)
    assert str(run) in str(done.exception) and "\n" not in str(done.exception)


HOSTILE = "x`|\n\n```\n# heading\n<b>\x1b[2J\u202e**bold** [a](http://b)"


def test_nothing_from_the_results_becomes_markup(run):
    """Every string of results.json is replaced by one that breaks out of code, tables and lines."""

    def replace_strings(value):
        if isinstance(value, dict):
            return {name: replace_strings(each) for name, each in value.items()}
        if isinstance(value, list):
            return [replace_strings(each) for each in value]
        return HOSTILE if isinstance(value, str) else value

    kept = {"model_type", "architecture", "rung"}
    results = {name: value if name in kept else replace_strings(value) for name, value in RESULTS.items()}
    results["scores"] = {HOSTILE: {HOSTILE: 0.5}, "test": {"bleu": 1.0, "bleu_signature": HOSTILE}}
    results["settings"] = {HOSTILE: HOSTILE}
    results["samples"] = [{HOSTILE: HOSTILE}]
    results["data"] |= {"source": HOSTILE, "target": HOSTILE, "sizes": {HOSTILE: 3}}
    results |= {"init_from": HOSTILE, "attention_of": HOSTILE, "license_of_data": HOSTILE}
    write_results(run, results)
    card = make_card(run)
    assert card_errors(str(card)) == []
    assert "\x1b" not in str(card) and "\u202e" not in str(card)
    html = MarkdownIt("commonmark").enable("table").render(card.text)
    prose = re.sub(r"<code.*?</code>", "", html, flags=re.DOTALL)
    assert not re.search(r"<h1>heading|<b>|<strong>bold|href=\"http://b", prose)
    assert re.findall(r"<h1>(.*?)</h1>", html) == [run.name]


def test_the_card_lists_digests_of_weights_and_code_and_how_to_pin(run):
    card = make_card(run).text
    assert 'revision="..."' in card and "hf-edu check" in card
    for name in ("model.safetensors", "modeling_bahdanau.py", "configuration_base.py"):
        digest = hashlib.sha256((run / name).read_bytes()).hexdigest()
        assert f"| `{name}` | `{digest}` |" in card
