#include "command_line/infer_options.hpp"

#include <iterator>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::command_line {
namespace {

using enum OptionRow::Kind;

constexpr OptionRow kTextRows[] = {
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
    {"--compare_weights", kSwitch, "", "--score with and without --weight_dtype: what it costs"},
    {"--data", kText, "FILE", "samples for forward, in the formats of data.train"},
    {"--inputs", kText, "a,b", "arrays of --data in the order of forward"},
    {"--labels", kText, "c", "arrays of --data after the inputs"},
    {"--outputs", kText, "FILE", "what forward returns for --data, as safetensors"},
    {"--batch", kNumber, "N", "samples of --data at once (8)", 1},
};

constexpr OptionRow kOutputRows[] = {
    {"--config", kText, "FILE", "of DeepSpeed's init_inference: dtype, max_out_tokens; its other keys are answered"},
    {"--output", kText, "FILE", "each text with its ids as a JSON line", 0, {}, "Output"},
    {"--json", kSwitch, "", "texts and report as one JSON document"},
    {"--report", kSwitch, "", "at the end, times and memory, on standard error"},
    {"--profile", kSwitch, "", "at the end, the kernels of a step on a GPU, on standard error"},
};

std::vector<OptionRow> all_rows() {
  std::vector<OptionRow> rows(std::begin(kTextRows), std::end(kTextRows));
  rows.insert(rows.end(), model_option_rows().begin(), model_option_rows().end());
  rows.insert(rows.end(), std::begin(kOutputRows), std::end(kOutputRows));
  return rows;
}

}  // namespace

InferOptions::InferOptions() : OptionTable(all_rows()) {}

void check_infer_options(InferOptions& options) {
  options.require_source("infer", "which model? dslaunch infer MODEL.pt|CKPT --prompt TEXT");
  check_model_options(options);
  const bool has_text =
      options.has("--prompt") || options.has("--prompts") || options.has("--ids") || options.has("--messages");
  if (options.has("--outputs") != (options.has("--data") && !options.has("--score"))) {
    usage_error(options.has("--outputs") ? "--outputs goes with --data, whose samples forward runs on"
                                         : "--data needs --outputs FILE for what forward returns, or --score");
  }
  if (!has_text && !options.has("--data"))
    usage_error("continue which text? --prompt TEXT, --prompts FILE, --messages FILE or --ids 1,2,3");
  if (has_text && options.has("--data")) usage_error("--data goes without prompts");
  if (options.has("--weight_dtype") && options.has("--outputs")) {
    usage_error(
        "--weight_dtype goes with texts and --score, not with --outputs, which runs forward as the file has it");
  }
  if (options.has("--compare_weights") && !(options.has("--weight_dtype") && options.has("--score"))) {
    usage_error("--compare_weights goes with --score and --weight_dtype");
  }
  if (options.has("--profile") && (!has_text || options.has("--score") || options.text("--device") == "cpu")) {
    usage_error(
        "--profile shows the kernels of texts that a GPU writes: it goes with a prompt, without --score and --device "
        "cpu");
  }
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
  for (const char* share : {"--top_p", "--min_p"}) {
    if (options.real(share, 0) > 1) usage_error(fmt::format("{} is a probability: at most 1", share));
  }
  if (options.has("--repetition_penalty") && options.real("--repetition_penalty", 1) <= 0) {
    usage_error("--repetition_penalty must be above 0");
  }
}

}  // namespace dslaunch::command_line
