// The client end of a job's control socket. Blocks up to the given deadlines. One thread.
#pragma once
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "launch/jobs/job_requests.hpp"

namespace dslaunch::launch {

class JobClient {
 public:
  // Not connected when there is no listener: the job has ended, never had a socket, or its queue of waiting clients is
  // full.
  explicit JobClient(const std::string& path);
  bool connected() const { return connection_.valid(); }

  // Never blocks. False when the supervisor is gone.
  bool send(const JobRequest& request);
  // To poll for answers.
  int fd() const { return connection_.get(); }
  // Reads available data without waiting. False when the supervisor has closed the connection; answers that came before
  // are still available from next().
  bool receive();
  std::optional<JobAnswer> next() { return answers_.next(); }
  // Waits for the next answer. Empty at the deadline or when the supervisor has closed the connection.
  std::optional<JobAnswer> await(Deadline deadline);

 private:
  UniqueFd connection_;
  AnswerReader answers_;
};

}  // namespace dslaunch::launch
