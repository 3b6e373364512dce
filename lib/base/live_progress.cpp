#include "base/live_progress.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/format.hpp"

namespace dslaunch::live {
namespace {

using Json = nlohmann::ordered_json;

std::string record(char kind, std::string_view text) {
  return fmt::format("{}{}{}\n", kMark, kind, text);
}

// JSON has no numbers that are not finite: null stands for all of them.
double number(const Json& json, const char* name) {
  return json.at(name).is_null() ? std::numeric_limits<double>::quiet_NaN() : json.at(name).get<double>();
}

}  // namespace

std::string progress_record(const LiveProgress& progress) {
  Json json{{"step", progress.step},
            {"total", progress.total_steps},
            {"loss", progress.loss},
            {"lr", progress.lr},
            {"ms", progress.step_ms},
            {"per_s", progress.per_s},
            {"tokens", progress.counts_tokens},
            {"remaining", progress.remaining_s}};
  if (progress.epoch) json["epoch"] = *progress.epoch;
  if (progress.memory_bytes) json["memory"] = *progress.memory_bytes;
  return record(kProgress, json.dump());
}

std::string plain_line_record(std::string_view line) {
  return record(kPlainLine, line);
}

std::string end_record() {
  return record(kEnd, "");
}

std::optional<LiveProgress> parse_progress(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    LiveProgress out{.step = json.at("step").get<int64_t>(),
                     .total_steps = json.at("total").get<int64_t>(),
                     .loss = number(json, "loss"),
                     .lr = number(json, "lr"),
                     .step_ms = number(json, "ms"),
                     .per_s = number(json, "per_s"),
                     .counts_tokens = json.at("tokens").get<bool>(),
                     .remaining_s = number(json, "remaining")};
    if (json.contains("epoch")) out.epoch = number(json, "epoch");
    if (json.contains("memory")) out.memory_bytes = json.at("memory").get<int64_t>();
    return out;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dslaunch::live
