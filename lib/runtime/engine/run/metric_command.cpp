#include "runtime/engine/run/metric_command.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "spawn/captured_process.hpp"

namespace dslaunch::runtime::engine::run {
namespace {

using nlohmann::ordered_json;

constexpr const char* kKey = "train.samples.metric_command";

[[noreturn]] void refuse(const std::string& command, const std::string& why) {
  throw UserError(ExitCode::kBadInput, fmt::format("{}: '{}' {}", kKey, command, why));
}

std::string lines_of(const std::vector<EvaluationSample>& texts) {
  std::string out;
  for (const auto& each : texts) {
    ordered_json line{{"prompt", each.prompt}, {"text", each.text}};
    if (each.reference) line["reference"] = *each.reference;
    out += dump_json(line) + "\n";
  }
  return out;
}

std::string output_of(const std::string& command, const std::string& input) {
  const auto ended = spawn::run_captured({"/bin/sh", "-c", command}, input, /*captures_err=*/false);
  if (ended.cause.kind == spawn::ExitCause::Kind::kNotStarted)
    refuse(command, "cannot be started: " + ended.cause.hint);
  if (!ended.cause.success()) refuse(command, fmt::format("failed with the exit code {}", ended.cause.shell_code()));
  return ended.out;
}

bool is_name(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](unsigned char c) { return (std::isalnum(c) != 0 && c < 128) || c == '_'; });
}

}  // namespace

NamedValues run_metric_command(const std::string& command, const std::vector<EvaluationSample>& texts) {
  const std::string output = output_of(command, lines_of(texts));
  const auto values = ordered_json::parse(output, nullptr, /*allow_exceptions=*/false);
  const std::string shown = output.substr(0, 80);
  if (!values.is_object()) {
    refuse(command, fmt::format("printed \"{}\", expected one JSON object of numbers: {{\"bleu\": 0.31}}", shown));
  }
  NamedValues out;
  for (const auto& [name, value] : values.items()) {
    if (!value.is_number()) refuse(command, fmt::format("printed for '{}' {}, expected a number", name, value.dump()));
    if (!is_name(name)) {
      refuse(command,
             fmt::format("printed a value named '{}'; a name may have letters, digits and '_' only: it becomes "
                         "'eval_NAME' in metrics.jsonl",
                         name));
    }
    out.emplace_back(name, value.get<double>());
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::run
