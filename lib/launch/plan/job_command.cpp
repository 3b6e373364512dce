#include "launch/plan/job_command.hpp"

#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/host_name.hpp"
#include "base/printable.hpp"
#include "base/shell_words.hpp"

namespace dslaunch::launch {
namespace {

constexpr size_t kMaxShownBytes = 400;

class ArgumentList {
 public:
  explicit ArgumentList(const std::string& command) { word(command); }

  void word(const std::string& word) { word_as(word, word); }
  void option(const char* name, const std::string& value) {
    if (value.empty()) return;
    word(name);
    word(value);
  }
  void option(const char* name, const std::optional<std::chrono::milliseconds>& value) {
    if (value) option(name, fmt::format("{}ms", value->count()));
  }
  template <class Number>
  void option(const char* name, const std::optional<Number>& value) {
    if (value) option(name, std::to_string(*value));
  }
  void flag(const char* name, bool given) {
    if (given) word(name);
  }
  void variable(const std::string& name, const std::string& value) {
    word("--env");
    word_as(name + "=...", name + "=" + value);
  }
  JobCommand take() const {
    std::string text = shell_words(shown_);
    if (text.size() > kMaxShownBytes) text = text.substr(0, kMaxShownBytes) + "...";
    return {std::move(text), fnv1a(whole_)};
  }

 private:
  void word_as(const std::string& shown, const std::string& word) {
    shown_.push_back(shown);
    whole_ += fmt::format("{}:{};", word.size(), word);
  }

  std::vector<std::string> shown_;
  std::string whole_;
};

// The parts of the job's plan that depend on node rank 0's options alone.
void add_launch_options(ArgumentList& args, const LaunchOptions& launch) {
  for (const auto& file : launch.env_files) args.option("--env_file", file);
  for (const auto& [name, value] : launch.env) args.variable(name, value);
  args.option("--chdir", launch.chdir);
  args.option("--venv", launch.venv);
  args.option("--run_dir", launch.run_dir);
  args.option("--timeout", launch.timeout);
  if (launch.grace != kDefaultGrace) args.option("--grace", std::optional(launch.grace));
  if (launch.max_restarts != 0) args.option("--max_restarts", std::optional(launch.max_restarts));
  args.option("--min_nodes", launch.min_nodes);
}

constexpr size_t kMaxNodesShown = 3;

std::string line_of(size_t node_rank, const std::string& host, const std::string& command) {
  return fmt::format("\n    node rank {} ({}): dslaunch {}", node_rank, printable(host), printable(command));
}

}  // namespace

JobCommand job_command(const ExecOptions& exec) {
  ArgumentList args("exec");
  add_launch_options(args, exec.launch);
  args.flag("--add_local_rank", exec.add_local_rank);
  args.word("--");
  for (const auto& word : exec.command) args.word(word);
  return args.take();
}

JobCommand job_command(const RunOptions& run) {
  ArgumentList args("run");
  args.word(run.model);
  args.option("--config", run.config);
  for (const auto& text : run.sets) args.option("--set", text);
  for (const auto& word : config::words_of(run.flags)) args.word(word);
  args.option("--hang_timeout", run.hang_timeout);
  args.flag("--overwrite", run.overwrite);
  args.flag("--timings", run.timings);
  add_launch_options(args, run.launch);
  return args.take();
}

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
