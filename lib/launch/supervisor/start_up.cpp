#include "launch/supervisor/start_up.hpp"

#include <algorithm>
#include <deque>
#include <set>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/nodes/node_link.hpp"
#include "launch/plan/describe_job.hpp"
#include "rendezvous/own_address.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Stage = NodeSession::Stage;
using Nodes = std::deque<NodeSession>;

// A connection that fails at its own, equal limit gives a better error: it gets a moment for that.
constexpr auto kFailureReportTime = 500ms;

// The option is for other machines: an agent of this one gets at least the default time.
Deadline greeting_due(const PlannedNode& node, std::chrono::milliseconds timeout) {
  const bool elsewhere = node.reach == Reach::kSsh || node.reach == Reach::kSrun;
  return Deadline::after((elsewhere ? timeout : std::max(timeout, kDefaultGreetingTimeout)) + kFailureReportTime);
}

// The addresses from which ranks may connect to node rank 0: a host may use another network than to the launcher.
std::vector<std::string> addresses_of(const Nodes& nodes) {
  std::set<std::string> addresses;
  for (const auto& node : nodes) {
    std::vector<std::string> told = node.hello.addresses;
    if (!node.hello.address.empty()) told.push_back(node.hello.address);
    if (told.empty()) told.push_back(node.host());
    addresses.insert(told.begin(), told.end());
  }
  return {addresses.begin(), addresses.end()};
}

// As other hosts know it. This machine looks at its route to another host's numeric address, without a name lookup: the
// loop cannot wait for a resolver.
std::string address_of_node_0(const Nodes& nodes) {
  if (nodes[0].plan().reach != Reach::kPipe) return nodes[0].hello.address;
  for (const auto& node : nodes) {
    if (node.plan().reach == Reach::kPipe) continue;
    const std::string towards = numeric_address_of(node.hello);
    return towards.empty() ? rendezvous::first_interface_address() : rendezvous::own_address_towards(towards, 2);
  }
  return {};
}

}  // namespace

StartUp::StartUp(Attempt& attempt, JobControl& control)
    : attempt_(attempt),
      control_(control),
      token_(attempt.options.token.empty() ? random_bytes(32) : attempt.options.token) {}

void StartUp::open_links() {
  attempt_.options.links.resize(attempt_.plan.nodes.size());
  for (const auto& planned : attempt_.plan.nodes) {
    auto link = std::move(attempt_.options.links[planned.node_rank]);
    if (!link) link = open_link(planned);
    attempt_.nodes.emplace_back(planned, std::move(link));
    attempt_.nodes.back().greeting_due = greeting_due(planned, attempt_.plan.reach.greeting_timeout);
  }
}

std::unique_ptr<spawn::AgentLink> StartUp::open_link(const PlannedNode& node) const {
  std::vector<std::string> args;
  if (node.reach != Reach::kPipe || attempt_.plan.query_devices) args.emplace_back("--devices");
  if (node.reach != Reach::kPipe) args.emplace_back("--mark");
  int listener = node.node_rank == 0 ? attempt_.options.listener : -1;
  if (listener >= 0) args.insert(args.end(), {"--listener", std::to_string(listener)});
  return open_node_link(node, attempt_.plan.reach, attempt_.options.program, args, listener);
}

void StartUp::greeted(NodeSession& node, const AgentHello& hello) {
  if (hello.version != kWireVersion && node.plan().reach == Reach::kPipe) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("{} was replaced while this job was running: it is now version {} (protocol {}), this "
                            "launcher is {} ({}); start the job again",
                            attempt_.options.program, hello.program_version, hello.version, DSL_VERSION, kWireVersion));
  }
  if (hello.version != kWireVersion) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("version mismatch: that host's dslaunch is {} (protocol {}), this one is {} (protocol "
                            "{}): install the same version on all hosts, or let --push copy it",
                            hello.program_version, hello.version, DSL_VERSION, kWireVersion));
  }
  node.hello = hello;
  node.advance_to(Stage::kGreeted);
}

void StartUp::check() {
  if (attempt_.lifecycle.state() != JobState::kStarting || attempt_.described) return;
  bool decided = std::all_of(attempt_.nodes.begin(), attempt_.nodes.end(),
                             [](const auto& node) { return node.has_reached(Stage::kGreeted) || node.closed(); });
  if (!decided) return;
  if (attempt_.host_failures.empty()) {
    describe_job();
  } else {
    control_.handle_event(JobEvent::kAgentLost);
  }
}

// What node rank 0 reports about itself is part of the description.
void StartUp::describe_job() {
  std::vector<AgentHello> hellos;
  for (const auto& node : attempt_.nodes) hellos.push_back(node.hello);
  resolve_devices(attempt_.plan, hellos);
  report_lost_gpus();
  // A given address need not be detected, which is not always possible.
  std::string master = choose_master_address(
      attempt_.plan, attempt_.plan.master_addr.empty() ? address_of_node_0(attempt_.nodes) : std::string());
  const std::vector<std::string> addresses = addresses_of(attempt_.nodes);
  attempt_.described = true;
  for (auto& node : attempt_.nodes) {
    JobDescription job = launch::describe_job(attempt_.plan, node.plan(), token_, master);
    job.node_addresses = addresses;
    node.describe(job, attempt_.plan.reach.silence_limit);
  }
  prepared_ = Deadline::after(attempt_.options.preparation_time);
}

// Those of this machine were reported when its devices were detected.
void StartUp::report_lost_gpus() {
  if (attempt_.plan.device != "cuda") return;
  for (const auto& node : attempt_.nodes) {
    if (node.plan().reach == Reach::kPipe || node.hello.device_error.empty()) continue;
    attempt_.output.info(fmt::format("{}: {}; continuing without it", node.plan().host, node.hello.device_error));
  }
}

void StartUp::ready(NodeSession& node, const AgentReady& ready) {
  node.advance_to(Stage::kReady);
  node.master_port = ready.master_port;
  bool all = std::all_of(attempt_.nodes.begin(), attempt_.nodes.end(),
                         [](const auto& other) { return other.has_reached(Stage::kReady); });
  if (!all) return;
  prepared_ = Deadline::never();
  control_.handle_event(JobEvent::kAgentsReady);
}

bool StartUp::take_preparation_overdue() {
  if (!prepared_.passed()) return false;
  prepared_ = Deadline::never();
  return true;
}

}  // namespace dslaunch::launch
