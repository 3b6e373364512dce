#include "runtime/checkpoint/hugging_face/source_files.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"

namespace dslaunch::runtime::hugging_face {
namespace {

namespace fs = std::filesystem;

// What tokenizers and processors of transformers read and save.
constexpr const char* kPreparationFiles[] = {"tokenizer.json",
                                             "tokenizer_config.json",
                                             "tokenizer.model",
                                             "special_tokens_map.json",
                                             "added_tokens.json",
                                             "vocab.json",
                                             "vocab.txt",
                                             "merges.txt",
                                             "spiece.model",
                                             "sentencepiece.bpe.model",
                                             "spm.model",
                                             "source.spm",
                                             "target.spm",
                                             "bpe.codes",
                                             "dict.txt",
                                             "normalizer.json",
                                             "emoji.json",
                                             "tekken.json",
                                             "chat_template.jinja",
                                             "chat_template.json",
                                             "preprocessor_config.json",
                                             "processor_config.json",
                                             "video_preprocessor_config.json"};
constexpr const char* kPreparationEndings[] = {".tiktoken"};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::path hub_cache() {
  if (const auto path = variable("HF_HUB_CACHE"); !path.empty()) return path;
  if (const auto path = variable("HUGGINGFACE_HUB_CACHE"); !path.empty()) return path;
  if (const auto path = variable("HF_HOME"); !path.empty()) return fs::path(path) / "hub";
  if (const auto path = variable("XDG_CACHE_HOME"); !path.empty()) return fs::path(path) / "huggingface/hub";
  return fs::path(variable("HOME")) / ".cache/huggingface/hub";
}

bool has_directory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// A cached model is models--OWNER--NAME/snapshots/REVISION; refs/main names the revision of the main branch.
Result<std::string> cached_snapshot(const HuggingFaceFacts& facts) {
  std::string name = "models--" + facts.source_name;
  for (size_t at; (at = name.find('/')) != std::string::npos;) name.replace(at, 1, "--");
  const fs::path model = hub_cache() / name;
  std::string revision = facts.revision;
  if (revision.empty()) std::getline(std::ifstream(model / "refs/main"), revision);
  const fs::path snapshot = model / "snapshots" / revision;
  if (!revision.empty() && has_directory(snapshot)) return snapshot.string();
  return Failure{fmt::format("the hub's model '{}' is not in the cache '{}'", facts.source_name, hub_cache().string())};
}

}  // namespace

Result<std::string> find_source(const HuggingFaceFacts& facts, const std::optional<std::string>& given) {
  if (given) {
    if (has_directory(*given)) return *given;
    std::error_code ignored;
    throw UserError(ExitCode::kNoInput,
                    fmt::format("cannot read the directory '{}' (--hf_source): {}{}", *given,
                                fs::exists(*given, ignored) ? "it is not a directory" : "no such directory",
                                did_you_mean_file(*given)));
  }
  if (facts.source_kind == "hub") return cached_snapshot(facts);
  if (facts.source_kind != "directory")
    return Failure{"the model was exported from an architecture, not from a directory"};
  if (has_directory(facts.source_name)) return facts.source_name;
  return Failure{fmt::format("the directory that the model was exported from, '{}', is not here", facts.source_name)};
}

std::vector<std::string> preparation_files(const std::string& directory) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    std::error_code ignored;
    const bool is_known =
        std::find(std::begin(kPreparationFiles), std::end(kPreparationFiles), name) != std::end(kPreparationFiles) ||
        std::any_of(std::begin(kPreparationEndings), std::end(kPreparationEndings),
                    [&](const char* ending) { return name.ends_with(ending); });
    if (is_known && at->is_regular_file(ignored)) out.push_back(name);
  }
  if (error) throw SystemError("read the directory", "'" + directory + "'", error.value(), ExitCode::kNoInput);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace dslaunch::runtime::hugging_face
