// The messages between the commands `jobs`, `attach` and `stop` and a job's supervisor over its socket (docs/jobs.md).
// One JSON document per line; a "console" line is followed by the number of bytes that it states. Pure.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launch/records/job_record.hpp"

namespace dslaunch::launch {

// ---- client -> supervisor

struct StatusRequest {};
// Requests the console from this position on, and everything that is added to it.
struct AttachRequest {
  uint64_t from = 0;
};
// Stops the job as SIGTERM would; without a grace, the job's own is used. `now`: no grace at all.
struct StopRequest {
  bool now = false;
  std::optional<std::chrono::milliseconds> grace;
};
// Requests the stacks of these ranks; empty: of all ranks of the job.
struct StacksRequest {
  std::vector<int> ranks;
};
// Requests what the ranks are doing now, and the use of their hosts.
struct RankStatusRequest {};
// The supervisor answers it within this time, even if an agent does not.
inline constexpr std::chrono::milliseconds kRankStatusTimeout{3000};
// The supervisor answers a request for stacks within this time, which is longer than an agent's own limit.
inline constexpr std::chrono::milliseconds kStacksTimeout{35000};
using JobRequest = std::variant<StatusRequest, AttachRequest, StopRequest, StacksRequest, RankStatusRequest>;

// A longer line is not a valid request.
inline constexpr size_t kMaxRequest = 4096;

std::string encode_request(const JobRequest& request);
// Empty for anything else.
std::optional<JobRequest> decode_request(std::string_view line);

// ---- supervisor -> client

struct StatusAnswer {
  std::string document;  // JSON: see docs/jobs.md
};
struct StacksAnswer {
  std::string document;  // JSON: see docs/jobs.md
};
struct RankStatusAnswer {
  std::string document;  // JSON: see docs/jobs.md
};
struct ConsolePiece {
  uint64_t at = 0;
  std::string bytes;
};
struct Accepted {};  // the stop request was understood
struct Refused {
  std::string why;
};
// The job has ended completely; the last message.
struct EndAnswer {
  JobEnd end;
};
using JobAnswer =
    std::variant<StatusAnswer, ConsolePiece, Accepted, Refused, EndAnswer, StacksAnswer, RankStatusAnswer>;

std::string encode_answer(const JobAnswer& answer);

// Decodes answers from a stream of bytes. One thread.
class AnswerReader {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next complete answer; empty when more bytes are needed. Throws Error(70) for a malformed one.
  std::optional<JobAnswer> next();

 private:
  std::string buffer_;
};

}  // namespace dslaunch::launch
