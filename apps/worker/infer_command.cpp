// Texts, scores and outputs of a model, with the weights of a checkpoint or of its file.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/split.hpp"
#include "command_line.hpp"
#include "command_line/infer_options.hpp"
#include "commands.hpp"
#include "config/inference_keys.hpp"
#include "model_options.hpp"
#include "runtime/engine/inference/chat_prompts.hpp"
#include "runtime/engine/inference/forward_data.hpp"
#include "runtime/engine/inference/generate_texts.hpp"
#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/score_texts.hpp"
#include "runtime/state/output_file.hpp"

namespace dslaunch::worker {
namespace {

using command_line::InferOptions;
using nlohmann::ordered_json;
namespace inference = runtime::engine::inference;

config::InferenceConfig config_of(const InferOptions& options) {
  config::InferenceConfig config;
  if (options.has("--config")) config = config::read_inference_config(options.text("--config"));
  for (const auto& note : config.notes) log::info("config: {}", note);
  if (options.has("--dtype")) config.dtype = options.text("--dtype");
  return config;
}

std::vector<inference::Prompt> prompts_of(const InferOptions& options, const inference::InferModel& model) {
  std::vector<inference::Prompt> prompts;
  for (const auto& text : options.texts("--prompt")) prompts.push_back({text, {}, false, "the prompt"});
  for (const auto& text : options.texts("--ids")) {
    prompts.push_back({{}, inference::parse_ids(text, "--ids"), true, "the prompt"});
  }
  if (options.has("--prompts")) {
    const auto more = inference::read_prompts(options.text("--prompts"));
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  if (options.has("--messages")) {
    const auto more = inference::prompts_of_messages(model, options.text("--messages"));
    prompts.insert(prompts.end(), more.begin(), more.end());
  }
  if (prompts.size() < 2 || options.has("--prompts") || options.has("--messages")) return prompts;
  for (size_t i = 0; i < prompts.size(); ++i) prompts[i].where = fmt::format("prompt {}", i + 1);
  return prompts;
}

inference::GenerateOptions generation_of(const InferOptions& options, const inference::InferModel& model) {
  inference::GenerateOptions out{.prompts = prompts_of(options, model)};
  out.num_tokens = options.number("--num_tokens", out.num_tokens);
  out.num_beams = static_cast<int>(options.number("--num_beams", 1));
  out.sampling = {.temperature = options.has("--greedy") || out.num_beams > 1 ? 0 : options.real("--temperature", 0.8),
                  .top_k = options.number("--top_k", 0),
                  .top_p = options.real("--top_p", 1),
                  .min_p = options.real("--min_p", 0),
                  .repetition_penalty = options.real("--repetition_penalty", 1)};
  out.seed = static_cast<uint64_t>(options.number("--seed", 0));
  out.stops = options.texts("--stop");
  const auto stop_ids = inference::parse_ids(options.text("--stop_ids"), "--stop_ids");
  out.stop_ids = {stop_ids.begin(), stop_ids.end()};
  out.length_penalty = options.real("--length_penalty", 1);
  const std::string early = options.text("--early_stopping");
  out.early_stopping = early == "true"    ? inference::EarlyStopping::kFirst
                       : early == "never" ? inference::EarlyStopping::kNever
                                          : inference::EarlyStopping::kHeuristic;
  out.model = text_model_options(options);
  out.model.context = options.number("--context", 0);
  return out;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// What a model has written; a terminal would obey its control characters.
void print_written(const std::string& text) {
  print(::isatty(STDOUT_FILENO) != 0 ? printable_lines(text) : text);
}

// While one exists, Ctrl-C ends the line that is being written before it ends this process.
class OpenLine {
 public:
  OpenLine() {
    struct sigaction action {};
    action.sa_handler = end_line;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    if (::isatty(STDOUT_FILENO) != 0) is_caught_ = ::sigaction(SIGINT, &action, &before_) == 0;
  }
  ~OpenLine() {
    if (is_caught_) ::sigaction(SIGINT, &before_, nullptr);
  }
  OpenLine(const OpenLine&) = delete;
  OpenLine& operator=(const OpenLine&) = delete;

 private:
  static void end_line(int signal) {
    [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, "\n", 1);
    ::raise(signal);  // delivered once this handler returns, to the default action
  }

  struct sigaction before_ {};
  bool is_caught_ = false;
};

void print_document(const ordered_json& document) {
  print(dump_json(document, 2) + "\n");
}

// The texts as they are finished, in the order of the prompts.
class TextOutput {
 public:
  TextOutput(const InferOptions& options, const std::vector<inference::Prompt>& prompts)
      : prompts_(prompts), written_(prompts.size()), is_json_(options.has("--json")) {
    if (options.has("--output")) file_.emplace(options.text("--output"));
  }

  // A single text is shown while it is written. The prompt waits for it: an error then has its own line.
  void show(const std::string& text) {
    if (is_json_ || prompts_.size() > 1) return;
    if (!line_) line_.emplace();
    if (!std::exchange(has_begun_, true) && !prompts_[0].has_ids) print(prompts_[0].text);
    print_written(text);
  }

  void finish(size_t prompt, const inference::WrittenText& text) {
    written_[prompt] = text;
    while (next_ < written_.size() && !written_[next_].finish.empty()) write(next_++);
  }

  ordered_json texts() const {
    ordered_json out = ordered_json::array();
    for (size_t i = 0; i < written_.size(); ++i) out.push_back(record_of(i));
    return out;
  }
  void close() {
    if (file_) file_->finish(/*sync=*/false);
  }

 private:
  ordered_json record_of(size_t prompt) const {
    const auto& text = written_[prompt];
    ordered_json out;
    if (!prompts_[prompt].text.empty()) out["prompt"] = prompts_[prompt].text;
    out["text"] = text.text;
    out["prompt_ids"] = text.prompt_ids;
    out["ids"] = text.ids;
    out["finish"] = text.finish;
    return out;
  }

  void write(size_t prompt) {
    if (file_) file_->write(dump_json(record_of(prompt)) + "\n");
    if (is_json_) return;
    const auto& own = prompts_[prompt];
    const auto& text = written_[prompt];
    if (own.text.empty()) return print(fmt::format("{}\n", fmt::join(text.ids, " ")));
    if (prompts_.size() == 1) {
      show("");
      line_.reset();
      return print("\n");
    }
    print_written((own.has_ids ? "" : own.text) + text.text + "\n");  // an answer, or the text with its beginning
  }

  const std::vector<inference::Prompt>& prompts_;
  std::vector<inference::WrittenText> written_;
  const bool is_json_;
  std::optional<runtime::OutputFile> file_;
  std::optional<OpenLine> line_;  // while a text is shown
  bool has_begun_ = false;
  size_t next_ = 0;  // to write
};

int generate(const InferOptions& options, const config::InferenceConfig& config, inference::InferModel& model,
             at::Device device) {
  auto generation = generation_of(options, model);
  generation.max_tokens = config.max_tokens;
  generation.measures_memory_rate = options.has("--report");
  generation.profiles_steps = options.has("--profile");
  if (generation.profiles_steps && !device.is_cuda()) {
    throw UserError(ExitCode::kUsage, "--profile shows the kernels of a GPU: there is none here");
  }
  TextOutput output(options, generation.prompts);
  const auto report = inference::generate_texts(
      model, device, generation,
      {.on_text = [&](size_t, const std::string& text) { output.show(text); },
       .on_finished = [&](size_t prompt, const inference::WrittenText& text) { output.finish(prompt, text); }});
  output.close();
  if (options.has("--json"))
    print_document(ordered_json{{"texts", output.texts()}, {"report", inference::as_json(report)}});
  if (options.has("--report")) std::fputs(inference::as_text(report).c_str(), stderr);
  std::fputs(report.kernels.c_str(), stderr);
  return 0;
}

ordered_json as_json(const inference::TextScore& score) {
  return {{"log_probability", score.log_probability},
          {"tokens", score.num_tokens},
          {"loss", score.loss()},
          {"perplexity", score.perplexity()}};
}

std::string as_text(const inference::TextScore& score) {
  return fmt::format("log-probability {:.6f} of {} tokens, loss {:.6f}, perplexity {:.4f}\n", score.log_probability,
                     score.num_tokens, score.loss(), score.perplexity());
}

std::vector<inference::TextScore> scores_of(const InferOptions& options, inference::InferModel& model,
                                            at::Device device) {
  if (options.has("--data")) return {inference::score_data(model, device, options.text("--data"))};
  return inference::score_texts(model, device, prompts_of(options, model));
}

inference::TextScore sum_of(const std::vector<inference::TextScore>& scores) {
  inference::TextScore all;
  for (const auto& one : scores) {
    all.log_probability += one.log_probability;
    all.num_tokens += one.num_tokens;
  }
  return all;
}

// `source`: of the model, whose memory has been freed if it is loaded again with other weights.
int score(const InferOptions& options, inference::ModelSource source) {
  const auto with = [&](const inference::ModelSource& own) {
    return scores_of(options, *inference::open_model(own), own.device);
  };
  std::optional<inference::TextScore> before;
  if (options.has("--compare_weights")) {
    inference::ModelSource whole = source;
    whole.weight_type.reset();
    before = sum_of(with(whole));
  }
  const auto scores = with(source);
  const auto all = sum_of(scores);
  if (options.has("--json")) {
    ordered_json list = ordered_json::array();
    for (const auto& one : scores) list.push_back(as_json(one));
    ordered_json document{{"texts", list}, {"all", as_json(all)}};
    if (before) document["without_weight_dtype"] = as_json(*before);
    print_document(document);
    return 0;
  }
  for (const auto& one : scores) {
    if (scores.size() > 1) print(as_text(one));
  }
  print((scores.size() > 1 ? "all: " : "") + as_text(all));
  if (before) {
    print(fmt::format("without --weight_dtype: {}{} changes the perplexity by {:+.3f} %\n", as_text(*before),
                      options.text("--weight_dtype"), 100 * (all.perplexity() / before->perplexity() - 1)));
  }
  return 0;
}

int write_outputs(const InferOptions& options, inference::InferModel& model, at::Device device) {
  inference::ForwardOptions forward{.data = options.text("--data"), .outputs = options.text("--outputs")};
  if (options.has("--inputs")) forward.inputs = split(options.text("--inputs"), ',');
  if (options.has("--labels")) forward.labels = split(options.text("--labels"), ',');
  forward.batch = options.number("--batch", forward.batch);
  const auto summary = inference::write_forward_outputs(model, device, forward);
  ordered_json outputs = ordered_json::object();
  std::vector<std::string> texts;
  for (const auto& [name, shape] : summary.outputs) {
    outputs[name] = shape;
    texts.push_back(fmt::format("{} [{}]", name, fmt::join(shape, ", ")));
  }
  if (options.has("--json")) {
    print_document(ordered_json{{"samples", summary.num_samples}, {"file", forward.outputs}, {"outputs", outputs}});
  } else {
    print(fmt::format("{} samples: {}, in {}\n", summary.num_samples, fmt::join(texts, ", "), forward.outputs));
  }
  return 0;
}

}  // namespace

int infer_command(const std::vector<std::string>& arguments) {
  InferOptions options;
  CommandLine line("infer", "infer MODEL.pt|CKPT --prompt TEXT [options]", "infer runs/a --prompt 'Once upon a time'");
  options.declare(line);
  if (!line.parse(arguments)) return 0;
  command_line::check_infer_options(options);
  const auto config = config_of(options);
  const at::Device device = open_device_of(options);
  const runtime::device::Device shared(device);
  auto source = model_source(options, shared, config.dtype);
  source.predicts_tokens = !options.has("--outputs");
  if (options.has("--score")) return score(options, source);
  const auto model = inference::open_model(source);
  return options.has("--outputs") ? write_outputs(options, *model, device) : generate(options, config, *model, device);
}

}  // namespace dslaunch::worker
