#include "ports/parenthood.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace dslaunch::ports {
namespace {

// What keeps a container alive without ever starting a program of its own.
bool starts_nothing(const ProcessInfo& init) {
  static constexpr std::array<std::string_view, 4> kNames{"sleep", "tail", "pause", "cat"};
  return std::find(kNames.begin(), kNames.end(), init.name) != kNames.end();
}

// Launchers that give each worker a session of its own, in a container that runs nothing else.
bool starts_sessions(const ProcessInfo& init) {
  static constexpr std::array<std::string_view, 7> kWords{
      "dslaunch", "torchrun", "torch.distributed", "torch/distributed", "accelerate", "mpirun", "mpiexec"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return init.command.find(word) != std::string::npos; });
}

// The one program that an init of a container was told to run starts with it.
bool started_together(const ProcessInfo& child, const ProcessInfo& init) {
  constexpr uint64_t kTicks = 200;  // two seconds
  return child.identity.start_ticks < init.identity.start_ticks + kTicks;
}

Parenthood under_init(const ProcessInfo& child, const ProcessInfo& init) {
  // Services, the only programs that systemd starts, are told by their unit.
  if (init.name == "systemd" || starts_nothing(init)) return Parenthood::kLost;
  if (child.session == init.session) return Parenthood::kUnclear;
  bool leads_session = child.session == child.identity.pid;
  bool may_be_its_own = starts_sessions(init) || started_together(child, init);
  return leads_session && may_be_its_own ? Parenthood::kUnclear : Parenthood::kLost;
}

}  // namespace

Parenthood parenthood(const ProcessInfo& child, const std::optional<ProcessInfo>& parent) {
  if (child.parent == 0) return Parenthood::kUnclear;
  if (!parent) return Parenthood::kLost;
  if (parent->identity.pid == 1) return under_init(child, *parent);
  bool user_manager = parent->name == "systemd" && parent->command.find("--user") != std::string::npos;
  if (user_manager) return Parenthood::kLost;
  // A fork stays in its parent's session or leads one of its own: a third one is that of a parent in between.
  bool in_between = child.session != 0 && child.session != child.identity.pid && child.session != parent->session;
  return in_between ? Parenthood::kLost : Parenthood::kAlive;
}

}  // namespace dslaunch::ports
