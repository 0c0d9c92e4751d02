"""The routes, compared with the same models called directly; wrong requests; and real clients of a real server."""

import base64
import json
import shutil
import signal
import subprocess
import time

import httpx
import numpy as np
import openai
import pytest
import torch
from server_process import start_server
from starlette.testclient import TestClient

from hf_edu_models.checkpoints import load_model, load_with_head
from hf_edu_models.explain import attention_maps
from hf_edu_models.explain.hidden_states import TextEncoder
from hf_edu_models.generation import GenerationOptions, load_text_writer
from hf_edu_models.prediction import load_predictor
from hf_edu_models.serve import ServeSettings, create_app

TEXTS = ["the cat sat on the mat", "a dog", "two dogs run in the park", "the mat barks and the cat sat on the dog"]


def post(client, route, **body):
    response = client.post(route, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def error_of(response, status):
    assert response.status_code == status, response.text
    return response.json()["error"]["message"]


@pytest.mark.parametrize("name", ["bert", "gpt", "bahdanau", "tagger", "han"])
@pytest.mark.parametrize(("pooling", "layer"), [("mean", -1), ("max", 1), ("last", 0)])
def test_embeddings_equal_encode(client, served, name, pooling, layer):
    expected = [each for _, each in TextEncoder(*load_model(served[name]), pooling, layer)(TEXTS)]
    data = post(client, "/v1/embeddings", model=name, input=TEXTS, pooling=pooling, layer=layer)["data"]
    assert [item["index"] for item in data] == [0, 1, 2, 3]
    np.testing.assert_allclose([item["embedding"] for item in data], expected, atol=1e-5)


def test_several_poolings_layers_and_tokens_in_one_call(client, served):
    options = {"pooling": ["mean", "first"], "layer": [0, -1], "normalize": True}
    item = post(client, "/v1/embeddings", model="bert", input=TEXTS[1], tokens=True, **options)["data"][0]
    model, tokenizer = load_model(served["bert"])
    for each in item["embeddings"]:
        [(_, expected)] = TextEncoder(model, tokenizer, each["pooling"], each["layer"], normalize=True)([TEXTS[1]])
        np.testing.assert_allclose(each["embedding"], expected, atol=1e-5)
    assert len(item["embeddings"]) == 4 and item["embedding"] == item["embeddings"][0]["embedding"]
    with torch.no_grad():
        states = model(**tokenizer(TEXTS[1], return_tensors="pt"), output_hidden_states=True).hidden_states
    assert item["tokens"] == ["[CLS]", "a", "dog", "[SEP]"]
    for each in item["token_embeddings"]:
        np.testing.assert_allclose(each["embeddings"], states[each["layer"]][0].numpy(), atol=1e-5)


def test_token_ids_base64_and_truncation(client, served):
    _, tokenizer = load_model(served["bert"])
    ids = tokenizer(TEXTS[0])["input_ids"]
    by_text = post(client, "/v1/embeddings", model="bert", input=TEXTS[0])
    by_ids = post(client, "/v1/embeddings", model="bert", input=ids, encoding_format="base64")
    decoded = np.frombuffer(base64.b64decode(by_ids["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(decoded, by_text["data"][0]["embedding"], atol=1e-6)
    assert by_text["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids)}
    long = "the cat " * 40
    cut = post(client, "/v1/embeddings", model="bert", input=long, truncate=True)["data"][0]["embedding"]
    [(_, expected)] = TextEncoder(*load_model(served["bert"]))([long])
    np.testing.assert_allclose(cut, expected, atol=1e-5)


def test_completions_equal_generate(client, served):
    options = GenerationOptions(max_new_tokens=6)
    expected = [each[0] for each in load_text_writer(served["gpt"], options)(TEXTS[:3])]
    body = {"model": "gpt", "prompt": TEXTS[:3], "max_tokens": 6, "temperature": 0}
    echoed = post(client, "/v1/completions", echo=True, **body)
    assert [each["text"] for each in echoed["choices"]] == expected
    bare = post(client, "/v1/completions", **body)
    assert [text + each["text"] for text, each in zip(TEXTS, bare["choices"], strict=False)] == expected
    assert bare["usage"]["completion_tokens"] <= 18
    sampled = [post(client, "/v1/completions", prompt=TEXTS[0], n=3, seed=seed)["choices"] for seed in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2]


@pytest.mark.parametrize("stop", [None, [" cat", "dog"]])
def test_a_stream_has_the_text_of_the_whole(client, stop):
    body = {"model": "gpt", "prompt": TEXTS[0], "max_tokens": 12, "temperature": 0, "stop": stop}
    whole = post(client, "/v1/completions", **body)["choices"][0]
    response = client.post("/v1/completions", json=body | {"stream": True})
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    choices = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert choices[-1]["finish_reason"] == whole["finish_reason"]
    assert stop is not None or len(choices) > 3
    assert all(each not in whole["text"] for each in stop or [])


def test_the_other_routes_equal_the_command_line(client, served):
    writer = load_text_writer(served["bahdanau"], GenerationOptions(num_beams=2, max_new_tokens=5))
    translated = post(client, "/translate", text=TEXTS, num_beams=2, max_new_tokens=5)["translations"]
    assert translated == [each[0] for each in writer(TEXTS)]
    filler = load_text_writer(served["mlm"], GenerationOptions(num_return_sequences=2))
    assert post(client, "/fill-mask", text="the [MASK] sat", top_k=2)["fillings"] == filler(["the [MASK] sat"])
    for route, name in (("/classify", "labels"), ("/classify", "han"), ("/tags", "tagger")):
        predictor = load_predictor(served[name])
        expected = predictor([predictor.row(text) for text in TEXTS])
        assert post(client, route, model=name, text=TEXTS)["predictions"] == expected
    row = {"question": "the cat", "context": "a dog sat on the mat"}
    assert post(client, "/answer", **row)["predictions"] == load_predictor(served["reader"])([row])
    maps = attention_maps(*load_with_head(served["bert"]), TEXTS[0])
    found = post(client, "/attention", model="bert", text=TEXTS[0])["attention"]["self"]
    np.testing.assert_allclose(found["weights"], maps["self"].weights, atol=1e-4)
    assert found["key_tokens"] == maps["self"].key_tokens


@pytest.mark.parametrize(
    ("route", "body", "status", "message"),
    [
        ("/v1/embeddings", {"model": "none", "input": "a"}, 404, "'none' is not served; choose one of bert, gpt"),
        ("/v1/embeddings", {"input": "a"}, 400, "name the model: bert, gpt"),
        (
            "/v1/embeddings",
            {"model": "bert", "input": "the cat " * 40},
            400,
            "83 tokens, but the maximum of bert is 24",
        ),
        ("/v1/embeddings", {"model": "bert", "input": ["a"] * 65}, 400, "65 texts are above the limit of 64"),
        ("/v1/embeddings", {"model": "bert", "input": "a", "dimensions": 3}, 400, "dimensions: extra inputs"),
        ("/v1/embeddings", {"model": "bert", "input": "a", "pooling": "sum"}, 400, "pooling 'sum' is not known"),
        ("/v1/embeddings", {"model": "bert", "input": "a", "layer": 9}, 400, "layer must be from -3 to 2"),
        ("/v1/embeddings", {"model": "bert", "input": [[1, 999]]}, 400, "token ids outside the vocabulary"),
        ("/v1/embeddings", {"model": "bert", "input": []}, 400, "input"),
        ("/v1/embeddings", {"model": "bert", "input": "a" * 200_000}, 413, "above 100000 bytes"),
        ("/v1/completions", {"model": "bert", "prompt": "a"}, 400, "which has no completions; it has embeddings"),
        ("/v1/completions", {"model": "gpt", "prompt": "a", "max_tokens": 99}, 400, "more than the 40 positions"),
        ("/v1/completions", {"model": "gpt", "prompt": ["a", "b"], "stream": True}, 400, "stream takes one prompt"),
        ("/fill-mask", {"model": "mlm", "text": "the cat"}, 400, "has none; put [MASK]"),
        ("/classify", {"model": "labels", "text": " "}, 400, "the text is empty"),
        ("/tags", {"model": "tagger"}, 400, "needs text"),
        ("/attention", {"model": "tagger", "text": "a"}, 400, "has no attention"),
    ],
)
def test_wrong_requests_get_one_sentence(client, route, body, status, message):
    assert message in error_of(client.post(route, json=body), status)


def test_int8_and_bfloat16_give_about_the_same_vectors(client, served):
    exact = np.array(post(client, "/v1/embeddings", model="bert", input=TEXTS)["data"][1]["embedding"])
    for options in ({"dtype": "bfloat16"}, {"int8": True}):
        with TestClient(create_app(ServeSettings(models={"bert": served["bert"]}, **options))) as rounded:
            vector = np.array(post(rounded, "/v1/embeddings", input=TEXTS)["data"][1]["embedding"])
        assert 0 < np.abs(vector - exact).max() < 0.1 * np.abs(exact).max(), options


def test_a_body_that_is_not_json(client):
    body = b'{"model": "bert", "input": "a dog"}'
    for kind in ("text/plain", ""):
        headers = {"Content-Type": kind} if kind else {}
        assert "application/json" in error_of(client.post("/v1/embeddings", content=body, headers=headers), 400)
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert client.post("/v1/embeddings", content=body, headers=headers).status_code == 200
    assert error_of(client.post("/v1/embeddings", content=b"{", headers=headers), 400) == "the body is not JSON"
    assert error_of(client.post("/translate", content=b"{", headers={"Content-Type": "application/json"}), 400)
    assert client.post("/v1/nowhere", json={}).status_code == 404


def test_health_models_and_metrics(client, served):
    assert client.get("/health").json() == {"status": "ok", "models": list(served)}
    operations = {each["id"]: each["operations"] for each in client.get("/v1/models").json()["data"]}
    assert operations["bahdanau"] == ["embeddings", "translate", "attention"]
    post(client, "/v1/embeddings", model="bert", input="a")
    text = client.get("/metrics").text
    assert 'hf_edu_requests_total{route="/v1/embeddings",status="200"}' in text
    assert 'hf_edu_batch_size_count{model="bert"}' in text and 'hf_edu_waiting{model="bert"} 0.0' in text


def test_a_token_is_required_where_one_is_set(served):
    settings = ServeSettings(models={"bert": served["bert"]}, token="secret", cpu_kernels="off")
    assert "secret" not in repr(settings)
    with TestClient(create_app(settings)) as client:
        assert client.get("/health").status_code == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
            assert "Bearer TOKEN" in error_of(client.get("/v1/models", headers=headers), 401)
        assert client.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_a_request_that_waits_too_long_gets_504(served, monkeypatch):
    settings = ServeSettings(models={"bert": served["bert"]}, timeout=0.05, cpu_kernels="off")
    with TestClient(create_app(settings)) as client:
        batcher = client.app.state.models["bert"].batcher
        run = batcher._run
        monkeypatch.setattr(batcher, "_run", lambda *batch: time.sleep(0.3) or run(*batch))
        assert "did not answer in time" in error_of(client.post("/v1/embeddings", json={"input": "a"}), 504)


def test_openai_and_curl_with_a_real_server(served):
    """Two models, a token, OpenAI's own client, curl; SIGTERM answers what was accepted."""
    process, address = start_server([f"words={served['bert']}", served["gpt"]], "--token", "secret")
    try:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="secret", max_retries=0)
        assert {model.id for model in client.models.list()} == {"words", "gpt"}
        vectors = client.embeddings.create(model="words", input=TEXTS)
        expected = [each for _, each in TextEncoder(*load_model(served["bert"]))(TEXTS)]
        np.testing.assert_allclose([each.embedding for each in vectors.data], expected, atol=1e-5)
        options = {"model": "gpt", "prompt": TEXTS[0], "max_tokens": 8, "temperature": 0}
        whole = client.completions.create(**options).choices[0].text
        assert "".join(part.choices[0].text for part in client.completions.create(stream=True, **options)) == whole
        with pytest.raises(openai.BadRequestError, match="shorten it"):
            client.embeddings.create(model="words", input="the cat " * 40)
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0).models.list()
        if shutil.which("curl"):
            body = json.dumps({"model": "words", "input": TEXTS[:1]})
            headers = ["-H", "Content-Type: application/json", "-H", "Authorization: Bearer secret"]
            command = ["curl", "-s", f"{address}/v1/embeddings", *headers, "-d", body]
            answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            np.testing.assert_allclose(answer["data"][0]["embedding"], expected[0], atol=1e-5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)  # uvicorn shuts down, and ends as the signal would
    finally:
        process.kill()


@pytest.mark.slow
def test_workers_are_restarted_and_metrics_added_up(served):
    process, address = start_server([served["bert"]], "--workers", "2")
    try:
        for _ in range(20):
            httpx.post(f"{address}/v1/embeddings", json={"input": TEXTS}).raise_for_status()
        metrics = httpx.get(f"{address}/metrics").text
        assert 'hf_edu_requests_total{route="/v1/embeddings",status="200"} 20.0' in metrics
    finally:
        process.terminate()
        process.wait(60)
