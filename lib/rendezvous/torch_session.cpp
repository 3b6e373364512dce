#include "rendezvous/torch_session.hpp"

#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

class TorchSessions::Session final : public StoreConnection::Session {
 public:
  Session(TorchSessions& all, StoreConnection& connection) : all_(all), connection_(connection) {}

  size_t accept(std::string_view input) override {
    size_t num_bytes = input.size();
    while (auto request = reader_.next(input)) {
      if (connection_.proven()) {
        connection_.send(all_.space_.handle(connection_.id(), std::move(*request)));
      } else {
        validate(*request);
      }
    }
    return num_bytes - input.size();
  }

  void ended(const std::string&) override {
    all_.clients_.erase(connection_.id());
    all_.space_.forget(connection_.id());
  }

 private:
  void validate(const torch_wire::Request& request) {
    if (request.type != torch_wire::Type::kValidate || request.number != torch_wire::kValidationMagic) {
      throw wire::WireError("torch's clients open with a validation");
    }
    all_.clients_.emplace(connection_.id(), &connection_);
    connection_.mark_proven();
  }

  TorchSessions& all_;
  StoreConnection& connection_;
  torch_wire::RequestReader reader_;
};

TorchSessions::TorchSessions()
    : space_([this](TorchKeySpace::Client client) {
        std::string answer(1, static_cast<char>(torch_wire::WaitAnswer::kStopWaiting));
        if (auto found = clients_.find(client); found != clients_.end()) found->second->send(std::move(answer));
      }) {}

std::unique_ptr<StoreConnection::Session> TorchSessions::open(StoreConnection& connection) {
  return std::make_unique<Session>(*this, connection);
}

void TorchSessions::close_all(const std::string& reason) {
  for (auto clients = clients_; auto& [id, connection] : clients) connection->close(reason);
}

}  // namespace dslaunch::rendezvous
