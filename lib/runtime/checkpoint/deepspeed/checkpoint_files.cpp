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
  if (!fs::is_directory(dir, ignored))
    refuse(ExitCode::kNoInput, fmt::format("there is no directory '{}'{}", dir, did_you_mean_file(dir)));
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

// The files of a directory by the ranks and layers in their names.
struct FoundFiles {
  using ByNumber = std::map<int, std::string>;
  ByNumber layers;
  ByNumber model_of_stage;         // mp_rank_SS_model_states.pt
  ByNumber model_of_rank;          // ZeRO stage 3
  std::map<int, ByNumber> optims;  // by stage, then data rank
};

FoundFiles sort_by_numbers(const std::vector<std::string>& names) {
  // Files of old versions lack the underscore before "optim". Megatron's topologies name the tensor-parallel rank
  // always.
  static const std::regex kLayer("layer_([0-9]{2,6})-(?:model_00-)?model_states\\.pt");
  static const std::regex kStage("mp_rank_([0-9]{2,6})_model_states\\.pt");
  static const std::regex kModel("zero_pp_rank_([0-9]{1,6})_mp_rank_00_model_states\\.pt");
  static const std::regex kOptim("(?:bf16_)?zero_pp_rank_([0-9]{1,6})_mp_rank_([0-9]{2,6})_?optim_states\\.pt");
  FoundFiles out;
  std::smatch match;
  for (const auto& name : names) {
    if (std::regex_match(name, match, kLayer)) out.layers[std::stoi(match[1])] = name;
    if (std::regex_match(name, match, kStage)) out.model_of_stage[std::stoi(match[1])] = name;
    if (std::regex_match(name, match, kModel)) out.model_of_rank[std::stoi(match[1])] = name;
    if (std::regex_match(name, match, kOptim)) out.optims[std::stoi(match[2])][std::stoi(match[1])] = name;
  }
  return out;
}

// Rejects files that belong to a mesh with other axes than data and pipe.
void refuse_other_kinds(const std::string& directory, const std::vector<std::string>& names, bool is_pipeline) {
  static const std::regex kExperts("layer_.*expert_.*|expert_.*|expp_rank_.*"), kUniversal("zero");
  static const std::regex kTensorParallel("layer_[0-9]+-model_(0[1-9]|[1-9][0-9]).*"),
      kSliced("zero_pp_.*model_states\\.pt");
  static const std::regex kManyModelRanks(".*mp_rank_(0[1-9]|[1-9][0-9]).*_states\\.pt");
  for (const auto& name : names) {
    const auto is = [&name](const std::regex& pattern) { return std::regex_match(name, pattern); };
    const char* kind = nullptr;
    if (is(kExperts)) kind = "has experts (MoE)";
    if (is(kTensorParallel) || (!is_pipeline && is(kManyModelRanks))) kind = "is split by tensor parallelism";
    if (is_pipeline && is(kSliced)) kind = "is a pipeline with ZeRO stage 3";
    if (is(kUniversal)) kind = "is a universal one (made by ds_to_universal)";
    if (!kind) continue;
    refuse(ExitCode::kBadInput,
           fmt::format("the checkpoint '{}' {}, as '{}' shows; only checkpoints of data ranks (ZeRO stages 0 to 3) and "
                       "of pipelines beside them (stages 0 and 1), as DeepSpeed saves them, can be imported",
                       directory, kind, name));
  }
}

// Files by rank or stage; all must be present, and at least `count`. `what`: the files' name in messages.
std::vector<std::string> complete(const std::string& directory, const FoundFiles::ByNumber& files, const char* what,
                                  int count = 0, const std::string& of = "") {
  std::vector<std::string> paths;
  count = std::max(count, files.empty() ? 0 : files.rbegin()->first + 1);
  for (int number = 0; number < count; ++number) {
    const auto found = files.find(number);
    if (found == files.end()) {
      refuse(ExitCode::kBadInput,
             fmt::format("the checkpoint '{}' is not complete: the {} {} of at least {}{} are missing", directory, what,
                         number, count, of));
    }
    paths.push_back(directory + "/" + found->second);
  }
  return paths;
}

void find_pipeline_files(const FoundFiles& found, CheckpointFiles& out) {
  for (const auto& [number, name] : found.layers) out.layers[number] = out.directory + "/" + name;
  const int last_optim = found.optims.empty() ? -1 : found.optims.rbegin()->first;
  int data_ranks = 0;
  for (const auto& [stage, files] : found.optims) data_ranks = std::max(data_ranks, files.rbegin()->first + 1);
  for (auto& path : complete(out.directory, found.model_of_stage, "model states of stage", last_optim + 1)) {
    const auto stage = static_cast<int>(out.stages.size());
    const auto files = found.optims.find(stage);
    out.stages.push_back(
        {std::move(path), complete(out.directory, files == found.optims.end() ? FoundFiles::ByNumber() : files->second,
                                   "optimizer states of rank", data_ranks, fmt::format(" of stage {}", stage))});
  }
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
  const FoundFiles found = sort_by_numbers(names);
  refuse_other_kinds(out.directory, names, !found.layers.empty());
  const auto whole_model = found.model_of_stage.find(0);
  if (!found.layers.empty()) {
    find_pipeline_files(found, out);
  } else {
    const auto optims = found.optims.find(0);
    if (optims != found.optims.end())
      out.optim_states = complete(out.directory, optims->second, "optimizer states of rank");
    out.model_states_by_rank = whole_model == found.model_of_stage.end();
    out.model_states = out.model_states_by_rank ? complete(out.directory, found.model_of_rank, "model states of rank")
                                                : std::vector<std::string>{out.directory + "/" + whole_model->second};
  }
  if (out.model_states.empty() && !out.is_pipeline()) {
    refuse(ExitCode::kBadInput,
           fmt::format("the checkpoint '{}' is not complete: mp_rank_00_model_states.pt is missing", out.directory));
  }
  return out;
}

}  // namespace dslaunch::runtime::deepspeed
