#include "runtime/telemetry/metrics_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/unshare_file.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
Json number(const std::optional<double>& value) {
  return value ? number(*value) : Json(nullptr);
}
Json number(const std::optional<int64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

void add_evaluation(Json& json, double loss, const NamedValues& metrics) {
  json["eval_loss"] = number(loss);
  for (const auto& [name, value] : metrics) json["eval_" + name] = number(value);
}

// Empty: not an object with a step.
std::optional<int64_t> step_of(const Json& line) {
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return std::nullopt;
  return line["step"].get<int64_t>();
}

// The character after the number at the start of `text`. nullptr: there is no number, or only a parser can decide (its
// digits or its exponent may exceed a double).
const char* end_of_number(std::string_view text) {
  const char* at = text.data();
  const char* const end = at + std::min<size_t>(text.size(), 25);
  const auto skip_digits = [&] {
    const char* const begin = at;
    while (at != end && *at >= '0' && *at <= '9') ++at;
    return at - begin;
  };
  if (at != end && *at == '-') ++at;
  const bool begins_with_0 = at != end && *at == '0';
  const auto num_digits = skip_digits();
  if (num_digits == 0 || (begins_with_0 && num_digits > 1)) return nullptr;
  if (at != end && *at == '.' && (++at, skip_digits() == 0)) return nullptr;
  if (at != end && *at == 'e') {
    if (++at != end && (*at == '+' || *at == '-')) ++at;
    const auto num_exponent = skip_digits();
    if (num_exponent == 0 || num_exponent > 2) return nullptr;
  }
  return at == end ? nullptr : at;
}

bool is_in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

const char* end_of_value(std::string_view text) {
  for (const std::string_view word : {"null", "true", "false"}) {
    if (text.substr(0, word.size()) == word) return text.data() + word.size();
  }
  return end_of_number(text);
}

// As step_of() for a line in the form that to_json_line() writes, without parsing, because the file of a run of
// millions of steps is read at every resume: one object without spaces, "step" first, names of letters, digits
// and '_', and as values numbers, null, true and false. Empty: another form, or a line that is damaged anywhere; a
// parser must decide.
std::optional<int64_t> leading_step(std::string_view line) {
  constexpr std::string_view kFront = R"({"step":)";
  if (line.substr(0, kFront.size()) != kFront) return std::nullopt;
  const char* const end = line.data() + line.size();
  const char* const value = line.data() + kFront.size();
  const char* at = end_of_number({value, end});
  int64_t step = 0;
  if (const auto [stop, error] = std::from_chars(value, end, step); error != std::errc() || stop != at) return {};
  while (at != nullptr && at != end && *at == ',') {
    if (++at == end || *at != '"') return std::nullopt;
    do ++at;
    while (at != end && is_in_name(*at));
    if (end - at < 2 || at[0] != '"' || at[1] != ':') return std::nullopt;
    at = end_of_value({at + 2, end});
  }
  return at != nullptr && at + 1 == end && *at == '}' ? std::optional(step) : std::nullopt;
}

template <class Predicate>
bool any_line_of(const std::string& path, int64_t step, Predicate predicate) {
  std::ifstream in(path, std::ios::binary);
  const std::string digits = std::to_string(step);
  std::string line;
  while (std::getline(in, line)) {
    if (line.find(digits) == std::string::npos) continue;
    const Json json = Json::parse(line, nullptr, false);
    if (step_of(json) == step && predicate(json)) return true;
  }
  return false;
}

// Bytes up to the first line that is cut off, is not an object with a step, or is of a later step.
int64_t complete_bytes(const std::string& path, int64_t resumed_step) {
  std::ifstream in(path, std::ios::binary);
  int64_t bytes = 0;
  std::string line;
  while (std::getline(in, line) && !in.eof()) {
    auto step = leading_step(line);
    if (!step) step = step_of(Json::parse(line, nullptr, false));
    if (!step || *step > resumed_step) break;
    bytes += static_cast<int64_t>(line.size()) + 1;
  }
  return bytes;
}

const std::string& without_link(const std::string& path) {
  remove_symbolic_link(path);
  return path;
}

}  // namespace

std::string to_json_line(const StepMetrics& metrics) {
  Json json{{"step", metrics.step},
            {"loss", number(metrics.loss)},
            {"lr", number(metrics.lr)},
            {"grad_norm", number(metrics.grad_norm)},
            {"loss_scale", number(metrics.loss_scale)},
            {"overflow", metrics.overflow},
            {"step_ms", number(metrics.step_ms)},
            {"input_ms", number(metrics.input_ms)},
            {"samples_per_s", number(metrics.samples_per_s)},
            {"tokens_per_s", number(metrics.tokens_per_s)},
            {"gpu_mem_bytes", number(metrics.gpu_mem_bytes)},
            {"host_mem_bytes", number(metrics.host_mem_bytes)}};
  if (metrics.gpu_reserved_bytes) json["gpu_reserved_bytes"] = *metrics.gpu_reserved_bytes;
  for (const auto& [name, value] : metrics.of_data) json[name] = value;
  if (metrics.eval_loss) add_evaluation(json, *metrics.eval_loss, metrics.eval_metrics);
  if (metrics.forward_ms) {
    json["forward_ms"] = number(metrics.forward_ms);
    json["backward_ms"] = number(metrics.backward_ms);
    json["reduce_ms"] = number(metrics.reduce_ms);
    json["update_ms"] = number(metrics.update_ms);
  }
  return json.dump();
}

std::string to_json_line(const EvaluationMetrics& metrics) {
  Json json{{"step", metrics.step}};
  add_evaluation(json, metrics.eval_loss, metrics.eval_metrics);
  json["eval_samples"] = metrics.eval_samples;
  return json.dump();
}

std::string to_json_line(int64_t step, const EvaluationSample& sample) {
  Json json{{"step", step}, {"prompt", sample.prompt}, {"text", sample.text}};
  if (sample.reference) json["reference"] = *sample.reference;
  json["finish"] = sample.finish;
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

MetricsFile::MetricsFile(const std::string& path, int64_t resumed_step) : path_(path), file_(without_link(path)) {
  file_.truncate(resumed_step > 0 ? complete_bytes(path, resumed_step) : 0);
}

bool MetricsFile::recreate_if_removed(int64_t step) {
  if (is_lost_ || !file_.is_removed()) return false;
  try {
    const std::string directory = std::filesystem::path(path_).parent_path();
    if (!directory.empty()) make_directory(directory);
    file_ = AppendFile(path_);
    log::warning("'{}' was removed during the run: created again, without the lines before step {}", path_, step);
  } catch (const SystemError& error) {
    is_lost_ = true;
    log::warning("'{}' was removed during the run and cannot be created again ({}): its lines are lost", path_,
                 error.what());
  }
  return !is_lost_;
}

void MetricsFile::write(const StepMetrics& metrics) {
  recreate_if_removed(metrics.step);
  last_line_ = file_.size();
  file_.write(to_json_line(metrics) + "\n");
}

void MetricsFile::write(const EvaluationMetrics& metrics) {
  recreate_if_removed(metrics.step);
  file_.write(to_json_line(metrics) + "\n");
}

void MetricsFile::write(int64_t step, const std::vector<EvaluationSample>& samples) {
  recreate_if_removed(step);
  std::string lines;
  for (const auto& sample : samples) lines += to_json_line(step, sample) + "\n";
  file_.write(lines);
}

void MetricsFile::rewrite_last(const StepMetrics& metrics) {
  if (!recreate_if_removed(metrics.step)) file_.truncate(last_line_);
  file_.write(to_json_line(metrics) + "\n");
}

bool MetricsFile::has_step(const std::string& path, int64_t step) {
  return any_line_of(path, step, [](const Json&) { return true; });
}

std::map<int64_t, double> MetricsFile::evaluated_values(const std::string& path, const std::string& name,
                                                        int64_t last_step) {
  std::map<int64_t, double> out;
  std::ifstream in(path, std::ios::binary);
  const std::string key = fmt::format("\"{}\":", name);
  std::string line;
  while (std::getline(in, line)) {
    if (line.find(key) == std::string::npos) continue;
    const Json json = Json::parse(line, nullptr, false);
    const auto step = step_of(json);
    if (!step || *step > last_step || !json.contains(name)) continue;
    const Json& value = json[name];
    out.emplace(*step, value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN());
  }
  return out;
}

bool MetricsFile::has_evaluation(const std::string& path, int64_t step) {
  return any_line_of(path, step, [](const Json& line) { return line.contains("eval_loss"); });
}

}  // namespace dslaunch::runtime
