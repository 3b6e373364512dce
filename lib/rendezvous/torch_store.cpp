#include "rendezvous/torch_store.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "rendezvous/stream_socket.hpp"
#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

namespace {

// Requests open with one byte, strings carry a 64-bit length, numbers are little-endian.
constexpr uint8_t kValidate = 0, kSet = 1, kGet = 3, kWait = 6;
constexpr uint32_t kValidationMagic = 0x3C85F7CE;
constexpr uint8_t kStopWaiting = 0;
constexpr uint64_t kMaxNoteBytes = 4096;

class TorchStoreConnection {
 public:
  TorchStoreConnection(const std::string& host, uint16_t port, Deadline deadline)
      : place_(fmt::format("{}:{}", host, port)), deadline_(deadline) {
    auto attempt = connect_once(host, port, deadline);
    if (!attempt.fd.valid()) {
      throw UserError(ExitCode::kUnavailable,
                      fmt::format("TORCHELASTIC_USE_AGENT_STORE is True but the launcher's store at {} (MASTER_ADDR, "
                                  "MASTER_PORT) cannot be reached: {}",
                                  place_, attempt.failure));
    }
    fd_ = std::move(attempt.fd);
    send(wire::Writer().u8(kValidate).u32(kValidationMagic).take());
  }

  void send(const std::string& bytes) {
    if (send_all(fd_.get(), bytes, deadline_) != IoOutcome::kDone) fail("takes no request", IoOutcome::kClosed);
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
      throw TimeoutError(
          fmt::format("the launcher's store at {} has no {}: rank 0 has not come that far", place_, what));
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

std::string torch_text(const std::string& text) {
  return wire::Writer().u64(text.size()).bytes(text).take();
}

}  // namespace

void leave_note_in_torch_store(const std::string& host, uint16_t port, const std::string& key, const std::string& value,
                               Deadline deadline) {
  TorchStoreConnection store(host, port, deadline);
  store.send(wire::Writer().u8(kSet).bytes(torch_text(key)).bytes(torch_text(value)).take());
  // A set has no answer; reading the value back shows that it has arrived before we close.
  store.send(wire::Writer().u8(kGet).bytes(torch_text(key)).take());
  store.receive(8 + value.size(), "answer");
}

std::string find_note_in_torch_store(const std::string& host, uint16_t port, const std::string& key,
                                     Deadline deadline) {
  TorchStoreConnection store(host, port, deadline);
  store.send(wire::Writer().u8(kWait).u64(1).bytes(torch_text(key)).take());
  if (store.receive(1, "address of dslaunch's store")[0] != kStopWaiting) {
    throw UserError(ExitCode::kUnavailable, "the launcher's store cancelled our wait for key '" + key + "'");
  }
  store.send(wire::Writer().u8(kGet).bytes(torch_text(key)).take());
  std::string header = store.receive(8, "answer");
  uint64_t length = wire::Reader(header).u64();
  DSL_CHECK(length <= kMaxNoteBytes, fmt::format("the launcher's store holds {} bytes under '{}'", length, key));
  return store.receive(length, "answer");
}

}  // namespace dslaunch::rendezvous
