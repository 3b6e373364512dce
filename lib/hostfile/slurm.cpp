#include "hostfile/slurm.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"
#include "hostfile/host_range.hpp"
#include "hostfile/hostfile.hpp"

namespace dslaunch::hostfile {
namespace {

[[noreturn]] void malformed(const std::string& variable, std::string_view value, size_t offset,
                            const std::string& what) {
  contradiction(fmt::format("{}='{}' in the environment: column {}: {}", variable, printable(value), offset + 1, what));
}

struct Item {
  std::string_view text;
  size_t offset = 0;
};

// The items between commas; a comma inside [] or () does not separate.
std::vector<Item> split_list(std::string_view list) {
  std::vector<Item> items;
  size_t begin = 0;
  int depth = 0;
  for (size_t at = 0; at <= list.size(); ++at) {
    char c = at < list.size() ? list[at] : ',';
    if (c == '[' || c == '(') ++depth;
    if ((c == ']' || c == ')') && depth > 0) --depth;
    if (at < list.size() && (c != ',' || depth > 0)) continue;
    items.push_back({list.substr(begin, at - begin), begin});
    begin = at + 1;
  }
  return items;
}

// --- nodes -------------------------------------------------------------------------------------------------------

struct NodeList {
  std::string variable;
  std::vector<std::string> names;
};

std::optional<NodeList> first_nodelist(const Environment& environment, std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (auto list = text_of(environment, variable)) return NodeList{variable, expand_nodelist(*list, variable)};
  }
  return std::nullopt;
}

void check_node_count(const NodeList& nodes, const std::optional<NamedNumber>& stated) {
  if (stated && static_cast<size_t>(stated->value) != nodes.names.size()) {
    contradiction(fmt::format(
        "{} names {} node{} but {}={}: the two must agree. An incomplete list would leave nodes of the job idle; were "
        "these variables changed by hand?",
        nodes.variable, nodes.names.size(), nodes.names.size() == 1 ? "" : "s", stated->name, stated->value));
  }
  std::set<std::string> seen;
  for (const auto& name : nodes.names) {
    if (!seen.insert(name).second) contradiction(fmt::format("{} names node '{}' twice", nodes.variable, name));
  }
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Steps that are not tasks: salloc's interactive step, the batch script, the prolog's and the container's own.
bool is_special_step(const std::string& step) {
  constexpr int64_t kFirstSpecial = 0xfffffff0;
  return parse_int<int64_t>(step).value_or(kFirstSpecial) >= kFirstSpecial;
}

bool in_step(const Environment& environment) {
  auto step = text_of(environment, "SLURM_STEP_ID");
  if (!step) step = text_of(environment, "SLURM_STEPID");
  return step && !is_special_step(*step);
}

// A batch job submitted from inside a step inherits that step's variables; variables that slurmd itself sets reveal
// this. ENVIRONMENT=BATCH is also set in the tasks below a script, but those have SLURM_LAUNCH_NODE_IPADDR.
bool is_left_over(const Environment& environment, const NodeList& step, const NodeList& job) {
  if (text_of(environment, "ENVIRONMENT") == "BATCH" && !text_of(environment, "SLURM_LAUNCH_NODE_IPADDR")) return true;
  auto here = text_of(environment, "SLURMD_NODENAME");
  if (here && !contains(step.names, *here)) return true;
  const std::set<std::string> names(job.names.begin(), job.names.end());
  return !std::all_of(step.names.begin(), step.names.end(),
                      [&](const std::string& name) { return names.contains(name); });
}

// A single task with its own terminal is an interactive shell: a dslaunch started there serves the whole job.
bool is_interactive_shell(const Environment& environment) {
  if (!text_of(environment, "SLURM_PTY_PORT") && !text_of(environment, "SLURM_PTY_WIN_COL")) return false;
  auto tasks = first_number(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}, 1, kMaxProcesses);
  return tasks && tasks->value == 1;
}

// Did srun start us as a task of a step? SLURM_PROCID alone does not decide this: in a batch script it is 0.
bool is_task(const Environment& environment, const NodeList& job) {
  auto rank = number_of(environment, "SLURM_PROCID", 0, kMaxProcesses);
  if (!rank || (!in_step(environment) && *rank == 0)) return false;
  auto step = first_nodelist(environment, {"SLURM_STEP_NODELIST"});
  return !is_left_over(environment, step.value_or(job), job) && !is_interactive_shell(environment);
}

// --- slots -------------------------------------------------------------------------------------------------------

struct TaskCounts {
  std::string variable;
  std::vector<int> per_node;  // empty: not stated
};

TaskCounts read_task_counts(const Environment& environment, bool task, const NodeList& nodes) {
  // In an interactive shell the counts are those of the shell's own step.
  if (!task && is_interactive_shell(environment)) return {};
  std::vector<const char*> names{"SLURM_TASKS_PER_NODE"};
  if (task) names.insert(names.begin(), "SLURM_STEP_TASKS_PER_NODE");
  for (const char* name : names) {
    auto text = text_of(environment, name);
    if (!text) continue;
    TaskCounts counts{name, expand_repeats(*text, name)};
    if (counts.per_node.size() != nodes.names.size()) {
      contradiction(fmt::format("{}='{}' counts tasks for {} nodes but {} names {}", name, *text,
                                counts.per_node.size(), nodes.variable, nodes.names.size()));
    }
    return counts;
  }
  return {};
}

struct Slots {
  std::vector<int> per_node;
  std::string source;
  bool gpus = false;
};

struct GpuVariables {
  std::optional<NamedNumber> on_this_node, per_node, per_task, total;
};

std::optional<NamedNumber> requested(const Environment& environment, const char* name) {
  auto text = text_of(environment, name);
  if (!text) return std::nullopt;
  return NamedNumber{name, count_gres(*text, name)};
}

std::optional<NamedNumber> listed(const Environment& environment, const char* name) {
  auto text = text_of(environment, name);
  if (!text || count_device_list(*text) == 0) return std::nullopt;
  return NamedNumber{name, count_device_list(*text)};
}

GpuVariables read_gpus(const Environment& environment, bool task, bool whole_job) {
  GpuVariables gpus;
  gpus.on_this_node = first_number(environment, {"SLURM_GPUS_ON_NODE"}, 0, kMaxSlots);
  if (!gpus.on_this_node && task) gpus.on_this_node = listed(environment, "SLURM_STEP_GPUS");
  if (!gpus.on_this_node) gpus.on_this_node = listed(environment, "SLURM_JOB_GPUS");
  gpus.per_node = requested(environment, "SLURM_GPUS_PER_NODE");
  gpus.per_task = requested(environment, "SLURM_GPUS_PER_TASK");
  // A step on part of the nodes still sees the job's total.
  if (whole_job) gpus.total = requested(environment, "SLURM_GPUS");
  return gpus;
}

bool all_equal(const std::vector<int>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

// If the nodes do not share the total equally, the number per node is unknown.
void check_total(const GpuVariables& gpus, const NamedNumber& each, size_t num_nodes) {
  if (!gpus.total || static_cast<size_t>(gpus.total->value) == static_cast<size_t>(each.value) * num_nodes) return;
  contradiction(fmt::format(
      "{}={} but {}={} on {} nodes makes {}: the GPUs are spread unevenly and the variables do not say how. Ask Slurm "
      "with --gpus-per-node=N, or give each node's slots with --hostfile",
      gpus.total->name, gpus.total->value, each.name, each.value, num_nodes,
      static_cast<size_t>(each.value) * num_nodes));
}

// Each factor is within its own limit; the product may exceed it, and is then rejected as a node's slot count.
int times(int tasks, int gpus) {
  return static_cast<int>(std::min<int64_t>(int64_t{tasks} * gpus, std::numeric_limits<int>::max()));
}

// slurmd's count for this node takes precedence; the requested numbers are used if there is none (a shell of salloc).
std::optional<Slots> slots_from_gpus(const GpuVariables& gpus, const TaskCounts& tasks, size_t num_nodes) {
  auto uniform = [&](const NamedNumber& each) {
    check_total(gpus, each, num_nodes);
    return Slots{std::vector<int>(num_nodes, each.value), each.name, true};
  };
  if (gpus.per_task && !gpus.per_node && !tasks.per_node.empty() && !all_equal(tasks.per_node)) {
    Slots slots{tasks.per_node, gpus.per_task->name + " and " + tasks.variable, true};
    for (int& count : slots.per_node) count = times(count, gpus.per_task->value);
    return slots;
  }
  if (gpus.on_this_node && gpus.on_this_node->value > 0) return uniform(*gpus.on_this_node);
  if (gpus.per_node && gpus.per_node->value > 0) return uniform(*gpus.per_node);
  if (gpus.per_task && gpus.per_task->value > 0 && !tasks.per_node.empty()) {
    return uniform(
        {gpus.per_task->name + " times " + tasks.variable, times(tasks.per_node.front(), gpus.per_task->value)});
  }
  if (!gpus.total || gpus.total->value == 0) return std::nullopt;
  return uniform({gpus.total->name + " over the nodes", gpus.total->value / static_cast<int>(num_nodes)});
}

Slots read_slots(const Environment& environment, bool task, bool whole_job, const TaskCounts& tasks,
                 const NodeList& nodes) {
  if (auto slots = slots_from_gpus(read_gpus(environment, task, whole_job), tasks, nodes.names.size())) return *slots;
  if (!tasks.per_node.empty()) return {tasks.per_node, tasks.variable, false};
  return {std::vector<int>(nodes.names.size(), 1), "no variable: one per node", false};
}

std::vector<Host> hosts_of(const NodeList& nodes, const Slots& slots) {
  std::vector<Host> hosts;
  for (size_t i = 0; i < nodes.names.size(); ++i) {
    int count = slots.per_node[i];
    if (count < 1 || count > kMaxSlots) {
      contradiction(fmt::format("node {} of {} would have {} slots by {}; expected 1 to {}", nodes.names[i],
                                nodes.variable, count, slots.source, kMaxSlots));
    }
    hosts.push_back({nodes.names[i], {}, {}, first_slots(count)});
  }
  return hosts;
}

// --- our place as a task -----------------------------------------------------------------------------------------

void refuse_several_tasks(const TaskCounts& tasks, const NodeList& nodes) {
  for (size_t i = 0; i < tasks.per_node.size(); ++i) {
    if (tasks.per_node[i] == 1) continue;
    contradiction(fmt::format(
        "srun starts dslaunch {} times on node {} ({}): it starts the ranks of a node itself, so use one task per "
        "node: srun --ntasks-per-node=1 dslaunch ... (with --gpus-per-node=N for N ranks per node)",
        tasks.per_node[i], nodes.names[i], tasks.variable));
  }
}

int read_node_rank(const Environment& environment, const NodeList& nodes) {
  int num_nodes = static_cast<int>(nodes.names.size());
  auto membership = first_number(environment, {"SLURM_NODEID", "SLURM_PROCID"}, 0, kMaxProcesses);
  if (!membership || membership->value >= num_nodes) {
    contradiction(fmt::format("{}={} does not fit the {} nodes of {}", membership ? membership->name : "SLURM_NODEID",
                              membership ? std::to_string(membership->value) : "(not set)", num_nodes, nodes.variable));
  }
  auto here = text_of(environment, "SLURMD_NODENAME");
  if (here && nodes.names[static_cast<size_t>(membership->value)] != *here) {
    contradiction(fmt::format(
        "SLURMD_NODENAME={} but {}={} is node {} of {}: the nodes would not agree on where rank 0 is", *here,
        membership->name, membership->value, nodes.names[static_cast<size_t>(membership->value)], nodes.variable));
  }
  return membership->value;
}

// The same on every node, and in every version of this program, without communication; different for jobs that share a
// node, and below the kernel's ephemeral ports.
uint16_t rendezvous_port(const std::string& job_id, const std::string& step_id) {
  constexpr uint32_t kFirst = 20000, kCount = 32768 - kFirst;
  uint32_t hash = 2166136261u;  // 32-bit FNV-1a
  for (unsigned char c : fmt::format("{}.{}", job_id, step_id)) hash = (hash ^ c) * 16777619u;
  return static_cast<uint16_t>(kFirst + hash % kCount);
}

void refuse_heterogeneous(const Environment& environment) {
  auto parts = number_of(environment, "SLURM_HET_SIZE", 0, kMaxProcesses);
  if (!parts || *parts < 2) return;
  contradiction(fmt::format(
      "SLURM_HET_SIZE={}: a heterogeneous job has a node list for each part and none for the whole. Start dslaunch in "
      "one part, or write the nodes into a hostfile and give --hostfile",
      *parts));
}

// Without SLURM_PROCID a task would take itself for the launcher of the whole job, on every node.
void refuse_node_without_task(const Environment& environment) {
  const auto node = number_of(environment, "SLURM_NODEID", 0, kMaxProcesses);
  if (node.value_or(0) == 0 || text_of(environment, "SLURM_PROCID")) return;
  contradiction(fmt::format(
      "SLURM_NODEID={} in the environment but SLURM_PROCID is not set: whether srun has started dslaunch on "
      "every node is unknown; pass all SLURM_ variables into the container, or unset SLURM_NODEID",
      *node));
}

std::optional<NamedNumber> stated_nodes(const Environment& environment, bool task) {
  if (task) {
    return first_number(environment, {"SLURM_STEP_NUM_NODES"}, 1, kMaxProcesses);
  }
  return first_number(environment, {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, 1, kMaxProcesses);
}

}  // namespace

std::vector<std::string> expand_nodelist(std::string_view list, const std::string& variable) {
  std::vector<std::string> names;
  for (const Item& item : split_list(list)) {
    const auto expansion = expand_host_range(item.text);
    if (!expansion.ok()) {
      malformed(variable, list, item.offset + expansion.error().offset, expansion.error().message);
    }
    if (!is_host_name(expansion->front())) {
      malformed(variable, list, item.offset, fmt::format("'{}' is not a node name", printable(expansion->front())));
    }
    if (names.size() + expansion->size() > kMaxExpandedNames) {
      malformed(variable, list, item.offset, fmt::format("names more than {} hosts", kMaxExpandedNames));
    }
    names.insert(names.end(), expansion->begin(), expansion->end());
  }
  return names;
}

std::vector<int> expand_repeats(std::string_view list, const std::string& variable) {
  std::vector<int> counts;
  for (const Item& item : split_list(list)) {
    size_t open = std::min(item.text.find("(x"), item.text.size());
    auto count = parse_int<int>(item.text.substr(0, open), 0);
    std::optional<int> times = 1;
    if (open < item.text.size()) {
      std::string_view tail = item.text.substr(open + 2);
      times = tail.ends_with(')') ? parse_int<int>(tail.substr(0, tail.size() - 1), 0) : std::nullopt;
    }
    if (!count || !times || *times < 1) {
      malformed(variable, list, item.offset,
                fmt::format("'{}' is neither COUNT nor COUNT(xTIMES)", printable(item.text)));
    }
    if (counts.size() + static_cast<size_t>(*times) > kMaxExpandedNames) {
      malformed(variable, list, item.offset, fmt::format("counts for more than {} nodes", kMaxExpandedNames));
    }
    counts.insert(counts.end(), static_cast<size_t>(*times), *count);
  }
  return counts;
}

int count_gres(std::string_view request, const std::string& variable) {
  int sum = 0;
  for (const Item& item : split_list(request)) {
    std::string_view text = item.text.substr(0, item.text.find('('));  // "(S:0-1)": the sockets that the GPUs are
                                                                       // attached to
    size_t colon = text.rfind(':');
    std::string_view last = colon == std::string_view::npos ? text : text.substr(colon + 1);
    bool counted = !last.empty() && std::isdigit(static_cast<unsigned char>(last[0]));
    // A name without a count requests one. The name may begin with a digit too, but then a count follows it.
    auto count = counted ? parse_int<int>(last, 0) : std::optional<int>(1);
    if (text.empty() || last.empty() || !count || *count > kMaxSlots - sum) {
      malformed(variable, request, item.offset,
                fmt::format("'{}' is not [gpu:][TYPE:]COUNT with at most {} in all", printable(item.text), kMaxSlots));
    }
    sum += *count;
  }
  return sum;
}

int count_device_list(std::string_view list) {
  if (list == "NoDevFiles") return 0;  // Slurm writes this when a gres has no devices
  int sum = 0;
  for (const Item& item : split_list(list)) {
    size_t dash = item.text.find('-');
    auto low = parse_int<int>(item.text.substr(0, dash), 0);
    auto high = dash == std::string_view::npos ? low : parse_int<int>(item.text.substr(dash + 1), 0);
    bool is_range = low && high && *high >= *low && *high - *low < kMaxSlots;
    sum += is_range ? *high - *low + 1 : item.text.empty() ? 0 : 1;
  }
  return std::min(sum, kMaxSlots);
}

void learn_gpus(SlurmSituation& situation, std::string_view answers) {
  std::map<std::string, int, std::less<>> counts;
  for (size_t begin = 0; begin < answers.size();) {
    size_t end = std::min(answers.find('\n', begin), answers.size());
    std::string_view line = answers.substr(begin, end - begin);
    size_t blank = std::min(line.find(' '), line.size());
    auto count = parse_int<int>(line.substr(std::min(blank + 1, line.size())), 0);
    if (count && *count >= 1 && *count <= kMaxSlots) counts[std::string(line.substr(0, blank))] = *count;
    begin = end + 1;
  }
  auto& hosts = situation.allocation.hosts;
  if (!std::all_of(hosts.begin(), hosts.end(), [&](const Host& host) { return counts.contains(host.name); })) return;
  for (auto& host : hosts) host.slots = first_slots(counts[host.name]);
  situation.slots_are_gpus = true;
  situation.slots_open = false;
  situation.slots_source = "SLURM_GPUS_ON_NODE of each node";
}

std::string describe(const SlurmSituation& situation) {
  return fmt::format("{}: {} node{}, slots from {}", situation.allocation.source, situation.num_nodes,
                     situation.num_nodes == 1 ? "" : "s", situation.slots_source);
}

SlurmSituation read_slurm(const Environment& environment) {
  SlurmSituation situation;
  auto id = text_of(environment, "SLURM_JOB_ID");
  if (!id) id = text_of(environment, "SLURM_JOBID");
  if (!id) return situation;
  refuse_heterogeneous(environment);
  auto job = first_nodelist(environment, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!job) return situation;  // only the id from `salloc --no-shell`, or one exported by hand

  refuse_node_without_task(environment);
  bool task = is_task(environment, *job);
  NodeList nodes = task ? first_nodelist(environment, {"SLURM_STEP_NODELIST"}).value_or(*job) : *job;
  check_node_count(nodes, stated_nodes(environment, task));
  if (task) check_node_count(*job, stated_nodes(environment, false));
  TaskCounts tasks = read_task_counts(environment, task, nodes);
  if (task) refuse_several_tasks(tasks, nodes);
  bool whole_job = nodes.names.size() == job->names.size();
  Slots slots = read_slots(environment, task, whole_job, tasks, nodes);

  situation.kind = task ? SlurmKind::kTask : SlurmKind::kAllocation;
  situation.allocation = {"slurm job " + *id, hosts_of(nodes, slots)};
  situation.slots_are_gpus = slots.gpus;
  situation.slots_open = !slots.gpus && all_equal(slots.per_node) && slots.per_node.front() == 1;
  situation.slots_source = slots.source;
  situation.job_id = *id;
  situation.num_nodes = static_cast<int>(nodes.names.size());
  situation.first_node = nodes.names.front();
  situation.restart_count = number_of(environment, "SLURM_RESTART_COUNT", 0, kMaxProcesses).value_or(0);
  if (task) {
    situation.step_id =
        text_of(environment, "SLURM_STEP_ID").value_or(text_of(environment, "SLURM_STEPID").value_or(""));
    situation.node_rank = read_node_rank(environment, nodes);
    situation.rendezvous_port = rendezvous_port(situation.job_id, situation.step_id);
  }
  return situation;
}

}  // namespace dslaunch::hostfile
