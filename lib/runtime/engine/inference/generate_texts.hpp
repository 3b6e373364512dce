// Continues texts with a model, or writes those that a model with an encoder answers with.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/infer_report.hpp"
#include "runtime/engine/inference/prompts.hpp"
#include "runtime/engine/inference/text_model.hpp"

namespace dslaunch::runtime::engine::inference {

struct GenerateOptions {
  std::vector<Prompt> prompts;
  int64_t num_tokens = 200;                // the most that are added to a prompt
  std::optional<int64_t> max_tokens = {};  // that a prompt and what is added have together
  Sampling sampling = {};
  uint64_t seed = 0;
  std::vector<std::string> stops = {};  // texts in front of which a text ends
  std::set<int64_t> stop_ids = {};      // tokens that end it, beside the end of texts that the model file records
  int num_beams = 1;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kHeuristic;
  TextModelOptions model = {};
  bool measures_memory_rate = false;                            // for the report, after the texts
  bool profiles_steps = false;                                  // those on a GPU, for the report
  std::function<bool()> stop_requested = [] { return false; };  // polled before each token; texts then stay unfinished
};

struct WrittenText {
  std::vector<int64_t> prompt_ids, ids;
  std::string text;    // UTF-8, without the prompt; empty if the model's tokens are not known as text
  std::string finish;  // "end", "stop", "length"
};

struct GenerateCallbacks {
  // What may be shown of a text, while it is written.
  std::function<void(size_t prompt, const std::string& text)> on_text = [](size_t, const std::string&) {};
  std::function<void(size_t prompt, const WrittenText& text)> on_finished = [](size_t, const WrittenText&) {};
};

// Throws UserError: 64 for an empty prompt; 65 for a model that does not predict tokens, that has no tokenizer
// and is not of bytes while a prompt is a text, or that does not take as many tokens as a prompt has, and for ids
// outside of its vocabulary.
InferReport generate_texts(InferModel& model, at::Device device, const GenerateOptions& options,
                           const GenerateCallbacks& callbacks);

}  // namespace dslaunch::runtime::engine::inference
