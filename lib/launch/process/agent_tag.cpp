#include "launch/process/agent_tag.hpp"

#include <unistd.h>

#include <charconv>

#include "base/format.hpp"
#include "ports/namespaces.hpp"

namespace dslaunch::launch {
namespace {

struct AgentTag {
  ports::ProcessIdentity agent;
  uint64_t pid_namespace = 0;
};

template <class Number>
bool take_number(const char*& at, const char* end, Number& value) {
  auto [stop, error] = std::from_chars(at, end, value);
  at = stop;
  return error == std::errc();
}

std::optional<AgentTag> parse_agent_tag(const std::string& text) {
  AgentTag tag;
  const char *at = text.data(), *end = at + text.size();
  auto colon = [&] { return at != end && *at++ == ':'; };
  bool whole = take_number(at, end, tag.agent.pid) && colon() && take_number(at, end, tag.agent.start_ticks) &&
               colon() && take_number(at, end, tag.pid_namespace) && at == end;
  return whole ? std::optional(tag) : std::nullopt;
}

}  // namespace

std::string own_agent_tag() {
  auto self = ports::read_process(::getpid());
  if (!self) return {};
  return fmt::format("{}:{}:{}", self->identity.pid, self->identity.start_ticks, ports::own_namespace("pid"));
}

std::optional<ports::ProcessIdentity> agent_of(const ports::ProcessInfo& process) {
  auto tag = process.job_id.empty() ? std::nullopt : parse_agent_tag(process.agent_tag);
  if (!tag || tag->pid_namespace == 0 || tag->pid_namespace != ports::own_namespace("pid")) return std::nullopt;
  return tag->agent;
}

JobLife job_life(const ports::ProcessInfo& process) {
  if (process.job_id.empty()) return JobLife::kNone;
  auto named = agent_of(process);
  if (!named) return JobLife::kUnknown;
  auto agent = ports::read_process_stat(named->pid);
  bool lives = agent && agent->start_ticks == named->start_ticks && agent->alive();
  return lives ? JobLife::kAlive : JobLife::kGone;
}

}  // namespace dslaunch::launch
