#include "rendezvous/torch_session.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

class TorchSessions::Session final : public StoreConnection::Session {
 public:
  Session(TorchSessions& all, StoreConnection& connection) : all_(all), connection_(connection) {}

  size_t accept(std::string_view input) override {
    size_t num_bytes = input.size();
    for (bool whole = true; whole && !connection_.ended();) {
      auto request = reader_.next(input);
      whole = request.has_value();
      if (whole) take(std::move(*request));
      count();
      all_.keep_within_limit();
    }
    return num_bytes - input.size();
  }

  void ended(const std::string&) override {
    all_.clients_.erase(connection_.id());
    all_.held_bytes_ -= std::exchange(counted_bytes_, 0);
    all_.space_.forget(connection_.id());
  }

  // Sending bytes reduces what a client holds without a call to count(), so the sum errs on the high side.
  void count() {
    if (!connection_.proven() || connection_.ended()) return;
    size_t before = counted_bytes_;
    counted_bytes_ = connection_.held_bytes() + reader_.held_bytes() + all_.space_.wait_bytes(connection_.id());
    all_.held_bytes_ += counted_bytes_ - before;
  }

  size_t droppable_bytes() const { return counted_bytes_ + connection_.outlived_unsent_bytes(); }
  StoreConnection& connection() { return connection_; }

 private:
  void take(torch_wire::Request request) {
    if (!connection_.proven()) return validate(request);
    for (auto& piece : all_.space_.handle(connection_.id(), std::move(request)).take()) {
      connection_.send(std::move(piece));
    }
  }

  void validate(const torch_wire::Request& request) {
    if (request.type != torch_wire::Type::kValidate || request.number != torch_wire::kValidationMagic) {
      throw wire::WireError("torch's clients open with a validation");
    }
    all_.clients_.emplace(connection_.id(), this);
    connection_.mark_proven();
  }

  TorchSessions& all_;
  StoreConnection& connection_;
  torch_wire::RequestReader reader_;
  size_t counted_bytes_ = 0;  // its share of held_bytes_
};

TorchSessions::TorchSessions(size_t max_held_bytes)
    : max_held_bytes_(max_held_bytes), space_([this](TorchKeySpace::Client client) {
        std::string answer(1, static_cast<char>(torch_wire::WaitAnswer::kStopWaiting));
        if (auto found = clients_.find(client); found != clients_.end())
          found->second->connection().send(std::move(answer));
      }) {}

std::unique_ptr<StoreConnection::Session> TorchSessions::open(StoreConnection& connection) {
  return std::make_unique<Session>(*this, connection);
}

void TorchSessions::close_all(const std::string& reason) {
  for (auto clients = clients_; auto& [id, session] : clients) session->connection().close(reason);
}

// Drops one client at a time: a dropped client's memory is freed only when its connection is destroyed.
void TorchSessions::keep_within_limit() {
  if (total_held_bytes() <= max_held_bytes_ || !being_dropped_.expired()) return;
  for (auto& [id, session] : clients_) session->count();
  if (total_held_bytes() > max_held_bytes_ && !clients_.empty()) close_largest();
}

void TorchSessions::close_largest() {
  auto largest = std::max_element(clients_.begin(), clients_.end(), [](const auto& left, const auto& right) {
    return left.second->droppable_bytes() < right.second->droppable_bytes();
  });
  StoreConnection& connection = largest->second->connection();
  constexpr size_t kMiB = size_t{1} << 20;
  log::warning(
      "store for torch's clients: dropped the client at {}: it holds {} MiB, more than any other, of the {} MiB that "
      "all "
      "clients have half sent, wait for or have not read; the limit is {} MiB",
      connection.describe_peer(), largest->second->droppable_bytes() / kMiB, total_held_bytes() / kMiB + 1,
      max_held_bytes_ / kMiB);
  being_dropped_ = connection.weak_from_this();
  connection.close("holds too much memory");
}

}  // namespace dslaunch::rendezvous
