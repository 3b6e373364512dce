// The files that tokenizers come in, each read by a source file of its own. All throw UserError(65) for a damaged file,
// and for what is not supported in it.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "runtime/text/json_node.hpp"
#include "runtime/text/tokenizer.hpp"

namespace dslaunch::runtime::text {

// tokenizer.json of Hugging Face's tokenizers, with a BPE model (tokenizer_json.cpp).
std::unique_ptr<Tokenizer> read_tokenizer_json(const JsonNode& root, const std::string& path);

// SentencePiece's models of kind Unigram and BPE, as its library encodes and decodes with them (sentencepiece.cpp).
// `bytes`: of the model's file. `config`: tokenizer_config.json, or null: which tokens are put around a text, and
// tokens behind the model's.
std::unique_ptr<Tokenizer> read_sentencepiece(std::string_view bytes, const JsonNode& config, const std::string& path);

// Which tokens begin, end and fill texts, as transformers finds them (special_tokens.cpp): of tokenizer_config.json,
// else special_tokens_map.json; the ends also of generation_config.json. `directory`: with its '/'. Files that are not
// there say nothing.
SpecialTokens read_special_tokens(const Tokenizer& tokenizer, const std::string& directory);

}  // namespace dslaunch::runtime::text
