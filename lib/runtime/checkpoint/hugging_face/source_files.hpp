// Where a model of Hugging Face came from, and which files of that directory belong beside new weights. Any thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/state/hugging_face_facts.hpp"

namespace dslaunch::runtime::hugging_face {

// The source directory: `given` (--hf_source) if set, else the one that the export recorded; of a hub id the snapshot
// in the local cache (HF_HUB_CACHE, HF_HOME or ~/.cache/huggingface). The failure says why there is none. Throws
// UserError(66) if `given` is not a directory.
Result<std::string> find_source(const HuggingFaceFacts& facts, const std::optional<std::string>& given);

inline constexpr char kGenerationConfigName[] = "generation_config.json";

// Names of the files of tokenizers and of other preparation of inputs in `directory`, sorted.
std::vector<std::string> preparation_files(const std::string& directory);

}  // namespace dslaunch::runtime::hugging_face
