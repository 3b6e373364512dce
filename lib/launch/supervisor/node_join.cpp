#include "launch/supervisor/node_join.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "base/duration.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "launch/agent/agent.hpp"
#include "launch/channel/wire.hpp"
#include "launch/doctor/port_reclaim.hpp"
#include "rendezvous/launch_env.hpp"
#include "rendezvous/node_rendezvous.hpp"
#include "spawn/exit_cause.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

// A node greets at once; all nodes together have the rest of the join time for it, within these bounds.
constexpr auto kMinGreetingTimeout = 5000ms, kMaxGreetingTimeout = 20000ms;
constexpr size_t kMaxGreetingBytes = 65536;
// For this node's own reader, once the launcher is gone.
constexpr auto kEchoTime = 2000ms;

// A connection that a node opened to this process.
class JoinedNodeLink final : public spawn::AgentLink {
 public:
  explicit JoinedNodeLink(UniqueFd connection) : connection_(std::move(connection)) {}
  spawn::LinkEnds take_ends() override {
    return {UniqueFd(::fcntl(connection_.get(), F_DUPFD_CLOEXEC, 3)),
            UniqueFd(::fcntl(connection_.get(), F_DUPFD_CLOEXEC, 3))};
  }
  std::optional<spawn::LinkFailure> failure() const override { return std::nullopt; }
  void kill() override { ::shutdown(connection_.get(), SHUT_RDWR); }
  bool wait(Deadline) override { return true; }

 private:
  UniqueFd connection_;
};

// The greeting stays in the socket: the supervisor reads it again.
AgentHello peek_hello(int connection, int node_rank, Deadline deadline) {
  auto refuse = [&](const std::string& what) {
    throw UserError(ExitCode::kUnavailable, fmt::format("node rank {} connected and {}", node_rank, what));
  };
  std::string buffer(kMaxGreetingBytes, '\0');
  while (!deadline.passed()) {
    pollfd poll{connection, POLLIN, 0};
    if (::poll(&poll, 1, deadline.poll_timeout()) <= 0) continue;
    const ssize_t got = ::recv(connection, buffer.data(), buffer.size(), MSG_PEEK);
    if (got == 0) refuse("closed the connection without a greeting: see its own messages");
    if (got < 0) continue;
    FrameReader<MessageToLauncher> frames;
    frames.append({buffer.data(), static_cast<size_t>(got)});
    std::optional<MessageToLauncher> message;
    try {
      message = frames.next();
    } catch (const Error& error) {
      refuse(fmt::format("sent an invalid greeting: {}", error.what()));
    }
    if (message) {
      if (const auto* hello = std::get_if<AgentHello>(&*message)) return *hello;
      refuse("sent another message instead of a greeting");
    }
    if (static_cast<size_t>(got) == kMaxGreetingBytes) refuse("sent a greeting that is too long");
    ::poll(nullptr, 0, 1);  // available bytes wake the poll above at once: let the rest arrive
  }
  refuse("did not send a greeting in time");
  return {};
}

UniqueFd hold_master_port(const NodeMembership& index) {
  auto held = hold_or_reclaim_port("", index.master_port, [](const std::string& what) { log::warning("{}", what); });
  if (auto* busy = std::get_if<ports::Busy>(&held)) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("--master_port: {}; choose another number on every node", ports::describe(*busy)));
  }
  return std::move(std::get<ports::HeldPort>(held).listener);
}

std::vector<int> missing_nodes(const std::vector<rendezvous::JoinedNode>& joined, int num_nodes) {
  std::vector<int> missing;
  for (int node = 1; node < num_nodes; ++node) {
    const bool came =
        std::any_of(joined.begin(), joined.end(), [&](const auto& each) { return each.node_rank == node; });
    if (!came) missing.push_back(node);
  }
  return missing;
}

// Output of this node lost to a full disk is a failure here, as on the launcher; a failure of the job comes first.
int report_lost_output(NodeEcho& echo, Agent& agent, int exit_code) {
  if (!echo.has_lost()) return exit_code;
  echo.write_lines("dslaunch: cannot write all output to this node's standard output or error: is its disk full?\n");
  agent.drain_echo(Deadline::never());
  return exit_code == 0 ? to_int(ExitCode::kIoError) : exit_code;
}

}  // namespace

void gather_nodes(const NodeMembership& index, Gathered& gathered, Deadline deadline) {
  if (!gathered.listener.valid()) gathered.listener = hold_master_port(index);
  gathered.hellos.clear();
  if (index.token.empty() && index.num_nodes > 1) {
    log::warning("DSLAUNCH_TOKEN is not set: whatever connects to port {} first is accepted as a node of this job",
                 index.master_port);
  }
  auto waiting = [](const std::vector<int>& missing) {
    log::info("waiting for node rank {}", fmt::join(missing, ", "));
  };
  auto nodes = rendezvous::await_nodes(gathered.listener.get(), index.token, index.num_nodes, deadline, waiting);
  std::vector<int> connections;
  for (auto& node : nodes) {
    connections.push_back(node.connection.get());
    gathered.links.push_back(std::make_unique<JoinedNodeLink>(std::move(node.connection)));
  }
  if (const auto missing = missing_nodes(nodes, index.num_nodes); !missing.empty()) {
    throw TimeoutError(
        fmt::format("{} of {} nodes have not connected: node rank {}; is the same command started there, "
                    "with the same --master_addr and --master_port?",
                    missing.size(), index.num_nodes, fmt::join(missing, ", ")));
  }
  const Deadline greetings = Deadline::after(std::clamp(deadline.left(), kMinGreetingTimeout, kMaxGreetingTimeout));
  for (size_t i = 0; i < nodes.size(); ++i) {
    gathered.hellos.push_back(peek_hello(connections[i], nodes[i].node_rank, greetings));
  }
}

JobEnded failure_message(const DescribedError& why) {
  return {to_int(why.code), false, fmt::format("dslaunch: error: node rank 0: {}\n", why.text)};
}

void dismiss_nodes(std::vector<std::unique_ptr<spawn::AgentLink>>& links, const JobEnded& job_ended) {
  ::signal(SIGPIPE, SIG_IGN);  // an agent may be gone by now
  for (auto& link : links) {
    if (!link) continue;
    spawn::LinkEnds ends = link->take_ends();
    ChannelToAgent channel(std::move(ends.from_agent), std::move(ends.to_agent));
    channel.receive();  // closing a socket with unread input discards what was sent last
    channel.send(job_ended);
  }
  links.clear();
}

int serve_as_node(const NodeMembership& index, const AgentHello& offer, const LaunchOptions& options) {
  auto waiting = [&] { log::info("waiting for node rank 0 at {}:{}", index.master_addr, index.master_port); };
  FileThread files;
  NodeEcho echo(files);
  rendezvous::MasterEndpoint master{index.master_addr, index.master_port, index.token,
                                    index.node_rank,   index.num_nodes,   {}};
  for (;;) {
    UniqueFd connection = rendezvous::connect_to_master(master, deadline_after(options.join_timeout), waiting);
    UniqueFd output(::fcntl(connection.get(), F_DUPFD_CLOEXEC, 3));
    Agent agent(ChannelToLauncher(std::move(connection), std::move(output)),
                {.hello = offer, .listener = {}, .echo = &echo});
    agent.run();
    if (auto signal = agent.exit_signal()) {
      log::info("{}: this node exits before the job has started", spawn::signal_name(*signal));
      return to_int(ExitCode::kSignalBase) + *signal;
    }
    auto job_ended = agent.await_job_ended();
    agent.drain_echo(job_ended ? Deadline::never() : Deadline::after(kEchoTime));
    if (!job_ended) {
      throw UserError(
          ExitCode::kUnavailable,
          fmt::format(
              "lost the connection to node rank 0 ({}:{}): {}", index.master_addr, index.master_port,
              agent.knows_job() ? "this node's ranks were ended" : "its own messages say why, or it was stopped"));
    }
    echo.write_lines(job_ended->summary);
    agent.drain_echo(Deadline::never());
    master.lost_after = options.reach.silence_limit;  // from now on
    if (job_ended->again) continue;
    const int exit_code = report_lost_output(echo, agent, job_ended->exit_code);
    agent.ignore_signals();
    return exit_code;
  }
}

}  // namespace dslaunch::launch
