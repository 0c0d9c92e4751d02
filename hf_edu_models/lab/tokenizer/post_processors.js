// Post-processors of tokenizer.json: each makes a function (first, second) -> tokens with special tokens and type ids.

import { CHARACTERS } from "./byte_level.js";
import { isSpace } from "./unicode.js";

const withType = (tokens, typeId) => tokens.map((token) => ({ ...token, typeId }));
const special = (token, id, typeId) => ({ id, token, start: 0, end: 0, typeId, isSpecial: true, word: null });
const plain = (first, second) => [...withType(first, 0), ...(second ? withType(second, 1) : [])];

function template({ single, pair, special_tokens: specials }) {
  return (first, second) => (second ? pair : single).flatMap((part) => {
    if (part.Sequence) return withType(part.Sequence.id === "A" ? first : second, part.Sequence.type_id);
    const { ids, tokens } = specials[part.SpecialToken.id];
    return ids.map((id, i) => special(tokens[i], id, part.SpecialToken.type_id));
  });
}

function bert({ cls, sep }) {
  return (first, second) => [
    special(...cls, 0), ...withType(first, 0), special(...sep, 0),
    ...(second ? [...withType(second, 1), special(...sep, 1)] : []),
  ];
}

function roberta({ cls, sep, trim_offsets: trims, add_prefix_space: addsSpace }) {
  return (first, second) => {
    const [one, other] = [first, second].map((tokens) => (tokens && trims ? trimOffsets(tokens, addsSpace) : tokens));
    const rest = other ? [special(...sep, 0), ...withType(other, 0), special(...sep, 0)] : [];
    return [special(...cls, 0), ...withType(one, 0), special(...sep, 0), ...rest];
  };
}

// A byte-level token without the spaces at its ends.
function trimOffsets(tokens, addsSpace) {
  const isBlank = (character) => character === CHARACTERS[0x20] || isSpace(character);
  return tokens.map((token, i) => {
    const characters = [...token.token];
    let leading = characters.findIndex((character) => !isBlank(character));
    let trailing = [...characters].reverse().findIndex((character) => !isBlank(character));
    if (leading < 0) leading = trailing = characters.length;
    let { start, end } = token;
    if (leading && addsSpace && (i === 0 || start === 0)) leading -= 1;
    start = Math.min(start + leading, end);
    if (trailing && end >= trailing) end = Math.max(end - trailing, start);
    return { ...token, start, end };
  });
}

export const POST_PROCESSORS = {
  TemplateProcessing: template,
  BertProcessing: bert,
  RobertaProcessing: roberta,
  ByteLevel: ({ trim_offsets: trims, add_prefix_space: addsSpace }) => (first, second) =>
    plain(...[first, second].map((tokens) => (tokens && trims ? trimOffsets(tokens, addsSpace) : tokens))),
  Sequence: ({ processors }) => {
    // All but the last change offsets only.
    const [last, ...others] = [...processors].reverse();
    const steps = others.reverse().map(makePostProcessor);
    const finish = makePostProcessor(last);
    return (first, second) => finish(...[first, second].map((tokens) => tokens && steps.reduce((result, step) => step(result), tokens)));
  },
};

export function makePostProcessor(part) {
  if (!part) return plain;
  if (!POST_PROCESSORS[part.type]) throw new Error(`the lab has no post-processor ${part.type}`);
  return POST_PROCESSORS[part.type](part);
}
