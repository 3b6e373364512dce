#include "runtime/engine/inference/generation_config.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::engine::inference {
namespace {

using nlohmann::json;

json parsed(const std::string& text, const std::string& path) {
  if (text.empty()) return json::object();
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_object()) return document;
  throw UserError(ExitCode::kBadInput, fmt::format("'{}' records a generation config that is not a JSON object", path));
}

class Entries {
 public:
  Entries(const HuggingFaceFacts& facts, const std::string& path)
      : generation_(parsed(facts.generation_config, path)), model_(parsed(facts.config, path)) {}

  const json& operator[](const char* name) const {
    static const json kNull;
    for (const json* from : {&generation_, &model_}) {
      if (const auto found = from->find(name); found != from->end() && !found->is_null()) return *found;
    }
    return kNull;
  }
  std::optional<int64_t> token(const char* name) const {
    const json& value = (*this)[name];
    return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
  }

 private:
  const json generation_, model_;
};

bool is_set(const json& value) {
  if (value.is_null() || (value.is_boolean() && !value.get<bool>())) return false;
  if (value.is_number()) return value.get<double>() != 0;
  return !value.is_array() || !value.empty();
}

}  // namespace

GenerationConfig read_generation_config(const HuggingFaceFacts& facts, const std::string& path) {
  const Entries entries(facts, path);
  GenerationConfig out;
  const json& ends = entries["eos_token_id"];
  for (const json& end : ends.is_array() ? ends : json::array({ends})) {
    if (end.is_number_integer()) out.ends.insert(end.get<int64_t>());
  }
  out.decoder_start = entries.token("decoder_start_token_id");
  if (!out.decoder_start) out.decoder_start = entries.token("bos_token_id");
  const json& type = entries["model_type"];
  out.begins_with_last_label = type == "mbart" || type == "plbart";
  out.pad = entries.token("pad_token_id").value_or(0);
  out.forced_first = entries.token("forced_bos_token_id");
  out.forced_last = entries.token("forced_eos_token_id");
  for (const char* name : {"no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens",
                           "suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "sequence_bias"}) {
    if (is_set(entries[name])) out.ignored.emplace_back(name);
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::inference
