#include "launch/supervisor/same_command.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_name.hpp"
#include "base/printable.hpp"

namespace dslaunch::launch {
namespace {

constexpr size_t kMaxNodesShown = 3;

std::string line_of(size_t node_rank, const std::string& host, const std::string& command) {
  return fmt::format("\n    node rank {} ({}): dslaunch {}", node_rank, printable(host), printable(command));
}

}  // namespace

void check_same_command(const JobCommand& own, const std::vector<AgentHello>& hellos) {
  std::string lines;
  size_t num_others = 0;
  bool looks_alike = false;
  for (size_t i = 0; i < hellos.size(); ++i) {
    const AgentHello& hello = hellos[i];
    if (hello.version != kWireVersion || hello.command.empty() || hello.command_hash == own.hash) continue;
    looks_alike = looks_alike || hello.command == own.text;
    if (++num_others <= kMaxNodesShown) lines += line_of(i + 1, hello.host_name, hello.command);
  }
  if (num_others == 0) return;
  if (num_others > kMaxNodesShown) lines += fmt::format("\n    and {} more nodes", num_others - kMaxNodesShown);
  throw UserError(
      ExitCode::kContradiction,
      fmt::format(
          "the nodes of this job were started with different commands, and all would run that of node rank "
          "0: start the same command on every node (--node_rank and a node's devices may differ){}{}{}",
          looks_alike ? "; commands that look equal here differ in a value of --env or beyond the part shown" : "",
          line_of(0, host_name(), own.text), lines));
}

}  // namespace dslaunch::launch
