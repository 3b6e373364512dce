#include "rendezvous/torch_store.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "rendezvous/stream_socket.hpp"
#include "rendezvous/torch_protocol.hpp"
#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

namespace {

using torch_wire::Type;

constexpr uint64_t kMaxTorchValueBytes = 4096;

wire::Writer request(Type type) {
  return wire::Writer().u8(static_cast<uint8_t>(type));
}

std::string request_with_key(Type type, const std::string& key) {
  return request(type).bytes(torch_wire::encode_value(key)).take();
}

class TorchStoreConnection {
 public:
  TorchStoreConnection(const std::string& host, uint16_t port, Deadline deadline)
      : place_(fmt::format("{}:{}", host, port)), deadline_(deadline) {
    auto attempt = connect_once(host, port, deadline);
    if (!attempt.ok()) {
      throw UserError(ExitCode::kUnavailable,
                      fmt::format("TORCHELASTIC_USE_AGENT_STORE is True but the launcher's store at {} (MASTER_ADDR, "
                                  "MASTER_PORT) cannot be reached: {}",
                                  place_, attempt.error().message));
    }
    fd_ = *std::move(attempt);
    send(request(Type::kValidate).u32(torch_wire::kValidationMagic).take());
  }

  void send(const std::string& bytes) {
    if (send_all(fd_.get(), bytes, deadline_) != IoOutcome::kDone) fail("accepts no request", IoOutcome::kClosed);
  }

  std::string receive(size_t count, const char* waiting_for) {
    std::string bytes;
    auto outcome = receive_exactly(fd_.get(), bytes, count, deadline_);
    if (outcome != IoOutcome::kDone) fail(waiting_for, outcome);
    return bytes;
  }

 private:
  [[noreturn]] void fail(const char* what, IoOutcome outcome) {
    if (outcome == IoOutcome::kTimedOut) {
      throw TimeoutError(fmt::format("the launcher's store at {} has no {}: rank 0 has not written it", place_, what));
    }
    throw UserError(
        ExitCode::kUnavailable,
        fmt::format("the launcher's store at {} closed the connection ({}): has torchrun or dslaunch ended?", place_,
                    what));
  }

  const std::string place_;
  const Deadline deadline_;
  UniqueFd fd_;
};

}  // namespace

void set_in_torch_store(const std::string& host, uint16_t port, const std::string& key, const std::string& value,
                        Deadline deadline) {
  TorchStoreConnection store(host, port, deadline);
  store.send(request_with_key(Type::kSet, key) + torch_wire::encode_value(value));
  // A set has no answer; reading the value back shows that it has arrived before this side closes.
  store.send(request_with_key(Type::kGet, key));
  store.receive(8 + value.size(), "answer");
}

std::string wait_in_torch_store(const std::string& host, uint16_t port, const std::string& key, Deadline deadline) {
  TorchStoreConnection store(host, port, deadline);
  store.send(request(Type::kWait).u64(1).bytes(torch_wire::encode_value(key)).take());
  if (store.receive(1, "address of dslaunch's store")[0] != static_cast<char>(torch_wire::WaitAnswer::kStopWaiting)) {
    throw UserError(ExitCode::kUnavailable, "the launcher's store cancelled our wait for key '" + key + "'");
  }
  store.send(request_with_key(Type::kGet, key));
  std::string header = store.receive(8, "answer");
  uint64_t length = wire::Reader(header).u64();
  DSL_CHECK(length <= kMaxTorchValueBytes, fmt::format("the launcher's store holds {} bytes under '{}'", length, key));
  return store.receive(length, "answer");
}

}  // namespace dslaunch::rendezvous
