#include "command_line/infer_options.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/byte_size.hpp"
#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::command_line {
namespace {

enum class Kind { kSwitch, kText, kTexts, kNumber, kReal };
using enum Kind;

struct Row {
  std::string_view name;
  Kind kind = kText;
  std::string_view value_name;  // empty: the choices
  std::string_view help;
  double least = 0;                              // of a number
  std::array<std::string_view, 3> choices = {};  // of a text; empty: any
  std::string_view group = {};                   // the heading of this option and those after it
};

constexpr Row kRows[] = {
    {"--prompt", kTexts, "TEXT", "text to continue, or to answer; repeatable", 0, {}, "Texts"},
    {"--prompts", kText, "FILE", "a prompt a line: text, or JSON lines with \"prompt\" or \"ids\""},
    {"--ids", kTexts, "1,2,3", "a prompt as the ids of its tokens; repeatable"},
    {"--messages", kText, "FILE", "conversations to answer (JSON), by the chat template; rendered in Python"},
    {"--num_tokens", kNumber, "N", "the most tokens to add (200)", 1},
    {"--context", kNumber, "N", "how many of the last tokens the model sees; default: as many as it takes", 1},
    {"--stop", kTexts, "TEXT", "ends a text in front of this one; repeatable"},
    {"--stop_ids", kText, "1,2", "tokens that end a text, besides the model's own end of texts"},
    {"--greedy", kSwitch, "", "always the likeliest token, as --temperature 0", 0, {}, "Choice of tokens"},
    {"--temperature", kReal, "T", "0: always the likeliest (0.8)"},
    {"--top_k", kNumber, "K", "draw from the K likeliest tokens only", 1},
    {"--top_p", kReal, "P", "draw from the likeliest tokens that together have this probability"},
    {"--min_p", kReal, "P", "no tokens with less than this share of the likeliest's probability"},
    {"--repetition_penalty", kReal, "F", "above 1: tokens that the text has already become less likely"},
    {"--seed", kNumber, "N", "of the draws (0): the same seed and prompt give the same text"},
    {"--num_beams", kNumber, "N", "beam search, as transformers' generate()", 1},
    {"--length_penalty", kReal, "F", "of beams: above 0 prefers longer texts (1)", -1e9},
    {"--early_stopping", kText, "", "of beams (false)", 0, {"true", "false", "never"}},
    {"--score", kSwitch, "", "log-probability and perplexity of the given texts, or of --data", 0, {}, "Other tasks"},
    {"--data", kText, "FILE", "samples for forward, in the formats of data.train"},
    {"--inputs", kText, "a,b", "arrays of --data in the order of forward"},
    {"--labels", kText, "c", "arrays of --data after the inputs"},
    {"--outputs", kText, "FILE", "what forward returns for --data, as safetensors"},
    {"--batch", kNumber, "N", "samples of --data at once (8)", 1},
    {"--weights", kText, "DIR", "of Hugging Face, for a model file: its weights instead of the file's", 0, {}, "Model"},
    {"--tokenizer", kText, "PATH",
     "tokenizer.json, a SentencePiece model, or a directory with one; default: the model's"},
    {"--config", kText, "FILE", "of DeepSpeed's init_inference: dtype, max_out_tokens; its other keys are answered"},
    {"--device", kText, "", "auto: a GPU if there are any, else CPU", 0, {"auto", "cpu", "cuda"}},
    {"--dtype", kText, "", "default: the types of the file", 0, {"fp32", "bf16", "fp16"}},
    {"--no_cache", kSwitch, "", "compute the whole text again for each token"},
    {"--cache_bytes", kText, "SIZE", "what kept keys and values may take, as 4GiB; default: what there is"},
    {"--nvme_path", kText, "DIR",
     "parameters rest in a file there, and are read as the model runs: for models larger than memory"},
    {"--output", kText, "FILE", "each text with its ids as a JSON line", 0, {}, "Output"},
    {"--json", kSwitch, "", "texts and report as one JSON document"},
    {"--report", kSwitch, "", "at the end, times and memory, on standard error"},
};

const Row& row_of(std::string_view name) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& one) { return one.name == name; });
  DSL_CHECK(row != std::end(kRows), "no such option of infer: " + std::string(name));
  return *row;
}

std::vector<std::string_view> choices_of(const Row& row) {
  std::vector<std::string_view> known;
  std::copy_if(row.choices.begin(), row.choices.end(), std::back_inserter(known),
               [](auto one) { return !one.empty(); });
  return known;
}

std::string value_name_of(const Row& row) {
  return row.value_name.empty() ? fmt::format("{}", fmt::join(choices_of(row), "|")) : std::string(row.value_name);
}

std::string refuse_other_choice(const Row& row, const std::string& text) {
  if (row.choices[0].empty() || std::find(row.choices.begin(), row.choices.end(), text) != row.choices.end()) return {};
  return fmt::format("'{}' is none of {}", text, fmt::join(choices_of(row), ", "));
}

}  // namespace

bool InferOptions::has(std::string_view name) const {
  return values_.count(row_of(name).name) > 0;
}

std::vector<std::string> InferOptions::texts(std::string_view name) const {
  const auto found = values_.find(row_of(name).name);
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

std::string InferOptions::text(std::string_view name) const {
  const auto all = texts(name);
  return all.empty() ? std::string() : all.back();
}

int64_t InferOptions::number(std::string_view name, int64_t otherwise) const {
  return has(name) ? std::strtoll(text(name).c_str(), nullptr, 10) : otherwise;
}

double InferOptions::real(std::string_view name, double otherwise) const {
  return has(name) ? std::strtod(text(name).c_str(), nullptr) : otherwise;
}

std::vector<std::string> InferOptions::words() const {
  std::vector<std::string> out;
  if (!source.empty()) out.push_back(source);
  for (const Row& row : kRows) {
    if (!has(row.name)) continue;
    for (const auto& value : texts(row.name)) {
      out.emplace_back(row.name);
      if (row.kind != kSwitch) out.push_back(value);
    }
  }
  return out;
}

void add_infer_options(CommandLine& line, InferOptions& options) {
  line.app().add_option("MODEL|CKPT", options.source,
                        "a model file, a run directory, a checkpoint, or a job: its name, its id or 'last'");
  line.app().add_option("--checkpoint", options.checkpoint_, "the same")->type_name("CKPT");
  for (const Row& row : kRows) {
    const std::string name(row.name), what(row.help), value_name = value_name_of(row);
    if (!row.group.empty()) line.group(std::string(row.group));
    if (row.kind == kSwitch) {
      line.flag_function(
          name, [&] { options.values_[row.name] = {""}; }, what);
      continue;
    }
    const auto take = [&options, &row](const std::vector<std::string>& texts) { options.values_[row.name] = texts; };
    CLI::Option* option =
        line.app().add_option_function<std::vector<std::string>>(name, take, what)->type_name(value_name);
    option->allow_extra_args(false)->expected(1);
    if (row.kind == kTexts) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    const auto refuse = [&row](const std::string& text) { return refuse_below(row.least, text); };
    if (row.kind == kNumber) {
      option->transform(CLI::Validator(read_whole_number<int64_t>, ""))->check(CLI::Validator(refuse, ""));
    } else if (row.kind == kReal) {
      option->check(CLI::Validator(refuse_not_a_number, ""))->check(CLI::Validator(refuse, ""));
    } else {
      option->check(CLI::Validator(refuse_empty, ""));
      option->check(CLI::Validator([&row](const std::string& text) { return refuse_other_choice(row, text); }, ""));
    }
  }
}

void check_infer_options(InferOptions& options) {
  if (!options.checkpoint_.empty() && !options.source.empty()) {
    usage_error(fmt::format("unexpected argument '{}'; see 'dslaunch infer --help'", options.source));
  }
  if (options.source.empty()) options.source = std::exchange(options.checkpoint_, {});
  if (options.source.empty()) usage_error("which model? dslaunch infer MODEL.pt|CKPT --prompt TEXT");
  const bool has_text =
      options.has("--prompt") || options.has("--prompts") || options.has("--ids") || options.has("--messages");
  if (options.has("--outputs") != (options.has("--data") && !options.has("--score"))) {
    usage_error(options.has("--outputs") ? "--outputs goes with --data, whose samples forward runs on"
                                         : "--data needs --outputs FILE for what forward returns, or --score");
  }
  if (!has_text && !options.has("--data"))
    usage_error("continue which text? --prompt TEXT, --prompts FILE, --messages FILE or --ids 1,2,3");
  if (has_text && options.has("--data")) usage_error("--data goes without prompts");
  const bool draws = options.real("--temperature", 0) > 0 || options.has("--top_k") || options.has("--top_p") ||
                     options.has("--min_p");
  if (options.has("--greedy") && draws)
    usage_error(
        "--greedy draws no tokens: it goes without --temperature, --top_k, "
        "--top_p and --min_p");
  const bool has_beams = options.number("--num_beams", 1) > 1;
  if (has_beams && draws)
    usage_error(
        "--num_beams draws no tokens: it goes without --temperature, --top_k, --top_p and "
        "--min_p");
  if (has_beams && options.has("--stop")) usage_error("--num_beams goes with --stop_ids, not with --stop");
  if (!has_beams && (options.has("--length_penalty") || options.has("--early_stopping"))) {
    usage_error("--length_penalty and --early_stopping go with --num_beams above 1");
  }
  if (options.has("--cache_bytes") && !parse_byte_size(options.text("--cache_bytes"))) {
    usage_error(fmt::format("--cache_bytes {}: expected a size with a unit, as 4GiB", options.text("--cache_bytes")));
  }
  for (const char* share : {"--top_p", "--min_p"}) {
    if (options.real(share, 0) > 1) usage_error(fmt::format("{} is a probability: at most 1", share));
  }
  if (options.has("--repetition_penalty") && options.real("--repetition_penalty", 1) <= 0) {
    usage_error("--repetition_penalty must be above 0");
  }
}

}  // namespace dslaunch::command_line
