// A model: from a configuration and tensors to records of forward passes, and to generated tokens.

import { Pass } from "./pass.js";
import { HEADS } from "./registry.js";
import { beamSearch, search } from "./search.js";
import { SUPPORTED } from "./supported.js";
import { Weights } from "./weights.js";

/** A sentence on why the engine cannot run a model, or null if it can. */
export function unsupported(config) {
  const type = config.model_type;
  const head = config.architectures?.[0];
  if (SUPPORTED.shared.numeric.includes(head)) {
    return `the lab cannot run '${head}', which reads numbers; give a model that reads text`;
  }
  const types = Object.keys(SUPPORTED).filter((name) => name !== "shared");
  if (!types.includes(type)) return `the lab cannot run a model of type '${type}'; it runs ${types.join(", ")}`;
  const { heads, values } = SUPPORTED[type];
  if (!(head in heads)) return `the lab cannot run '${head}'; of ${type} it runs ${Object.keys(heads).join(", ")}`;
  if (config.quantization_config) {
    return "the lab cannot run a quantised checkpoint; save the model in float32, float16 or bfloat16";
  }
  for (const [field, allowed] of Object.entries({ ...SUPPORTED.shared.values, ...values })) {
    if (field in config && !allowed.includes(config[field])) {
      if (allowed[0] === null) return `the lab cannot compute ${field}; it runs models without`;
      return `the lab cannot compute ${field} '${config[field]}'; it computes ${allowed.join(", ")}`;
    }
  }
  return null;
}

/**
 * Args:
 *   config: config.json, parsed.
 *   tensors: name in the state dict -> {shape, data}; data is a Float32Array or {int8, scales}.
 */
export function loadModel(config, tensors) {
  const reason = unsupported(config);
  if (reason) throw new Error(reason);
  return new Model(config, new Weights(tensors));
}

class Model {
  constructor(config, weights) {
    const [head] = config.architectures;
    this.config = config;
    this.modelType = config.model_type;
    this.kind = SUPPORTED[config.model_type].heads[head];
    this.head = new HEADS[head](weights, config);
    this.maxLength = this.head.model?.maxLength ?? null;
  }

  /** One forward pass of one text, with every intermediate by name. */
  run(inputs, changes = [], { parts = false } = {}) {
    const read = this.checkInputs(inputs);
    const pass = new Pass(this.checkChanges(changes), { parts });
    const logits = this.head.read(read, pass);
    return this.record(pass, read, logits);
  }

  record(pass, inputs, logits) {
    const byName = new Map(pass.entries.map((entry) => [entry.name, entry]));
    return {
      kind: this.kind,
      inputs,
      changed: pass.changes.length > 0,
      entries: pass.entries,
      get: (name) => byName.get(name),
      logits: logits ? byName.get("logits") : null,
    };
  }

  /** What can be changed: the entries and switches of a pass over a very short text. */
  changeable() {
    if (!this.changes) {
      const ids = { hierarchical: [[0]], multiple_choice: [[0]] };
      const inputIds = ids[this.modelType.replace("edu_", "")] ?? ids[this.kind] ?? [0];
      const pass = new Pass();
      this.head.read({ inputIds, decoderInputIds: [0], tokenTypeIds: null }, pass);
      this.changes = pass.changeable();
    }
    return this.changes;
  }

  /**
   * New tokens, the steps that led to them and, of a beam search, all sequences that were kept. Greedy by default; with
   * `numBeams` above 1 a beam search; with a `temperature` above 0 it samples, from the `topK` most likely tokens.
   */
  generate(inputs, options = {}) {
    if (!this.head.advance || this.kind === "encoder") {
      throw new Error(`a model of kind '${this.kind}' generates no text; use run`);
    }
    if (!(options.maxNewTokens === undefined || options.maxNewTokens > 0)) {
      throw new Error(`maxNewTokens is ${options.maxNewTokens}; give 1 or more`);
    }
    const read = this.checkInputs(inputs);
    const changes = this.checkChanges(options.changes ?? []);
    const ends = options.eosTokenId ?? this.config.eos_token_id ?? [];
    const prompt = this.head.prompt(read);
    const room = this.maxLength === null ? Infinity : this.maxLength + 1 - prompt.length;
    const settings = {
      numBeams: 1,
      temperature: 0,
      topK: null,
      seed: 0,
      lengthPenalty: 1,
      earlyStopping: false,
      minNewTokens: 0,
      ...options,
      maxNewTokens: Math.min(options.maxNewTokens ?? 20, room),
      ends: Array.isArray(ends) ? ends : [ends],
      prompt,
    };
    const newPass = () => new Pass(changes, { lastOnly: true });
    return (settings.numBeams > 1 ? beamSearch : search)(this.head, read, settings, newPass);
  }

  /** Inputs without their padding, checked. */
  checkInputs(inputs) {
    const isNested = this.modelType === "edu_hierarchical" || this.kind === "multiple_choice";
    const hasTarget = Boolean(this.config.is_encoder_decoder);
    const read = {};
    if (isNested) {
      if (!Array.isArray(inputs.inputIds?.[0])) {
        throw new Error("inputIds of this model is a list of lists of token ids: sentences, or choices");
      }
      const { inputIds, attentionMask, tokenTypeIds } = inputs;
      const rows = inputIds.map((ids, i) => this.checkText(ids, attentionMask?.[i], tokenTypeIds?.[i]));
      const filled = rows.filter(({ ids }) => ids.length > 0);
      read.inputIds = filled.map(({ ids }) => ids);
      read.tokenTypeIds = tokenTypeIds ? filled.map(({ types }) => types) : null;
    } else {
      const { ids, types } = this.checkText(inputs.inputIds, inputs.attentionMask, inputs.tokenTypeIds);
      Object.assign(read, { inputIds: ids, tokenTypeIds: types });
    }
    if (read.inputIds.length === 0) throw new Error("the text has no tokens; give at least one");
    if (hasTarget) {
      const given = inputs.decoderInputIds ?? [this.config.decoder_start_token_id];
      if (given[0] === null || given[0] === undefined) {
        throw new Error("the model has no start token for the target; give decoderInputIds");
      }
      read.decoderInputIds = this.checkText(given, inputs.decoderAttentionMask).ids;
      if (read.decoderInputIds.length === 0) throw new Error("decoderInputIds is all padding; give one token");
    }
    return read;
  }

  checkText(ids, mask, types = null) {
    if (!Array.isArray(ids)) throw new Error("inputIds is no list of token ids; give what the tokenizer returns");
    for (const [name, other] of [["attentionMask", mask], ["tokenTypeIds", types]]) {
      if (other && other.length !== ids.length) {
        throw new Error(`${name} has ${other.length} numbers for ${ids.length} tokens; give one for each`);
      }
    }
    const isReal = (_, t) => !mask || mask[t] === 1;
    const real = ids.filter(isReal);
    const wrong = real.find((id) => !Number.isInteger(id) || id < 0 || id >= this.config.vocab_size);
    if (wrong !== undefined) {
      throw new Error(`token id ${wrong} is outside the vocabulary of ${this.config.vocab_size}; check the tokenizer`);
    }
    if (this.maxLength !== null && real.length > this.maxLength) {
      throw new Error(`the text has ${real.length} tokens, but the model reads at most ${this.maxLength}; shorten it`);
    }
    const realTypes = types ? types.filter(isReal) : null;
    const wrongType = realTypes?.find((type) => !(type >= 0 && type < (this.config.type_vocab_size ?? Infinity)));
    if (wrongType !== undefined) {
      throw new Error(`token type ${wrongType} is not known; use 0 for the first text and 1 for the second`);
    }
    return { ids: real, types: realTypes };
  }

  checkChanges(changes) {
    if (changes.length === 0) return changes;
    const known = new Map(this.changeable().map((each) => [each.name, each]));
    for (const { name, op, index = [], value } of changes) {
      const found = known.get(name) ?? known.get(name.replace(/^(sentences|choices)\.\d+\./, ""));
      if (!found) {
        throw new Error(`nothing is called '${name}' that could be changed; model.changeable() lists the names`);
      }
      if (!found.ops.includes(op)) {
        throw new Error(`'${name}' cannot be changed by '${op}'; choose one of ${found.ops.join(", ")}`);
      }
      if (index.length > Math.max(found.shape.length, op === "freeze" ? 1 : 0)) {
        const allowed = `at most ${found.shape.length}, for ${found.axes.join(", ")}`;
        throw new Error(`the index of '${name}' has ${index.length} numbers; give ${allowed}`);
      }
      if (op === "set" && !Number.isFinite(value)) {
        throw new Error(`the value of '${name}' is ${value}; give a finite number`);
      }
    }
    return changes;
  }
}
