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

// A file to copy. `path` has no symbolic link in it: opened with O_NOFOLLOW, it is the file that was checked.
struct SourceFile {
  std::string name, path;
};

// The files of tokenizers and of other preparation of inputs in `directory`, sorted by name. Links are followed inside
// the directory and the hub's cache, whose snapshots consist of links: anything else may be a file of this user's that
// is not for others. Throws UserError(65) for another link, and 66 for one whose target does not exist.
std::vector<SourceFile> preparation_files(const std::string& directory);

// Its generation_config.json, if it has one. Throws as preparation_files().
std::optional<SourceFile> generation_config_file(const std::string& directory);

}  // namespace dslaunch::runtime::hugging_face
