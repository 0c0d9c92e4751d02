// A tokenizer from the tokenizer.json that `save_pretrained` writes: normalise, split into words, cut words into tokens,
// add special tokens. Ids and offsets equal those of the tokenizers library (tests/lab/test_tokenizer.py).

import { makeSplitter } from "./added_tokens.js";
import { makeDecoder } from "./decoders.js";
import { makeModel } from "./models.js";
import { makeNormalizer } from "./normalizers.js";
import { NormalizedText } from "./normalized_text.js";
import { makePostProcessor } from "./post_processors.js";
import { makePreTokenizer } from "./pre_tokenizers.js";

export class Tokenizer {
  // file: the parsed tokenizer.json.
  constructor(file) {
    this.model = makeModel(file.model);
    const added = file.added_tokens ?? [];
    this.idOfAdded = new Map(added.map(({ content, id }) => [content, id]));
    this.special = new Set(added.filter(({ special }) => special).map(({ content }) => content));
    this.tokens = [];
    for (const [token, id] of [...this.model.vocab, ...this.idOfAdded]) this.tokens[id] = token;
    const normalise = makeNormalizer(file.normalizer);
    this.split = makeSplitter(added, normalise, (content) => normalise(NormalizedText.of(content)).text);
    this.preTokenize = makePreTokenizer(file.pre_tokenizer);
    this.postProcess = makePostProcessor(file.post_processor);
    this.decodeTokens = makeDecoder(file.decoder);
  }

  get size() {
    return this.tokens.length;
  }

  idOf(token) {
    return this.idOfAdded.get(token) ?? this.model.vocab.get(token);
  }

  tokenOf(id) {
    return this.tokens[id];
  }

  isSpecial(id) {
    return this.special.has(this.tokens[id]);
  }

  // Tokens as {id, token, start, end, typeId, isSpecial, word}: start..end count characters of the text.
  encode(text, pair = null) {
    return this.postProcess(this.encodeOne(text), pair === null ? null : this.encodeOne(pair));
  }

  encodeOne(text) {
    const tokens = [];
    let word = -1;
    for (const part of this.split(NormalizedText.of(text.toWellFormed()))) {
      if (part.added) {
        const [start, end] = part.text.offsets(0, part.text.length);
        tokens.push({ id: part.added.id, token: part.added.content, start, end, isSpecial: this.special.has(part.added.content), word: ++word });
        continue;
      }
      for (const each of this.preTokenize(part.text)) {
        word += 1;
        for (const { id, token, from, to } of this.model.tokenize(each.characters)) {
          const [start, end] = each.offsets(from, to);
          tokens.push({ id, token, start, end, isSpecial: false, word });
        }
      }
    }
    return tokens;
  }

  decode(ids, { skipSpecial = true } = {}) {
    const kept = ids.filter((id) => this.tokens[id] !== undefined && !(skipSpecial && this.isSpecial(id)));
    return this.decodeTokens(kept.map((id) => this.tokens[id])).join("");
  }

  // One token as a reader wants it: its own text, with spaces where it has them.
  display(id) {
    if (this.isSpecial(id)) return this.tokens[id];
    const text = this.decodeTokens([this.tokens[id] ?? ""]).join("");
    return text === "" || text.includes("\ufffd") ? this.tokens[id] : text;
  }
}
