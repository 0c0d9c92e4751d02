// Runs the engine on folders: reads a list of jobs from a file, writes arrays to another. `engine.py` calls it.
//
// node run_engine.mjs ENGINE JOBS OUTPUT
// A job is {folder, calls: [[method, ...arguments]]}, or without a folder calls of functions; `predict` is `run`
// with the weights and logits alone, `logits` with the logits. Its result is a list, one item for each call. Arrays are
// {at, length}, a place in OUTPUT.bin; an error becomes {error}.

import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , engine, jobsFile, output] = process.argv;
const load = (name) => import(pathToFileURL(`${engine}/${name}`));
const { loadModel, unsupported } = await load("model.js");
const { readSafetensors } = await load("safetensors.js");
const { nextTokens } = await load("search.js");
const { erf, ACTIVATIONS } = await load("activations.js");

const arrays = [];
let length = 0;

function plain(value) {
  if (value instanceof Float32Array || value instanceof Float64Array) {
    const floats = Float32Array.from(value);
    arrays.push(Buffer.from(floats.buffer));
    length += floats.length;
    return { at: length - floats.length, length: floats.length };
  }
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === "object") {
    const entries = Object.entries(value).filter(([, each]) => typeof each !== "function");
    return Object.fromEntries(entries.map(([key, each]) => [key, plain(each)]));
  }
  return value;
}

function read(folder) {
  const config = JSON.parse(readFileSync(`${folder}/config.json`, "utf8"));
  const { buffer, byteOffset, byteLength } = readFileSync(`${folder}/model.safetensors`);
  return [config, readSafetensors(buffer.slice(byteOffset, byteOffset + byteLength))];
}

function attempt(run) {
  try {
    return run();
  } catch (error) {
    return { error: error.message };
  }
}

function call(model, [method, ...rest]) {
  const start = performance.now();
  const run = () => {
    if (method === "logits") return model.run(...rest).logits;
    if (method !== "predict") return model[method](...rest);
    const { entries } = model.run(...rest);
    return { entries: entries.filter(({ kind }) => kind === "weights" || kind === "logits") };
  };
  const result = attempt(() => plain(run()));
  return Array.isArray(result) ? result : { ...result, ms: performance.now() - start };
}

const functions = {
  unsupported,
  nextTokens: (logits, options) => nextTokens(Float32Array.from(logits), options),
  erf: (values) => values.map(erf),
  activate: (name, values) => values.map(ACTIVATIONS[name]),
};
const results = JSON.parse(readFileSync(jobsFile, "utf8")).map(({ folder, calls }) => {
  if (!folder) return calls.map(([name, ...rest]) => attempt(() => plain(functions[name](...rest))));
  const model = attempt(() => loadModel(...read(folder)));
  return model.error ? model : calls.map((each) => call(model, each));
});
writeFileSync(`${output}.bin`, Buffer.concat(arrays));
writeFileSync(`${output}.json`, JSON.stringify(results));
