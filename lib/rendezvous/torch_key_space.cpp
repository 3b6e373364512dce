#include "rendezvous/torch_key_space.hpp"

#include <algorithm>
#include <charconv>

#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

using torch_wire::encode_number;
using torch_wire::encode_value;
using torch_wire::Request;
using torch_wire::Type;

namespace {

constexpr size_t kMaxAnswerBytes = 192u << 20;
constexpr size_t kEntryBytes = 128;  // cost of a key, a queued value or a wait for a key, beside its bytes

template <class Enum>
std::string byte(Enum value) {
  return std::string(1, static_cast<char>(value));
}

// Torch parses a counter like strtoll: space, a sign, digits; it ignores what follows.
int64_t number_in(const std::string& text) {
  size_t begin = std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size());
  if (begin + 1 < text.size() && text[begin] == '+' && text[begin + 1] != '-') ++begin;
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc()) throw wire::WireError("an addition to a value that is not a 64-bit number");
  return value;
}

void require_sendable(size_t answer_bytes) {
  if (answer_bytes > kMaxAnswerBytes) throw wire::WireError("a request whose answer would be too large");
}

}  // namespace

TorchAnswer TorchKeySpace::handle(Client client, Request request) {
  auto& [type, keys, values, number] = request;
  switch (type) {
    case Type::kValidate:
      throw wire::WireError("a second validation");
    case Type::kPing:
      return wire::Writer().u32(static_cast<uint32_t>(number)).take();
    case Type::kSet:
      return set(keys[0], std::move(values[0])), std::string();
    case Type::kMultiSet:
      for (size_t i = 0; i < keys.size(); ++i) set(keys[i], std::move(values[i]));
      return {};
    case Type::kAppend:
      return append(keys[0], values[0]), std::string();
    case Type::kCompareSet:
      return encode_value(compare_set(keys[0], values[0], std::move(values[1])));
    case Type::kGet:
    case Type::kMultiGet:
      return multi_get(keys);
    case Type::kAdd:
      return encode_number(add(keys[0], number));
    case Type::kDelete:
      return encode_number(erase(keys[0]));
    case Type::kNumKeys:
      return encode_number(static_cast<int64_t>(values_.size()));
    case Type::kListKeys:
      return list_keys();
    case Type::kCheck:
      return byte(are_there(keys) ? torch_wire::CheckAnswer::kReady : torch_wire::CheckAnswer::kNotReady);
    case Type::kWait:
      return wait(client, std::move(keys)) ? byte(torch_wire::WaitAnswer::kStopWaiting) : std::string();
    case Type::kCancelWait:
      return cancel_wait(client), byte(torch_wire::WaitAnswer::kCancelled);
    case Type::kQueuePush:
      return push(keys[0], std::move(values[0])), std::string();
    case Type::kQueuePop:
      return pop(keys[0]);
    case Type::kQueueLength:
      return encode_number(queue_length(keys[0]));
  }
  throw wire::WireError("a request of an unknown type");
}

bool TorchKeySpace::is_there(const std::string& key) const {
  return values_.contains(key) || queues_.contains(key);
}

bool TorchKeySpace::are_there(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](const std::string& key) { return is_there(key); });
}

std::shared_ptr<const SharedValue> TorchKeySpace::value_of(const std::string& key) const {
  static const auto kMissing = std::make_shared<const SharedValue>(std::string());
  auto found = values_.find(key);
  return found == values_.end() ? kMissing : found->second;
}

void TorchKeySpace::make_room(size_t added, size_t freed) {
  size_t total = stored_bytes_ - freed + added;
  if (total > max_stored_bytes_) throw wire::WireError("the store for torch's clients is full");
  stored_bytes_ = total;
}

// Call before a value is replaced or removed.
void TorchKeySpace::let_go(const std::shared_ptr<SharedValue>& value) {
  if (value.use_count() > 1) value->outlive_store(outlived_bytes_);
}

void TorchKeySpace::set(const std::string& key, std::string value) {
  auto found = values_.find(key);
  if (found == values_.end()) {
    make_room(key.size() + value.size() + kEntryBytes, 0);
    values_.emplace(key, std::make_shared<SharedValue>(std::move(value)));
  } else {
    make_room(value.size(), found->second->bytes().size());
    let_go(found->second);
    found->second = std::make_shared<SharedValue>(std::move(value));
  }
  wake(key, Wake::kAll);
}

void TorchKeySpace::append(const std::string& key, const std::string& value) {
  auto found = values_.find(key);
  if (found == values_.end()) return set(key, value);
  if (found->second.use_count() > 1) return set(key, found->second->bytes() + value);
  make_room(value.size(), 0);
  found->second->append(value);
  wake(key, Wake::kAll);
}

// If the key is missing but `expected` is not empty, torch returns `expected`, and so does this function.
std::string TorchKeySpace::compare_set(const std::string& key, const std::string& expected, std::string desired) {
  auto found = values_.find(key);
  if (found == values_.end() && !expected.empty()) return expected;
  if (found != values_.end() && found->second->bytes() != expected) return found->second->bytes();
  set(key, std::move(desired));
  return value_of(key)->bytes();
}

// Wraps around at 64 bits, as torch's add does.
int64_t TorchKeySpace::add(const std::string& key, uint64_t amount) {
  auto found = values_.find(key);
  uint64_t before = found == values_.end() ? 0 : static_cast<uint64_t>(number_in(found->second->bytes()));
  auto after = static_cast<int64_t>(before + amount);
  set(key, std::to_string(after));
  return after;
}

bool TorchKeySpace::erase(const std::string& key) {
  auto found = values_.find(key);
  if (found == values_.end()) return false;
  make_room(0, key.size() + found->second->bytes().size() + kEntryBytes);
  let_go(found->second);
  values_.erase(found);
  return true;
}

void TorchKeySpace::push(const std::string& key, std::string value) {
  make_room(key.size() + value.size() + kEntryBytes, 0);
  queues_[key].push_back(std::move(value));
  wake(key, Wake::kOne);
}

// Returns the queue's length before the pop, and its first value.
TorchAnswer TorchKeySpace::pop(const std::string& key) {
  auto found = queues_.find(key);
  if (found == queues_.end()) return encode_number(0);
  auto& queue = found->second;
  TorchAnswer answer = encode_number(static_cast<int64_t>(queue.size()));
  answer.add(encode_value(queue.front()));
  make_room(0, key.size() + queue.front().size() + kEntryBytes);
  queue.pop_front();
  if (queue.empty()) queues_.erase(found);
  return answer;
}

int64_t TorchKeySpace::queue_length(const std::string& key) const {
  auto found = queues_.find(key);
  return found == queues_.end() ? 0 : static_cast<int64_t>(found->second.size());
}

std::string TorchKeySpace::list_keys() const {
  size_t answer_bytes = 8;
  for (const auto& [key, value] : values_) answer_bytes += 8 + key.size();
  require_sendable(answer_bytes);
  wire::Writer writer;
  writer.u64(values_.size());
  for (const auto& [key, value] : values_) writer.u64(key.size()).bytes(key);
  return writer.take();
}

TorchAnswer TorchKeySpace::multi_get(const std::vector<std::string>& keys) const {
  // A small request may name one large value many times.
  size_t answer_bytes = 0;
  for (const auto& key : keys) answer_bytes += 8 + value_of(key)->bytes().size();
  require_sendable(answer_bytes);
  TorchAnswer answer;
  for (const auto& key : keys) answer.add_value(value_of(key));
  return answer;
}

size_t TorchKeySpace::wait_bytes(Client client) const {
  auto found = waits_.find(client);
  return found == waits_.end() ? 0 : found->second.num_bytes;
}

bool TorchKeySpace::wait(Client client, std::vector<std::string> keys) {
  cancel_wait(client);
  Wait wait{next_ticket_++, 0, 0, {}};
  for (auto& key : keys) {
    if (is_there(key) || !waiting_for_[key].emplace(wait.ticket, client).second) continue;
    wait.num_bytes += 2 * key.size() + kEntryBytes;  // both maps store the key
    wait.keys.push_back(std::move(key));
  }
  wait.num_missing = wait.keys.size();
  if (wait.num_missing == 0) return true;
  waits_.emplace(client, std::move(wait));
  return false;
}

void TorchKeySpace::cancel_wait(Client client) {
  auto node = waits_.extract(client);
  if (node.empty()) return;
  for (const auto& key : node.mapped().keys) {
    auto found = waiting_for_.find(key);
    if (found == waiting_for_.end()) continue;
    found->second.erase(node.mapped().ticket);
    if (found->second.empty()) waiting_for_.erase(found);
  }
}

// A value wakes every client that waits for it; a queue push wakes only the first client whose wait it ends.
void TorchKeySpace::wake(const std::string& key, Wake whom) {
  auto found = waiting_for_.find(key);
  if (found == waiting_for_.end()) return;
  auto& waiting = found->second;
  while (!waiting.empty()) {
    Client client = waiting.begin()->second;
    waiting.erase(waiting.begin());
    if (--waits_.at(client).num_missing > 0) continue;
    waits_.erase(client);
    wait_is_over_(client);
    if (whom == Wake::kOne) break;
  }
  if (waiting.empty()) waiting_for_.erase(found);
}

}  // namespace dslaunch::rendezvous
