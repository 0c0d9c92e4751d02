// Encodes and decodes texts with our tokenizers: JSON {tokenizers: [file], texts: [[text, pair or null]]} from standard
// input, {encodings: [tokenizer][text] = {ids, tokens, offsets, typeIds, text}} to standard output.

import { readFileSync } from "node:fs";
import { Tokenizer } from "../../hf_edu_models/lab/tokenizer/tokenizer.js";

const { tokenizers, texts } = JSON.parse(readFileSync(0, "utf-8"));
const encodings = tokenizers.map((file) => {
  const tokenizer = new Tokenizer(file);
  return texts.map(([text, pair]) => {
    const tokens = tokenizer.encode(text, pair);
    const ids = tokens.map(({ id }) => id);
    return {
      ids,
      tokens: tokens.map(({ token }) => token),
      offsets: tokens.map(({ start, end }) => [start, end]),
      typeIds: tokens.map(({ typeId }) => typeId),
      text: tokenizer.decode(ids),
      whole: tokenizer.decode(ids, { skipSpecial: false }),
    };
  });
});
process.stdout.write(JSON.stringify({ encodings }));
