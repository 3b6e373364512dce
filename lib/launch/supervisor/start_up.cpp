// The supervisor until the ranks start: the links to all hosts, their greetings, and the job's description for each.
#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/nodes/node_link.hpp"
#include "launch/plan/describe_job.hpp"
#include "launch/supervisor/supervisor.hpp"
#include "rendezvous/own_address.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;
using Stage = NodeSession::Stage;

// A connection that fails at its own, equal limit gives a better error: it gets a moment for that.
constexpr auto kFailureReportTime = 500ms;

// The option is for other machines: an agent of this one gets at least the default time.
Deadline greeting_due(const PlannedNode& node, std::chrono::milliseconds timeout) {
  const bool elsewhere = node.reach == Reach::kSsh || node.reach == Reach::kSrun;
  return Deadline::after((elsewhere ? timeout : std::max(timeout, kDefaultGreetingTimeout)) + kFailureReportTime);
}

}  // namespace

void Supervisor::open_links() {
  options_.links.resize(plan_.nodes.size());
  for (const auto& planned : plan_.nodes) {
    auto link = std::move(options_.links[planned.node_rank]);
    if (!link) link = open_link(planned);
    nodes_.emplace_back(planned, std::move(link));
    nodes_.back().greeting_due = greeting_due(planned, plan_.reach.greeting_timeout);
  }
}

std::unique_ptr<spawn::AgentLink> Supervisor::open_link(const PlannedNode& node) const {
  std::vector<std::string> words;
  if (node.reach != Reach::kPipe || plan_.ask_devices) words.emplace_back("--devices");
  if (node.reach != Reach::kPipe) words.emplace_back("--mark");
  int listener = node.node_rank == 0 ? options_.listener : -1;
  if (listener >= 0) words.insert(words.end(), {"--listener", std::to_string(listener)});
  return open_node_link(node, plan_.reach, options_.program, words, listener);
}

void Supervisor::greet(NodeSession& node, const AgentHello& hello) {
  if (hello.version != kWireVersion && node.plan().reach == Reach::kPipe) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("{} was replaced while this job was running: it is now version {} (protocol {}), this "
                            "launcher is {} ({}); start the job again",
                            options_.program, hello.program_version, hello.version, DSL_VERSION, kWireVersion));
  }
  if (hello.version != kWireVersion) {
    throw Error(ExitCode::kUnavailable,
                fmt::format("version mismatch: that host's dslaunch is {} (protocol {}), this one is {} (protocol "
                            "{}): install the same version on all hosts, or let --push copy it",
                            hello.program_version, hello.version, DSL_VERSION, kWireVersion));
  }
  node.hello = hello;
  node.come_to(Stage::kGreeted);
}

// Decides once every host has greeted or failed: all hosts are needed, and all unreachable hosts are reported together.
// Hosts that do not fit together are not one host's failure: the error thrown for them ends the job.
void Supervisor::check_startup() {
  if (lifecycle_.state() != JobState::kStarting || described_) return;
  bool decided = std::all_of(nodes_.begin(), nodes_.end(),
                             [](const auto& node) { return node.has_come_to(Stage::kGreeted) || node.closed(); });
  if (!decided) return;
  if (failures_.empty()) {
    describe_job();
  } else {
    happen(JobEvent::kAgentLost);
  }
}

// What node rank 0 reports about itself is part of the description.
void Supervisor::describe_job() {
  std::vector<AgentHello> hellos;
  for (const auto& node : nodes_) hellos.push_back(node.hello);
  settle_devices(plan_, hellos);
  mention_lost_gpus();
  // A given address need not be detected, which is not always possible.
  std::string master = choose_master_address(plan_, plan_.master_addr.empty() ? address_of_node_0() : std::string());
  const std::vector<std::string> addresses = addresses_of_nodes();
  described_ = true;
  for (auto& node : nodes_) {
    JobDescription job = launch::describe_job(plan_, node.plan(), token_, master);
    job.node_addresses = addresses;
    node.describe(job, plan_.reach.silence_limit);
  }
  prepared_ = Deadline::after(options_.preparation_time);
}

// Those of this machine were reported when its devices were detected.
void Supervisor::mention_lost_gpus() {
  if (plan_.device != "cuda") return;
  for (const auto& node : nodes_) {
    if (node.plan().reach == Reach::kPipe || node.hello.device_trouble.empty()) continue;
    output_.mention(fmt::format("{}: {}; continuing without it", node.plan().host, node.hello.device_trouble));
  }
}

// The addresses from which ranks may connect to node rank 0: a host may use another network than to the launcher.
std::vector<std::string> Supervisor::addresses_of_nodes() const {
  std::set<std::string> addresses;
  for (const auto& node : nodes_) {
    std::vector<std::string> told = node.hello.addresses;
    if (!node.hello.address.empty()) told.push_back(node.hello.address);
    if (told.empty()) told.push_back(node.host());
    addresses.insert(told.begin(), told.end());
  }
  return {addresses.begin(), addresses.end()};
}

// As other hosts know it. This machine looks at its route to another host's numeric address, without a name lookup: the
// loop cannot wait for a resolver.
std::string Supervisor::address_of_node_0() const {
  if (nodes_[0].plan().reach != Reach::kPipe) return nodes_[0].hello.address;
  for (const auto& node : nodes_) {
    if (node.plan().reach == Reach::kPipe) continue;
    const std::string towards = numeric_address_of(node.hello);
    return towards.empty() ? rendezvous::first_interface_address() : rendezvous::own_address_towards(towards, 2);
  }
  return {};
}

void Supervisor::agent_ready(NodeSession& node, const AgentReady& ready) {
  node.come_to(Stage::kReady);
  node.master_port = ready.master_port;
  bool all =
      std::all_of(nodes_.begin(), nodes_.end(), [](const auto& other) { return other.has_come_to(Stage::kReady); });
  if (all) happen(JobEvent::kAgentsReady);
}

}  // namespace dslaunch::launch
