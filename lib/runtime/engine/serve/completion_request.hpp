// The body of a request to /v1/completions, checked. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/engine/inference/prompts.hpp"
#include "runtime/engine/inference/sampler.hpp"

namespace dslaunch::runtime::engine::serve {

struct CompletionRequest {
  std::vector<inference::Prompt> prompts;
  int64_t num_choices = 1;            // of each prompt ("n")
  std::optional<int64_t> max_tokens;  // that are added
  inference::Sampling sampling{.temperature = 1};
  std::optional<uint64_t> seed;  // nothing: another one each time
  std::vector<std::string> stops;
  std::set<int64_t> stop_ids;
  std::optional<int64_t> num_logprobs;
  bool echoes = false, streams = false, includes_usage = false;
};

// `model`: the name of the model that is served. Throws ApiError: 400 that names the field, 404 for another model.
CompletionRequest parse_completion(const std::string& body, const std::string& model);

}  // namespace dslaunch::runtime::engine::serve
