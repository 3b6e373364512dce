// Conversations as prompts, by the chat template of a model's tokenizer. Templates are programs in Jinja:
// tools/tokenize renders them, in the user's Python.
#pragma once
#include <string>
#include <vector>

#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/engine/inference/prompts.hpp"

namespace dslaunch::runtime::engine::inference {

// Of a JSON file with one conversation or several (docs/inference.md), up to where the assistant answers. Throws
// UserError: 69 where tools/tokenize, Python or a package is missing; the tool's code for what it refuses.
std::vector<Prompt> prompts_of_messages(const InferModel& model, const std::string& path);

}  // namespace dslaunch::runtime::engine::inference
