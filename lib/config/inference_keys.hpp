// The config of DeepSpeed's init_inference: what its keys mean for `infer`, and why the others have no effect or cannot
// be had. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::config {

struct InferenceConfig {
  std::string dtype;                  // "fp32", "bf16", "fp16"; empty: not given
  std::optional<int64_t> max_tokens;  // of a prompt and its text together
  std::vector<std::string> notes;     // keys without effect, with the reason; a line each
};

// Reads a file in the formats of a job file. Throws UserError: 66 if it cannot be read, 65 with all keys that are not
// known, have another type, or ask for what is not here.
InferenceConfig read_inference_config(const std::string& path);

}  // namespace dslaunch::config
