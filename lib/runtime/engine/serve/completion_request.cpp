#include "runtime/engine/serve/completion_request.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/format.hpp"
#include "base/json_depth.hpp"
#include "base/nearest_name.hpp"
#include "base/printable.hpp"
#include "runtime/engine/serve/api_error.hpp"

namespace dslaunch::runtime::engine::serve {
namespace {

using nlohmann::json;

constexpr size_t kMaxNesting = 4;      // {"prompt": [[1, 2]]} has three
constexpr size_t kMaxTexts = 2048;     // prompts times choices
constexpr int64_t kMaxChoices = 128;   // of a prompt
constexpr int64_t kMaxLogprobs = 20;   // OpenAI's is 5
constexpr size_t kMaxStops = 64;       // OpenAI's is 4
constexpr size_t kMaxShownName = 100;  // of a field that is not known

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw ApiError(400, fmt::format("'{}': {}", field, why), field);
}

// The fields of the request; null counts as absent.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  const json* find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool flag(const char* name) const {
    const json* value = find(name);
    if (value != nullptr && !value->is_boolean()) refuse(name, "expected true or false");
    return value != nullptr && value->get<bool>();
  }
  std::optional<int64_t> whole(const char* name, int64_t least, int64_t most) const {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const bool fits = value->is_number_integer() &&
                      (!value->is_number_unsigned() ||
                       value->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    const int64_t number = fits ? value->get<int64_t>() : 0;
    if (!fits || number < least || number > most) {
      refuse(name, most == std::numeric_limits<int64_t>::max()
                       ? fmt::format("expected a whole number of at least {}", least)
                       : fmt::format("expected a whole number from {} to {}", least, most));
    }
    return number;
  }
  double real(const char* name, double otherwise, double least, double most) const {
    const json* value = find(name);
    if (value == nullptr) return otherwise;
    const double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(number >= least && number <= most)) refuse(name, fmt::format("expected a number from {} to {}", least, most));
    return number;
  }

 private:
  const json& object_;
};

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

std::vector<int64_t> ids_of(const json& list, const char* field) {
  std::vector<int64_t> out;
  out.reserve(list.size());
  for (const json& id : list) {
    if (!id.is_number_integer()) refuse(field, "a list of tokens has something else than whole numbers");
    out.push_back(id.get<int64_t>());
  }
  return out;
}

// A text, a list of texts, a list of tokens, a list of such lists.
std::vector<inference::Prompt> prompts_of(const Fields& fields) {
  const json* value = fields.find("prompt");
  if (value == nullptr) refuse("prompt", "it is missing: a text, a list of texts, or lists of tokens");
  if (value->is_string()) return {{value->get<std::string>(), {}, false, "the prompt"}};
  if (!value->is_array() || value->empty()) refuse("prompt", "expected a text, a list of texts, or lists of tokens");
  if (value->front().is_number()) return {{{}, ids_of(*value, "prompt"), true, "the prompt"}};
  std::vector<inference::Prompt> out;
  for (const json& one : *value) {
    if (one.type() != value->front().type()) refuse("prompt", "texts and lists of tokens are mixed");
    const std::string where = fmt::format("prompt {}", out.size() + 1);
    if (one.is_string()) {
      out.push_back({one.get<std::string>(), {}, false, where});
    } else if (one.is_array()) {
      out.push_back({{}, ids_of(one, "prompt"), true, where});
    } else {
      refuse("prompt", "expected a text, a list of texts, or lists of tokens");
    }
  }
  return out;
}

std::vector<std::string> stops_of(const Fields& fields) {
  const json* value = fields.find("stop");
  if (value == nullptr) return {};
  const json list = value->is_array() ? *value : json::array({*value});
  std::vector<std::string> out;
  for (const json& one : list) {
    if (!one.is_string()) refuse("stop", "expected a text or a list of texts");
    if (!one.get_ref<const std::string&>().empty()) out.push_back(one.get<std::string>());  // an empty one ends nothing
  }
  if (out.size() > kMaxStops) refuse("stop", fmt::format("more than {} texts", kMaxStops));
  return out;
}

// Fields of OpenAI's API that ask for what is not here, unless they have their default.
void refuse_unsupported(const Fields& fields, int64_t num_choices) {
  for (const char* name : {"presence_penalty", "frequency_penalty"}) {
    if (fields.real(name, 0, -2, 2) != 0) refuse(name, "it is not supported; 'repetition_penalty' is");
  }
  if (fields.find("suffix") != nullptr) refuse("suffix", "it is not supported");
  if (const json* bias = fields.find("logit_bias"); bias != nullptr && !bias->empty()) {
    refuse("logit_bias", "it is not supported");
  }
  if (fields.whole("best_of", 1, kMaxChoices).value_or(num_choices) != num_choices) {
    refuse("best_of", "it is not supported: leave it out, or let it be equal to 'n'");
  }
}

void refuse_unknown(const json& object) {
  static const std::vector<std::string> kKnown{"model",
                                               "prompt",
                                               "max_tokens",
                                               "temperature",
                                               "top_p",
                                               "top_k",
                                               "min_p",
                                               "repetition_penalty",
                                               "seed",
                                               "stop",
                                               "stop_token_ids",
                                               "n",
                                               "best_of",
                                               "echo",
                                               "logprobs",
                                               "stream",
                                               "stream_options",
                                               "user",
                                               "suffix",
                                               "logit_bias",
                                               "presence_penalty",
                                               "frequency_penalty"};
  for (const auto& [name, value] : object.items()) {
    if (std::find(kKnown.begin(), kKnown.end(), name) != kKnown.end()) continue;
    const std::string shown = printable(name.substr(0, kMaxShownName));
    throw ApiError(400, fmt::format("unknown field '{}'{}", shown, did_you_mean(shown, kKnown)), shown);
  }
}

void require_model(const Fields& fields, const std::string& model) {
  const json* value = fields.find("model");
  if (value == nullptr) return;
  if (!value->is_string()) refuse("model", "expected a text");
  const auto& name = value->get_ref<const std::string&>();
  if (name.empty() || name == model) return;
  throw ApiError(
      404,
      fmt::format("the model '{}' is not here: this server has '{}'", printable(name.substr(0, kMaxShownName)), model),
      "model", "model_not_found");
}

bool includes_usage(const Fields& fields, bool streams) {
  const json* options = fields.find("stream_options");
  if (options == nullptr) return false;
  if (!streams) refuse("stream_options", "it goes with 'stream'");
  if (!options->is_object()) refuse("stream_options", "expected an object");
  return Fields(*options).flag("include_usage");
}

}  // namespace

CompletionRequest parse_completion(const std::string& body, const std::string& model) {
  json object;
  if (!nests_deeper(body, kMaxNesting)) object = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw ApiError(400, "the request's body is not a JSON object, or nests too deeply");
  const Fields fields(object);
  refuse_unknown(object);
  require_model(fields, model);
  CompletionRequest out{.prompts = prompts_of(fields)};
  out.num_choices = fields.whole("n", 1, kMaxChoices).value_or(1);
  if (out.prompts.size() * static_cast<size_t>(out.num_choices) > kMaxTexts) {
    refuse("prompt", fmt::format("{} prompts, 'n' {}: a request may ask for {} texts at most", out.prompts.size(),
                                 out.num_choices, kMaxTexts));
  }
  out.max_tokens = fields.whole("max_tokens", 0, kAny);
  out.sampling = {.temperature = fields.real("temperature", 1, 0, 100),
                  .top_k = std::max<int64_t>(0, fields.whole("top_k", -1, kAny).value_or(0)),
                  .top_p = fields.real("top_p", 1, 0, 1),
                  .min_p = fields.real("min_p", 0, 0, 1),
                  .repetition_penalty = fields.real("repetition_penalty", 1, 0.01, 100)};
  if (const auto seed = fields.whole("seed", std::numeric_limits<int64_t>::min(), kAny)) {
    out.seed = static_cast<uint64_t>(*seed);
  }
  out.stops = stops_of(fields);
  if (const json* ids = fields.find("stop_token_ids")) {
    if (!ids->is_array()) refuse("stop_token_ids", "expected a list of tokens");
    for (const int64_t id : ids_of(*ids, "stop_token_ids")) out.stop_ids.insert(id);
  }
  out.num_logprobs = fields.whole("logprobs", 0, kMaxLogprobs);
  out.echoes = fields.flag("echo");
  out.streams = fields.flag("stream");
  out.includes_usage = includes_usage(fields, out.streams);
  refuse_unsupported(fields, out.num_choices);
  return out;
}

}  // namespace dslaunch::runtime::engine::serve
