// A running job's control socket, in the supervisor's loop: add_to() before the loop waits, serve() after it. Never
// blocks. A client that does not read costs one buffer of bounded size: the console is fetched from its file piece by
// piece, as the client takes it. One thread.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/channel/poll_set.hpp"
#include "launch/jobs/console_log.hpp"
#include "launch/jobs/job_requests.hpp"

namespace dslaunch::launch {

class JobSocket {
 public:
  using Status = std::function<std::string()>;
  struct StacksAsked {
    uint64_t client = 0;
    AskStacks ask;
  };

  // Binds and listens. Throws SystemError. `console` outlives this.
  JobSocket(std::string path, ConsoleLog& console);
  // The file goes away.
  ~JobSocket();
  JobSocket(const JobSocket&) = delete;
  JobSocket& operator=(const JobSocket&) = delete;

  void add_to(PollSet& polls);
  // Answers what was asked and returns the stops that the owner has to carry out. `status` makes the JSON document to
  // answer with. `polls`: the one of the last add_to().
  std::vector<AskStop> serve(const PollSet& polls, const Status& status);

  // Questions for stacks that have come since the last call: the owner answers each when it can.
  std::vector<StacksAsked> take_stack_asks() { return std::exchange(stack_asks_, {}); }
  // A client that is gone is passed over.
  void answer(uint64_t client, const JobAnswer& answer);

  // The last word to everyone, after what is left of the console. Then serve() until has_unsent() is false, as long as
  // the owner has patience.
  void end(const JobEnd& end);
  bool has_unsent() const;

 private:
  struct Client {
    uint64_t number = 0;
    UniqueFd connection;
    std::string in, out;
    size_t sent = 0;
    bool attached = false, asked = false, has_last_word = false;
    uint64_t position = 0;              // of the console, when attached
    std::shared_ptr<ConsolePart> part;  // from there on, on its way
    size_t place = 0;                   // in the poll set
  };

  void accept_clients();
  void make_room();
  void turn_one_away();
  bool receive(Client& client, const Status& status, std::vector<AskStop>& stops);
  bool answer(Client& client, std::string_view line, const Status& status, std::vector<AskStop>& stops);
  bool send(Client& client);
  void fill(Client& client);
  bool wants_to_write(const Client& client) const;
  bool wants_part(const Client& client) const;

  std::string path_;
  ConsoleLog& console_;
  UniqueFd listener_;
  UniqueFd spare_;  // given up where there is no descriptor left to take a client in with, and turn it away
  size_t listener_place_ = 0;
  std::deque<Client> clients_;
  uint64_t num_clients_ = 0;  // that have ever come
  std::vector<StacksAsked> stack_asks_;
  std::string last_word_;  // empty until end()
};

}  // namespace dslaunch::launch
