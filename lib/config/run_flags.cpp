#include "config/run_flags.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/parse_int.hpp"
#include "config/key_table.hpp"
#include "config/load.hpp"

namespace dslaunch::config {
namespace {

using enum FlagGroup;
using enum FlagValue;

constexpr RunFlag kFlags[] = {
    {"--data", kData, kPaths, "PATH", "file, glob, a list [a,b] of them, or 'synthetic'", "data.train"},
    {"--inputs", kData, kText, "a,b", "arrays in the order of forward", "data.inputs"},
    {"--labels", kData, kText, "c", "arrays after the inputs", "data.labels"},
    {"--loss", kData, kFileOrName, "NAME|FILE",
     "cross_entropy, mse or a TorchScript file, where forward returns no loss", "loss"},
    // If only one of these two is given, it alone determines the length of the run, whatever the file sets for the
    // other; if both are given, the run ends at the one that is reached first.
    {"--steps", kJob, kNumber, "N", "optimizer steps, counted from the start of training", "train.steps", "--epochs"},
    {"--epochs", kJob, kNumber, "N", "passes over the data", "train.epochs", "--steps"},
    {"--seed", kJob, kNumber, "N", "of dropout and other random operations of the model (initial weights: init.seed)",
     "train.seed"},
    {"--stages", kParallel, kNumber, "P", "cut the model into P pipeline stages; the data ranks are world size / P",
     "pipeline.stages"},
    {"--tp", kParallel, kNumber, "T",
     "split each layer among T tensor ranks, neighbours on a host; the data ranks are world size / (P x T)",
     "tensor_parallel.size"},
    {"--nvme_path", kParallel, kText, "DIR", "directory on a disk of each node for state that is offloaded to files",
     "zero_optimization.offload_optimizer.nvme_path", "", "zero_optimization.offload_param.nvme_path"},
    {"--resume", kJob, kPathOrAuto, "auto|best|PATH",
     "from the newest checkpoint of --run_dir (or of this job's newest run), its best one, or PATH"},
    {"--eval_only", kJob, kSwitch, "", "no training: the loss over data.eval, of MODEL or of the --resume checkpoint"},
    {"--verify", kJob, kNumber, "N", "compare the first N steps of this start with an unsharded replica on rank 0"},
    {"--trace", kJob, kNumber, "STEP", "write what step STEP did and when, as RUN_DIR/trace.step_STEP.rank_R.json"},
};

const RunFlag& row_of(std::string_view name) {
  const auto row =
      std::find_if(std::begin(kFlags), std::end(kFlags), [&](const auto& flag) { return flag.name == name; });
  DSL_CHECK(row != std::end(kFlags), "no such flag of a run: " + std::string(name));
  return *row;
}

}  // namespace

std::span<const RunFlag> run_flags() {
  return kFlags;
}

int64_t minimum_of(const RunFlag& flag) {
  return flag.key.empty() ? 1 : static_cast<int64_t>(find_key(flag.key)->low);
}

void RunFlags::set(std::string_view name, std::string value) {
  values_[row_of(name).name] = std::move(value);
}

bool RunFlags::has(std::string_view name) const {
  return values_.contains(row_of(name).name);
}

std::string RunFlags::text(std::string_view name) const {
  const auto found = values_.find(row_of(name).name);
  return found == values_.end() ? "" : found->second;
}

std::optional<int64_t> RunFlags::number(std::string_view name) const {
  return has(name) ? parse_int<int64_t>(text(name)) : std::nullopt;
}

std::vector<std::string> words_of(const RunFlags& flags) {
  std::vector<std::string> words;
  for (const RunFlag& flag : kFlags) {
    if (!flags.has(flag.name)) continue;
    words.emplace_back(flag.name);
    if (flag.value != kSwitch) words.push_back(flags.text(flag.name));
  }
  return words;
}

std::vector<Override> overrides_of(const RunFlags& flags, const std::vector<std::string>& sets) {
  std::vector<Override> out;
  for (const RunFlag& flag : kFlags) {
    if (flag.key.empty() || !flags.has(flag.name)) continue;
    const std::string origin(flag.name);
    out.push_back({std::string(flag.key), flags.text(flag.name), origin});
    if (!flag.second_key.empty()) out.push_back({std::string(flag.second_key), flags.text(flag.name), origin});
    if (flag.instead_of.empty() || flags.has(flag.instead_of)) continue;
    out.push_back({std::string(row_of(flag.instead_of).key), "null", origin});
  }
  for (const auto& text : sets) out.push_back(parse_set_option(text));
  return out;
}

}  // namespace dslaunch::config
