#include "config/load.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/small_file.hpp"
#include "config/data_ranks.hpp"
#include "config/other_tools.hpp"
#include "config/rules.hpp"

namespace dslaunch::config {
namespace {

void sort_issues(std::vector<Issue>& issues, const std::string& source) {
  auto order = [&](const Issue& issue) {
    return std::tuple(issue.source != source || issue.position.line == 0, issue.position.line, issue.position.column);
  };
  std::stable_sort(issues.begin(), issues.end(), [&](const Issue& a, const Issue& b) { return order(a) < order(b); });
}

std::string assumed_ranks(int64_t stages, int64_t tensor) {
  const std::string start = "the number of ranks is not given: ";
  if (stages * tensor == 1) return start + "1 is assumed";
  if (tensor == 1) return start + fmt::format("one pipeline of {} is assumed", stages);
  if (stages == 1) return start + fmt::format("one tensor group of {} is assumed", tensor);
  return start + fmt::format("one pipeline of {} stages x {} tensor ranks is assumed", stages, tensor);
}

// Sets the numbers of ranks. False: an issue was added, now or before.
bool divide_world(LoadResult& result) {
  Settings& settings = result.settings;
  const std::string kStages = "pipeline.stages", kTensor = "tensor_parallel.size";
  const auto valid = [&](const std::string& of) { return settings.has_error(of) ? 1 : settings.integer(of); };
  const int64_t stages = valid(kStages), tensor = valid(kTensor);
  const std::string& key = stages > 1 || tensor == 1 ? kStages : kTensor;
  if (result.world_size_assumed) {
    result.world_size = static_cast<int>(stages * tensor);
    settings.note(assumed_ranks(stages, tensor));
  }
  const auto data_ranks = solve_data_ranks(result.world_size, stages, tensor);
  if (!data_ranks.ok()) {
    settings.add_error(Issue::Kind::kMesh, key, data_ranks.error());
    return false;
  }
  result.data_ranks = *data_ranks;
  const std::string hpz = "zero_optimization.zero_hpz_partition_size";
  if (!result.world_size_assumed && !settings.has_error(key) && !settings.has_error(hpz)) {
    const auto divides = check_hpz_partition(settings.integer(hpz), result.data_ranks);
    if (!divides.ok()) settings.add_error(Issue::Kind::kMesh, hpz, divides.error());
  }
  return !settings.has_error(kStages) && !settings.has_error(kTensor);
}

// All steps after reading: `root` is null when there is no file.
void resolve(LoadResult& result, const Value* root, const std::vector<Override>& overrides,
             const ModelDefaults& model) {
  Settings& settings = result.settings;
  if (root) settings.take_document(*root);
  for (const auto& option : overrides) settings.take_override(option);
  settings.complete();
  apply_rules(settings, model);
  bool batch_keys_valid = std::none_of(settings.issues().begin(), settings.issues().end(), [](const Issue& issue) {
    return issue.key == "train_batch_size" || issue.key == "train_micro_batch_size_per_gpu" ||
           issue.key == "gradient_accumulation_steps";
  });
  if (divide_world(result) && batch_keys_valid) {
    const int ranks_per_model = result.world_size / result.data_ranks;
    result.batch_explanation = apply_batch(settings, result.data_ranks, ranks_per_model);
  }
  result.issues.insert(result.issues.end(), settings.issues().begin(), settings.issues().end());
  result.notes.insert(result.notes.end(), settings.notes().begin(), settings.notes().end());
  sort_issues(result.issues, result.source);
  if (result.ok()) result.config = build_job_config(settings);
}

void truncate_issues(LoadResult& result) {
  auto& issues = result.issues;
  const size_t listed = std::min(issues.size(), kMaxIssues);
  result.num_unlisted = issues.size() - listed + result.settings.num_unlisted_issues();
  if (result.num_unlisted == 0) return;
  issues.erase(issues.begin() + static_cast<std::ptrdiff_t>(listed), issues.end());
  const auto kind = issues.back().kind;
  issues.push_back({kind, "", {}, "", fmt::format("{} more errors are not listed", result.num_unlisted)});
}

LoadResult start(const std::string& source, const LoadContext& context) {
  LoadResult result;
  result.source = source;
  result.settings = Settings(source);
  result.world_size_assumed = context.world_size <= 0;
  result.world_size = result.data_ranks = std::max(1, context.world_size);
  return result;
}

}  // namespace

ExitCode LoadResult::exit_code() const {
  if (ok()) return ExitCode::kSuccess;
  if (issues.front().kind == Issue::Kind::kFile) return ExitCode::kNoInput;
  const bool is_only_mesh =
      std::all_of(issues.begin(), issues.end(), [](const Issue& issue) { return issue.kind == Issue::Kind::kMesh; });
  return is_only_mesh ? ExitCode::kContradiction : ExitCode::kBadInput;
}

LoadResult load_text(std::string_view text, const std::string& name, Format format,
                     const std::vector<Override>& overrides, const LoadContext& context) {
  LoadResult result = start(name, context);
  ReadResult read = read_document(text, format);
  for (auto& problem : read.problems) {
    result.issues.push_back({Issue::Kind::kSyntax, name, problem.position, "", std::move(problem.message)});
  }
  if (auto other = read.root ? describe_other_file(*read.root) : std::nullopt) {
    result.issues.push_back(
        {Issue::Kind::kUnknownKey, name, read.root->members.front().position, "", *std::move(other)});
  } else if (read.root) {
    resolve(result, &*read.root, overrides, context.model);
  }
  truncate_issues(result);
  return result;
}

LoadResult load_file(const std::string& path, const std::vector<Override>& overrides, const LoadContext& context) {
  if (path.empty()) {
    LoadResult result = start("", context);
    result.notes.push_back("no --config: every key has its default");
    resolve(result, nullptr, overrides, context.model);
    truncate_issues(result);
    return result;
  }
  if (is_config_text(path)) return load_text(path, std::string(kTextName), format_of_text(path), overrides, context);
  const SmallFile file = read_small_file(path, kMaxBytes);
  if (!file.outcome.ok() && !file.too_large) {
    LoadResult result = start(path, context);
    result.issues.push_back(
        {Issue::Kind::kFile, "", {}, "", fmt::format("cannot read the job file '{}': {}", path, file.outcome.error())});
    return result;
  }
  return load_text(file.bytes, path, format_of(path), overrides, context);
}

void throw_if_bad(const LoadResult& result) {
  if (result.ok()) return;
  std::string message;
  for (const auto& issue : result.issues) message += (message.empty() ? "" : "\n") + to_line(issue);
  throw UserError(result.exit_code(), message);
}

Override parse_set_option(std::string_view text) {
  size_t equals = text.find('=');
  if (equals == text.npos || equals == 0) {
    throw UserError(ExitCode::kUsage,
                    fmt::format("--set '{}' is not KEY=VALUE; for example --set zero_optimization.stage=1", text));
  }
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), "command line"};
}

}  // namespace dslaunch::config
