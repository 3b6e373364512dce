#include "command_line/option_table.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/byte_size.hpp"
#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::command_line {
namespace {

using enum OptionRow::Kind;

std::vector<std::string_view> choices_of(const OptionRow& row) {
  std::vector<std::string_view> known;
  std::copy_if(row.choices.begin(), row.choices.end(), std::back_inserter(known),
               [](auto one) { return !one.empty(); });
  return known;
}

std::string value_name_of(const OptionRow& row) {
  return row.value_name.empty() ? fmt::format("{}", fmt::join(choices_of(row), "|")) : std::string(row.value_name);
}

std::string refuse_other_choice(const OptionRow& row, const std::string& text) {
  if (row.choices[0].empty() || std::find(row.choices.begin(), row.choices.end(), text) != row.choices.end()) return {};
  return fmt::format("'{}' is none of {}", text, fmt::join(choices_of(row), ", "));
}

std::string refuse_not_a_size(const std::string& text) {
  return parse_byte_size(text) ? std::string() : fmt::format("'{}': expected a size with a unit, as 4GiB", text);
}

std::string refuse_not_a_duration(const std::string& text) {
  return parse_duration(text) ? std::string() : fmt::format("'{}': expected a duration, as 30s or 5m", text);
}

void check_values(CLI::Option& option, const OptionRow& row) {
  const auto refuse = [least = row.least](const std::string& text) { return refuse_below(least, text); };
  switch (row.kind) {
    case kNumber:
      option.transform(CLI::Validator(read_whole_number<int64_t>, ""))->check(CLI::Validator(refuse, ""));
      return;
    case kReal:
      option.check(CLI::Validator(refuse_not_a_number, ""))->check(CLI::Validator(refuse, ""));
      return;
    case kSize:
      option.check(CLI::Validator(refuse_not_a_size, ""));
      return;
    case kDuration:
      option.check(CLI::Validator(refuse_not_a_duration, ""));
      return;
    case kTexts:
      option.multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      break;
    case kText:
    case kSwitch:
      break;
  }
  option.check(CLI::Validator(refuse_empty, ""));
  option.check(CLI::Validator([&row](const std::string& text) { return refuse_other_choice(row, text); }, ""));
}

}  // namespace

const std::vector<OptionRow>& model_option_rows() {
  static const std::vector<OptionRow> kRows{
      {"--weights",
       kText,
       "DIR",
       "of Hugging Face, for a model file: its weights instead of the file's",
       0,
       {},
       "Model"},
      {"--tokenizer", kText, "PATH",
       "tokenizer.json, a SentencePiece model, or a directory with one; default: the model's"},
      {"--device", kText, "", "auto: a GPU if there are any, else CPU", 0, {"auto", "cpu", "cuda"}},
      {"--dtype", kText, "", "default: the types of the file", 0, {"fp32", "bf16", "fp16"}},
      {"--weight_dtype", kText, "", "linear layers keep their weights in 8 or 4 bits", 0, {"int8", "fp8", "int4"}},
      {"--no_cache", kSwitch, "", "compute the whole text again for each token"},
      {"--cache_bytes", kSize, "SIZE", "what kept keys and values may take, as 4GiB; default: what there is"},
      {"--nvme_path", kText, "DIR",
       "parameters rest in a file there, and are read as the model runs: for models larger than memory"},
  };
  return kRows;
}

void check_model_options(const OptionTable& options) {
  if (!options.has("--weight_dtype") || !options.has("--nvme_path")) return;
  usage_error("--weight_dtype goes without --nvme_path, whose parameters stay in the file");
}

const OptionRow& OptionTable::row_of(std::string_view name) const {
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const OptionRow& one) { return one.name == name; });
  DSL_CHECK(row != rows_.end(), "the command has no option " + std::string(name));
  return *row;
}

bool OptionTable::has(std::string_view name) const {
  return values_.count(row_of(name).name) > 0;
}

std::vector<std::string> OptionTable::texts(std::string_view name) const {
  const auto found = values_.find(row_of(name).name);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

std::string OptionTable::text(std::string_view name) const {
  const auto all = texts(name);
  return all.empty() ? std::string() : all.back();
}

int64_t OptionTable::number(std::string_view name, int64_t otherwise) const {
  return has(name) ? std::strtoll(text(name).c_str(), nullptr, 10) : otherwise;
}

double OptionTable::real(std::string_view name, double otherwise) const {
  return has(name) ? std::strtod(text(name).c_str(), nullptr) : otherwise;
}

int64_t OptionTable::bytes(std::string_view name, int64_t otherwise) const {
  return parse_byte_size(text(name)).value_or(otherwise);
}

std::chrono::milliseconds OptionTable::duration(std::string_view name, std::chrono::milliseconds otherwise) const {
  return has(name) ? parse_duration(text(name)).value_or(otherwise) : otherwise;
}

std::vector<std::string> OptionTable::words() const {
  std::vector<std::string> out;
  if (!source.empty()) out.push_back(source);
  for (const OptionRow& row : rows_) {
    if (!has(row.name)) continue;
    for (const auto& value : texts(row.name)) {
      out.emplace_back(row.name);
      if (row.kind != kSwitch) out.push_back(value);
    }
  }
  return out;
}

void OptionTable::declare(CommandLine& line) {
  line.app().add_option("MODEL|CKPT", source,
                        "a model file, a run directory, a checkpoint, or a job: its name, its id or 'last'");
  line.app().add_option("--checkpoint", checkpoint_, "the same")->type_name("CKPT");
  for (const OptionRow& row : rows_) declare(line, row);
}

void OptionTable::declare(CommandLine& line, const OptionRow& row) {
  const std::string name(row.name), what(row.help);
  if (!row.group.empty()) line.group(std::string(row.group));
  if (row.kind == kSwitch) {
    line.flag_function(
        name, [this, &row] { values_[row.name] = {""}; }, what);
    return;
  }
  const auto take = [this, &row](const std::vector<std::string>& texts) { values_[row.name] = texts; };
  CLI::Option* option =
      line.app().add_option_function<std::vector<std::string>>(name, take, what)->type_name(value_name_of(row));
  option->allow_extra_args(false)->expected(1);
  check_values(*option, row);
}

void OptionTable::require_source(const std::string& command, const std::string& question) {
  if (!checkpoint_.empty() && !source.empty()) {
    usage_error(fmt::format("unexpected argument '{}'; see 'dslaunch {} --help'", source, command));
  }
  if (source.empty()) source = std::exchange(checkpoint_, {});
  if (source.empty()) usage_error(question);
}

}  // namespace dslaunch::command_line
