#include "ports/process_tree.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

namespace dslaunch::ports {
namespace {

// How a parent may relate to a child that it has not forked itself.
enum class ParentKind {
  kOrdinary,  // adopts nothing unless it is pid 1, and starts any program, ranks too
  kShell,     // as pid 1: a container's start script
  kInit,      // may have started one program, which is not a rank
  kProgram,   // as pid 1: Python, which may run any launcher
  kAdopter,   // starts no program of a user: its children were adopted
};

template <size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string base_name(std::string word) {
  word.erase(0, word.rfind('/') + 1);           // npos + 1 is 0
  if (word.starts_with('-')) word.erase(0, 1);  // a login shell
  return word;
}

// The program and, if the program is an interpreter, its script.
std::array<std::string, 2> first_words(const ProcessInfo& process) {
  std::istringstream words(process.command);
  std::string program, script;
  words >> program >> script;
  return {base_name(program), base_name(script)};
}

bool is_named(const ProcessInfo& process, const auto& names) {
  const auto words = first_words(process);
  return is_one_of(process.name, names) || is_one_of(words[0], names) || is_one_of(words[1], names);
}

bool is_shell(const ProcessInfo& process) {
  static constexpr std::array<std::string_view, 8> kNames{"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "tcsh"};
  return is_one_of(process.name, kNames) || is_one_of(first_words(process)[0], kNames);
}

bool is_init(const ProcessInfo& process) {
  static constexpr std::array<std::string_view, 9> kNames{
      "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "supervisord", "containerd-shim", "conmon"};
  return is_named(process, kNames);
}

bool is_launcher(const ProcessInfo& process) {
  static constexpr std::array<std::string_view, 7> kNames{"dslaunch", "torchrun", "accelerate", "deepspeed",
                                                          "mpirun",   "mpiexec",  "horovodrun"};
  return is_named(process, kNames);
}

bool is_python(const ProcessInfo& process) {
  return process.name.starts_with("python") || first_words(process)[0].starts_with("python");
}

// Programs that keep a container alive, or let users into it, without starting a user's program.
bool starts_nothing(const ProcessInfo& process) {
  static constexpr std::array<std::string_view, 5> kNames{"sleep", "tail", "pause", "cat", "sshd"};
  return is_one_of(process.name, kNames) || is_one_of(first_words(process)[0], kNames);
}

// systemd starts only services, which are recognised by their unit.
bool is_systemd(const ProcessInfo& process) {
  return process.name == "systemd" &&
         (process.identity.pid == 1 || process.command.find("--user") != std::string::npos);
}

ParentKind kind_of(const ProcessInfo& parent, const ProcessInfo& child) {
  if (is_systemd(parent)) return ParentKind::kAdopter;
  if (is_init(parent)) return ParentKind::kInit;
  if (parent.identity.pid != 1) return ParentKind::kOrdinary;
  if (is_launcher(parent)) return ParentKind::kOrdinary;
  if (is_shell(parent)) return ParentKind::kShell;
  // Same session: a start script has replaced itself with this program ("python serve.py & exec sleep infinity").
  if (starts_nothing(parent)) return child.session == parent.session ? ParentKind::kShell : ParentKind::kAdopter;
  return is_python(parent) ? ParentKind::kProgram : ParentKind::kInit;
}

// A forked child is younger than its parent, and stays in its parent's session or leads its own: a third session must
// come from a process in between.
bool cannot_be_a_fork(const ProcessInfo& child, const ProcessInfo& parent) {
  const bool third_session =
      child.session != 0 && child.session != child.identity.pid && child.session != parent.session;
  return third_session || child.identity.start_ticks < parent.identity.start_ticks;
}

}  // namespace

LauncherSign rank_sign(const Lineage& lineage) {
  const LauncherSign sign = lineage.child.launcher_sign;
  const bool by_hand = sign == LauncherSign::kLocalRankArgument && lineage.parent &&
                       kind_of(*lineage.parent, lineage.child) == ParentKind::kShell;
  return by_hand ? LauncherSign::kNone : sign;
}

ParentStatus parent_status(const Lineage& lineage) {
  const ProcessInfo& child = lineage.child;
  if (child.parent == 0) return ParentStatus::kUnclear;
  if (!lineage.parent) return ParentStatus::kOrphaned;
  const ProcessInfo& parent = *lineage.parent;
  if (cannot_be_a_fork(child, parent)) return ParentStatus::kOrphaned;
  const bool leader_gone = lineage.group_leader_gone || lineage.session_leader_gone;
  switch (kind_of(parent, child)) {
    case ParentKind::kAdopter:
      return ParentStatus::kOrphaned;
    case ParentKind::kShell:
    case ParentKind::kInit:
      if (rank_sign(lineage) != LauncherSign::kNone) return ParentStatus::kOrphaned;
      [[fallthrough]];
    case ParentKind::kProgram:
      if (leader_gone) return ParentStatus::kOrphaned;
      return child.session == parent.session ? ParentStatus::kStarted : ParentStatus::kUnclear;
    case ParentKind::kOrdinary:
      break;
  }
  return parent.identity.pid == 1 && leader_gone ? ParentStatus::kOrphaned : ParentStatus::kStarted;
}

}  // namespace dslaunch::ports
