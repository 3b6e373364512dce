#include "rendezvous/in_process_store.hpp"

#include <condition_variable>
#include <mutex>

#include "base/error.hpp"
#include "base/wait_until.hpp"
#include "rendezvous/store_state.hpp"

namespace dslaunch::rendezvous {

namespace {

class InProcessStore final : public Store {
 public:
  InProcessStore() { state_.join(0, "localhost"); }

  void set(const std::string& key, const std::string& value, Deadline) override {
    std::lock_guard lock(mutex_);
    body_of(state_.set(key, value));
  }

  std::string get(const std::string& key, Deadline deadline) override {
    auto started = Deadline::Clock::now();
    std::unique_lock lock(mutex_);
    std::optional<Answer> answer;
    auto ticket = state_.get(0, key, [&](const Answer& given) {
      answer = given;
      answered_.notify_all();
    });
    if (!wait_until(answered_, lock, deadline, [&] { return answer.has_value(); })) {
      state_.expire(ticket, std::chrono::duration<double>(Deadline::Clock::now() - started).count());
    }
    std::string body = body_of(*answer);
    return wire::Reader(body).text(wire::kMaxValueBytes);
  }

  std::optional<std::string> try_get(const std::string& key, Deadline) override {
    std::lock_guard lock(mutex_);
    std::string body = body_of(state_.try_get(key));
    wire::Reader reader(body);
    if (reader.u8() == 0) return std::nullopt;
    return reader.text(wire::kMaxValueBytes);
  }

  int64_t add(const std::string& key, int64_t amount, Deadline) override {
    std::lock_guard lock(mutex_);
    std::string body = body_of(state_.add(key, amount));
    return wire::Reader(body).i64();
  }

  std::string compare_and_set(const std::string& key, const std::string& expected, const std::string& desired,
                              Deadline) override {
    std::lock_guard lock(mutex_);
    std::string body = body_of(state_.compare_and_set(key, expected, desired));
    return wire::Reader(body).text(wire::kMaxValueBytes);
  }

  int64_t erase(const std::string& prefix, Deadline) override {
    std::lock_guard lock(mutex_);
    std::string body = body_of(state_.erase(prefix));
    return wire::Reader(body).i64();
  }

  void barrier(const std::string& name, int count, Deadline) override {
    std::lock_guard lock(mutex_);
    state_.barrier(0, name, count, [](const Answer& answer) { body_of(answer); });
  }

  void report_failure(const std::string&) override {}
  void leave() override {}
  void on_peer_lost(std::function<void(const LostRank&)>) override {}

 private:
  static std::string body_of(const Answer& answer) {
    if (answer.status == wire::Status::kTimeout) throw TimeoutError(answer.body);
    if (answer.status != wire::Status::kOk) throw Error(ExitCode::kInternal, "the store refused: " + answer.body);
    return answer.body;
  }

  std::mutex mutex_;
  std::condition_variable answered_;
  StoreState state_{1, {}};
};

}  // namespace

std::unique_ptr<Store> make_in_process_store() {
  return std::make_unique<InProcessStore>();
}

}  // namespace dslaunch::rendezvous
