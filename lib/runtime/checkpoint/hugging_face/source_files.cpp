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

// Both without symbolic links in them.
bool is_inside(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
}

// Where links of the source may lead: the source itself, the hub's cache, and, of a snapshot in another cache, the rest
// of its model's directory.
bool may_follow(const fs::path& target, const std::string& source) {
  std::error_code ignored;
  const fs::path directory = fs::canonical(source, ignored), cache = fs::canonical(hub_cache(), ignored);
  const fs::path model = directory.parent_path().parent_path();
  const bool is_snapshot =
      directory.parent_path().filename() == "snapshots" && model.filename().string().starts_with("models--");
  return is_inside(target, directory) || (!cache.empty() && is_inside(target, cache)) ||
         (is_snapshot && is_inside(target, model));
}

[[noreturn]] void refuse_link(ExitCode code, const fs::path& link, const std::string& target, const std::string& what) {
  throw UserError(code,
                  fmt::format("cannot copy '{}': it is a symbolic link to '{}', {}", link.string(), target, what));
}

// Nothing if the name does not exist or is not a regular file.
std::optional<SourceFile> source_file(const std::string& directory, const std::string& name) {
  const fs::path path = fs::path(directory) / name;
  std::error_code error, ignored;
  const bool is_link = fs::is_symlink(path, ignored);
  const fs::path target = fs::canonical(path, error);
  if (error && is_link) {
    refuse_link(ExitCode::kNoInput, path, fs::read_symlink(path, ignored).string(),
                "which cannot be read: " + error.message());
  }
  if (error || !fs::is_regular_file(target, ignored)) return std::nullopt;
  if (is_link && !may_follow(target, directory)) {
    refuse_link(ExitCode::kBadInput, path, target.string(),
                "outside of that directory and of the hub's cache; replace the link by a copy of the file if it "
                "belongs to the model, or name another directory with --hf_source DIR");
  }
  return SourceFile{name, target.string()};
}

bool is_preparation_file(const std::string& name) {
  return std::find(std::begin(kPreparationFiles), std::end(kPreparationFiles), name) != std::end(kPreparationFiles) ||
         std::any_of(std::begin(kPreparationEndings), std::end(kPreparationEndings),
                     [&](const char* ending) { return name.ends_with(ending); });
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

std::vector<SourceFile> preparation_files(const std::string& directory) {
  std::vector<SourceFile> out;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (!is_preparation_file(name)) continue;
    if (auto file = source_file(directory, name)) out.push_back(*std::move(file));
  }
  if (error) throw SystemError("read the directory", "'" + directory + "'", error.value(), ExitCode::kNoInput);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

std::optional<SourceFile> generation_config_file(const std::string& directory) {
  return source_file(directory, kGenerationConfigName);
}

}  // namespace dslaunch::runtime::hugging_face
