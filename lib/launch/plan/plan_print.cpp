// The plan in words and as JSON.
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/shell_words.hpp"
#include "launch/plan/launch_plan.hpp"

namespace dslaunch::launch {
namespace {

double in_seconds(std::chrono::duration<double> time) {
  return time.count();
}

using Json = nlohmann::ordered_json;

const char* kind_word(JobKind kind) {
  return kind == JobKind::kRun ? "run" : "exec";
}

const char* name_of(Reach reach) {
  switch (reach) {
    case Reach::kPipe:
      return "this machine";
    case Reach::kSsh:
      return "ssh";
    case Reach::kSrun:
      return "srun";
    case Reach::kNodeJoin:
      return "started on the node itself";
  }
  return "";
}

// Whether ranks hold different parts of the model.
bool splits_model(const LaunchPlan& plan) {
  return plan.kind == JobKind::kRun && plan.mesh.pipe * plan.mesh.tensor > 1;
}

std::string mesh_line(const comm::Mesh& mesh) {
  const std::string tensor = mesh.tensor > 1 ? fmt::format(" x {} tensor ranks", mesh.tensor) : "";
  return fmt::format("mesh       {} data rank{} x {} pipeline stage{}{}\n", mesh.data, mesh.data == 1 ? "" : "s",
                     mesh.pipe, mesh.pipe == 1 ? "" : "s", tensor);
}

std::string rank_line(const LaunchPlan& plan, const PlannedNode& node, const PlannedRank& rank) {
  std::string line = fmt::format("  rank {:<4} {}  node {} ({}), local rank {}, slot {}", rank.rank, node.host,
                                 node.node_rank, name_of(node.reach), rank.local_rank, rank.slot);
  if (splits_model(plan)) {
    const auto at = plan.mesh.coordinates(rank.rank);
    line += fmt::format(", stage {}, data rank {}", at.pipe, at.data);
    if (plan.mesh.tensor > 1) line += fmt::format(", tensor rank {}", at.tensor);
  }
  for (const auto& [name, value] : rank.env) line += fmt::format("  {}={}", name, shell_word(value));
  if (!rank.placement.empty()) line += "  (" + rank.placement + ")";
  return line + "\n";
}

Json mesh_json(const LaunchPlan& plan) {
  if (plan.kind != JobKind::kRun) return nullptr;
  return {{"data", plan.mesh.data}, {"pipe", plan.mesh.pipe}, {"tensor", plan.mesh.tensor}};
}

// The rank's place along each axis of the mesh.
Json coordinates_json(const LaunchPlan& plan, int rank) {
  if (plan.kind != JobKind::kRun) return nullptr;
  const auto at = plan.mesh.coordinates(rank);
  return {{"data", at.data}, {"pipe", at.pipe}, {"tensor", at.tensor}};
}

Json rank_json(const LaunchPlan& plan, const PlannedNode& node, const PlannedRank& rank) {
  return {{"rank", rank.rank},
          {"mesh", coordinates_json(plan, rank.rank)},
          {"host", node.host},
          {"node_rank", node.node_rank},
          {"reach", name_of(node.reach)},
          {"local_rank", rank.local_rank},
          {"slot", rank.slot},
          {"placement", rank.placement.empty() ? Json(nullptr) : Json(rank.placement)},
          {"env", rank.env}};
}

}  // namespace

std::string plan_text(const LaunchPlan& plan) {
  std::string text = fmt::format("job        {} ({})\n", plan.job_id, kind_word(plan.kind));
  text += fmt::format("world      {} rank(s) on {} host(s), {}\n", plan.world_size(), plan.nodes.size(), plan.source);
  if (splits_model(plan)) text += mesh_line(plan.mesh);
  text += fmt::format("device     {}\n", plan.device);
  text += fmt::format("master     {}:{}\n", plan.master_addr.empty() ? "(chosen at start)" : plan.master_addr,
                      plan.master_port == 0 ? "(chosen at start)" : std::to_string(plan.master_port));
  text += fmt::format("directory  {}\n", plan.cwd);
  text +=
      fmt::format("files      {}\n", plan.run_dir.empty() ? "logs in the job directory (no --run_dir)" : plan.run_dir);
  text += fmt::format("limits     stop grace {} s, time limit {}\n", in_seconds(plan.grace),
                      plan.timeout ? fmt::format("{} s", in_seconds(*plan.timeout)) : "none");
  text += fmt::format("command    {}\n", shell_words(plan.argv));
  if (!plan.venv.empty()) text += fmt::format("venv       {}\n", plan.venv);
  for (const auto& file : plan.env_files) text += fmt::format("env file   {}\n", file);
  for (const auto& [name, value] : plan.set_env) text += fmt::format("env        {}={}\n", name, shell_word(value));
  for (const auto& node : plan.nodes) {
    for (const auto& rank : node.ranks) text += rank_line(plan, node, rank);
  }
  return text;
}

std::string plan_json(const LaunchPlan& plan) {
  Json ranks = Json::array();
  for (const auto& node : plan.nodes) {
    for (const auto& rank : node.ranks) ranks.push_back(rank_json(plan, node, rank));
  }
  Json document = {
      {"job_id", plan.job_id},
      {"kind", kind_word(plan.kind)},
      {"world_size", plan.world_size()},
      {"mesh", mesh_json(plan)},
      {"num_nodes", plan.nodes.size()},
      {"hosts_from", plan.source},
      {"device", plan.device},
      {"master_addr", plan.master_addr.empty() ? Json(nullptr) : Json(plan.master_addr)},
      {"master_port", plan.master_port == 0 ? Json(nullptr) : Json(plan.master_port)},
      {"cwd", plan.cwd},
      {"run_dir", plan.run_dir.empty() ? Json(nullptr) : Json(plan.run_dir)},
      {"grace_s", in_seconds(plan.grace)},
      {"timeout_s", plan.timeout ? Json(in_seconds(*plan.timeout)) : Json(nullptr)},
      {"argv", plan.argv},
      {"env_files", plan.env_files},
      {"env", plan.set_env},
      {"venv", plan.venv.empty() ? Json(nullptr) : Json(plan.venv)},
      {"ranks", ranks},
  };
  return dump_json(document, 2) + "\n";
}

}  // namespace dslaunch::launch
