// A running job's control socket, in the supervisor's loop: call add_to() before the loop waits, serve() after it.
// Never blocks. A client that does not read costs one buffer of bounded size: the console is fetched from its file
// piece by piece, as the client reads it. One thread.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/jobs/console_log.hpp"
#include "launch/jobs/job_requests.hpp"

namespace dslaunch::launch {

class JobSocket {
 public:
  using Status = std::function<std::string()>;
  struct PendingStacksRequest {
    uint64_t client = 0;
    StacksRequest request;
  };

  // Binds and listens. Throws SystemError. `console` outlives this.
  JobSocket(std::string path, ConsoleLog& console);
  // Removes the socket file.
  ~JobSocket();
  JobSocket(const JobSocket&) = delete;
  JobSocket& operator=(const JobSocket&) = delete;

  void add_to(PollSet& polls);
  // Answers requests and returns the stop requests that the owner has to carry out. `status` builds the JSON document
  // for status answers. `polls`: the set passed to the last add_to().
  std::vector<StopRequest> serve(const PollSet& polls, const Status& status);

  // Requests for stacks received since the last call: the owner answers each when it can.
  std::vector<PendingStacksRequest> take_stacks_requests() { return std::exchange(stacks_requests_, {}); }
  // The clients that have requested the ranks' status since the last call; the owner answers each when it can.
  std::vector<uint64_t> take_rank_status_requests() { return std::exchange(rank_status_requests_, {}); }
  // Ignored if the client is gone.
  void answer(uint64_t client, const JobAnswer& answer);

  // Queues the last message for every client, after the rest of the console. Then call serve() until has_unsent() is
  // false or the owner's timeout has passed.
  void end(const JobEnd& end);
  bool has_unsent() const;

 private:
  struct Client {
    uint64_t number = 0;
    UniqueFd connection;
    std::string in, out;
    size_t sent = 0;
    bool attached = false, asked = false, has_end_message = false;
    uint64_t position = 0;              // in the console, when attached
    std::shared_ptr<ConsolePart> part;  // from `position` on, being read
    size_t index = 0;                   // index in the poll set
  };

  void accept_clients();
  void make_room();
  void reject_one_client();
  bool receive(Client& client, const Status& status, std::vector<StopRequest>& stops);
  bool answer(Client& client, std::string_view line, const Status& status, std::vector<StopRequest>& stops);
  bool send(Client& client);
  void fill(Client& client);
  bool wants_to_write(const Client& client) const;
  bool wants_part(const Client& client) const;

  std::string path_;
  ConsoleLog& console_;
  UniqueFd listener_;
  UniqueFd reserve_fd_;  // closed when no descriptor is left, to accept a client and disconnect it
  size_t listener_place_ = 0;
  std::deque<Client> clients_;
  uint64_t num_clients_ = 0;  // total number of clients accepted
  std::vector<PendingStacksRequest> stacks_requests_;
  std::vector<uint64_t> rank_status_requests_;  // clients
  std::string end_message_;                     // empty until end()
};

}  // namespace dslaunch::launch
