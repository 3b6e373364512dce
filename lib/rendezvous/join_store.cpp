// The client's half of the handshake, with its retries.
#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "base/format.hpp"
#include "rendezvous/stream_socket.hpp"
#include "rendezvous/tcp_store.hpp"
#include "rendezvous/token_proof.hpp"

namespace dslaunch::rendezvous {

namespace {

constexpr std::chrono::milliseconds kOneHandshake{5000};
constexpr std::chrono::milliseconds kMaxPause{500};

std::string endpoint_text(const StoreAddress& address) {
  return fmt::format("{}:{}", address.host, address.port);
}

[[noreturn]] void throw_refused(const wire::ServerProof& answer, const StoreAddress& address, const LaunchEnv& env) {
  switch (answer.admission) {
    case wire::Admission::kWrongToken:
      throw TokenRefused(ExitCode::kUnavailable,
                         fmt::format("the store at {} belongs to another job: it refused our token. Choose another "
                                     "--master_port, or end that job",
                                     endpoint_text(address)));
    case wire::Admission::kWrongVersion:
      throw UserError(ExitCode::kUnavailable,
                      fmt::format("the store at {} has another protocol version than ours ({}): install the same "
                                  "dslaunch on all hosts",
                                  endpoint_text(address), wire::kVersion));
    case wire::Admission::kWrongWorld:
      throw UserError(ExitCode::kContradiction,
                      fmt::format("rank {} of {} does not fit the store at {}, which serves a world of {}", env.rank,
                                  env.world_size, endpoint_text(address), answer.world_size));
    case wire::Admission::kRankTaken:
      throw UserError(ExitCode::kContradiction,
                      fmt::format("rank {} has already joined the store at {}: two processes have RANK={}", env.rank,
                                  endpoint_text(address), env.rank));
    case wire::Admission::kAdmitted:
      break;
  }
  DSL_CHECK(false, "an admitted rank is not refused");
}

[[noreturn]] void throw_not_ours(const StoreAddress& address, const char* why) {
  throw UserError(
      ExitCode::kUnavailable,
      fmt::format("the process that listens at {} is not a dslaunch store ({}). `dslaunch doctor --port {}` shows "
                  "which it is",
                  endpoint_text(address), why, address.port));
}

// False: the connection ended before this side sent its proof, so another attempt does no harm.
bool shake_hands(int fd, const StoreAddress& address, const LaunchEnv& env, Deadline deadline) {
  wire::Hello hello{wire::kVersion, fresh_nonce()};
  std::string block;
  if (send_all(fd, wire::encode(hello), deadline) != IoOutcome::kDone ||
      receive_exactly(fd, block, wire::kHelloBytes, deadline) != IoOutcome::kDone) {
    return false;
  }
  wire::Hello answer;
  try {
    answer = wire::decode_hello(block);
  } catch (const wire::WireError& error) {
    throw_not_ours(address, error.what());
  }
  wire::ClientProof claim{{}, static_cast<uint32_t>(env.rank), static_cast<uint32_t>(env.world_size), env.host};
  std::string unproven = wire::encode(claim);
  claim.proof = client_proof(address.token, hello.nonce, answer.nonce, wire::proven_part(unproven));
  if (send_all(fd, wire::encode(claim), deadline) != IoOutcome::kDone ||
      receive_exactly(fd, block, wire::kServerProofBytes, deadline) != IoOutcome::kDone) {
    throw PeerError(address.serving_rank, "", "the handshake",
                    fmt::format("the store at {} closed the connection", endpoint_text(address)));
  }
  wire::ServerProof verdict;
  try {
    verdict = wire::decode_server_proof(block);
  } catch (const wire::WireError& error) {
    throw_not_ours(address, error.what());
  }
  if (verdict.admission != wire::Admission::kAdmitted) throw_refused(verdict, address, env);
  if (!same_proof(verdict.proof, server_proof(address.token, hello.nonce, answer.nonce))) {
    throw_not_ours(address, "it does not know the job's token");
  }
  return true;
}

}  // namespace

void RetryPause::wait(Deadline deadline) {
  std::this_thread::sleep_for(std::min(next_, deadline.left()));
  next_ = std::min(next_ * 2, kMaxPause);
}

Result<UniqueFd, ConnectFailure> try_to_join(const StoreAddress& address, const LaunchEnv& env, Deadline deadline) {
  auto connected = connect_once(address.host, address.port, deadline);
  if (!connected.ok()) return connected;
  if (shake_hands(connected->get(), address, env, sooner(deadline, kOneHandshake))) return connected;
  return Failure{ConnectFailure{.message = "it accepted the connection but did not answer", .reached = true}};
}

UniqueFd join_store(const StoreAddress& address, const LaunchEnv& env, Deadline deadline) {
  RetryPause pause;
  std::string failure;
  do {
    auto joined = try_to_join(address, env, deadline);
    if (joined.ok()) return *std::move(joined);
    failure = joined.error().message;
    if (joined.error().no_way &&
        is_loopback_address(address.host)) {  // a network may come up later; loopback is up or off
      throw UserError(ExitCode::kUnavailable,
                      fmt::format("cannot connect to the store at {} ({}): the loopback interface of this machine is "
                                  "down; 'ip link set lo up' as root starts it",
                                  endpoint_text(address), failure));
    }
    pause.wait(deadline);
  } while (!deadline.passed());
  throw TimeoutError(
      fmt::format("rank {} found no store at {} ({}). {}", env.rank, endpoint_text(address), failure,
                  address.serving_rank >= 0
                      ? fmt::format("Rank {} serves it: it never started, or MASTER_ADDR or MASTER_PORT is "
                                    "not the same on all ranks",
                                    address.serving_rank)
                      : "The agent of node rank 0 serves it: check its log, and firewalls between the hosts"));
}

}  // namespace dslaunch::rendezvous
