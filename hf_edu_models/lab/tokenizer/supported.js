// The parts of tokenizer.json that these modules have. Between the braces is JSON, which Python reads, too.

export const SUPPORTED = {
  "model": ["BPE", "Unigram", "WordLevel", "WordPiece"],
  "normalizer": [
    "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Sequence", "Strip", "StripAccents"
  ],
  "pre_tokenizer": [
    "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "Metaspace", "Punctuation", "Sequence", "Split",
    "Whitespace", "WhitespaceSplit"
  ],
  "post_processor": ["BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"],
  "decoder": [
    "BPEDecoder", "ByteFallback", "ByteLevel", "Fuse", "Metaspace", "Replace", "Sequence", "Strip", "WordPiece"
  ]
};
