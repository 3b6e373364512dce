#include "runtime/checkpoint/deepspeed/checkpoint_files.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/small_file.hpp"

namespace dslaunch::runtime::deepspeed {
namespace {

namespace fs = std::filesystem;

constexpr char kModelEnd[] = "model_states.pt";

[[noreturn]] void refuse(ExitCode code, const std::string& message) {
  throw UserError(code, message);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool holds_model_states(const std::string& directory) {
  const auto names = names_in(directory);
  return std::any_of(names.begin(), names.end(), [](const auto& name) { return name.ends_with(kModelEnd); });
}

std::vector<std::string> tags_in(const std::string& dir) {
  std::vector<std::string> tags;
  for (const auto& name : names_in(dir)) {
    std::error_code ignored;
    if (fs::is_directory(dir + "/" + name, ignored) && holds_model_states(dir + "/" + name)) tags.push_back(name);
  }
  return tags;
}

std::string text_of(const std::string& path) {
  std::string text = read_small_file(path).bytes;
  text.resize(std::min(text.size(), text.find('\n')));
  while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

// The requested tag, or "" when `dir` is itself a tag's directory.
std::string resolve_tag(const std::string& dir, const std::string& asked) {
  const auto tags = tags_in(dir);
  if (!asked.empty()) {
    if (std::find(tags.begin(), tags.end(), asked) != tags.end()) return asked;
    refuse(ExitCode::kNoInput,
           fmt::format("'{}' holds no checkpoint with the tag '{}'{}; there are: {}", dir, asked,
                       did_you_mean(asked, tags), tags.empty() ? "none" : fmt::format("{}", fmt::join(tags, ", "))));
  }
  if (holds_model_states(dir)) return "";
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) refuse(ExitCode::kNoInput, fmt::format("there is no directory '{}'", dir));
  const std::string latest = text_of(dir + "/latest");
  if (std::find(tags.begin(), tags.end(), latest) != tags.end()) return latest;
  if (latest.empty() && tags.size() == 1) return tags[0];
  if (tags.empty()) {
    refuse(
        ExitCode::kNoInput,
        fmt::format("'{}' is not a DeepSpeed checkpoint: neither it nor a directory in it holds …{}", dir, kModelEnd));
  }
  refuse(ExitCode::kNoInput,
         fmt::format("'{}/latest' {}; choose with --tag: {}", dir,
                     latest.empty() ? "is missing" : fmt::format("names '{}', which there is not", latest),
                     fmt::join(tags, ", ")));
}

// Rejects files that belong to a mesh with more than the data axis.
void refuse_other_kinds(const std::string& directory, const std::vector<std::string>& names) {
  static const std::pair<std::regex, const char*> kKinds[] = {
      {std::regex("layer_.*expert_.*|expert_.*|expp_rank_.*"), "has experts (MoE)"},
      {std::regex("layer_[0-9]+-.*model_states\\.pt"), "is of a pipeline"},
      {std::regex(".*mp_rank_(0[1-9]|[1-9][0-9]).*_states\\.pt"), "is split by tensor or pipeline parallelism"},
      {std::regex("zero"), "is a universal one (made by ds_to_universal)"},
  };
  for (const auto& name : names) {
    for (const auto& [pattern, kind] : kKinds) {
      if (!std::regex_match(name, pattern)) continue;
      refuse(
          ExitCode::kBadInput,
          fmt::format("the checkpoint '{}' {}, as '{}' shows; only data-parallel checkpoints as DeepSpeed saves them "
                      "(ZeRO stages 0 to 3) can be imported",
                      directory, kind, name));
    }
  }
}

// Files by rank; all must be present.
std::vector<std::string> complete(const std::string& directory, const std::map<int, std::string>& by_rank,
                                  const char* what) {
  std::vector<std::string> paths;
  const int count = by_rank.empty() ? 0 : by_rank.rbegin()->first + 1;
  for (int rank = 0; rank < count; ++rank) {
    const auto found = by_rank.find(rank);
    if (found == by_rank.end()) {
      refuse(ExitCode::kBadInput,
             fmt::format("the checkpoint '{}' is not complete: the {} of rank {} of at least {} are missing", directory,
                         what, rank, count));
    }
    paths.push_back(directory + "/" + found->second);
  }
  return paths;
}

}  // namespace

bool holds_checkpoint(const std::string& dir) {
  return holds_model_states(dir) || !tags_in(dir).empty();
}

CheckpointFiles find_files(const std::string& dir, const std::string& asked_tag) {
  CheckpointFiles out;
  const std::string tag = resolve_tag(dir, asked_tag);
  out.directory = tag.empty() ? dir : dir + "/" + tag;
  out.tag = tag.empty() ? fs::path(dir).lexically_normal().filename().string() : tag;
  const auto names = names_in(out.directory);
  refuse_other_kinds(out.directory, names);

  // Files of old versions lack the underscore before "optim".
  static const std::regex kModel("zero_pp_rank_([0-9]{1,6})_mp_rank_00_model_states\\.pt");
  static const std::regex kOptim("(?:bf16_)?zero_pp_rank_([0-9]{1,6})_mp_rank_00_?optim_states\\.pt");
  std::map<int, std::string> model, optim;
  std::smatch match;
  bool has_whole_model = false;
  for (const auto& name : names) {
    if (std::regex_match(name, match, kModel)) model[std::stoi(match[1])] = name;
    if (std::regex_match(name, match, kOptim)) optim[std::stoi(match[1])] = name;
    has_whole_model |= name == "mp_rank_00_model_states.pt";
  }
  out.optim_states = complete(out.directory, optim, "optimizer states");
  out.model_states_by_rank = !has_whole_model;
  out.model_states = has_whole_model ? std::vector<std::string>{out.directory + "/mp_rank_00_model_states.pt"}
                                     : complete(out.directory, model, "model states");
  if (out.model_states.empty()) {
    refuse(ExitCode::kBadInput,
           fmt::format("the checkpoint '{}' is not complete: mp_rank_00_model_states.pt is missing", out.directory));
  }
  return out;
}

}  // namespace dslaunch::runtime::deepspeed
