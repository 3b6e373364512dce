// What torch's clients see of the store: their own keys, queues and waits, apart from those of our ranks. Answers as
// the libuv server of torch 2.11 does. Neither clock nor network: a wait ends when its keys are there or when the
// client takes it back. One thread.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/shared_value.hpp"
#include "rendezvous/torch_answer.hpp"
#include "rendezvous/torch_protocol.hpp"

namespace dslaunch::rendezvous {

class TorchKeySpace {
 public:
  using Client = uint64_t;  // unlike for every connection

  static constexpr size_t kMaxStoredBytes = 1u << 30;

  // `wait_is_over` is called in the middle of the request that ended a client's wait, once for each wait.
  explicit TorchKeySpace(std::function<void(Client)> wait_is_over, size_t max_stored_bytes = kMaxStoredBytes)
      : wait_is_over_(std::move(wait_is_over)), max_stored_bytes_(max_stored_bytes) {}

  // The answer; empty when the request has none, or when it waits. Throws wire::WireError for what torch's server ends
  // the connection for: adding to a value that holds no number, and more than the store can keep.
  TorchAnswer handle(Client client, torch_wire::Request request);
  // Its connection has ended.
  void forget(Client client) { cancel_wait(client); }

  // The memory that a client's wait costs.
  size_t wait_bytes(Client client) const;
  // Of values that are stored no longer, but are part of answers that are not sent yet; each counts once.
  size_t outlived_bytes() const { return *outlived_bytes_; }

 private:
  using Ticket = uint64_t;  // waits in order of arrival
  struct Wait {
    Ticket ticket = 0;
    size_t num_missing = 0;
    size_t num_bytes = 0;
    std::vector<std::string> keys;  // that were missing when it began
  };

  bool is_there(const std::string& key) const;
  bool are_there(const std::vector<std::string>& keys) const;
  std::shared_ptr<const SharedValue> value_of(const std::string& key) const;
  void let_go(const std::shared_ptr<SharedValue>& value);
  void set(const std::string& key, std::string value);
  void append(const std::string& key, const std::string& value);
  std::string compare_set(const std::string& key, const std::string& expected, std::string desired);
  int64_t add(const std::string& key, uint64_t amount);
  bool erase(const std::string& key);
  void push(const std::string& key, std::string value);
  TorchAnswer pop(const std::string& key);
  int64_t queue_length(const std::string& key) const;
  std::string list_keys() const;
  TorchAnswer multi_get(const std::vector<std::string>& keys) const;
  void make_room(size_t added, size_t freed);

  // True when nothing is missing.
  bool wait(Client client, std::vector<std::string> keys);
  void cancel_wait(Client client);
  enum class Wake { kAll, kOne };
  void wake(const std::string& key, Wake whom);

  const std::function<void(Client)> wait_is_over_;
  const size_t max_stored_bytes_;
  // Outlives the store where the last answers do.
  const std::shared_ptr<size_t> outlived_bytes_ = std::make_shared<size_t>(0);
  std::unordered_map<std::string, std::shared_ptr<SharedValue>> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // none is empty
  size_t stored_bytes_ = 0;
  std::unordered_map<Client, Wait> waits_;
  std::unordered_map<std::string, std::map<Ticket, Client>> waiting_for_;
  Ticket next_ticket_ = 1;
};

}  // namespace dslaunch::rendezvous
