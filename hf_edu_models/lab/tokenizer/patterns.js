// A pattern of tokenizer.json, {"String": ...} or {"Regex": ...}, as a regular expression.

import { toRegExp } from "./unicode.js";

export const escape = (text) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&").replace(/\\-/g, "\\x2d");

export function toPattern(pattern) {
  return pattern.Regex === undefined ? new RegExp(escape(pattern.String), "gu") : toRegExp(pattern.Regex);
}
