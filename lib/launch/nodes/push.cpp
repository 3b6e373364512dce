#include "launch/nodes/push.hpp"

#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/parallel_for_each.hpp"
#include "launch/nodes/node_link.hpp"
#include "spawn/failure_table.hpp"
#include "spawn/ssh/push.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// About ten megabytes, even over a slow connection.
constexpr auto kCopyTime = 120000ms;
// A connection that fails at its own, equal limit gives a better error: it gets a moment for that.
constexpr auto kFailureReportTime = 500ms;

// As installed here: bin/dslaunch, bin/dsworker, and lib/dslaunch with the modules and, of a package, their libraries
// (libssh.so.4).
std::vector<spawn::PushedFile> our_files(JobKind kind, const fs::path& own_program) {
  fs::path bin = own_program.parent_path();
  std::vector<spawn::PushedFile> files{{own_program.string(), "bin/" + own_program.filename().string()}};
  if (kind == JobKind::kExec) return files;
  files.push_back({(bin / "dsworker").string(), "bin/dsworker"});
  std::error_code error;
  fs::directory_iterator entry(bin.parent_path() / "lib" / "dslaunch", error), end;
  for (; !error && entry != end; entry.increment(error)) {
    const fs::path& file = entry->path();
    const std::string name = file.filename().string();
    if (name.find(".so") != name.npos) files.push_back({file.string(), "lib/dslaunch/" + name});
  }
  return files;
}

}  // namespace

void push_programs(LaunchPlan& plan, const std::string& own_program) {
  std::vector<PlannedNode*> nodes;
  for (auto& node : plan.nodes) {
    if (node.reach == Reach::kSsh) nodes.push_back(&node);
  }
  if (nodes.empty()) return;
  spawn::PushSet set = spawn::read_push_set(our_files(plan.kind, own_program));
  std::vector<spawn::PushResult> results(nodes.size());
  parallel_for_each(nodes.size(), [&](size_t i) {
    try {
      results[i] = spawn::push_programs(ssh_target(*nodes[i]), set, plan.reach.ssh,
                                        Deadline::after(plan.reach.ssh.connect_timeout + kCopyTime),
                                        plan.reach.greeting_timeout + kFailureReportTime);
    } catch (const Error& error) {
      results[i].failure = spawn::LinkFailure{error.code(), "push", error.what()};
    }
  });

  std::vector<std::pair<std::string, spawn::LinkFailure>> failures;
  int num_copied = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (results[i].failure) failures.emplace_back(nodes[i]->host, *results[i].failure);
    nodes[i]->program = results[i].dir + "/bin/" + fs::path(own_program).filename().string();
    num_copied += results[i].copied ? 1 : 0;
  }
  if (!failures.empty()) {
    throw UserError(failures[0].second.code, "--push failed:\n" + spawn::failure_table(failures));
  }
  if (num_copied > 0) log::info("copied the programs to {} of {} hosts", num_copied, nodes.size());
}

}  // namespace dslaunch::launch
