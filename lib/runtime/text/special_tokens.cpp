#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/text/tokenizer_files.hpp"

namespace dslaunch::runtime::text {
namespace {

// An entry such as "eos_token": a text, or an object with it. Tokens that the tokenizer lacks do not count.
std::optional<int64_t> token_of(const JsonNode& node, const Tokenizer& tokenizer) {
  if (node.is_null()) return std::nullopt;
  return tokenizer.id_of(node.is_text() ? node.text() : node["content"].text());
}

void add_ends(const JsonNode& node, std::vector<int64_t>& out) {
  if (node.is_null()) return;
  for (const JsonNode& end : node.is_list() ? node.list() : std::vector{node}) out.push_back(end.id());
}

}  // namespace

SpecialTokens read_special_tokens(const Tokenizer& tokenizer, const std::string& directory) {
  SpecialTokens out;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = directory + name;
    const nlohmann::json document = read_json_file(path, /*is_optional=*/true);
    const JsonNode config(document, path);
    if (!out.bos) out.bos = token_of(config["bos_token"], tokenizer);
    if (!out.pad) out.pad = token_of(config["pad_token"], tokenizer);
    if (const auto end = token_of(config["eos_token"], tokenizer); end && out.ends.empty()) out.ends.push_back(*end);
  }
  const std::string path = directory + "generation_config.json";
  const nlohmann::json document = read_json_file(path, /*is_optional=*/true);
  add_ends(JsonNode(document, path)["eos_token_id"], out.ends);
  std::sort(out.ends.begin(), out.ends.end());
  out.ends.erase(std::unique(out.ends.begin(), out.ends.end()), out.ends.end());
  return out;
}

}  // namespace dslaunch::runtime::text
