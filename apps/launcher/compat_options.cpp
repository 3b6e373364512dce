#include "compat_options.hpp"

#include <filesystem>
#include <string_view>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "launch/commands/migration.hpp"
#include "launch/plan/binding.hpp"
#include "launch/plan/devices.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {
namespace {

using launch::LaunchOptions;

// torchrun's N or MIN:MAX. With --node_rank it corresponds to --no_ssh.
void read_nnodes(LaunchOptions& to, const std::string& text) {
  if (text.empty()) return;
  hostfile::HostOptions& hosts = to.hosts;
  if (hosts.num_nodes) usage_error("--nnodes and --num_nodes are the same: give one of them");
  size_t colon = text.find(':');
  auto most = parse_int<int>(std::string_view(text).substr(colon == std::string::npos ? 0 : colon + 1));
  auto least = colon == std::string::npos ? most : parse_int<int>(std::string_view(text).substr(0, colon));
  if (!most || !least || *least < 1 || *most < *least)
    usage_error(fmt::format("--nnodes {}: write N or MIN:MAX", text));
  hosts.num_nodes = most;
  if (*least < *most) to.min_nodes = least;
  if (!hosts.node_rank || hosts.no_ssh) return;
  hosts.no_ssh = *most > 1;
  if (hosts.no_ssh) return;
  if (*hosts.node_rank != 0)
    usage_error(fmt::format("--node_rank {} of --nnodes 1: there is only node 0", *hosts.node_rank));
  hosts.node_rank.reset();
}

// torchrun's number, or auto, gpu, cpu.
void read_ranks_of_node(LaunchOptions& to, const std::string& text) {
  if (text.empty()) return;
  const auto without_gpus = [] {
    const auto situation = launch::look_for_devices();
    return situation.visible.empty() && !situation.none_answers();
  };
  if (to.hosts.num_gpus) usage_error("--nproc_per_node and --num_gpus are the same: give one of them");
  if (auto count = parse_int<int>(text)) {
    to.hosts.num_gpus = count;
  } else if (text == "cpu" || (text == "auto" && (to.device == launch::DeviceChoice::kCpu || without_gpus()))) {
    to.device = launch::DeviceChoice::kCpu;
    to.hosts.num_gpus = launch::num_usable_cpus();
  } else if (text == "gpu" || text == "auto") {
    to.device = launch::DeviceChoice::kCuda;
  } else {
    usage_error(fmt::format("--nproc_per_node {}: expected a number, auto, gpu or cpu", text));
  }
}

launch::BindingRequest binding_request(const CompatOptions& raw) {
  bool cores = raw.bind_cores || !raw.core_list.empty();
  if (cores && !raw.numa_binding.empty()) usage_error("--numa_binding and --bind_cores_to_rank exclude each other");
  if (!raw.numa_binding.empty()) return {launch::read_numa_binding(raw.numa_binding), ""};
  if (!raw.core_list.empty()) launch::read_core_list(raw.core_list);
  return {cores ? launch::BindingKind::kCores : launch::BindingKind::kDefault, raw.core_list};
}

bool is_config_name(const std::string& word) {
  const std::string ending = std::filesystem::path(word).extension().string();
  return ending == ".json" || ending == ".hjson" || ending == ".yaml" || ending == ".yml";
}

}  // namespace

void add_compat_options(CommandLine& line, CompatOptions& raw) {
  line.group("Cores");
  line.flag("--bind_cores_to_rank", raw.bind_cores, "bind each rank to an equal share of its host's cores");
  line.value("--bind_core_list", raw.core_list, "the cores to share", "0-7,16-23");
  line.value("--numa_binding", raw.numa_binding, "bind near the rank's GPU; default: its NUMA node; none: do not bind",
             "node|socket|exclusive|core-complex|none");
  line.group("torchrun's options");
  line.value("--nproc_per_node,--nproc", raw.ranks_of_node, "--num_gpus N; gpu: all, cpu: a rank for each CPU",
             "N|auto|gpu|cpu");
  line.value("--nnodes", raw.nnodes, "--num_nodes N, or MAX with --min_nodes MIN", "N|MIN:MAX");
  // These options request what dslaunch always does: the same code path for one host and many, all hosts tried at once,
  // no argument added, one host with its own port by default.
  line.group("");
  for (const char* name : {"--force_multi", "--no_ssh_check", "--no_local_rank", "--standalone"}) {
    line.flag(name, raw.ignored, "");
  }
}

std::vector<std::string> drop_not_needed(std::vector<std::string>& words) {
  std::vector<std::string> kept, lines;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (!word->starts_with("--") || !launch::is_not_needed(*word)) {
      kept.push_back(*word);
      continue;
    }
    const size_t equals = word->find('=');
    const bool has_next = word + 1 != words.end();
    if (word->starts_with("--deepspeed") && (equals != word->npos || (has_next && is_config_name(word[1])))) {
      kept.insert(kept.end(), {"--config", equals == word->npos ? *++word : word->substr(equals + 1)});
      continue;
    }
    lines.push_back(*launch::migration_answer(*word));
    if (equals == word->npos && has_next && launch::takes_value(*word)) ++word;
  }
  words = std::move(kept);
  return lines;
}

void finish_compat_options(LaunchOptions& to, const CompatOptions& raw) {
  read_nnodes(to, raw.nnodes);
  read_ranks_of_node(to, raw.ranks_of_node);
  to.binding = binding_request(raw);
}

}  // namespace dslaunch::launcher
