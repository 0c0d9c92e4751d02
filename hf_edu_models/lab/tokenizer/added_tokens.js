// Added tokens, among them the special ones, are found in a text before anything else happens to it.

import { escape } from "./patterns.js";
import { isSpace, isWordCharacter } from "./unicode.js";

// A function NormalizedText -> list of {text} and {text, added}, in order.
function makeFinder(tokens, spell) {
  const byText = new Map(tokens.map((token) => [spell(token.content), token]).filter(([text]) => text));
  if (!byText.size) return (text) => [{ text }];
  const longestFirst = [...byText.keys()].sort((one, other) => other.length - one.length);
  const pattern = new RegExp(longestFirst.map(escape).join("|"), "gu");
  return (text) => {
    const { characters } = text;
    const parts = [];
    let done = 0;
    for (const { from, to, isMatch } of text.matches(pattern)) {
      if (!isMatch) continue;
      const added = byText.get(characters.slice(from, to).join(""));
      const isInsideWord = (from > 0 && isWordCharacter(characters[from - 1])) || (to < text.length && isWordCharacter(characters[to]));
      if (added.single_word && isInsideWord) continue;
      let [start, end] = [from, to];
      while (added.lstrip && start > done && isSpace(characters[start - 1])) start--;
      while (added.rstrip && end < text.length && isSpace(characters[end])) end++;
      if (done < start) parts.push({ text: text.slice(done, start) });
      parts.push({ text: text.slice(start, end), added });
      done = end;
    }
    if (done < text.length) parts.push({ text: text.slice(done, text.length) });
    return parts;
  };
}

// As written: tokens with `normalized` false are found in the text itself, the others in its normalised form.
export function makeSplitter(tokens, normalise, normaliseString) {
  const findRaw = makeFinder(tokens.filter(({ normalized }) => !normalized), (content) => content);
  const findNormalised = makeFinder(tokens.filter(({ normalized }) => normalized), normaliseString);
  return (text) => findRaw(text).flatMap((part) => (part.added ? [part] : findNormalised(normalise(part.text)))).filter(({ text: { length } }) => length);
}
